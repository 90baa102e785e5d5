"""What the worker processes and the main process of a node say to each other.

A worker asks for tables (`OpenTables`) and goes on until `Opened` tells of them; it asks for columns
(`GrowTables`) and waits for the answer; it hands over written flushes (`Submit`) and goes on until `Settled`
says of each what became of it. The main process says which tables are parked, held, released and
forgotten, and which of them a worker is to drain. Everything is picklable and goes through one pipe per
worker, in order.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import Enum
from functools import lru_cache
from typing import Any, NamedTuple, cast, get_args

import orjson

from ingest.model.over_limit import Stretches
from ingest.model.trouble import Trouble
from lake.data_file import DataFile
from lake.errors import FatalError, Rejected
from lake.log_schema import LogSchema, WantedColumn, shared_schema
from lake.marks import Marks, Range, TopicPartition
from lake.pickling import pickled_by_init
from lake.settings import ChangeMode, ChangeOrder
from lake.table_layout import KEY_PROPERTY, MODE_PROPERTY, ORDER_PROPERTY
from lake.tenant import TableId

# So many keys a warning names.
NAMED_MAX = 5
# Of the modes of a topic those whose tables have keys.
KEYED_MODES: tuple[ChangeMode, ...] = ("upsert", "delete_only", "first_wins")


@dataclass(frozen=True, slots=True)
class TableKey:
    """What changes do to the rows of a keyed table. `columns`: its key, by folded names, in order."""

    columns: tuple[str, ...]
    mode: ChangeMode
    order_by: ChangeOrder

    def to_properties(self) -> dict[str, str]:
        """The properties of the table that say so."""
        return {
            KEY_PROPERTY: orjson.dumps(self.columns).decode(),
            MODE_PROPERTY: self.mode,
            ORDER_PROPERTY: self.order_by,
        }


def parse_table_key(properties: Mapping[str, str]) -> TableKey | None:
    """What a table's properties say; None where it has no key. Raises FatalError where they say nothing that
    is understood."""
    if KEY_PROPERTY not in properties:
        return None
    try:
        columns = orjson.loads(properties[KEY_PROPERTY])
    except orjson.JSONDecodeError as error:
        raise FatalError(f"the table property {KEY_PROPERTY} is no JSON array of columns: {error}") from error
    mode, order_by = properties.get(MODE_PROPERTY, "upsert"), properties.get(ORDER_PROPERTY, "offset")
    is_key = isinstance(columns, list) and columns and all(isinstance(name, str) for name in columns)
    if mode not in KEYED_MODES or order_by not in get_args(ChangeOrder) or not is_key:
        raise FatalError(
            f"the table properties {KEY_PROPERTY}, {MODE_PROPERTY} and {ORDER_PROPERTY} are "
            f"{columns!r:.200}, {mode!r:.80} and {order_by!r:.80}; a key is an array of columns, a mode one "
            f"of {', '.join(KEYED_MODES)}, an order one of {', '.join(get_args(ChangeOrder))}"
        )
    return TableKey(tuple(columns), mode, cast("ChangeOrder", order_by))


@dataclass(frozen=True, slots=True)
class KeyedRows:
    """What a flush does to the rows of its table. `steps`: as `ingest.keys.keyed_steps` packs them.

    `partitions`: what the steps count by. `truncated_at`: where the last message was, by partition, that
    emptied the table: all rows that the table has are gone, and those of steps before it. `buckets`: of a
    table that is created now. `changes`: how many there were, by what became of them.
    `in_several`: some of the keys that stand in more than one partition. `has_replayed`: some steps are of
    dead letters, and count from where those were first read.
    """

    key: TableKey
    partitions: tuple[TopicPartition, ...]
    steps: bytes
    truncated_at: Mapping[TopicPartition, int]
    buckets: int
    changes: Mapping[str, int]
    in_several: tuple[str, ...] = ()
    has_replayed: bool = False


@pickled_by_init
@dataclass(frozen=True, slots=True)
class TableView:
    """What a worker has to know of a table to write for it; `schema` is its JSON, so that equal ones share
    one object. `said`: by which its retention is told (`lake.retention_policies`); `over`: its property
    `firn.over-limit`."""

    uuid: str
    location: str
    schema: bytes
    marks: Marks
    key: TableKey | None = None
    buckets: int = 0  # of a keyed table
    is_new: bool = False  # it may still become a keyed one
    said: Mapping[str, str] = field(default_factory=dict)
    over: str = ""

    @property
    def log_schema(self) -> LogSchema:
        return shared_schema(self.schema)


class NewColumn(NamedTuple):
    """A column of a file that its table did not have: the field id that it was promised, and the Iceberg type
    that it was written with, as JSON has it."""

    id: int
    kind: Any


@lru_cache(maxsize=64)
def new_columns(before: LogSchema, after: LogSchema) -> Mapping[str, NewColumn]:
    """Those that a table is to get, by folded name. One object for all tables that grow alike, which a
    message of many of them holds once."""
    names = after.by_name.keys() - before.by_name.keys()
    return {name: NewColumn(after.by_name[name].id, after.by_name[name].kind) for name in names}


@pickled_by_init
@dataclass(frozen=True, slots=True)
class WrittenFlush:
    """A flush whose files are synced and whose dead letters are acknowledged. `new`: columns its files have
    that the table did not; `widened`: columns that they have with a wider type, with that.

    `drain`: the number of the `Drain` that it is of; 0 for records that came straight from the input.
    `is_history`: its rows are changes. `over`: what its tenant's limit leaves no room for
    (`ingest.model.over_limit`). `value_bytes`: of all its messages, whatever became of them.
    """

    table: TableId
    uuid: str
    ranges: Mapping[TopicPartition, Range]
    files: Sequence[DataFile]
    rows: int
    new: Mapping[str, NewColumn]
    drain: int = 0
    widened: Mapping[str, Any] = field(default_factory=dict)
    keyed: KeyedRows | None = None
    is_history: bool = False
    over: Stretches = field(default_factory=dict)
    value_bytes: int = 0

    @property
    def changes_table(self) -> bool:
        """Whether there is anything to commit."""
        return bool(self.rows) or self.keyed is not None or bool(self.over)


class Outcome(Enum):
    """What became of a flush."""

    DONE = "done"  # committed, or found to be committed already
    REDO = "redo"  # the table has changed: write it again for the view that comes with this
    # the table was dropped, and its owner wants dead letters: every record of the flush becomes one
    DEAD_LETTER = "dead_letter"


@dataclass(slots=True)
class Counts:
    """What a worker has counted since its last report."""

    delivered: Counter[str] = field(default_factory=Counter)  # by topic
    dead: Counter[str] = field(default_factory=Counter)  # by reason
    letters_not_stored: Counter[str] = field(default_factory=Counter)  # that are no rows, by reason
    expired: Counter[str] = field(default_factory=Counter)  # by topic
    foreign: Counter[str] = field(
        default_factory=Counter
    )  # messages in Firn's own topics that are not its own, by topic
    unreadable: Counter[str] = field(default_factory=Counter)  # batches stepped over, by topic
    unforeseen: Counter[str] = field(default_factory=Counter)  # errors, by what went on another way
    tenant_records: Counter[str] = field(default_factory=Counter)  # messages looked at, by tenant
    tenant_bytes: Counter[str] = field(default_factory=Counter)
    masked_values: Counter[tuple[str, str, str]] = field(default_factory=Counter)  # topic, rule, action
    masked_messages: Counter[str] = field(default_factory=Counter)  # by topic
    withheld: Counter[str] = field(default_factory=Counter)  # values that could not be masked, by topic
    early: Counter[str] = field(default_factory=Counter)  # tables flushed for their bytes alone, by why
    parked: int = 0
    committed: int = 0
    rows_with_errors: int = 0

    def add(self, other: "Counts") -> None:
        """Counts all that the other did."""
        for each in fields(self):
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))


# ---- worker -> committer


@dataclass(frozen=True, slots=True)
class Begun:
    """Where the ingestion of partitions began that the worker has taken up, of those of which that is known
    and is not 0. Said before it reads them."""

    firsts: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class OpenTables:
    """Tables met for the first time; `Opened` tells of each when it is known."""

    tables: Sequence[TableId]


@dataclass(frozen=True, slots=True)
class GrowTables:
    """Columns that tables lack, or have with narrower types. Answered by `Grown`."""

    names: Mapping[TableId, Mapping[str, WantedColumn]]


@dataclass(frozen=True, slots=True)
class Submit:
    """Flushes to commit."""

    flushes: Sequence[WrittenFlush]


@dataclass(frozen=True, slots=True)
class Stuck:
    """A flush that could not be written; the worker tries again until it works or the table is parked."""

    table: TableId
    trouble: Trouble


@dataclass(frozen=True, slots=True)
class Held:
    """All that the worker ever parked of the table is acknowledged; what comes now waits in its buffer.
    `number`: of the `Hold`."""

    table: TableId
    number: int


@dataclass(frozen=True, slots=True)
class Drained:
    """Everything that was parked of the table when `Drain` came is in it; or, with `trouble`, is not.
    `number`: of the `Drain`.

    `reached`: offset of the parking topic below which all of it is in the table.
    """

    table: TableId
    number: int
    reached: int = 0
    trouble: Trouble | None = None


@dataclass(frozen=True, slots=True)
class Durable:
    """Group offsets could be stored: all they stand on is acknowledged. Answered by `Confirmed` with the same
    number."""

    number: int


@dataclass(frozen=True, slots=True)
class Partition:
    """How far a worker is with one topic-partition: offsets routed, stored in the group, and at its end."""

    topic: str
    partition: int
    routed: int
    stored: int | None
    end: int


@dataclass(frozen=True, slots=True)
class Report:
    """A worker's state, once a second."""

    partitions: Sequence[Partition]
    buffered_bytes: int
    in_flight_bytes: int
    buffered_tables: int
    counts: Counts


@dataclass(frozen=True, slots=True)
class Failed:
    """The worker ends because of this; the sentence is for a person."""

    sentence: str
    fatal: bool


# ---- committer -> worker


@dataclass(frozen=True, slots=True)
class Opened:
    """Views of tables that were asked for. `postponed`: new ones that may not be created yet; `refused`: new
    ones that are not to be, and why."""

    views: Mapping[TableId, TableView]
    postponed: Sequence[TableId] = ()
    refused: Mapping[TableId, Rejected] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Grown:
    """Schemas (JSON) that have the columns asked for."""

    schemas: Mapping[TableId, bytes]


@dataclass(frozen=True, slots=True)
class Settled:
    """What became of flushes, each with the table's view now."""

    outcomes: Sequence[tuple[TableId, Outcome, TableView]]


@dataclass(frozen=True, slots=True)
class Park:
    """From here on the tables' records go to the parking topic, those buffered or in flight first. Table ->
    id of its parking."""

    parkings: Mapping[TableId, str]


@dataclass(frozen=True, slots=True)
class Hold:
    """Have everything of the table acknowledged that was parked, and let what comes wait. Answered by `Held`
    with the same number."""

    table: TableId
    number: int


@dataclass(frozen=True, slots=True)
class Release:
    """The tables take rows again; what waited is theirs."""

    views: Mapping[TableId, TableView]


@dataclass(frozen=True, slots=True)
class Forget:
    """The tables are gone with their files. What comes under their names is for new ones, which are asked
    for."""

    tables: Sequence[TableId]


@dataclass(frozen=True, slots=True)
class Drain:
    """Write what is parked of a table, up to what the topics hold now. Answered by `Drained` with the same
    number.

    `start`: offset of the parking topic from where on its messages lie. `reread`: what its marks lack and was
    not parked is read from the input topics.
    """

    table: TableId
    number: int
    view: TableView
    parking: str
    topic_id: str
    start: int
    reread: bool


@dataclass(frozen=True, slots=True)
class StopDraining:
    """The table is not to be drained any further for now."""

    table: TableId


@dataclass(frozen=True, slots=True)
class Confirmed:
    """This node held its lease after the `Durable` of this number was said. `checkpoint`: the newest commit
    (checkpoint.py)."""

    number: int
    checkpoint: str


@dataclass(frozen=True, slots=True)
class Budget:
    """How many bytes of raw records the worker may hold from now on."""

    size_bytes: int


@dataclass(frozen=True, slots=True)
class Stop:
    """Flush everything and leave."""


FromWorker = Begun | OpenTables | GrowTables | Submit | Stuck | Held | Drained | Durable | Report | Failed
ToWorker = (
    Opened
    | Grown
    | Settled
    | Park
    | Hold
    | Release
    | Forget
    | Drain
    | StopDraining
    | Confirmed
    | Budget
    | Stop
)
