"""JSON under a key, as in a compacted topic: the value is the row, an empty value deletes it. With the schema
part of Kafka Connect's JSON converter, or without.

Nothing tells an insert from an update: both are UPDATE.
"""

from ingest.changes.change import (
    DEFAULT_OPTIONS,
    NO_CELLS,
    NO_ROW,
    Change,
    Op,
    PassedOver,
    ReadOptions,
    RowImage,
)
from ingest.changes.connect_schema import RowSchema
from ingest.changes.header_key import Headers
from ingest.changes.message_key import find_key
from ingest.changes.message_opener import MessageOpener, Opened
from ingest.changes.unavailable import placeholder
from ingest.changes.untyped_row import read_untyped
from lake.errors import Reason, Rejected

_opener = MessageOpener()


def read_change(
    key: bytes | None,
    value: bytes | None,
    headers: Headers = (),  # noqa: ARG001 - all formats are read by the same call
    options: ReadOptions = DEFAULT_OPTIONS,
) -> Change | PassedOver | Rejected:
    """Reads one message; a broken one is rejected as by `debezium.read_change`."""
    if not value:
        return read_tombstone(key, options)
    opened = _opener.open(value, options.depth_max)
    image = opened if isinstance(opened, Rejected) else _read_row(opened, options)
    if isinstance(image, Rejected):
        return image
    found = find_key(key, image, options)
    if isinstance(found, Rejected):
        return found
    return Change(Op.UPDATE, found.cells, image.cells, image.unavailable, errors=image.errors)


def read_tombstone(key: bytes | None, options: ReadOptions) -> Change | Rejected:
    """Reads a message without a value: its key is deleted."""
    found = find_key(key, NO_ROW, options)
    if isinstance(found, Rejected):
        return found
    return Change(Op.DELETE, found.cells, NO_CELLS, is_tombstone=True)


def _read_row(opened: Opened, options: ReadOptions) -> RowImage | Rejected:
    if opened.schema is None:
        return read_untyped(opened.payload, options.depth_max, placeholder(options.placeholder))
    if not isinstance(opened.schema, RowSchema):
        return Rejected(Reason.NOT_OF_SCHEMA, "the schema describes no row")
    return opened.schema.decode(opened.payload, placeholder(options.placeholder))
