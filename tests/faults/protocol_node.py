"""A node as built: its workers and its main process, and what they believe. A crash forgets all of it, but not what is in the air.

Workers and main process talk through queues, in order, as through their pipes: `orders` go to a worker, `said` comes from it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import NamedTuple

from tests.faults.protocol_world import (
    DELETED,
    FAILING,
    RESOLVED,
    ROLLED_BACK,
    Commit,
    GroupWrite,
    Marks,
    Message,
    ParkedRecord,
    ParkedWrite,
    Record,
    World,
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
    """`ranges` is [from, to) per partition; handed over once `after` messages of its worker are acknowledged."""

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
    witness: tuple[str, int] | None = None


class Said(NamedTuple):
    """From a worker to the main process."""

    kind: str  # submit, held, drained, durable
    table: str = ""
    number: int = 0
    flush: Flush | None = None


@dataclass(eq=False)
class Drain:
    """What a worker reads of one table: the input up to the first parked offset where it is to be read again, then the parking topic."""

    number: int
    record: ParkedRecord
    view: View
    left: deque[Record]
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
    outbox: deque[tuple[int, Record]] = field(default_factory=deque)  # id of the parking (0: a dead letter); sent in order
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
        yield from ((record, False) for records in self.buffer.values() for record in records if record.partition == partition)
        yield from ((record, True) for flushes in self.flights.values() for f in flushes for record in f.records if record.partition == partition)


@dataclass(eq=False)
class Job:
    """The commit of one table: merged flushes, and the request that is out or of unknown outcome."""

    table: str
    flushes: list[Flush]
    request: Commit | None = None
    in_air: bool = False
    tries: int = 0

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


@dataclass(eq=False)
class Node:
    token: int
    workers: list[Worker]
    begun: bool = False
    known: dict[str, View] = field(default_factory=dict)
    last: dict[str, View] = field(default_factory=dict)  # as it was when it was last known
    loaded: dict[str, tuple[View, int]] = field(default_factory=dict)  # not yet compared with the parked records
    waiting: list[Flush] = field(default_factory=list)
    jobs: dict[str, Job] = field(default_factory=dict)
    tables: dict[str, Entry] = field(default_factory=dict)  # the parked ones
    confirmations: list[tuple[Worker, int]] = field(default_factory=list)
    newest: tuple[int, tuple[str, int] | None] = (0, None)  # when it was made, and which commit
    numbers: int = 0

    def tell(self, order: Order) -> None:
        for worker in self.workers:
            worker.orders.append(order)


# ---- parking, in the main process


def park(w: World, node: Node, table: str, cause: str) -> None:
    """Begins to park a live table, or changes why it is parked."""
    entry = node.tables.get(table)
    if entry is None:
        entry = node.tables[table] = Entry(ParkedRecord(0, cause))
        w.seen["parked"] += 1
    write(w, node, table, entry, replace(entry.record, cause=cause))
    if not w.rules.record_before_parking:
        rest(node, table, entry)


def write(w: World, node: Node, table: str, entry: Entry, record: ParkedRecord) -> None:
    stop_work(node, table, entry)
    entry.stage = Stage.WRITING
    entry.record = record if record.id else replace(record, id=w.next_id(), start=len(w.parking))
    entry.write = ParkedWrite(table, entry.record, entry.record.version, node.token, w.next_id())
    w.air.append(Message(entry.write, node))


def stop_work(node: Node, table: str, entry: Entry) -> None:
    node.jobs.pop(table, None)
    node.waiting = [flush for flush in node.waiting if flush.table != table]
    node.known.pop(table, None)
    node.loaded.pop(table, None)
    if entry.stage in (Stage.DRAINING, Stage.FINISHING):
        node.workers[0].orders.append(Order("stop", table))


def rest(node: Node, table: str, entry: Entry) -> None:
    if entry.told != entry.record.id:
        node.tell(Order("park", table, record=entry.record))
    entry.told = entry.record.id
    entry.stage = Stage.PARKED


def adopt(w: World, node: Node, table: str, found: ParkedRecord) -> None:
    """Takes over what somebody else has written."""
    entry = node.tables.setdefault(table, Entry(found))
    stop_work(node, table, entry)
    entry.record, entry.write = found, None
    if found.id:
        rest(node, table, entry)
    else:
        write(w, node, table, entry, found)


def back(w: World, node: Node, table: str, cause: str) -> None:
    """The table does not take its records yet."""
    entry = node.tables[table]
    if cause == ROLLED_BACK and w.rules.keep_rolled_back:
        write(w, node, table, entry, replace(entry.record, cause=cause))
    else:
        stop_work(node, table, entry)
        rest(node, table, entry)


def failed(w: World, node: Node, table: str, cause: str) -> None:
    """A table is in trouble: a live one is parked, one that is being drained rests again."""
    if table not in node.tables:
        park(w, node, table, cause)
    elif node.tables[table].stage in AT_WORK:
        back(w, node, table, cause)


def accepts(w: World, node: Node, flush: Flush) -> bool:
    entry = node.tables.get(flush.table)
    if entry is None:
        return not flush.drain
    if not w.rules.refuse_live_while_parked:
        return True
    return flush.drain == entry.number and entry.stage in (Stage.DRAINING, Stage.FINISHING)


def next_number(node: Node, entry: Entry) -> int:
    node.numbers += 1
    entry.number = node.numbers
    return entry.number


def drain(node: Node, table: str, stage: Stage) -> None:
    entry = node.tables[table]
    entry.stage = stage
    node.workers[0].orders.append(Order("drain", table, next_number(node, entry), node.known[table], record=entry.record))


def heard(w: World, node: Node, worker: Worker, said: Said) -> None:
    """The main process takes a message of a worker."""
    entry = node.tables.get(said.table)
    fresh = entry is not None and (said.number == entry.number or not w.rules.numbered_orders)
    if said.kind == "submit" and said.flush is not None and accepts(w, node, said.flush):
        node.waiting.append(said.flush)
    elif said.kind == "durable":
        node.confirmations.append((worker, said.number))
    elif said.kind == "held" and entry is not None and fresh and entry.stage is Stage.HOLDING:
        entry.held.add(node.workers.index(worker))
        if len(entry.held) == len(node.workers) or not w.rules.everybody_holds:
            if w.rules.drain_after_the_hold:
                drain(node, said.table, Stage.FINISHING)
            else:
                begin_release(w, node, said.table)
    elif said.kind == "drained" and entry is not None and fresh and entry.stage is Stage.DRAINING:
        entry.stage, entry.held, entry.told = Stage.HOLDING, set(), 0
        node.tell(Order("hold", said.table, next_number(node, entry)))
    elif said.kind == "drained" and entry is not None and fresh and entry.stage is Stage.FINISHING:
        begin_release(w, node, said.table)


def begin_release(w: World, node: Node, table: str) -> None:
    entry = node.tables[table]
    entry.stage = Stage.RELEASING
    entry.write = ParkedWrite(table, None, entry.record.version, node.token, w.next_id())
    w.air.append(Message(entry.write, node))
    if not w.rules.release_when_known:
        release(w, node, table)


def release(w: World, node: Node, table: str) -> None:
    node.tables.pop(table, None)
    w.seen["released"] += 1
    node.tell(Order("release", table, view=node.known[table]))


def parked_answer(w: World, node: Node, body: ParkedWrite, result: str, version: int) -> bool:
    """The catalog's answer about a parked record; False where the node has lost its lease and ends."""
    entry = node.tables.get(body.table)
    if entry is None or entry.write != body:
        return True
    if result == "stale":
        return False
    entry.write = None
    if result == "ok" and body.record is None:
        release(w, node, body.table)
    elif result == "ok":
        entry.record = replace(entry.record, version=version)
        rest(node, body.table, entry)
    elif body.table in w.parked:  # changed: it is read again
        adopt(w, node, body.table, w.parked[body.table])
    elif body.record is None:
        release(w, node, body.table)
    else:
        write(w, node, body.table, entry, replace(entry.record, version=0))
    return True


# ---- commits, in the main process


def commit_answer(w: World, node: Node, body: Commit, result: str) -> None:
    job = node.jobs.get(body.table)
    if job is None or job.request != body or not job.in_air:
        return
    job.in_air = False
    if result == "ok":
        if not w.rules.marks_in_the_commit:
            w.tables[body.table].marks = dict(body.marks)
        learn(node, body.table, View(body.uuid, True, body.snapshot, dict(body.marks)), w.next_id())
        settle(node, job, "settled")
        return
    before = node.known.pop(body.table)
    table = w.tables.get(body.table)
    if result == "conflict" and not w.rules.reload_after_conflict and table is not None:
        learn(node, body.table, View(table.uuid, True, table.head, before.marks), 0)
    job.request = None
    w.seen[result] += 1
    job.tries += result == "failed"
    if result == "deleted" or job.tries > 1:
        failed(w, node, body.table, DELETED if result == "deleted" else FAILING)


def learn(node: Node, table: str, view: View, made: int) -> None:
    """The state of a table is known; the newest commit a node knows of is the witness of the offsets it stores."""
    node.known[table] = node.last[table] = view
    if view.head is not None and made >= node.newest[0]:
        node.newest = made, (table, view.head)


def load(w: World, node: Node, table: str) -> str:
    """Loads a table; what exists is compared with the parked records before it counts as known."""
    found, before = w.tables.get(table), node.last.get(table)
    if found is None or found.dropped:
        if before is not None and before.exists and found is None and w.rules.notice_vanished:
            failed(w, node, table, ROLLED_BACK)
            return f"finds {table} gone without having been dropped"
        node.loaded[table] = (before if before is not None and not before.exists else View(w.next_id(), False, None, {})), 0
        return f"finds no {table}"
    head = found.head_marks()
    if w.rules.compare_head and head is not None and any(mark > head.get(p, 0) for p, mark in found.marks.items()):
        failed(w, node, table, ROLLED_BACK)
        return f"finds {table} moved back by its head"
    made = found.snapshots[found.head].made if found.head is not None else 0
    node.loaded[table] = View(found.uuid, True, found.head, dict(found.marks)), made
    return f"loads {table}"


def look_for_rollbacks(w: World, node: Node) -> None:
    """Reads the parked records; tables that were loaded before and are not among the moved ones are known from here."""
    loaded, node.loaded = node.loaded, {}
    for table, (view, made) in loaded.items():
        record = w.parked.get(table)
        if record is not None and record.cause == ROLLED_BACK and w.rules.look_for_rollback:
            failed(w, node, table, ROLLED_BACK)
        else:
            learn(node, table, view, made)
    for table, entry in node.tables.items():
        if entry.stage is Stage.OPENING and table in node.known:
            drain(node, table, Stage.DRAINING)


def settle(node: Node, job: Job, kind: str, flushes: list[Flush] | None = None) -> None:
    for flush in list(flushes or job.flushes):
        flush.worker.orders.append(Order(kind, job.table, flush.drain, node.known[job.table], flush))
        job.flushes.remove(flush)
    if not job.flushes:
        node.jobs.pop(job.table, None)


def attempt(w: World, node: Node, job: Job) -> str:
    """Compares with the marks and sends; the state is known."""
    table, view = job.table, node.known[job.table]
    if job.request is not None:
        there = job.request.uuid == view.uuid and all(view.marks.get(p, 0) >= to for p, (_, to) in job.ranges.items())
        if there and w.rules.compare_with_marks:
            settle(node, job, "settled")
            return f"finds {table} {job.ranges} already there"
        if (job.request.uuid, job.request.exists, job.request.head) != view[:3]:
            job.request = None
    if job.request is None:
        if w.rules.compare_with_marks and not compare(w, node, job, view):
            return f"has nothing to commit to {table}"
        marks = view.marks | {p: max(to, view.marks.get(p, 0)) for p, (_, to) in job.ranges.items()}
        rows = tuple(record for flush in job.flushes for record in flush.rows)
        job.request = Commit(table, view.uuid, view.exists, view.head, w.next_id(), rows, tuple(sorted(marks.items())))
    job.in_air = True
    w.air.append(Message(job.request, node))
    return f"sends {job.request}"


def compare(w: World, node: Node, job: Job, view: View) -> bool:
    """What is there already or has to be written again leaves the job; whether something is left to commit."""
    for flush in list(job.flushes):
        starts = [(view.marks.get(p, 0), start) for p, (start, _) in flush.ranges.items()]
        if flush.view.uuid != view.uuid:
            settle(node, job, "redo", [flush])
        elif any(mark < start for mark, start in starts) and w.rules.behind_waits_for_person:
            failed(w, node, job.table, ROLLED_BACK)
            return False
        elif all(view.marks.get(p, 0) >= to for p, (_, to) in flush.ranges.items()):
            settle(node, job, "settled", [flush])
        elif any(mark > start for mark, start in starts) and w.rules.redo_what_is_ahead:
            w.seen["ahead"] += 1
            settle(node, job, "redo", [flush])
    return bool(job.flushes)


# ---- a worker


def obey(w: World, worker: Worker, order: Order) -> None:
    """The worker takes an order of the main process."""
    table = order.table
    if order.kind == "opened" and order.view is not None and table not in worker.parked:
        worker.views[table] = order.view
    elif order.kind in ("settled", "redo") and order.flush is not None and order.view is not None:
        settled(w, worker, order.flush, order.view, redo=order.kind == "redo")
    elif order.kind == "park" and order.record is not None:
        worker.drains.pop(table, None)
        park_unfinished(w, worker, table, order.record.id)
    elif order.kind == "hold":
        worker.held.add(table)
        worker.said.append(Said("held", table, order.number))
    elif order.kind == "release" and order.view is not None:
        worker.parked.pop(table, None)
        worker.held.discard(table)
        worker.views[table] = order.view
    elif order.kind == "drain" and order.view is not None and order.record is not None:
        worker.drains[table] = Drain(order.number, order.record, order.view, deque(to_drain(w, table, order.record, order.view)))
    elif order.kind == "stop":
        worker.drains.pop(table, None)


def settled(w: World, worker: Worker, flush: Flush, view: View, *, redo: bool) -> None:
    table, drain = flush.table, worker.drains.get(flush.table)
    if flush.drain:
        if drain is not None and drain.flush is flush:
            drain.view, drain.flush = view, (convert(w, worker, flush, view) if redo else None)
    elif flush in (flights := worker.flights.get(table, [])):
        worker.views[table] = view
        if redo:
            flights[flights.index(flush)] = convert(w, worker, flush, view)
        else:
            flights.remove(flush)


def convert(w: World, worker: Worker, flush: Flush, view: View) -> Flush:
    """Writes a flush for the table as it is: without the rows below its marks, its bad records buried."""
    kept = [r for r in flush.records if r.offset >= view.marks.get(r.partition, 0)] if w.rules.skip_below_marks else flush.records
    ranges = {p: (min(view.marks.get(p, 0), to), to) for p, (_, to) in flush.ranges.items() if to > view.marks.get(p, 0) or not w.rules.name_only_what_is_new}
    for record in kept:
        if record.bad:
            worker.send(0, record)
    flush.records[:] = kept
    return replace(flush, view=view, ranges=ranges, after=worker.sent if w.rules.dead_letters_first else 0, handed_over=False)


def park_unfinished(w: World, worker: Worker, table: str, parking: int) -> None:
    unfinished = [r for flush in worker.flights.pop(table, []) for r in flush.records] + worker.buffer.pop(table, [])
    worker.parked[table] = parking
    worker.held.discard(table)
    worker.views.pop(table, None)
    if w.rules.unfinished_first:
        for record in unfinished:
            worker.send(parking, record)
    else:
        worker.buffer[table] = unfinished


def to_drain(w: World, table: str, record: ParkedRecord, view: View) -> list[Record]:
    """What the topics hold now for a drain, in their order."""
    parked = [r for at, (id_, r) in enumerate(w.parking) if r.table == table and at >= record.start and (id_ == record.id or not w.rules.parking_has_an_id)]
    if record.cause != RESOLVED or not w.rules.reread_from_input:
        return parked
    first = {r.partition: r.offset for r in reversed(parked)}
    again = [r for part in w.log for r in part if r.table == table and view.marks.get(r.partition, 0) <= r.offset < first.get(r.partition, r.offset + 1)]
    return again + parked


def drain_step(w: World, worker: Worker, table: str, count: int) -> str:
    drain = worker.drains[table]
    if not drain.left:
        del worker.drains[table]
        worker.said.append(Said("drained", table, drain.number))
        return f"has drained {table}"
    taken: list[Record] = []
    while drain.left and len(taken) < count:
        record = drain.left.popleft()
        if record.offset >= max(drain.view.marks.get(record.partition, 0), drain.ends.get(record.partition, 0) if w.rules.drained_in_order else 0):
            taken.append(record)
            drain.ends[record.partition] = max(drain.ends.get(record.partition, 0), record.offset + 1)
    if taken:
        ranges = {r.partition: (drain.view.marks.get(r.partition, 0), drain.ends[r.partition]) for r in taken}
        drain.flush = convert(w, worker, Flush(table, drain.view, ranges, taken, worker, drain=drain.number), drain.view)
    return f"drains {table} [{' '.join(map(str, taken))}]"


def group_write(w: World, node: Node, partition: int, offset: int) -> None:
    before = w.group.get(partition)
    w.air.append(Message(GroupWrite(partition, offset, node.newest[1] or (before.witness if before else None)), node))
