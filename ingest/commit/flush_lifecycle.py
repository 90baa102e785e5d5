"""One life of a flush, as whoever cuts it lives it: a worker, a drain, a backfill, the driver of the Spark
engine.

Pure: no clock, no I/O, no thread. A runner cuts a part of what waits, tells its `FlushLifecycle` what happens
to it, and does what the state says: it writes the part's files and hands them to the committer.

                        written                 DONE, DEAD_LETTER
    cut ---> WRITING ------------> SUBMITTED ----------------------> ENDED
              ^ |  ^                   |
      it is   | |  '-------------------'
      time    | |   REDO: the table has changed
              | | could not be written
              | v
            DELAYED

    writing     its files are to be made: for the first time, or again for the table as it is now
    delayed     the same, but not before a moment
    submitted   files are durable, dead letters acknowledged; the committer has it, and tells its outcome
    ended       its records are in the table or dead letters; or it was given up, and they go another way:
                its table is parked, or they are read once more

Whether a commit has landed, met a conflict, was refused or is of unknown outcome is not told here: the main
process finds out (`table_lifecycle.py`). Its answer is one of the three `Outcome`s, or it parks the table.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Generic, Protocol, TypeVar

from ingest.model.link import Outcome
from ingest.write.flush_writer import Written
from lake.backoff import Backoff
from lake.tenant import TableId

WRITE_RETRIES = Backoff(0.4, 5.0)
T = TypeVar("T")


class FlushState(Enum):
    """Where a flush is in its life."""

    WRITING = "writing"
    DELAYED = "delayed"
    SUBMITTED = "submitted"
    ENDED = "ended"


@dataclass(slots=True, eq=False)
class FlushLifecycle(Generic[T]):
    """The life of one flush. Times are monotonic seconds.

    `cut`: the part that was taken from what waits. `size_bytes`: what its records take meanwhile. `rows`: how
    many rows it was submitted with last. `tries`: how often it could not be written.
    """

    cut: T
    size_bytes: int = 0
    state: FlushState = FlushState.WRITING
    rows: int = 0
    tries: int = 0
    not_before_s: float = 0.0

    def submitted(self, rows: int) -> None:
        """Its files are durable and its dead letters acknowledged, and the committer gets it."""
        assert self.state is FlushState.WRITING
        self.state, self.rows = FlushState.SUBMITTED, rows

    def delayed(self, now_s: float) -> None:
        """It could not be written, and is to be written again after a pause, longer each time."""
        assert self.state is FlushState.WRITING
        self.tries += 1
        self.state, self.not_before_s = FlushState.DELAYED, now_s + WRITE_RETRIES.delay_s(self.tries)

    def begun_again(self) -> None:
        """It is written again after a pause."""
        assert self.state is FlushState.DELAYED
        self.state = FlushState.WRITING

    def settled(self, outcome: Outcome) -> None:
        """The committer has told what became of it; one to be redone is to be written again at once."""
        assert self.state is FlushState.SUBMITTED
        self.state = FlushState.WRITING if outcome is Outcome.REDO else FlushState.ENDED

    def ended(self) -> None:
        """Nothing of it is left to commit, or its records go another way."""
        assert self.state is not FlushState.ENDED
        self.state = FlushState.ENDED


class Cut(Protocol):
    """What was taken from the records that wait for a table."""

    @property
    def table(self) -> TableId:
        """The table they are for."""

    @property
    def first_offsets(self) -> Mapping[int, int]:
        """The lowest offset per source."""


C = TypeVar("C", bound=Cut)


class Flushes(Generic[C]):
    """The flushes of one runner that are under way, by table.

    A table has at most one: the next is cut when the one before it has ended, so that its range begins where
    that one's ends. `size_bytes`: what the records of all take.
    """

    def __init__(self) -> None:
        self._lives: dict[TableId, FlushLifecycle[C]] = {}
        self._delayed: dict[TableId, FlushLifecycle[C]] = {}
        self.size_bytes = 0

    def __contains__(self, table: TableId) -> bool:
        return table in self._lives

    def __len__(self) -> int:
        return len(self._lives)

    def __iter__(self) -> Iterator[C]:
        """What was cut of each."""
        return (life.cut for life in self._lives.values())

    def begin(self, cut: C, size_bytes: int = 0) -> None:
        """A part was cut, and is to be written. Its table has no flush under way."""
        assert cut.table not in self._lives
        self._lives[cut.table] = FlushLifecycle(cut, size_bytes)
        self.size_bytes += size_bytes

    def written(self, written: Written, now_s: float) -> None:
        """Flushes were written together: each goes to the committer, or ends without a row, or is stuck and
        delayed."""
        for empty in written.empty:  # all committed or dead letters: nothing to commit
            self.give_up(empty.table)
        for stuck, _ in written.stuck:
            self.delay(stuck.table, now_s)
        for flush in written.flushes:
            self.submitted(flush.table, flush.rows)

    def submitted(self, table: TableId, rows: int) -> None:
        """The committer gets a table's flush, all of it durable but for the commit."""
        self._lives[table].submitted(rows)

    def delay(self, table: TableId, now_s: float) -> None:
        """A table's flush could not be written now."""
        life = self._delayed[table] = self._lives[table]
        life.delayed(now_s)

    def due(self, now_s: float) -> list[C]:
        """Takes those whose pause is over; they are to be written again."""
        lives = [life for life in self._delayed.values() if life.not_before_s <= now_s]
        for life in lives:
            life.begun_again()
            del self._delayed[life.cut.table]
        return [life.cut for life in lives]

    def settled(self, table: TableId, outcome: Outcome) -> FlushLifecycle[C]:
        """The committer has told what became of a table's flush. Returns its life: what is to be redone is
        `WRITING` again, all else has ended."""
        life = self._lives[table]
        life.settled(outcome)
        if life.state is FlushState.ENDED:
            self._remove(life)
        return life

    def give_up(self, table: TableId) -> C | None:
        """Ends a table's flush wherever it is, and returns what was cut; None where it has none."""
        life = self._lives.get(table)
        if life is None:
            return None
        life.ended()
        self._remove(life)
        return life.cut

    def _remove(self, life: FlushLifecycle[C]) -> None:
        del self._lives[life.cut.table]
        self._delayed.pop(life.cut.table, None)
        self.size_bytes -= life.size_bytes
