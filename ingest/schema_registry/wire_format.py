"""Confluent's wire format: a zero byte, the id of the schema in four bytes, the message. What begins so is
neither JSON nor text."""

import struct

_HEAD = struct.Struct(">bI")
HEAD_BYTES = _HEAD.size
_MAGIC = b"\0"


def find_schema_id(message: bytes) -> int | None:
    """The id of a message's schema; None for a message of another form."""
    if message[:1] != _MAGIC or len(message) < HEAD_BYTES:
        return None
    return int(_HEAD.unpack_from(message)[1])
