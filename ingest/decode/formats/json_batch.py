"""Several JSON objects in one message: one a line (NDJSON), or as the items of an array.

Each of them may be an OTLP message itself: the Collector's file exporter writes such lines.
"""

from collections.abc import Callable, Sequence

import msgspec

from ingest.decode.formats.batch_format import Batch, BatchFormat
from ingest.decode.formats.json_object import BLANK_BYTES, BLANKS, Pairs, array_items, parse_object
from ingest.decode.formats.otlp import read_otlp_json
from ingest.decode.formats.rejected_record import RejectedRecord
from lake.errors import Reason, Rejected

_raw = msgspec.json.Decoder(msgspec.Raw).decode
_raw_items: Callable[[bytes], list[msgspec.Raw]] = msgspec.json.Decoder(list[msgspec.Raw]).decode
_LINE_BLANKS = b" \t\r\n"


def _read_lines(value: bytes, depth_max: int, surely: bool) -> Batch | None:  # noqa: ARG001 - every reader gets it
    """The lines of a message of NDJSON, blank ones left out; None where the message is one document, or
    nothing that starts with whole objects.

    One whole object on a line of its own, not indented, makes a broken message a batch: its other lines are
    then bad members, not the batch.
    """
    if b"\n" not in value:
        return None
    lines = [line for line in value.split(b"\n") if line.strip(_LINE_BLANKS)]
    if len(lines) < 2:
        return None
    if not _is_object(lines[0], depth_max):
        if _is_object(value, depth_max):
            return None
        if not any(_is_object(line, depth_max) for line in lines if line[:1] == b"{"):
            return None
    return _batch("NDJSON", lines, depth_max)


def _read_array(value: bytes, depth_max: int, surely: bool) -> Batch | Rejected | None:
    """The items of a message that is a JSON array, as it spells them.

    Unless the topic holds nothing but JSON, an array without any object is a line of text (None), and so is
    what merely starts like an array; but `[{"` is JSON, or broken JSON.
    """
    items = _items(value, depth_max)
    if items is None:
        if surely or _begins_with_object(value):
            return Rejected(
                Reason.UNDECODABLE, "not JSON: starts as an array of objects, but does not read as one"
            )
        return None
    if not surely and not any(item[:1] == b"{" for item in items):
        return None
    if not items:
        return Rejected(Reason.EMPTY, "the message is an empty JSON array")
    return _batch("JSON array", items, depth_max)


def _batch(title: str, members: Sequence[bytes], depth_max: int) -> Batch:
    """A batch, with those of its members taken apart that are OTLP messages themselves."""
    found: list[bytes | RejectedRecord] = []
    for member in members:
        inner = read_otlp_json(member, depth_max)
        if isinstance(inner, Rejected):
            found.append(RejectedRecord(inner.reason, inner.detail, len(found), member))
        elif inner is None:
            found.append(member)
        else:
            found += _numbered_from(len(found), inner)
            title = f"{title} of OTLP" if not title.endswith("OTLP") else title
    return Batch(title, found)


def _numbered_from(first: int, records: Sequence[bytes | RejectedRecord]) -> list[bytes | RejectedRecord]:
    """The records, with the numbers of the bad ones counted in the whole message."""
    return [
        RejectedRecord(one.reason, one.detail, first + one.index, one.value)
        if isinstance(one, RejectedRecord)
        else one
        for one in records
    ]


def _items(value: bytes, depth_max: int) -> list[bytes] | None:
    try:
        return [bytes(item) for item in _raw_items(value)]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    try:  # NaN and the like
        items = array_items(value.decode().strip(BLANKS), depth_max)
    except UnicodeDecodeError:
        return None
    return None if items is None else [item.encode() for item in items]


def _begins_with_object(value: bytes) -> bool:
    """Whether a message begins as an array of objects does."""
    after = value.lstrip(BLANK_BYTES)[1:].lstrip(_LINE_BLANKS)
    return after[:1] == b"{" and after[1:].lstrip(_LINE_BLANKS)[:1] in (b'"', b"}")


def _may_be_array(value: bytes) -> bool:
    """Whether a message that begins with a bracket may be an array of objects, whole or broken."""
    return b"{" in value and (value.rstrip(BLANK_BYTES)[-1:] == b"]" or _begins_with_object(value))


def _is_object(value: bytes, depth_max: int) -> bool:
    """Whether these bytes are one whole JSON object, of whatever content."""
    if value.lstrip(BLANK_BYTES)[:1] != b"{":
        return False
    try:
        _raw(value)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        try:
            return isinstance(parse_object(value.decode().strip(BLANKS), depth_max), Pairs)
        except UnicodeDecodeError:
            return False
    return True


NDJSON = BatchFormat("NDJSON", b"{", _read_lines)
JSON_ARRAY = BatchFormat("JSON array", b"[", _read_array, may_be=_may_be_array)
