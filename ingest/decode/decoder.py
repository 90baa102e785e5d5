"""Bytes of a message to its records: JSON objects and lines of text, exactly, or a `Rejected` that says why
not.

This is the exact path: what is not text keeps the characters the record spells it with, duplicate keys are
seen, NaN and Infinity pass as the numbers they claim to be. Most records take the fast path (`shape`), which
gives the same fields or none.
"""

from collections.abc import Sequence

from ingest.decode.formats.json_batch import begins_with_object, items_of, lines_of
from ingest.decode.formats.json_object import Json, Pairs, is_text, json_text, parse_object
from ingest.decode.formats.otlp import ROOTS, read_json
from ingest.decode.formats.otlp_protobuf import read_protobuf
from ingest.decode.formats.rejected_record import RejectedRecord
from ingest.model.source import Form
from lake.errors import Reason, Rejected

__all__ = ["Batch", "Fields", "Json", "Pairs", "decode", "is_text", "json_text", "may_be_batch", "take_apart"]

Fields = Pairs | str  # a JSON object, or a line of text
_EDGE = "\ufeff \t\r\n"
_EDGE_BYTES = _EDGE.encode()
_ROOTS = tuple(root.encode() for root in ROOTS)
# What JSON, a blank, a byte order mark, or OTLP's protobuf can begin with.
_ODD_FIRST = frozenset((b"[", b" ", b"\t", b"\n", b"\r", b"\xef"))
# Where the one key of an OTLP message has to stand, generously.
_ROOT_WITHIN = 256


class Batch(list[bytes | RejectedRecord]):
    """The records that one message carries: JSON objects, or what should have been one, in their order."""

    def __init__(self, title: str, records: Sequence[bytes | RejectedRecord]) -> None:
        super().__init__(records)
        self.title = title


def decode(value: bytes | None, form: Form, depth_max: int) -> Fields | Rejected:
    """Decodes one record: a JSON object gives `Pairs`, a line of text str."""
    if not value:
        return Rejected(Reason.EMPTY, "the message has no value")
    try:
        text = value.decode()
    except UnicodeDecodeError as error:
        return Rejected(Reason.UNDECODABLE, f"not UTF-8: byte {error.start} is {value[error.start]:#04x}")
    if form == "text" or (form == "auto" and text.lstrip(_EDGE)[:1] != "{"):
        line = text.rstrip("\r\n")
        return line if line.strip() else Rejected(Reason.EMPTY, "the message is blank")
    return parse_object(text.strip(_EDGE), depth_max)


def may_be_batch(value: bytes) -> bool:
    """Whether a message that does not begin with a brace may still be anything but a line of text. Quick, and
    True too often rather than too seldom."""
    if value[:1] not in _ODD_FIRST:
        return False
    first = value.lstrip(_EDGE_BYTES)[:1]
    return (
        first == b"{"
        or value[:1] == b"\n"
        or (first == b"[" and (value.rstrip(_EDGE_BYTES)[-1:] == b"]" or begins_with_object(value)))
    )


def take_apart(value: bytes, form: Form, depth_max: int) -> Batch | Rejected | None:
    """The records of a message that carries several; None where it is one record, for `decode`."""
    if form == "otlp_proto":
        found = read_protobuf(value, depth_max, surely=True)
        return found if isinstance(found, Rejected) else Batch("OTLP, protobuf", found or ())
    if form == "text":
        return None
    if (
        form == "auto"
        and value[:1] == b"\n"
        and (found := read_protobuf(value, depth_max, surely=False)) is not None
    ):
        return found if isinstance(found, Rejected) else Batch("OTLP, protobuf", found)
    first = value.lstrip(_EDGE_BYTES)[:1]
    if first == b"{":
        return _of_object(value, depth_max)
    if first == b"[":
        items = items_of(value, depth_max, surely=form == "json")
        return (
            items if items is None or isinstance(items, Rejected) else _flat("JSON array", items, depth_max)
        )
    return None


def _of_object(value: bytes, depth_max: int) -> Batch | Rejected | None:
    if (found := _otlp_json(value, depth_max)) is not None:
        return found if isinstance(found, Rejected) else Batch("OTLP, JSON", found)
    lines = lines_of(value, depth_max) if b"\n" in value else None
    return None if lines is None else _flat("NDJSON", lines, depth_max)


def _otlp_json(value: bytes, depth_max: int) -> Sequence[bytes | RejectedRecord] | Rejected | None:
    head = value[:_ROOT_WITHIN]
    if not any(root in head for root in _ROOTS):
        return None
    try:
        return read_json(value.decode().strip(_EDGE), depth_max)
    except UnicodeDecodeError:
        return None


def _flat(title: str, members: Sequence[bytes], depth_max: int) -> Batch:
    """A batch, with those of its members taken apart that are OTLP messages themselves (the Collector's file
    exporter writes such lines)."""
    found: list[bytes | RejectedRecord] = []
    for member in members:
        inner = _otlp_json(member, depth_max)
        if isinstance(inner, Rejected):
            found.append(RejectedRecord(inner.reason, inner.detail, len(found), member))
        elif inner is None:
            found.append(member)
        else:
            found += [
                RejectedRecord(one.reason, one.detail, len(found) + one.index, one.value)
                if isinstance(one, RejectedRecord)
                else one
                for one in inner
            ]
            title = f"{title} of OTLP" if not title.endswith("OTLP") else title
    return Batch(title, found)
