"""What the main process of a node does: parks, loads, compares, commits."""

from __future__ import annotations

from dataclasses import replace

from tests.faults.protocol_node import AT_WORK, Entry, Flush, Job, Node, Order, Said, Stage, View, Worker
from tests.faults.protocol_world import (
    DELETED,
    FAILING,
    RESOLVED,
    ROLLED_BACK,
    Commit,
    CommitCheckpoint,
    GroupWrite,
    Message,
    ParkedRecord,
    ParkedWrite,
    Violation,
    World,
)

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
    if found.cause == RESOLVED and w.rules.forget_what_was:
        node.last.pop(table, None)
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
    if table not in node.known:
        raise Violation(f"{table} is drained into a table that node {node.token} does not know")
    record, first = entry.record, stage is Stage.DRAINING
    start, reread = record.start if first else entry.reached, first and record.cause == RESOLVED
    node.workers[0].orders.append(
        Order(
            "drain",
            table,
            next_number(node, entry),
            node.known[table],
            record=record,
            start=start,
            reread=reread,
        )
    )


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
        entry.stage, entry.held, entry.told, entry.reached = Stage.HOLDING, set(), 0, said.reached
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
    if table not in node.known:
        raise Violation(f"{table} is released without node {node.token} knowing it")
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
    before = node.known.pop(body.table, None)
    table = w.tables.get(body.table)
    if (
        result == "conflict"
        and not w.rules.reload_after_conflict
        and table is not None
        and before is not None
    ):
        learn(node, body.table, View(table.uuid, True, table.head, before.marks), 0)
    job.request = None
    w.seen[result] += 1
    if result in ("deleted", "failed"):
        failed(w, node, body.table, DELETED if result == "deleted" else FAILING)


def learn(node: Node, table: str, view: View, made: int) -> None:
    """The state of a table is known; the newest commit a node knows of is the checkpoint of the offsets it
    stores."""
    node.known[table] = node.last[table] = view
    if view.head is not None and (node.newest is None or made >= node.newest.made):
        node.newest = CommitCheckpoint(made, table, view.head)


def load(w: World, node: Node, table: str) -> str:
    """Loads a table; what exists is compared with the parked records before it counts as known."""
    found, before = w.tables.get(table), node.last.get(table)
    if found is None or found.dropped:
        if before is not None and before.exists and found is None and w.rules.notice_vanished:
            failed(w, node, table, ROLLED_BACK)
            return f"finds {table} gone without having been dropped"
        node.loaded[table] = (
            (before if before is not None and not before.exists else View(w.next_id(), False, None, {})),
            0,
        )
        return f"finds no {table}"
    head = found.head_marks()
    if (
        w.rules.compare_head
        and head is not None
        and any(mark > head.get(p, 0) for p, mark in found.marks.items())
    ):
        failed(w, node, table, ROLLED_BACK)
        return f"finds {table} moved back by its head"
    made = found.snapshots[found.head].made if found.head is not None else 0
    node.loaded[table] = View(found.uuid, True, found.head, dict(found.marks)), made
    return f"loads {table}"


def look_for_rollbacks(w: World, node: Node) -> None:
    """Reads the parked records; tables that were loaded before and are not among the moved ones are known
    from here."""
    loaded, node.loaded = node.loaded, {}
    for table, (view, made) in loaded.items():
        record = w.parked.get(table)
        if record is not None and is_news(node.tables.get(table), record) and w.rules.take_up_before_known:
            continue  # it is loaded again when the record has been taken up
        if has_lost(node.last.get(table), view) and w.rules.marks_never_go_back:
            failed(w, node, table, ROLLED_BACK)
        else:
            learn(node, table, view, made)
    for table, entry in node.tables.items():
        if entry.stage is Stage.OPENING and table in node.known:
            drain(node, table, Stage.DRAINING)


def has_lost(before: View | None, now: View) -> bool:
    return (
        before is not None
        and before.uuid == now.uuid
        and any(mark > now.marks.get(p, 0) for p, mark in before.marks.items())
    )


def is_news(entry: Entry | None, record: ParkedRecord) -> bool:
    """Whether somebody has changed the parked record since the node read it."""
    return not record.id if entry is None else record.version != entry.record.version


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
        there = job.request.uuid == view.uuid and all(
            view.marks.get(p, 0) >= to for p, (_, to) in job.ranges.items()
        )
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
        job.request = Commit(
            table, view.uuid, view.exists, view.head, w.next_id(), rows, tuple(sorted(marks.items()))
        )
    job.in_air = True
    w.air.append(Message(job.request, node))
    return f"sends {job.request}"


def compare(w: World, node: Node, job: Job, view: View) -> bool:
    """What is there already or has to be written again leaves the job; whether something is left to
    commit."""
    for flush in list(job.flushes):
        starts = [(view.marks.get(p, 0), start) for p, (start, _) in flush.ranges.items()]
        if flush.view.uuid != view.uuid:
            settle(node, job, "redo", [flush])
        elif any(mark < start for mark, start in starts) and w.rules.marks_never_go_back:
            raise Violation(
                f"node {node.token} would leave a gap in {job.table}: {flush.ranges} on {view.marks}"
            )
        elif all(view.marks.get(p, 0) >= to for p, (_, to) in flush.ranges.items()):
            settle(node, job, "settled", [flush])
        elif any(mark > start for mark, start in starts) and w.rules.redo_what_is_ahead:
            w.seen["ahead"] += 1
            settle(node, job, "redo", [flush])
    return bool(job.flushes)


def group_write(w: World, node: Node, partition: int, offset: int) -> None:
    w.air.append(Message(GroupWrite(partition, offset, node.newest), node))
