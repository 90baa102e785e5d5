"""Debezium's own envelope: the row before and after a change, its source, the operation; with the schema part
of Kafka Connect's JSON converter, or without.

A delete is followed by a tombstone. A changed primary key is a delete with the header `__debezium.newkey`, a
tombstone, and an insert with the header `__debezium.oldkey`. Without a schema part nothing tells the scale of
a decimal or the unit of a time: such a row has no types.
"""

from typing import Any

import msgspec

from ingest.changes.change import (
    DEFAULT_OPTIONS,
    NO_CELLS,
    NO_ROW,
    Cells,
    Change,
    Notice,
    Op,
    PassedOver,
    ReadOptions,
    RowImage,
)
from ingest.changes.connect_schema import Opened, RowSchema, open_message
from ingest.changes.envelope import decode_envelope, row_text
from ingest.changes.header_key import HeaderKeys, Headers, find_header_keys
from ingest.changes.message_key import MessageKey, find_key, key_of_row, read_key
from ingest.changes.source_position import find_position, find_time_us
from ingest.changes.unavailable import placeholder
from ingest.changes.untyped_row import read_untyped
from lake.errors import Reason, Rejected

OPS = {
    "c": Op.INSERT,
    "u": Op.UPDATE,
    "d": Op.DELETE,
    "r": Op.SNAPSHOT,
    "t": Op.TRUNCATE,
}
_LOGICAL_MESSAGE = "m"
_ROWS = ("after", "before")


class _Source(msgspec.Struct):
    """What is read of `source`, under the names of `SOURCE_FIELDS`."""

    lsn: Any = None
    file: Any = None
    pos: Any = None
    row: Any = None
    commit_lsn: Any = None
    change_lsn: Any = None
    event_serial_no: Any = None
    scn: Any = None
    ts_us: Any = None
    ts_ns: Any = None
    ts_ms: Any = None

    def get(self, name: str) -> Any:
        """As of the object that it was."""
        return getattr(self, name)


_NO_SOURCE = _Source()


class _Envelope(msgspec.Struct):
    """What is read of an envelope; the rows stay JSON until their types are known."""

    op: str | None = None
    before: msgspec.Raw = msgspec.Raw()
    after: msgspec.Raw = msgspec.Raw()
    source: _Source | None = None
    ts_ms: int | None = None
    # Of messages that are no changes.
    ddl: msgspec.Raw = msgspec.Raw()
    table_changes: msgspec.Raw = msgspec.field(default=msgspec.Raw(), name="tableChanges")
    status: str | None = None


_decoder = msgspec.json.Decoder(_Envelope)


def read_change(
    key: bytes | None, value: bytes | None, headers: Headers = (), options: ReadOptions = DEFAULT_OPTIONS
) -> Change | PassedOver | Rejected:
    """Reads one message; `headers` as Kafka's client gives them.

    A broken change is KEY_MISSING, KEY_UNUSABLE, OP_UNKNOWN, NOT_OF_SCHEMA, UNDECODABLE or TOO_DEEP. A value
    that does not fit its type breaks nothing: it is one of the change's errors.
    """
    if not value:
        return _tombstone(key, headers, options)
    opened = open_message(value, options.depth_max, _ROWS)
    if isinstance(opened, Rejected):
        return opened
    if opened.payload == b"null":
        return _tombstone(key, headers, options)
    envelope = decode_envelope(opened.payload, _decoder, options.depth_max)
    if isinstance(envelope, Rejected):
        return envelope
    op = OPS.get(envelope.op or "")
    if op is None:
        return _no_change(envelope)
    if op is Op.TRUNCATE:
        return _change(op, NO_CELLS, NO_ROW, envelope, HeaderKeys())
    return _row_change(op, key, opened, envelope, headers, options)


def _row_change(
    op: Op,
    message_key: bytes | None,
    opened: Opened,
    envelope: _Envelope,
    headers: Headers,
    options: ReadOptions,
) -> Change | Rejected:
    image = _read_row(envelope.before if op is Op.DELETE else envelope.after, opened, options)
    if image is None and op is not Op.DELETE:
        return Rejected(Reason.NOT_OF_SCHEMA, f"a change with op {envelope.op!r} has no row after it")
    if isinstance(image, Rejected):
        return image
    image = image or NO_ROW
    key = find_key(message_key, image, options)
    if isinstance(key, Rejected):
        return key
    others = find_header_keys(headers, key, options)
    if isinstance(others, Rejected):
        return others
    if op is Op.UPDATE and options.key_fields:
        others = others._replace(old=_moved_from(key, opened, envelope, options))
    return _change(op, key.cells, image, envelope, others)


def _change(
    op: Op,
    key: Cells,
    image: RowImage,
    envelope: _Envelope,
    others: HeaderKeys,
) -> Change:
    source = envelope.source or _NO_SOURCE
    return Change(
        op,
        key,
        image.cells,
        image.unavailable,
        others.old,
        others.new,
        find_position(source),
        find_time_us(source),
        image.errors,
    )


def _read_row(row: msgspec.Raw, opened: Opened, options: ReadOptions) -> RowImage | Rejected | None:
    """A row of the envelope; None where it has none."""
    text = row_text(row)
    if text is None:
        return None
    if opened.schema is None:
        return read_untyped(text, options.depth_max, placeholder(options.placeholder))
    if not isinstance(opened.schema, RowSchema):
        return Rejected(Reason.NOT_OF_SCHEMA, "the schema describes no row")
    return opened.schema.decode(text, placeholder(options.placeholder))


def _no_change(envelope: _Envelope) -> PassedOver | Rejected:
    """What a message is that is no change of a row."""
    if envelope.op == _LOGICAL_MESSAGE:
        return PassedOver(Notice.LOGICAL_MESSAGE)
    if envelope.op is not None:
        return Rejected(Reason.OP_UNKNOWN, f"op {envelope.op[:40]!r} is none of {', '.join(OPS)}")
    if bytes(envelope.ddl) or bytes(envelope.table_changes):
        return PassedOver(Notice.SCHEMA_CHANGE)
    if envelope.status in ("BEGIN", "END"):
        return PassedOver(Notice.TRANSACTION)
    if envelope.ts_ms is not None and not bytes(envelope.before) and not bytes(envelope.after):
        return PassedOver(Notice.HEARTBEAT)
    return Rejected(Reason.OP_UNKNOWN, "the message has no op")


def _tombstone(
    message_key: bytes | None, headers: Headers, options: ReadOptions
) -> Change | PassedOver | Rejected:
    """An empty message: its key was deleted by the message before it."""
    key = find_key(message_key, NO_ROW, options)
    if isinstance(key, Rejected):
        # Fields that the settings name may stand in rows alone.
        is_readable = options.key_fields and isinstance(read_key(message_key, options), MessageKey)
        return PassedOver(Notice.TOMBSTONE) if is_readable else key
    others = find_header_keys(headers, key, options)
    if isinstance(others, Rejected):
        return others
    return Change(Op.DELETE, key.cells, NO_CELLS, new_key=others.new, is_tombstone=True, repeats_delete=True)


def _moved_from(key: MessageKey, opened: Opened, envelope: _Envelope, options: ReadOptions) -> Cells | None:
    """The key that a row had before an update, where the settings name its fields and the source sent them;
    None where it is the same."""
    before = _read_row(envelope.before, opened, options)
    if before is None or isinstance(before, Rejected):
        return None
    old = key_of_row(before, options.key_fields)
    return None if isinstance(old, Rejected) or old.values == key.cells.values else old
