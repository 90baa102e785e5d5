"""The JSON of Kafka Connect's converter: a payload, with `schemas.enable` beside its schema.

The schema is several times as long as the payload, and the same bytes for nearly every message of a topic.
So a message is cut in two without parsing it, and what its schema means is looked up by the schema's bytes.
"""

import json
from typing import Any, NamedTuple

import msgspec

from ingest.decode.formats.json_object import BLANK_BYTES, BLANKS, Json, Pairs, json_text, parse_object
from lake.errors import Reason, Rejected

_BEGIN, _MIDDLE, _END = b'{"schema":', b',"payload":', b"}"
_decoder = msgspec.json.Decoder(float_hook=Json)


class ConnectMessage(NamedTuple):
    """The JSON of a payload, and that of its schema; None where the message has none."""

    schema: bytes | None
    payload: bytes


def split(message: bytes) -> ConnectMessage | None:
    """Takes a message with a schema apart as the converter writes it; None where that does not succeed.

    That the schema's bytes are a JSON object, and the payload's are JSON, is for the caller to see: if both
    are, nothing else can have been meant, since no JSON object is the beginning of another one.
    """
    if not message.startswith(_BEGIN) or not message.endswith(_END):
        return None
    at = message.find(b"}" + _MIDDLE, len(_BEGIN))
    if at < 0:
        return None
    return ConnectMessage(message[len(_BEGIN) : at + 1], message[at + 1 + len(_MIDDLE) : -1])


def split_exactly(message: bytes, depth_max: int) -> ConnectMessage | Rejected:
    """Takes apart a message whose members may have any order, blanks between them, or a schema that is
    null. One that is no object of `schema` and `payload` is a payload as a whole."""
    if b'"payload"' not in message or b'"schema"' not in message:
        return ConnectMessage(None, message)
    if message.lstrip(BLANK_BYTES)[:1] != b"{":
        return ConnectMessage(None, message)
    text = as_text(message)
    pairs = parse_object(text, depth_max) if isinstance(text, str) else text
    if isinstance(pairs, Rejected):
        return pairs
    members = dict(pairs)
    if members.keys() != {"schema", "payload"} or len(pairs) != 2 or not _is_schema(members["schema"]):
        return ConnectMessage(None, message)
    schema, payload = members["schema"], json_text(members["payload"]).encode(errors="surrogatepass")
    return ConnectMessage(None if schema is None else json_text(schema).encode(), payload)


def _is_schema(value: Any) -> bool:
    return value is None or (isinstance(value, Pairs) and any(name == "type" for name, _ in value))


def as_text(message: bytes) -> str | Rejected:
    """The text of a message, without what may stand around JSON."""
    try:
        return message.decode().strip(BLANKS)
    except UnicodeDecodeError as error:
        return Rejected(Reason.UNDECODABLE, f"not UTF-8: byte {error.start} is {message[error.start]:#04x}")


def decode_json(text: bytes) -> Any:
    """The value of JSON text: numbers with a fraction or an exponent, NaN and Infinity are `Json`; or a
    `Rejected`."""
    try:
        return _decoder.decode(text)
    except RecursionError:
        return Rejected(Reason.TOO_DEEP, "nested deeper than can be read")
    except (msgspec.DecodeError, ValueError):
        return _decode_exactly(text)


def _decode_exactly(text: bytes) -> Any:
    """Reads what the fast decoder refuses: NaN and Infinity, lone surrogates."""
    decoded = as_text(text)
    if isinstance(decoded, Rejected):
        return decoded
    try:
        return json.loads(decoded, parse_float=Json, parse_constant=Json)
    except RecursionError:
        return Rejected(Reason.TOO_DEEP, "nested deeper than can be read")
    except ValueError as error:
        return Rejected(Reason.UNDECODABLE, f"not JSON: {error}")
