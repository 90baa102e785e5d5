"""What lasts while nodes come and go: the input, the catalog, the topics, the group's offsets, and messages
on their way.

Everything here is as the real services behave; what a node does is in `protocol_node.py`. A message in the
air may arrive late, twice, never, or without its answer being heard.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from ingest.commit.table_parking import AGAIN_AFTER_S
from ingest.model.link import TableKey
from ingest.model.parked_record import ParkedRecord
from ingest.model.trouble import Cause
from tests.faults.model.protocol_rules import Rules, Violation
from tests.faults.model.protocol_table import Delta, Files, Marks, Record, Rows, Table, table_id

Pick = Callable[[int], int]
SELDOM = 4  # what happens every few seconds, or after some, is so much rarer than what happens at once

if TYPE_CHECKING:
    from tests.faults.model.protocol_node import Node


class Commit(NamedTuple):
    """Refused unless uuid and head are the asserted ones and the sequence number is a new one, or, where it
    creates the table, unless there is none."""

    table: str
    uuid: str
    exists: bool
    head: int | None
    sequence: int
    snapshot: int
    rows: Rows
    marks: tuple[tuple[int, int], ...]
    delta: Delta | None = None  # of a keyed table

    def __str__(self) -> str:
        what = " ".join(map(str, self.rows)) if self.delta is None else self.delta
        return f"commit #{self.snapshot} of {self.table} on #{self.head} [{what}] marks {dict(self.marks)}"


class MergeCommit(NamedTuple):
    """Replaces files of a keyed table by one with the same rows. Refused as a `Commit` is."""

    table: str
    uuid: str
    head: int | None
    sequence: int
    snapshot: int
    delta: Delta

    def __str__(self) -> str:
        return f"merge #{self.snapshot} of {self.table} on #{self.head} [{self.delta}]"


@dataclass(eq=False)
class Merge:
    """A merge of a keyed table that somebody has begun: what it has read, and the file that it has written.
    `reads`: the deletes of its inputs then. `sent`: it is on its way to the catalog."""

    table: str
    uuid: str
    inputs: tuple[int, ...]
    reads: Files
    output: int
    places: dict[tuple[int, int], int]  # where a row was -> its position in the output
    rows: Rows
    sent: bool = False


class ParkedWrite(NamedTuple):
    """`record` None takes it away. `version` is the one last read."""

    table: str
    record: ParkedRecord | None
    version: int
    token: int
    key: str
    share: int = 0  # whose lease it comes under

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


Body = Commit | ParkedWrite | GroupWrite | MergeCommit


@dataclass(eq=False)
class Message:
    body: Body
    sender: Node | Merge


@dataclass
class World:
    """`own`: the catalog is Firn's, which parks what is moved back; a foreign one does not. `keyed`: the
    tables that have a key. `part`: so many records of a flush become rows at a time. `vectors`: rows are
    deleted by deletion vectors, one for each file. `stored`: the files of snapshots, as long as storage has
    them. `shares`: parts of the input that nodes may hold apart; `held`: the newest token of each."""

    rules: Rules
    log: list[list[Record]]
    workers: int
    own: bool
    keyed: dict[str, TableKey] = field(default_factory=dict)
    part: int = 100
    vectors: bool = False
    faults_allowed: bool = True
    tables: dict[str, Table] = field(default_factory=dict)
    parked: dict[str, ParkedRecord] = field(default_factory=dict)
    replies: dict[str, tuple[str, int]] = field(default_factory=dict)
    token: int = 0
    shares: int = 1
    held: dict[int, int] = field(default_factory=dict)
    failing: set[str] = field(default_factory=set)
    dead: list[Record] = field(default_factory=list)
    parking: list[tuple[str, Record]] = field(default_factory=list)  # id of the parking, record
    group: dict[int, GroupWrite] = field(default_factory=dict)
    air: list[Message] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)  # those that hold no lease any more are paused
    backup: tuple[dict[str, Table], dict[str, ParkedRecord], int, int] | None = (
        None  # the catalog, how many parkings had ended, the newest token
    )
    deciding: dict[str, tuple[int, int | None, Marks]] = field(
        default_factory=dict
    )  # a person has read: version, head, marks to set
    hidden: set[str] = field(
        default_factory=set
    )  # tables that went back under a lease that stayed in force, and nobody has noticed yet
    merges: list[Merge] = field(default_factory=list)
    stored: dict[int, Files] = field(default_factory=dict)
    discarded: set[int] = field(default_factory=set)  # snapshots whose files were deleted
    checked: dict[str, tuple[str, int | None]] = field(default_factory=dict)
    reread_all: set[str] = field(default_factory=set)  # nobody knew how far their rows go
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

    def discard(self, table: str, snapshot: int) -> None:
        """Deletes the metadata files of an attempt. Raises Violation where somebody may read them."""
        tables = [self.tables, *([] if self.backup is None else [self.backup[0]])]
        if any(table in some and snapshot in some[table].snapshots for some in tables):
            raise Violation(f"the files of a snapshot of {table} are deleted")
        self.discarded.add(snapshot)
        self.seen["discarded"] += 1

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
        or (w.rules.assert_head and not stands_on_head(w, table, c))
    ):
        return "conflict"
    if c.snapshot in w.discarded:
        raise Violation(f"a snapshot of {c.table} lands whose files were deleted")
    if w.rules.marks_in_the_commit:
        table.marks = dict(c.marks)
    if c.delta is None:
        table.add(c.snapshot, table.rows + c.rows, dict(c.marks), w.next_id())
    else:
        add_files(w, table, c.snapshot, c.delta, dict(c.marks))
    return "ok"


def stands_on_head(w: World, table: Table, c: Commit | MergeCommit) -> bool:
    """Whether a table is as it was when a commit was prepared. The head may have been moved away and back;
    of sequence numbers, which a first snapshot is not asked for, each comes once (Iceberg's specification,
    "Sequence Numbers")."""
    is_new = c.head is None or c.sequence > table.sequence
    return table.head == c.head and (is_new or not w.rules.assert_sequence)


def add_files(w: World, table: Table, snapshot: int, delta: Delta, marks: Marks | None) -> None:
    """A snapshot of a keyed table."""
    table.add_files(snapshot, table.files.changed(delta, vectors=w.vectors), marks, w.next_id())
    w.stored[snapshot] = table.files


def commit_merge(w: World, m: MergeCommit) -> str:
    """ok, conflict or failed. A merge says of the marks what its parent says."""
    table = w.tables.get(m.table)
    if m.table in w.failing:
        return "failed"
    if (
        table is None
        or table.dropped
        or table.uuid != m.uuid
        or m.snapshot in table.snapshots
        or (w.rules.merges_assert_head and not stands_on_head(w, table, m))
    ):
        return "conflict"
    add_files(w, table, m.snapshot, m.delta, repeated_marks(w, table))
    return "ok"


def repeated_marks(w: World, table: Table) -> Marks | None:
    """What a snapshot without new rows says of the marks."""
    return table.head_marks() if w.rules.maintenance_repeats_head else dict(table.marks)


def park(w: World, p: ParkedWrite) -> tuple[str, int]:
    """ok with the new version, changed (by somebody else), or stale (an older token)."""
    if w.rules.record_once and p.key in w.replies:
        return w.replies[p.key]
    found = w.parked.get(p.table)
    version = found.version if found else 0
    if w.rules.record_under_lease and p.token != w.held[p.share]:
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
