"""Maxwell's messages: MySQL's rows in JSON, without types (https://maxwells-daemon.io/dataformat/).

`data` is the row after an insert or update, or before a delete; `old` has what an update changed. The key is an
object of `database`, `table` and `pk.<column>`. A changed primary key is one update: `old_key` has to go.
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
from ingest.decode.formats.json_object import Pairs, parse_object
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
    key = key_of_row(image, fields) if fields else _read_key(message_key, options)
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
    text = row_text(row)
    return Pairs() if text is None else parse_object(text.decode(), options.depth_max)


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
    key = _read_key(message_key, options)
    return key if isinstance(key, Rejected) else Change(Op.DELETE, key, NO_CELLS, is_tombstone=True)


def _read_key(message_key: bytes | None, options: ReadOptions) -> Cells | Rejected:
    """The key of a message: the members of its key whose names begin with `pk.`."""
    text = as_text(message_key or b"")
    pairs = parse_object(text, options.depth_max) if isinstance(text, str) else text
    if isinstance(pairs, Rejected):
        return Rejected(Reason.KEY_MISSING, f"the message has no key of Maxwell: {pairs.detail}")
    columns = Pairs(
        (name.removeprefix(_KEY_PREFIX), value) for name, value in pairs if name.startswith(_KEY_PREFIX)
    )
    fields = options.key_fields or tuple(name for name, _ in columns)
    if not fields:
        return Rejected(Reason.KEY_MISSING, "the table has no primary key")
    return key_of_row(lay_out_untyped(columns, NEVER_UNAVAILABLE), fields)
