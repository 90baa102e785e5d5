"""A node as built: its workers and its main process, and what they believe. A crash forgets all of it, but
not what is in the air.

Workers and main process talk through queues, in order, as through their pipes: `orders` go to a worker,
`said` comes from it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from ingest.commit.table_lifecycle import Ask, Command, Parked, RequestKind, TableLifecycle
from ingest.model.parked_record import ParkedRecord
from ingest.model.trouble import Trouble
from tests.faults.protocol_world import (
    Commit,
    CommitCheckpoint,
    Marks,
    ParkedWrite,
    Record,
    Rules,
    table_id,
)


class View(NamedTuple):
    """What is known of a table; one that does not exist has the uuid that its creation will give it."""

    uuid: int
    exists: bool
    head: int | None
    marks: Marks


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
    handed_over: bool = False
    drain: int = 0

    @property
    def rows(self) -> list[Record]:
        return [record for record in self.records if not record.bad]


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
    flush: Flush | None = None


@dataclass(eq=False)
class Worker:
    partitions: tuple[int, ...]
    position: Marks = field(default_factory=dict)  # the consumer's
    routed: Marks = field(default_factory=dict)  # behind the last record fully routed
    buffer: dict[str, list[Record]] = field(default_factory=dict)
    flights: dict[str, list[Flush]] = field(default_factory=dict)
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
    durable: tuple[int, Marks] = (0, {})

    def send(self, parking: str, record: Record) -> None:
        self.outbox.append((parking, record))
        self.sent += 1

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
            for flushes in self.flights.values()
            for f in flushes
            for record in f.records
            if record.partition == partition
        )


@dataclass(eq=False)
class Job:
    """The commit of one table: merged flushes, and the request that is out or of unknown outcome."""

    table: str
    flushes: list[Flush]
    request: Commit | None = None
    in_air: bool = False

    @property
    def ranges(self) -> dict[int, tuple[int, int]]:
        return {p: r for flush in self.flushes for p, r in flush.ranges.items()}


class Life(TableLifecycle):
    """The product's, but that every rule in it can be left out. `sent`: the change of its parked record that
    was sent last."""

    def __init__(self, table: str, rules: Rules, token: int) -> None:
        super().__init__(table_id(table))
        self.rules = rules
        self.sent: ParkedWrite | None = None
        self._token, self._keys = token, 0

    def accepts_flush(self, drain: int) -> bool:
        """What the product asks of a written flush."""
        return self.accepts(drain) or (self.is_parked and not self.rules.refuse_live_while_parked)

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

    def _awaits_person(self) -> bool:
        return super()._awaits_person() and self.rules.keep_rolled_back

    def _is_decided(self, found: ParkedRecord) -> bool:
        return super()._is_decided(found) and self.rules.forget_what_was


@dataclass(eq=False)
class Node:
    token: int
    workers: list[Worker]
    lives: dict[str, Life]
    begun: bool = False
    known: dict[str, View] = field(default_factory=dict)
    last: dict[str, View] = field(default_factory=dict)  # as it was when it was last known
    loaded: dict[str, tuple[View, int]] = field(
        default_factory=dict
    )  # not yet compared with the parked records
    waiting: list[Flush] = field(default_factory=list)
    jobs: dict[str, Job] = field(default_factory=dict)
    confirmations: list[tuple[Worker, int]] = field(default_factory=list)
    newest: CommitCheckpoint | None = None

    @property
    def tables(self) -> dict[str, Life]:
        """The parked ones."""
        return {table: life for table, life in self.lives.items() if life.is_parked}

    def tell(self, order: Order) -> None:
        for worker in self.workers:
            worker.orders.append(order)
