"""What a table of the model consists of: records, data files with deleted rows, snapshots, marks.

A table that appends has rows. A keyed one has data files: a row goes by a position in its file, and what
merging leaves has other files.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from lake.catalog_client import TableName
from lake.commit import TableState, new_table_state
from lake.marks import Marks as ProductMarks
from lake.marks import TopicPartition
from lake.tenant import TableId, TenantId

Marks = dict[int, int]  # partition -> the next offset that is not committed

PLACES = [TopicPartition("input", partition) for partition in range(3)]
EMPTY = new_table_state(TableName("t", "logs"), "t", "logs", "file:///warehouse")


def table_id(name: str) -> TableId:
    """A table of the model as the product names it."""
    return TableId(TenantId(name), "logs")


def product_marks(marks: Marks) -> ProductMarks:
    """Marks as the product has them."""
    return ProductMarks({PLACES[partition]: offset for partition, offset in marks.items()})


class Record(NamedTuple):
    """A message. `op` of a table that appends: none. A move puts the row of the key `old` at `key`; a
    truncation has no key."""

    partition: int
    offset: int
    table: str | None  # None: cannot be routed
    bad: bool  # can be routed, cannot be converted
    op: str = ""  # put, delete, move, truncate
    key: int = 0
    old: int = 0
    position: int = 0  # in its source

    def __str__(self) -> str:
        what = {"": "", "truncate": " truncate", "move": f" move {self.old} to {self.key}"}
        return f"{self.partition}@{self.offset}{what.get(self.op, f' {self.op} {self.key}')}"


Rows = tuple[Record, ...]


@dataclass(frozen=True)
class Files:
    """Data files by their numbers, with the positions of their deleted rows."""

    data: Mapping[int, Rows] = field(default_factory=dict)
    deleted: Mapping[int, frozenset[int]] = field(default_factory=dict)

    def live(self) -> list[tuple[int, int, Record]]:
        """The rows that are there, each with the number of its file and its position."""
        return [
            (file, at, row)
            for file, rows in self.data.items()
            for at, row in enumerate(rows)
            if at not in self.deleted.get(file, frozenset())
        ]

    def changed(self, delta: Delta, *, vectors: bool) -> Files:
        """The files after a commit. Deletes of a file that is not there are about nothing.

        `vectors`: a file has one deletion vector, which takes the place of the one before; else a delete file
        adds to those before.
        """
        data = {file: rows for file, rows in self.data.items() if file not in delta.removed}
        data |= dict(delta.added)
        deleted = {file: gone for file, gone in self.deleted.items() if file in data}
        for file, gone in delta.deleted:
            if file in data:
                deleted[file] = gone if vectors else deleted.get(file, frozenset()) | gone
        return Files(data, deleted)


class Delta(NamedTuple):
    """What a commit does to the files of a keyed table."""

    added: tuple[tuple[int, Rows], ...] = ()
    deleted: tuple[tuple[int, frozenset[int]], ...] = ()
    removed: tuple[int, ...] = ()

    def __str__(self) -> str:
        rows = [f"{file}: {', '.join(map(str, rows))}" for file, rows in self.added]
        gone = [f"{file}: {', '.join(map(str, sorted(positions)))}" for file, positions in self.deleted]
        parts = [("files", rows), ("deletes", gone), ("removes", [str(file) for file in self.removed])]
        return "; ".join(f"{what} {' | '.join(of)}" for what, of in parts if of)


@dataclass(frozen=True)
class Snapshot:
    id: int
    parent: int | None
    rows: Rows
    marks: Marks | None  # None: made by an engine that does not repeat them
    made: int  # when
    files: Files = field(default_factory=Files)  # of a keyed table


@dataclass
class Table:
    uuid: str
    head: int | None = None
    marks: Marks = field(default_factory=dict)
    sequence: int = 0  # number of the newest snapshot, which moving back does not lower
    snapshots: dict[int, Snapshot] = field(default_factory=dict)
    expired: set[int] = field(default_factory=set)
    dropped: bool = False

    @property
    def rows(self) -> Rows:
        return self.snapshots[self.head].rows if self.head is not None else ()

    @property
    def files(self) -> Files:
        return self.snapshots[self.head].files if self.head is not None else Files()

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
            sequence_number=self.sequence,
            marks=product_marks(self.marks),
            head_marks=None if head_marks is None else product_marks(head_marks),
            head_ms=self.snapshots[self.head].made if self.head is not None else 0,
        )

    def add(self, snapshot: int, rows: Rows, marks: Marks | None, made: int) -> None:
        """A snapshot of a table that appends."""
        self._put(Snapshot(snapshot, self.head, rows, marks, made))

    def add_files(self, snapshot: int, files: Files, marks: Marks | None, made: int) -> None:
        """A snapshot of a keyed table."""
        rows = tuple(row for _, _, row in files.live())
        self._put(Snapshot(snapshot, self.head, rows, marks, made, files))

    def _put(self, snapshot: Snapshot) -> None:
        self.snapshots[snapshot.id] = snapshot
        self.head = snapshot.id
        self.sequence += 1
