"""A node as built: its workers and its main process, and what they believe. A crash forgets all of it, but
not what is in the air.

Workers and main process talk through queues, in order, as through their pipes: `orders` go to a worker,
`said` comes from it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from tests.faults.protocol_world import (
    Commit,
    CommitCheckpoint,
    Marks,
    ParkedRecord,
    ParkedWrite,
    Record,
)


class Stage(Enum):
    WRITING, PARKED, OPENING, DRAINING, HOLDING, FINISHING, RELEASING = range(7)


AT_WORK = (Stage.OPENING, Stage.DRAINING, Stage.HOLDING, Stage.FINISHING)


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
    parked: dict[str, int] = field(default_factory=dict)  # id of the parking
    held: set[str] = field(default_factory=set)
    drains: dict[str, Drain] = field(default_factory=dict)
    outbox: deque[tuple[int, Record]] = field(
        default_factory=deque
    )  # id of the parking (0: a dead letter); sent in order
    sent: int = 0
    orders: deque[Order] = field(default_factory=deque)
    said: deque[Said] = field(default_factory=deque)
    durable: tuple[int, Marks] = (0, {})

    def send(self, parking: int, record: Record) -> None:
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


@dataclass(eq=False)
class Entry:
    """A parked table."""

    record: ParkedRecord
    stage: Stage = Stage.WRITING
    told: int = 0  # the parking under which workers park it
    write: ParkedWrite | None = None
    held: set[int] = field(default_factory=set)
    number: int = 0
    reached: int = 0  # in the parking topic, once it is held


@dataclass(eq=False)
class Node:
    token: int
    workers: list[Worker]
    begun: bool = False
    known: dict[str, View] = field(default_factory=dict)
    last: dict[str, View] = field(default_factory=dict)  # as it was when it was last known
    loaded: dict[str, tuple[View, int]] = field(
        default_factory=dict
    )  # not yet compared with the parked records
    waiting: list[Flush] = field(default_factory=list)
    jobs: dict[str, Job] = field(default_factory=dict)
    tables: dict[str, Entry] = field(default_factory=dict)  # the parked ones
    confirmations: list[tuple[Worker, int]] = field(default_factory=list)
    newest: CommitCheckpoint | None = None
    numbers: int = 0

    def tell(self, order: Order) -> None:
        for worker in self.workers:
            worker.orders.append(order)
