"""What a worker does with what its main process says, and with what it drains."""

from __future__ import annotations

from collections import deque
from dataclasses import replace

from ingest.commit.flush_lifecycle import FlushLifecycle, FlushState
from ingest.model.link import Outcome
from ingest.model.parked_record import ParkedRecord
from tests.faults.model.protocol_keys import write_keyed
from tests.faults.model.protocol_node import Drain, Flush, Order, Said, View, Worker
from tests.faults.model.protocol_table import Record
from tests.faults.model.protocol_world import World


def obey(w: World, worker: Worker, order: Order) -> None:
    """The worker takes an order of the main process."""
    table = order.table
    if order.kind == "opened" and order.view is not None and table not in worker.parked:
        worker.views[table] = order.view
    elif order.kind in ("settled", "redo") and order.flush is not None and order.view is not None:
        outcome = Outcome.REDO if order.kind == "redo" else Outcome.DONE
        settled(w, worker, order.flush, order.view, outcome)
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
        worker.drains[table] = Drain(
            order.number,
            order.record,
            order.view,
            deque(to_drain(w, order, order.record, order.view)),
            len(w.parking),
        )
    elif order.kind == "stop":
        worker.drains.pop(table, None)


def settled(w: World, worker: Worker, flush: Flush, view: View, outcome: Outcome) -> None:
    table, drain = flush.table, worker.drains.get(flush.table)
    if flush.drain:
        if drain is not None and drain.flush is not None and drain.flush.cut is flush:
            drain.view = view
            if not goes_on(w, worker, drain.flush, view, outcome):
                drain.flush = None
        return
    for life in [life for life in worker.flights.get(table, []) if life.cut is flush]:
        worker.views[table] = view
        if not goes_on(w, worker, life, view, outcome):
            worker.flights[table].remove(life)


def goes_on(w: World, worker: Worker, life: FlushLifecycle[Flush], view: View, outcome: Outcome) -> bool:
    """Settles a flush; one that is to be written again is, for the table as it is now."""
    life.settled(outcome)
    if life.state is FlushState.WRITING:
        life.cut = convert(w, worker, life.cut, view)
    return life.state is not FlushState.ENDED


def convert(w: World, worker: Worker, flush: Flush, view: View) -> Flush:
    """Writes a flush for the table as it is: without the rows below its marks, its bad records made dead
    letters."""
    kept = (
        [r for r in flush.records if r.offset >= view.marks.get(r.partition, 0)]
        if w.rules.skip_below_marks
        else flush.records
    )
    ranges = {
        p: (min(view.marks.get(p, 0), to), to)
        for p, (_, to) in flush.ranges.items()
        if to > view.marks.get(p, 0) or not w.rules.name_only_what_is_new
    }
    for record in kept:
        if record.bad:
            worker.send("", record)
    flush.records[:] = kept
    key = w.keyed.get(flush.table)
    return replace(
        flush,
        keys=None if key is None else write_keyed(w, key, kept),
        view=view,
        ranges=ranges,
        after=max(worker.dead_lettered.get(each, 0) for each in (flush.table, None))
        if w.rules.dead_letters_first
        else 0,
    )


def park_unfinished(w: World, worker: Worker, table: str, parking: str) -> None:
    unfinished = list[Record]()
    for life in worker.flights.pop(table, []):
        life.ended()
        unfinished += life.cut.records
    unfinished += worker.buffer.pop(table, [])
    worker.parked[table] = parking
    worker.held.discard(table)
    worker.views.pop(table, None)
    if w.rules.unfinished_first:
        for record in unfinished:
            worker.send(parking, record)
    else:
        worker.buffer[table] = unfinished


def parked_from(w: World, table: str, record: ParkedRecord, start: int) -> list[Record]:
    return [
        r
        for at, (id_, r) in enumerate(w.parking)
        if r.table == table and at >= start and (id_ == record.id or not w.rules.parking_has_an_id)
    ]


def to_drain(w: World, order: Order, record: ParkedRecord, view: View) -> list[Record]:
    """What the topics hold now for a drain, in their order."""
    table, parked = order.table, parked_from(w, order.table, record, order.start)
    if not order.reread or not w.rules.reread_from_input:
        return parked
    return [
        r for part in w.log for r in part if r.table == table and view.marks.get(r.partition, 0) <= r.offset
    ] + parked


def drain_step(w: World, worker: Worker, table: str, count: int, *, goes_on: bool) -> str:
    """`goes_on`: where it has come to the end, it takes what has come meanwhile, as if that were much."""
    drain = worker.drains[table]
    if not drain.left and goes_on and drain.reached < len(w.parking):
        drain.left.extend(parked_from(w, table, drain.record, drain.reached))
        drain.reached = len(w.parking)
        return f"goes on draining {table}"
    if not drain.left:
        del worker.drains[table]
        worker.said.append(
            Said(
                "drained",
                table,
                drain.number,
                reached=drain.reached if w.rules.finish_behind_what_was_read else len(w.parking),
            )
        )
        return f"has drained {table}"
    taken: list[Record] = []
    while drain.left and len(taken) < count:
        record = drain.left.popleft()
        if record.offset >= max(
            drain.view.marks.get(record.partition, 0),
            drain.ends.get(record.partition, 0) if w.rules.drained_in_order else 0,
        ):
            taken.append(record)
            drain.ends[record.partition] = max(drain.ends.get(record.partition, 0), record.offset + 1)
    if taken:
        ranges = {r.partition: (drain.view.marks.get(r.partition, 0), drain.ends[r.partition]) for r in taken}
        flush = Flush(table, drain.view, ranges, taken, worker, drain=drain.number)
        drain.flush = FlushLifecycle(convert(w, worker, flush, drain.view))
    return f"drains {table} [{' '.join(map(str, taken))}]"
