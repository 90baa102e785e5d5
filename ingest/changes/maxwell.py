"""Maxwell's messages: MySQL's rows in JSON, without types (https://maxwells-daemon.io/dataformat/).

`data` is the row after an insert or update, or before a delete; `old` has what an update changed. The key is
an object of `database`, `table` and `pk.<column>`, or an array of database, table and one object for each
column of the primary key (`kafka_key_format`). A changed primary key is one update: `old_key` has to go.
"""

import msgspec

from ingest.changes.change import (
    DEFAULT_OPTIONS,
    NO_CELLS,
    Cells,
    Change,
    Notice,
    Op,
    PassedOver,
    ReadOptions,
)
from ingest.changes.connect_message import as_text
from ingest.changes.envelope import decode_envelope, row_text
from ingest.changes.header_key import Headers
from ingest.changes.message_key import NEVER_UNAVAILABLE, key_of_row
from ingest.changes.source_position import SourcePosition, binlog_position
from ingest.changes.unavailable import placeholder
from ingest.changes.untyped_row import lay_out_untyped
from ingest.decode.formats.json_object import Pairs, array_items, parse_object
from lake.errors import Reason, Rejected

_OPS = {
    "insert": Op.INSERT,
    "update": Op.UPDATE,
    "delete": Op.DELETE,
    "bootstrap-insert": Op.SNAPSHOT,
}
_NOTICES = {
    "bootstrap-start": Notice.SNAPSHOT_MARK,
    "bootstrap-complete": Notice.SNAPSHOT_MARK,
    "table-create": Notice.SCHEMA_CHANGE,
    "table-alter": Notice.SCHEMA_CHANGE,
    "table-drop": Notice.SCHEMA_CHANGE,
    "database-create": Notice.SCHEMA_CHANGE,
    "database-alter": Notice.SCHEMA_CHANGE,
    "database-drop": Notice.SCHEMA_CHANGE,
    "heartbeat": Notice.HEARTBEAT,
}
_KEY_PREFIX = "pk."


class _Message(msgspec.Struct):
    """What is read of a message."""

    type: str | None = None
    ts: int | None = None
    position: str | None = None
    xoffset: int | None = None
    data: msgspec.Raw = msgspec.Raw()
    old: msgspec.Raw = msgspec.Raw()
    primary_key_columns: list[str] | None = None


_decoder = msgspec.json.Decoder(_Message)


def read_change(
    key: bytes | None,
    value: bytes | None,
    headers: Headers = (),  # noqa: ARG001 - all formats are read by the same call
    options: ReadOptions = DEFAULT_OPTIONS,
) -> Change | PassedOver | Rejected:
    """Reads one message; a broken one is rejected as by `debezium.read_change`."""
    if not value:
        return _tombstone(key, options)
    message = decode_envelope(value, _decoder, options.depth_max)
    if isinstance(message, Rejected):
        return message
    if (notice := _NOTICES.get(message.type or "")) is not None:
        return PassedOver(notice)
    if (op := _OPS.get(message.type or "")) is None:
        return Rejected(
            Reason.OP_UNKNOWN, f"type {str(message.type)[:40]!r} is none of {', '.join((*_OPS, *_NOTICES))}"
        )
    return _row_change(op, key, message, options)


def _row_change(
    op: Op, message_key: bytes | None, message: _Message, options: ReadOptions
) -> Change | Rejected:
    row = _members(message.data, options)
    old = _members(message.old, options)
    if isinstance(row, Rejected):
        return row
    if isinstance(old, Rejected):
        return old
    image = lay_out_untyped(row, placeholder(options.placeholder))
    fields = options.key_fields or tuple(message.primary_key_columns or ())
    if not fields:
        columns = _key_columns(message_key, options)
        if isinstance(columns, Rejected):
            return columns
        fields = tuple(name for name, _ in columns)
    key = key_of_row(image, fields)
    if isinstance(key, Rejected):
        return key
    old_key = _moved_from(key, row, old, fields, options) if op is Op.UPDATE else None
    return Change(
        op,
        key,
        image.cells,
        image.unavailable,
        old_key,
        position=_position(message),
        time_us=None if message.ts is None else message.ts * 1_000_000,
        errors=image.errors,
    )


def _members(row: msgspec.Raw, options: ReadOptions) -> Pairs | Rejected:
    """The members of a row; none where the message has no such row."""
    encoded = row_text(row)
    if encoded is None:
        return Pairs()
    text = as_text(encoded)
    return parse_object(text, options.depth_max) if isinstance(text, str) else text


def _moved_from(
    key: Cells, row: Pairs, old: Pairs, fields: tuple[str, ...], options: ReadOptions
) -> Cells | None:
    """The key that a row had before an update; None where it is the same."""
    if not any(name in fields for name, _ in old):
        return None
    before = Pairs((dict(row) | dict(old)).items())
    found = key_of_row(lay_out_untyped(before, placeholder(options.placeholder)), fields)
    return None if isinstance(found, Rejected) or found.values == key.values else found


def _position(message: _Message) -> SourcePosition | None:
    """`master.000006:800911`, and the number of the row in its transaction."""
    file, _, offset = (message.position or "").rpartition(":")
    return binlog_position(file, offset, message.xoffset)


def _tombstone(message_key: bytes | None, options: ReadOptions) -> Change | Rejected:
    columns = _key_columns(message_key, options)
    if isinstance(columns, Rejected):
        return columns
    fields = options.key_fields or tuple(name for name, _ in columns)
    key = key_of_row(lay_out_untyped(columns, NEVER_UNAVAILABLE), fields)
    return key if isinstance(key, Rejected) else Change(Op.DELETE, key, NO_CELLS, is_tombstone=True)


def _key_columns(message_key: bytes | None, options: ReadOptions) -> Pairs | Rejected:
    """The columns of the primary key that a message key names, with their values; KEY_MISSING where there
    are none, KEY_UNUSABLE where it is no key of Maxwell."""
    if not message_key:
        return Rejected(Reason.KEY_MISSING, "the message has no key")
    text = as_text(message_key)
    pairs = _key_members(text, options.depth_max) if isinstance(text, str) else text
    if isinstance(pairs, Rejected):
        return Rejected(Reason.KEY_UNUSABLE, f"the key is not one of Maxwell: {pairs.detail}")
    return pairs or Rejected(Reason.KEY_MISSING, "the table has no primary key")


def _key_members(text: str, depth_max: int) -> Pairs | Rejected:
    if text[:1] == "[":
        return _array_members(text, depth_max)
    pairs = parse_object(text, depth_max)
    if isinstance(pairs, Rejected):
        return pairs
    return Pairs(
        (name.removeprefix(_KEY_PREFIX), value) for name, value in pairs if name.startswith(_KEY_PREFIX)
    )


def _array_members(text: str, depth_max: int) -> Pairs | Rejected:
    """The columns of `["database","table",[{"a":1},{"b":2}]]`."""
    parts = array_items(text, depth_max)
    columns = array_items(parts[2], depth_max) if parts is not None and len(parts) == 3 else None
    if columns is None:
        return Rejected(Reason.UNDECODABLE, "not an array of database, table and columns")
    members = Pairs()
    for column in columns:
        pairs = parse_object(column, depth_max)
        if isinstance(pairs, Rejected):
            return pairs
        members += pairs
    return members
