"""Several JSON objects in one message: one a line (NDJSON), or as the items of an array."""

from collections.abc import Callable, Sequence

import msgspec

from ingest.decode.formats.json_object import Pairs, array_items, parse_object
from lake.errors import Reason, Rejected

_raw = msgspec.json.Decoder(msgspec.Raw).decode
_raw_items: Callable[[bytes], list[msgspec.Raw]] = msgspec.json.Decoder(list[msgspec.Raw]).decode
_BLANK = b" \t\r\n"


def lines_of(value: bytes, depth_max: int) -> Sequence[bytes] | None:
    """The lines of a message of NDJSON, blank ones left out; None where the message is one document, or
    nothing that starts with whole objects.

    One whole object on a line of its own, not indented, makes a broken message a batch: its other lines are
    then bad members, not the batch.
    """
    lines = [line for line in value.split(b"\n") if line.strip(_BLANK)]
    if len(lines) < 2:
        return None
    if _is_object(lines[0], depth_max):
        return lines
    if _is_object(value, depth_max) or not any(
        _is_object(line, depth_max) for line in lines if line[:1] == b"{"
    ):
        return None
    return lines


def items_of(value: bytes, depth_max: int, *, surely: bool) -> Sequence[bytes] | Rejected | None:
    """The items of a message that is a JSON array, as it spells them. `surely`: the topic holds JSON and
    nothing else.

    Otherwise an array without any object is a line of text (None), and so is what merely starts like an
    array; but `[{"` is JSON, or broken JSON.
    """
    items = _items(value, depth_max)
    if items is None:
        if surely or begins_with_object(value):
            return Rejected(
                Reason.UNDECODABLE, "not JSON: starts as an array of objects, but does not read as one"
            )
        return None
    if not surely and not any(item[:1] == b"{" for item in items):
        return None
    return items or Rejected(Reason.EMPTY, "the message is an empty JSON array")


def _items(value: bytes, depth_max: int) -> list[bytes] | None:
    try:
        return [bytes(item) for item in _raw_items(value)]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    try:  # NaN and the like
        items = array_items(value.decode().strip("\ufeff \t\r\n"), depth_max)
    except UnicodeDecodeError:
        return None
    return None if items is None else [item.encode() for item in items]


def begins_with_object(value: bytes) -> bool:
    """Whether a message begins as an array of objects does."""
    after = value.lstrip(b"\xef\xbb\xbf" + _BLANK)[1:].lstrip(_BLANK)
    return after[:1] == b"{" and after[1:].lstrip(_BLANK)[:1] in (b'"', b"}")


def _is_object(value: bytes, depth_max: int) -> bool:
    """Whether these bytes are one whole JSON object, of whatever content."""
    if value.lstrip(b"\xef\xbb\xbf" + _BLANK)[:1] != b"{":
        return False
    try:
        _raw(value)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        try:
            return isinstance(parse_object(value.decode().strip("\ufeff \t\r\n"), depth_max), Pairs)
        except UnicodeDecodeError:
            return False
    return True
