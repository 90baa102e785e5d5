"""What one message of a change stream says: a row changed, or nothing that concerns a row."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from msgspec import Struct

from ingest.changes.column_type import ColumnType
from ingest.changes.source_position import SourcePosition
from ingest.changes.unavailable import DEFAULT_PLACEHOLDER
from ingest.decode.column_name import BadValue


class Op(StrEnum):
    """What happened to the row. Formats that do not tell an insert from an update give UPDATE for both."""

    INSERT = "insert"
    UPDATE = "update"
    DELETE = "delete"
    SNAPSHOT = "snapshot"  # the row as it was found, not a change of it
    TRUNCATE = "truncate"  # all rows of the table are gone; there is no key


class Notice(StrEnum):
    """What a message is that changes no row. Such messages are counted and passed over."""

    SCHEMA_CHANGE = "schema_change"  # DDL; the columns of a row come with the row
    TRANSACTION = "transaction"  # begin and end of a transaction
    HEARTBEAT = "heartbeat"
    LOGICAL_MESSAGE = "logical_message"  # pg_logical_emit_message
    SNAPSHOT_MARK = "snapshot_mark"  # a snapshot begins or ends
    TOMBSTONE = "tombstone"  # the delete before it said more of the row's key than the message key does


@dataclass(frozen=True, slots=True)
class PassedOver:
    """A message that changes no row."""

    notice: Notice


# Some of these are made for every message: as structs in a third of a tuple's time.
class Cells(Struct, frozen=True, gc=False):
    """Values by column.

    `values`: column name, folded as in log tables, to its value; None is NULL. `types`: the type of each
    column that the source names a type for: its value is what pyarrow takes for that type. A column without a
    type has the decoded value: str, or `Json` for what is no text. `paths`: the JSON Pointer of each column
    in the source's row.
    """

    values: Mapping[str, Any]
    types: Mapping[str, ColumnType]
    paths: Mapping[str, str]


NO_CELLS = Cells(MappingProxyType({}), MappingProxyType({}), MappingProxyType({}))


class Change(Struct, frozen=True, gc=False):
    """One change of one row, or TRUNCATE of all.

    `key`: the row's key; empty for TRUNCATE alone. `row`: the row after the change; for a DELETE the row
    before it, as far as the source tells (PostgreSQL fills what is no key with defaults unless the replica
    identity is full). `unavailable`: columns that are not in `row` because the source did not send their
    values: they keep what the row has.

    `old_key`: the key that the row had before. With INSERT, the DELETE of that key is a message of its own
    and `old_key` only tells where unavailable values are to be found. With UPDATE it is not: the row of
    `old_key` has to go. `new_key`: for the DELETE of such a pair, the key that the row moved to.

    `position`: orders the changes of a key by their source; None where the message does not say.
    `time_us`: when it happened at the source, microseconds since 1970-01-01T00:00Z; None where the message
    does not say. `errors`: values that did not fit their types, as for `_errors`.

    `is_tombstone`: a DELETE that is an empty message. It has no position and no time. `repeats_delete`: the
    format has sent a DELETE before it. To apply such a tombstone is harmless where changes come in the order
    of offsets, and needed where compaction took the DELETE away; it is no row of a history, and where
    changes are ordered by position it is passed over.
    """

    op: Op
    key: Cells
    row: Cells
    unavailable: frozenset[str] = frozenset()
    old_key: Cells | None = None
    new_key: Cells | None = None
    position: SourcePosition | None = None
    time_us: int | None = None
    errors: tuple[BadValue, ...] = ()
    is_tombstone: bool = False
    repeats_delete: bool = False


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """What a topic's settings say about its change messages.

    `key_fields`: fields of the row that are its key, as the source spells them; none: the message key is the
    key. `placeholder`: what the connector sends for a value that it does not know
    (`unavailable.value.placeholder`). `depth_max`: how deep JSON may be nested.
    """

    key_fields: tuple[str, ...] = ()
    placeholder: str = DEFAULT_PLACEHOLDER
    depth_max: int = 64


DEFAULT_OPTIONS = ReadOptions()


class RowImage(Struct, frozen=True, gc=False):
    """A row while it is read: its cells, what is unavailable, what did not fit."""

    cells: Cells
    unavailable: frozenset[str] = frozenset()
    errors: tuple[BadValue, ...] = ()


NO_ROW = RowImage(NO_CELLS)
