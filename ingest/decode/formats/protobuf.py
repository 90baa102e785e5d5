"""Messages of Protocol Buffers, read by a table of their fields: the wire format and nothing more.

Source: https://protobuf.dev/programming-guides/encoding/
"""

import base64
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ingest.decode.formats.json_object import Json

VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5
_VARINT_BYTES_MAX = 10
_FIXED = {FIXED64: 8, FIXED32: 4}


class WireError(ValueError):
    """The bytes are not what the wire format, or the message's definition, says."""


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a message: its name in JSON, its wire type, and how a value is read; `part`, where its
    values are messages themselves."""

    name: str
    wire: int
    read: Callable[[Any], Any] = bytes
    repeated: bool = False
    part: "Message | None" = None


@dataclass(slots=True)
class Message:
    """A message's fields by number. Mutable, because messages may hold themselves."""

    fields: dict[int, Field] = field(default_factory=dict)


def read_message(data: bytes, message: Message, levels: int, *, strict: bool) -> dict[str, Any]:
    """Reads a message as a dict by field name. An unknown field is an error where `strict`, else kept as
    `field_<number>`.

    Raises WireError; RecursionError where it is nested deeper than `levels`.
    """
    if levels <= 0:
        raise RecursionError
    found: dict[str, Any] = {}
    for number, wire, value in _fields(data):
        known = message.fields.get(number)
        if known is None or known.wire != wire:
            if strict or known is not None:
                raise WireError(f"field {number} of wire type {wire} is unknown")
            found.setdefault(f"field_{number}", []).append(
                base64.b64encode(value).decode() if wire == LENGTH else Json(value)
            )
            continue
        read = (
            read_message(value, known.part, levels - 1, strict=strict)
            if known.part is not None
            else known.read(value)
        )
        if known.repeated:
            found.setdefault(known.name, []).append(read)
        else:
            found[known.name] = read
    return found


def _fields(data: bytes) -> Iterator[tuple[int, int, Any]]:
    """The fields of a message in order: number, wire type, and an unsigned integer or bytes."""
    at, end = 0, len(data)
    while at < end:
        key, at = _varint(data, at)
        number, wire = key >> 3, key & 7
        if number == 0:
            raise WireError("field number 0")
        if wire == VARINT:
            value, at = _varint(data, at)
            yield number, wire, value
            continue
        if wire == LENGTH:
            size, at = _varint(data, at)
        elif (size := _FIXED.get(wire, -1)) < 0:
            raise WireError(f"wire type {wire}")
        if at + size > end:
            raise WireError("truncated")
        piece = data[at : at + size]
        at += size
        yield number, wire, piece if wire == LENGTH else int.from_bytes(piece, "little")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for place in range(_VARINT_BYTES_MAX):
        if at >= len(data):
            raise WireError("truncated")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, at
    raise WireError("a varint has more than 10 bytes")


def text(value: bytes) -> str:
    """A string. Raises WireError where it is not UTF-8."""
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise WireError(f"a string is not UTF-8: {error.reason}") from error


def unsigned(value: int) -> Json:
    """uint32, uint64, fixed32, fixed64 and enums."""
    return Json(value)


def signed(value: int) -> Json:
    """int32 and int64: two's complement."""
    return Json(value - (1 << 64) if value >> 63 else value)


def double(value: int) -> Json | str:
    """A double; what JSON has no number for is text."""
    (number,) = struct.unpack("<d", value.to_bytes(8, "little"))
    spelled = repr(number)
    return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}.get(spelled) or Json(spelled)


def base64_text(value: bytes) -> str:
    """Bytes as the JSON mapping has them."""
    return base64.b64encode(value).decode()


def of(fields: Mapping[int, Field]) -> Message:
    """A message of these fields."""
    return Message(dict(fields))
