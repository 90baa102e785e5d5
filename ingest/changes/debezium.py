"""Debezium's own envelope: the row before and after a change, its source, the operation; with the schema part
of Kafka Connect's JSON converter, or without.

A delete is followed by a tombstone. A changed primary key is a delete with the header `__debezium.newkey`, a
tombstone, and an insert with the header `__debezium.oldkey`. Without a schema part nothing tells the scale of
a decimal or the unit of a time: such a row has no types.
"""

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
from ingest.changes.connect_schema import RowSchema
from ingest.changes.debezium_envelope import Envelope, Source, raw_row, read_envelope
from ingest.changes.envelope import row_text
from ingest.changes.header_key import NO_KEYS, HeaderKeys, Headers, find_header_keys
from ingest.changes.message_key import MessageKey, find_key, key_of_row, read_key
from ingest.changes.message_opener import MessageOpener, Opened
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
_opener = MessageOpener(members=("after", "before"))
_NO_SOURCE = Source()


def read_change(
    key: bytes | None, value: bytes | None, headers: Headers = (), options: ReadOptions = DEFAULT_OPTIONS
) -> Change | PassedOver | Rejected:
    """Reads one message; `headers` as Kafka's client gives them.

    A broken change is KEY_MISSING, KEY_UNUSABLE, OP_UNKNOWN, NOT_OF_SCHEMA, UNDECODABLE or TOO_DEEP. A value
    that does not fit its type breaks nothing: it is one of the change's errors.
    """
    if not value:
        return _tombstone(key, headers, options)
    opened = _opener.open(value, options.depth_max)
    if isinstance(opened, Rejected):
        return opened
    if opened.payload == b"null":
        return _tombstone(key, headers, options)
    envelope = read_envelope(opened, options.depth_max)
    if isinstance(envelope, Rejected):
        return envelope
    op = OPS.get(envelope.op or "")
    if op is None:
        return _no_change(envelope)
    if op is Op.TRUNCATE:
        return _change(op, NO_CELLS, NO_ROW, envelope, NO_KEYS)
    return _row_change(op, key, opened, envelope, headers, options)


def _row_change(
    op: Op,
    message_key: bytes | None,
    opened: Opened,
    envelope: Envelope,
    headers: Headers,
    options: ReadOptions,
) -> Change | Rejected:
    image = _read_row(envelope, "before" if op is Op.DELETE else "after", opened, options)
    if image is None and op is not Op.DELETE:
        return Rejected(Reason.NOT_OF_SCHEMA, f"a change with op {envelope.op!r} has no row after it")
    if isinstance(image, Rejected):
        return image
    image = image or NO_ROW
    key = find_key(message_key, image, options)
    if isinstance(key, Rejected):
        return key
    others = find_header_keys(headers, key, options) if headers else NO_KEYS
    if isinstance(others, Rejected):
        return others
    if op is Op.UPDATE and options.key_fields:
        others = others._replace(old=_moved_from(key, opened, envelope, options))
    return _change(op, key.cells, image, envelope, others)


def _change(
    op: Op,
    key: Cells,
    image: RowImage,
    envelope: Envelope,
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


def _read_row(
    envelope: Envelope, member: str, opened: Opened, options: ReadOptions
) -> RowImage | Rejected | None:
    """A row of the envelope; None where it has none."""
    row, marker = getattr(envelope, member), placeholder(options.placeholder)
    if row is None:
        return None
    if not isinstance(row, msgspec.Raw) and isinstance(opened.schema, RowSchema):
        schema = opened.schema
        return schema.image(row, marker) or schema.decode_by_value(raw_row(opened, member), marker)
    text = row_text(row)
    if text is None:
        return None
    if opened.schema is None:
        return read_untyped(text, options.depth_max, marker)
    if not isinstance(opened.schema, RowSchema):
        return Rejected(Reason.NOT_OF_SCHEMA, "the schema describes no row")
    return opened.schema.decode(text, marker)


def _no_change(envelope: Envelope) -> PassedOver | Rejected:
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


def _moved_from(key: MessageKey, opened: Opened, envelope: Envelope, options: ReadOptions) -> Cells | None:
    """The key that a row had before an update, where the settings name its fields and the source sent them;
    None where it is the same."""
    before = _read_row(envelope, "before", opened, options)
    if before is None or isinstance(before, Rejected):
        return None
    old = key_of_row(before, options.key_fields)
    return None if isinstance(old, Rejected) or old.values == key.cells.values else old
