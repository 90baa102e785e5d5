"""Debezium's flattened messages (its transformation ExtractNewRecordState): the value is the row, with what
was asked for of the envelope under names that begin with `__`.

`__op` and `__deleted` say what happened; where neither stands, the row was inserted or updated. The position
and the time are read where they were asked for (`__lsn`, `__source_ts_ms`, ...); they stay columns. A
tombstone may be all that is sent of a delete, so it is one.
"""

from collections.abc import Mapping
from typing import Any

from ingest.changes.change import DEFAULT_OPTIONS, Change, Op, PassedOver, ReadOptions, RowImage
from ingest.changes.connect_message import as_text, decode_json
from ingest.changes.connect_schema import RowSchema
from ingest.changes.debezium import OPS
from ingest.changes.header_key import Headers, find_header_keys
from ingest.changes.keyed_json import read_tombstone
from ingest.changes.message_key import find_key
from ingest.changes.message_opener import MessageOpener, Opened
from ingest.changes.source_position import SOURCE_FIELDS, find_position, find_time_us
from ingest.changes.unavailable import placeholder
from ingest.changes.untyped_row import lay_out_untyped
from ingest.decode.formats.json_object import Pairs, parse_object
from lake.errors import Reason, Rejected

_OP, _DELETED = "__op", "__deleted"
_NO_COLUMNS = (_OP, _DELETED)
_opener = MessageOpener(left_out=_NO_COLUMNS)


def read_change(
    key: bytes | None, value: bytes | None, headers: Headers = (), options: ReadOptions = DEFAULT_OPTIONS
) -> Change | PassedOver | Rejected:
    """Reads one message; a broken one is rejected as by `debezium.read_change`."""
    if not value:
        return read_tombstone(key, options)
    opened = _opener.open(value, options.depth_max)
    read = opened if isinstance(opened, Rejected) else _read_row(opened, options)
    if isinstance(read, Rejected):
        return read
    members, image = read
    op = _find_op(members)
    if isinstance(op, Rejected):
        return op
    found = find_key(key, image, options)
    if isinstance(found, Rejected):
        return found
    others = find_header_keys(headers, found, options)
    if isinstance(others, Rejected):
        return others
    source = _source(members)
    return Change(
        op,
        found.cells,
        image.cells,
        image.unavailable,
        others.old,
        others.new,
        find_position(source),
        find_time_us(source),
        image.errors,
    )


def _read_row(opened: Opened, options: ReadOptions) -> tuple[Mapping[str, Any], RowImage] | Rejected:
    """The members of a value, and the row that they are."""
    marker = placeholder(options.placeholder)
    if opened.schema is None:
        text = as_text(opened.payload)
        pairs = parse_object(text, options.depth_max) if isinstance(text, str) else text
        if isinstance(pairs, Rejected):
            return pairs
        row = Pairs((name, member) for name, member in pairs if name not in _NO_COLUMNS)
        return dict(pairs), lay_out_untyped(row, marker)
    if not isinstance(opened.schema, RowSchema):
        return Rejected(Reason.NOT_OF_SCHEMA, "the schema describes no row")
    members = decode_json(opened.payload)
    image = members if isinstance(members, Rejected) else opened.schema.read(members, marker)
    return image if isinstance(image, Rejected) else (members, image)


def _find_op(members: Mapping[str, Any]) -> Op | Rejected:
    if members.get(_DELETED) in ("true", True):
        return Op.DELETE
    op = members.get(_OP)
    if op is None:
        return Op.UPDATE
    known = OPS.get(op) if isinstance(op, str) else None
    if known is None or known is Op.TRUNCATE:
        return Rejected(Reason.OP_UNKNOWN, f"{_OP} {str(op)[:40]!r} is no operation on a row")
    return known


def _source(members: Mapping[str, Any]) -> dict[str, Any]:
    """What the value has of the envelope's `source`: the transformation puts `__source_` before a field's
    name, or `__` alone."""
    source = {}
    for name in SOURCE_FIELDS:
        value = members.get(f"__source_{name}")
        source[name] = members.get(f"__{name}") if value is None else value
    return source
