"""A message as one of Firn's own topics takes it: what is too large for any topic lies in the warehouse, and
headers say where."""

import base64
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
import pyarrow as pa

from ingest.kafka.internal_topic import ENVELOPE_BYTES, MESSAGE_BYTES_MAX
from lake.errors import RefusedError
from lake.storage import AnyStorage, Storage

# Names of headers: the URI of the value; the URI of key and headers.
BODY, ENVELOPE = "firn.body", "firn.envelope"
# Lengths and the like, of each header.
HEADER_BYTES = 10
COMPRESSED = ".zst"
STEP_BYTES = 1024 * 1024
# More of one message is nothing to be shown or sent again by way of memory.
ASIDE_BYTES_MAX = 256 * 1024 * 1024
Headers = Sequence[tuple[str, bytes | None]]


@dataclass(frozen=True, slots=True)
class ClaimCheck:
    """What is left of a message to be sent, and the headers that say where the rest is."""

    value: bytes | None
    key: bytes | None
    headers: Headers
    places: Mapping[str, str]


def check_in(
    storage: AnyStorage, folder: str, value: bytes | None, key: bytes | None, headers: Headers
) -> ClaimCheck:
    """Puts into the warehouse, durably, what does not fit beside Firn's own headers: the value first, then
    key and headers. Raises UnavailableError."""
    places: dict[str, str] = {}
    room = MESSAGE_BYTES_MAX - ENVELOPE_BYTES
    others = len(key or b"") + sum(
        HEADER_BYTES + len(name.encode()) + len(text or b"") for name, text in headers
    )
    if value is not None and len(value) + others > room:
        places[BODY], value = _put_aside(storage, folder, value), None
    if others > room:
        places[ENVELOPE] = _put_aside(
            storage,
            folder,
            orjson.dumps({"key": _text(key), "headers": [[name, _text(text)] for name, text in headers]}),
        )
        key, headers = None, ()
    return ClaimCheck(value, key, headers, places)


def _put_aside(storage: AnyStorage, folder: str, data: bytes) -> str:
    """Compressed: what was small on its way through Kafka is not to take the warehouse's space."""
    uri = f"{folder}/{uuid.uuid4()}{COMPRESSED}"
    with (
        storage.create(uri) as file,
        pa.CompressedOutputStream(pa.PythonFile(file, mode="w"), "zstd") as packed,
    ):
        for at in range(0, len(data), STEP_BYTES):
            packed.write(memoryview(data)[at : at + STEP_BYTES])
    storage.sync([uri])
    return uri


def read_aside(storage: Storage, uri: str, bytes_max: int = ASIDE_BYTES_MAX) -> bytes:
    """What was put aside, as it was. Raises NotFoundError, UnavailableError, RefusedError where it is larger
    than `bytes_max`."""
    found = bytearray()
    with storage.open(uri) as file:
        source: Any = (
            pa.CompressedInputStream(pa.PythonFile(file, mode="r"), "zstd")
            if uri.endswith(COMPRESSED)
            else file
        )
        while part := source.read(STEP_BYTES):
            found += part
            if len(found) > bytes_max:
                raise RefusedError(
                    f"{uri} holds more than {bytes_max} bytes; take it from the "
                    f"warehouse{' and unpack it with zstd' * (source is not file)}"
                )
    return bytes(found)


def open_envelope(data: bytes) -> tuple[bytes | None, Headers]:
    """Key and headers that were put aside."""
    found = orjson.loads(data)
    return _bytes(found["key"]), [(name, _bytes(text)) for name, text in found["headers"]]


def _text(content: bytes | None) -> str | None:
    return None if content is None else base64.b64encode(content).decode()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)
