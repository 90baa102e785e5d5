"""A node as built: its workers and its main process, and what they believe. A crash forgets all of it, but
not what is in the air.

What is decided about a table, and where a flush is, the product's own classes say: `TableLifecycle`,
`FlushLifecycle`.

Workers and main process talk through queues, in order, as through their pipes: `orders` go to a worker,
`said` comes from it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ingest.commit.flush_lifecycle import FlushLifecycle
from ingest.commit.table_events import Ask, Command, RequestKind
from ingest.commit.table_lifecycle import TableLifecycle
from ingest.commit.table_parking import TRIES_MAX
from ingest.commit.table_work import Job, Parked
from ingest.model.link import Outcome, WrittenFlush
from ingest.model.parked_record import ParkedRecord
from ingest.model.trouble import Trouble
from lake.commit import TableState
from lake.marks import Marks as ProductMarks
from lake.marks import Range
from tests.faults.model.protocol_keys import ModelResolutions, WrittenKeys
from tests.faults.model.protocol_rules import Rules, Violation
from tests.faults.model.protocol_table import PLACES, Marks, Record, table_id
from tests.faults.model.protocol_world import CommitCheckpoint, ParkedWrite, World


class View(NamedTuple):
    """What a worker knows of a table; one that does not exist has the uuid that its creation will give it."""

    uuid: str
    marks: Marks


def view_of(state: TableState) -> View:
    """What workers are told of a table."""
    return View(
        state.uuid,
        {topic_partition.partition: offset for topic_partition, offset in state.marks.offsets.items()},
    )


@dataclass(eq=False)
class Flush:
    """`ranges` is [from, to) per partition; handed over once `after` messages of its worker are
    acknowledged."""

    table: str
    view: View
    ranges: dict[int, tuple[int, int]]
    records: list[Record]
    worker: Worker
    after: int = 0
    drain: int = 0
    keys: WrittenKeys | None = None  # of a keyed table

    @property
    def rows(self) -> list[Record]:
        if self.keys is not None:
            return [row for _, rows in self.keys.files for row in rows]
        return [record for record in self.records if not record.bad]

    def changes_table(self, rules: Rules) -> bool:
        """Whether there is anything to commit."""
        deletes = self.keys is not None and self.keys.keyed is not None and rules.commit_without_rows
        return bool(self.rows) or deletes


class Order(NamedTuple):
    """From the main process to a worker."""

    kind: str  # opened, settled, redo, park, hold, release, drain, stop, confirmed
    table: str = ""
    number: int = 0
    view: View | None = None
    flush: Flush | None = None
    record: ParkedRecord | None = None
    start: int = 0  # a drain: where in the parking topic it begins
    reread: bool = False


class Said(NamedTuple):
    """From a worker to the main process."""

    kind: str  # submit, held, drained, durable
    table: str = ""
    number: int = 0
    flush: Flush | None = None
    reached: int = 0  # a drain: where in the parking topic it has ended


@dataclass(eq=False)
class Drain:
    """What a worker reads of one table: the input up to the first parked offset where it is to be read again,
    then the parking topic."""

    number: int
    record: ParkedRecord
    view: View
    left: deque[Record]
    reached: int
    ends: Marks = field(default_factory=dict)
    flush: FlushLifecycle[Flush] | None = None


@dataclass(eq=False)
class Worker:
    partitions: tuple[int, ...]
    position: Marks = field(default_factory=dict)  # the consumer's
    routed: Marks = field(default_factory=dict)  # behind the last record fully routed
    buffer: dict[str, list[Record]] = field(default_factory=dict)
    flights: dict[str, list[FlushLifecycle[Flush]]] = field(default_factory=dict)
    views: dict[str, View] = field(default_factory=dict)
    parked: dict[str, str] = field(default_factory=dict)  # id of the parking
    held: set[str] = field(default_factory=set)
    drains: dict[str, Drain] = field(default_factory=dict)
    outbox: deque[tuple[str, Record]] = field(
        default_factory=deque
    )  # id of the parking (none: a dead letter); sent in order
    sent: int = 0
    orders: deque[Order] = field(default_factory=deque)
    said: deque[Said] = field(default_factory=deque)
    # What was sent up to the last one of a table.
    dead_lettered: dict[str | None, int] = field(default_factory=dict)
    durable: tuple[int, Marks] = (0, {})
    stand: tuple[int, Marks] | None = None  # offsets, and what has to be acknowledged before these are stored

    def send(self, parking: str, record: Record) -> None:
        self.outbox.append((parking, record))
        self.sent += 1
        if not parking:
            self.dead_lettered[record.table] = self.sent

    @property
    def acknowledged(self) -> int:
        return self.sent - len(self.outbox)

    def waiting(self, partition: int) -> Iterable[tuple[Record, bool]]:
        """Records that are neither written nor parked, each with whether it is in flight."""
        yield from (
            (record, False)
            for records in self.buffer.values()
            for record in records
            if record.partition == partition
        )
        yield from (
            (record, True)
            for lives in self.flights.values()
            for life in lives
            for record in life.cut.records
            if record.partition == partition
        )


@dataclass(frozen=True, slots=True)
class Handed(WrittenFlush):
    """A flush as the main process gets it."""

    of: Flush | None = None


def handed(flush: Flush) -> Handed:
    ranges = {PLACES[p]: Range(*r) for p, r in flush.ranges.items()}
    files: Any = flush.keys.files if flush.keys is not None else ()
    return Handed(
        table_id(flush.table),
        flush.view.uuid,
        ranges,
        files,
        len(flush.rows),
        {},
        flush.drain,
        keyed=flush.keys.keyed if flush.keys is not None else None,
        of=flush,
    )


class Life(TableLifecycle):
    """The product's, but that every rule in it can be left out. `sent`: the change of its parked record that
    was sent last."""

    def __init__(self, table: str, rules: Rules, token: int) -> None:
        super().__init__(table_id(table))
        self.rules = rules
        self.sent: ParkedWrite | None = None
        self._token, self._keys = token, 0

    def park_unwritten(self) -> list[Command]:
        """Parks without waiting for the answer of the catalog."""
        assert self.sent is not None
        assert self.sent.record is not None
        self.parked.record, self._commands = self.sent.record, []
        self._rest(self.parked)
        return self._commands

    def _new_key(self) -> str:
        self._keys += 1
        return f"{self._token}-{self.table}-{self._keys}"

    def _accepts(self, drain: int) -> bool:
        return super()._accepts(drain) or (self.is_parked and not self.rules.refuse_live_while_parked)

    def _failed(self, parked: Parked, trouble: Trouble) -> None:
        """Nobody is patient here: what fails counts as if it had failed long enough."""
        parked.tries = TRIES_MAX
        super()._failed(parked, trouble)

    def _is_moved_back(self, state: TableState) -> bool:
        return super()._is_moved_back(state) and self.rules.compare_head

    def _has_vanished(self) -> bool:
        return super()._has_vanished() and self.rules.notice_vanished

    def _is_news(self, record: ParkedRecord) -> bool:
        return super()._is_news(record) and self.rules.take_up_before_known

    def _lost(self, state: TableState | None) -> Trouble | None:
        return super()._lost(state) if self.rules.marks_never_go_back else None

    def _has_not_landed(self, job: Job, *, has_all: bool) -> bool:
        return super()._has_not_landed(job, has_all=has_all) or not self.rules.discard_what_is_lost

    def _is_there(self, job: Job, marks: ProductMarks) -> bool:
        return super()._is_there(job, marks) and self.rules.compare_with_marks

    def _verdict(
        self, flush: WrittenFlush, known: TableState, marks: ProductMarks
    ) -> Outcome | Trouble | None:
        """A flush that begins behind its marks is never to come so far: others go first."""
        if not self.rules.compare_with_marks:
            return None
        verdict = super()._verdict(flush, known, marks)
        if isinstance(verdict, Trouble):
            if self.rules.marks_never_go_back:
                raise Violation(
                    f"a node would leave a gap in {self.table}: {flush.ranges} on {marks.offsets}"
                )
            return None
        if verdict is Outcome.REDO and flush.uuid == known.uuid and not self.rules.redo_what_is_ahead:
            return None
        return verdict

    def _is_answer(self, parked: Parked, number: int) -> bool:
        return super()._is_answer(parked, number) or not self.rules.numbered_orders

    def _all_hold(self, parked: Parked, workers: int) -> bool:
        return super()._all_hold(parked, workers) or not self.rules.everybody_holds

    def _all_held(self, parked: Parked) -> None:
        if self.rules.drain_after_the_hold:
            super()._all_held(parked)
        else:
            self._remove(parked)

    def _remove(self, parked: Parked) -> None:
        super()._remove(parked)
        if not self.rules.release_when_known:
            self._commands.append(Ask(RequestKind.REMOVE, parked.record, parked.key))
            self._release(parked)

    def _is_for_a_person(self, trouble: Trouble) -> bool:
        return super()._is_for_a_person(trouble) and self.rules.keep_rolled_back

    def _awaits_person(self, record: ParkedRecord) -> bool:
        return super()._awaits_person(record) and self.rules.keep_rolled_back

    def _is_decided(self, found: ParkedRecord) -> bool:
        return super()._is_decided(found) and self.rules.forget_what_was


@dataclass(eq=False)
class Node:
    token: int
    workers: list[Worker]
    lives: dict[str, Life]
    resolutions: ModelResolutions
    shares: tuple[int, ...] = (0,)
    begun: bool = False
    confirmations: list[tuple[Worker, int]] = field(default_factory=list)
    newest: CommitCheckpoint | None = None
    first_marks: dict[str, Marks] = field(default_factory=dict)  # where those of others are not taken over

    def holds(self, w: World) -> bool:
        """Whether all its leases are in force."""
        return all(w.held[share] == self.token for share in self.shares)

    def is_apart(self, w: World) -> bool:
        """Whether others hold shares, so that it parks nothing itself."""
        return len(self.shares) < w.shares and w.rules.one_node_parks

    @property
    def tables(self) -> dict[str, Life]:
        """The parked ones."""
        return {table: life for table, life in self.lives.items() if life.is_parked}

    def tell(self, order: Order) -> None:
        for worker in self.workers:
            worker.orders.append(order)
