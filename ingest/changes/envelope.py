"""The object around a row, read by a struct: members that are rows stay JSON until their types are known."""

from typing import Any, TypeVar

import msgspec

from ingest.changes.connect_message import as_text, decode_json
from ingest.decode.formats.json_object import json_text, parse_object
from lake.errors import Reason, Rejected

Envelope = TypeVar("Envelope", bound=msgspec.Struct)

_NOTHING = (b"", b"null")


def decode_envelope(
    text: bytes, decoder: "msgspec.json.Decoder[Envelope]", depth_max: int
) -> Envelope | Rejected:
    """Decodes a JSON object to the struct of a decoder. NOT_OF_SCHEMA where a member is of another type."""
    try:
        return decoder.decode(text)
    except msgspec.ValidationError as error:
        return Rejected(Reason.NOT_OF_SCHEMA, f"not a message of this format: {error}")
    except (msgspec.DecodeError, RecursionError, ValueError):
        return _decode_exactly(text, decoder.type, depth_max)


def _decode_exactly(text: bytes, kind: type[Envelope], depth_max: int) -> Envelope | Rejected:
    """Reads what the fast decoder refuses: NaN and Infinity, lone surrogates."""
    decoded = as_text(text)
    pairs = parse_object(decoded, depth_max) if isinstance(decoded, str) else decoded
    if isinstance(pairs, Rejected):
        return pairs
    raw = {field.encode_name for field in msgspec.structs.fields(kind) if field.type is msgspec.Raw}
    members: dict[str, Any] = {}
    for name, member in pairs:
        json = json_text(member).encode()
        members[name] = msgspec.Raw(json) if name in raw else decode_json(json)
    try:
        return msgspec.convert(members, kind)
    except (msgspec.ValidationError, UnicodeEncodeError) as error:  # a lone surrogate where no text may be
        return Rejected(Reason.NOT_OF_SCHEMA, f"not a message of this format: {error}")


def row_text(row: msgspec.Raw) -> bytes | None:
    """The JSON of a row; None where the message has none."""
    text = bytes(row)
    return None if text in _NOTHING else text
