"""What lasts while nodes come and go: the input, the catalog, the topics, the group's offsets, and messages
on their way.

Everything here is as the real services behave; what a node does is in `protocol_node.py`. A message in the
air may arrive late, twice, never, or without its answer being heard.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, NamedTuple

from ingest.commit.table_lifecycle import AGAIN_AFTER_S
from ingest.model.parked_record import ParkedRecord
from ingest.model.trouble import Cause
from lake.catalog_client import TableName
from lake.commit import TableState, new_table_state
from lake.marks import Marks as ProductMarks
from lake.marks import TopicPartition
from lake.tenant import TableId, TenantId

if TYPE_CHECKING:
    from tests.faults.model.protocol_node import Node

Marks = dict[int, int]  # partition -> the next offset that is not committed


PLACES = [TopicPartition("input", partition) for partition in range(3)]
EMPTY = new_table_state(TableName("t", "logs"), "t", "logs", "file:///warehouse")


def table_id(name: str) -> TableId:
    """A table of the model as the product names it."""
    return TableId(TenantId(name), "logs")


def product_marks(marks: Marks) -> ProductMarks:
    """Marks as the product has them."""
    return ProductMarks({PLACES[partition]: offset for partition, offset in marks.items()})


class Violation(Exception):
    """Something was lost or doubled; the message names it."""


@dataclass(frozen=True)
class Rules:
    """The protocol as built, one flag per rule; False leaves the rule out, which some run has to notice."""

    compare_with_marks: bool = True  # a flush is compared with the table's marks before every attempt
    reload_after_conflict: bool = True  # what somebody else changed is loaded before it is compared again
    assert_head: bool = True  # a commit lands only on the head it was prepared for
    find_out_unknown: bool = True  # an unknown outcome is neither success nor failure
    redo_what_is_ahead: bool = True  # rows below the marks leave a flush
    skip_below_marks: bool = True  # rows below the marks of a table just met are left out
    name_only_what_is_new: bool = True  # a flush names no partition that the table has committed up to there
    end_is_routed: bool = True  # a flush ends behind the last routed record, not where the consumer is
    one_flush_in_flight: bool = True  # per table and worker
    dead_letters_first: bool = True  # acknowledged before their flush is handed over
    offsets_wait_for_buffers: bool = True
    offsets_wait_for_flights: bool = True
    offsets_wait_for_acknowledgements: bool = True
    offsets_wait_for_the_lease: bool = True  # held once more after all they stand on was acknowledged
    marks_in_the_commit: bool = True  # not in a change of their own
    record_before_parking: bool = True  # nothing is parked before the parked record is durable
    parked_at_start: bool = True  # a node reads the parked records before it routes anything
    unfinished_first: bool = True  # what is in flight and buffered is parked before live records
    parking_has_an_id: bool = True  # a drain takes only messages of its own parking
    drained_in_order: bool = True  # what was taken is not taken again, and nothing below it later
    refuse_live_while_parked: bool = True  # a flush cut before the table was parked is not committed
    everybody_holds: bool = True  # all workers have told that what they parked is acknowledged
    hold_after_acknowledgement: bool = True
    held_records_wait: bool = True  # they are not parked while the rest is drained
    drain_after_the_hold: bool = True  # once more, up to what the topic holds then
    finish_behind_what_was_read: bool = (
        True  # from where the drain before it has read, not from where the topic ended when it was done
    )
    release_when_known: bool = True  # not before the catalog has said that the record is gone
    numbered_orders: bool = True  # an answer to an order that was given up does not count
    record_under_lease: bool = True  # the parked record changes only under the newest token
    record_by_version: bool = True  # and over the version last read
    record_once: bool = True  # a repeated change has the same key, and happens once
    take_up_before_known: bool = (
        True  # a parked record that somebody has changed since comes first: a person may have rows read again
    )
    known_under_the_lease: bool = True  # what was loaded counts once the lease was in force after it
    compare_head: bool = True  # marks beyond those of the head's summary mean that it was moved back
    marks_never_go_back: bool = True  # marks before those last known, too
    forget_what_was: bool = True  # but not once a person has decided
    maintenance_repeats_head: bool = True  # a snapshot without rows says of the marks what its parent said
    keep_rolled_back: bool = True  # a table that was moved back waits for a person
    reread_from_input: bool = True  # what was taken away is read from the input topic
    resolve_in_a_commit: bool = True  # on the head that was read, and with a new one
    notice_vanished: bool = True  # a table that is gone without having been dropped went back, too
    ask_checkpoint: bool = True  # a catalog that went back is noticed at the next start
    keep_newer_checkpoint: bool = (
        True  # a node goes on from the checkpoints it finds: what it meets itself may be older
    )


RULES = tuple(rule.name for rule in fields(Rules))


class Record(NamedTuple):
    partition: int
    offset: int
    table: str | None  # None: cannot be routed
    bad: bool  # can be routed, cannot be converted

    def __str__(self) -> str:
        return f"{self.partition}@{self.offset}"


@dataclass(frozen=True)
class Snapshot:
    id: int
    parent: int | None
    rows: tuple[Record, ...]
    marks: Marks | None  # None: made by an engine that does not repeat them
    made: int  # when


@dataclass
class Table:
    uuid: str
    head: int | None = None
    marks: Marks = field(default_factory=dict)
    snapshots: dict[int, Snapshot] = field(default_factory=dict)
    expired: set[int] = field(default_factory=set)
    dropped: bool = False

    @property
    def rows(self) -> tuple[Record, ...]:
        return self.snapshots[self.head].rows if self.head is not None else ()

    def head_marks(self) -> Marks | None:
        """Those of the head or its nearest kept ancestor with marks; None where nobody can tell."""
        at = self.head
        while at is not None:
            snapshot = self.snapshots.get(at)
            if snapshot is None:
                return None
            if snapshot.marks is not None:
                return snapshot.marks
            at = snapshot.parent
        return {}

    def state(self) -> TableState:
        """What the product loads of it."""
        head_marks = self.head_marks()
        return replace(
            EMPTY,
            uuid=self.uuid,
            exists=True,
            head=self.head,
            marks=product_marks(self.marks),
            head_marks=None if head_marks is None else product_marks(head_marks),
            head_ms=self.snapshots[self.head].made if self.head is not None else 0,
        )

    def add(self, snapshot: int, rows: tuple[Record, ...], marks: Marks | None, made: int) -> None:
        self.snapshots[snapshot] = Snapshot(snapshot, self.head, rows, marks, made)
        self.head = snapshot


class Commit(NamedTuple):
    """Refused unless uuid and head are the asserted ones, or, where it creates the table, unless there is
    none."""

    table: str
    uuid: str
    exists: bool
    head: int | None
    snapshot: int
    rows: tuple[Record, ...]
    marks: tuple[tuple[int, int], ...]

    def __str__(self) -> str:
        return (
            f"commit #{self.snapshot} of {self.table} on #{self.head} [{' '.join(map(str, self.rows))}] "
            f"marks {dict(self.marks)}"
        )


class ParkedWrite(NamedTuple):
    """`record` None takes it away. `version` is the one last read."""

    table: str
    record: ParkedRecord | None
    version: int
    token: int
    key: str

    def __str__(self) -> str:
        return f"parked record of {self.table} := {self.record.cause.value if self.record else None}"


class CommitCheckpoint(NamedTuple):
    made: int  # the order of commits
    table: str
    snapshot: int


class GroupWrite(NamedTuple):
    partition: int
    offset: int
    checkpoint: CommitCheckpoint | None

    def __str__(self) -> str:
        return f"group offset of partition {self.partition} := {self.offset}"


@dataclass(eq=False)
class Message:
    body: Commit | ParkedWrite | GroupWrite
    sender: Node


@dataclass
class World:
    """`own`: the catalog is Firn's, which parks what is moved back; a foreign one does not."""

    rules: Rules
    log: list[list[Record]]
    workers: int
    own: bool
    faults_allowed: bool = True
    tables: dict[str, Table] = field(default_factory=dict)
    parked: dict[str, ParkedRecord] = field(default_factory=dict)
    replies: dict[str, tuple[str, int]] = field(default_factory=dict)
    token: int = 0
    failing: set[str] = field(default_factory=set)
    dead: list[Record] = field(default_factory=list)
    parking: list[tuple[str, Record]] = field(default_factory=list)  # id of the parking, record
    group: dict[int, GroupWrite] = field(default_factory=dict)
    air: list[Message] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)  # the last one holds the lease, others are paused
    backup: tuple[dict[str, Table], dict[str, ParkedRecord], int, int] | None = (
        None  # the catalog, how many parkings had ended, the newest token
    )
    deciding: dict[str, tuple[int, int | None, Marks]] = field(
        default_factory=dict
    )  # a person has read: version, head, marks to set
    hidden: set[str] = field(
        default_factory=set
    )  # tables that went back under a lease that stayed in force, and nobody has noticed yet
    setbacks: int = 0
    parkings_ended: int = 0
    ids: int = 0
    now_s: float = 0.0
    seen: Counter[str] = field(default_factory=Counter)

    def next_id(self) -> int:
        self.ids += 1
        return self.ids

    def moment_s(self) -> float:
        """A moment later than all before, by more than a node waits with what it tries again."""
        self.now_s += 2 * AGAIN_AFTER_S
        return self.now_s

    def names(self) -> list[str]:
        return sorted({record.table for part in self.log for record in part if record.table})

    def end(self, partition: int) -> int:
        return len(self.log[partition])


# ---- the catalog


def commit(w: World, c: Commit) -> str:
    """ok, conflict, deleted or failed. Head, rows and marks change together or not at all."""
    table = w.tables.get(c.table)
    if c.table in w.failing:
        return "failed"
    if table is not None and table.dropped:
        return "deleted"
    if table is None and not c.exists:
        table = w.tables[c.table] = Table(c.uuid)
    elif (
        table is None
        or not c.exists
        or table.uuid != c.uuid
        or c.snapshot in table.snapshots
        or (w.rules.assert_head and table.head != c.head)
    ):
        return "conflict"
    if w.rules.marks_in_the_commit:
        table.marks = dict(c.marks)
    table.add(c.snapshot, table.rows + c.rows, dict(c.marks), w.next_id())
    return "ok"


def park(w: World, p: ParkedWrite) -> tuple[str, int]:
    """ok with the new version, changed (by somebody else), or stale (an older token)."""
    if w.rules.record_once and p.key in w.replies:
        return w.replies[p.key]
    found = w.parked.get(p.table)
    version = found.version if found else 0
    if w.rules.record_under_lease and p.token != w.token:
        reply = "stale", 0
    elif w.rules.record_by_version and version != p.version:
        reply = "changed", 0
    elif p.record is None:
        w.parked.pop(p.table, None)
        w.parkings_ended += 1
        reply = "ok", 0
    else:
        w.parked[p.table] = replace(p.record, version=version + 1)
        reply = "ok", version + 1
        if p.record.cause is Cause.ROLLED_BACK:
            w.hidden.discard(p.table)
    w.replies[p.key] = reply
    return reply


def roll_back(w: World, name: str) -> None:
    """Somebody sets the table to its head's parent; property marks stay. Firn's catalog writes the parked
    record in the same transaction."""
    table = w.tables[name]
    assert table.head is not None
    table.head = table.snapshots[table.head].parent
    if w.own and table.marks:
        found = w.parked.get(name, ParkedRecord(table_id(name), Cause.ROLLED_BACK))
        w.parked[name] = replace(found, version=found.version + 1, cause=Cause.ROLLED_BACK)


# ---- what has to hold


def check_rows(w: World) -> None:
    """After every step: no row is there twice, none is where it does not belong."""
    for name, table in w.tables.items():
        doubled = [str(record) for record, count in Counter(table.rows).items() if count > 1]
        if doubled:
            raise Violation(f"doubled in {name}: {' '.join(doubled)}")
        if any(record.table != name or record.bad for record in table.rows):
            raise Violation(f"{name} holds what does not belong there")


def check_end(w: World) -> None:
    """All healed and drained: every record is in its table, or a dead letter."""
    check_rows(w)
    for record in (record for part in w.log for record in part):
        wanted_row = record.table is not None and not record.bad
        has_row = (
            record.table in w.tables and record in w.tables[record.table].rows if record.table else False
        )
        if wanted_row != has_row or (not wanted_row and record not in w.dead):
            raise Violation(f"lost: {record} of {record.table}")
