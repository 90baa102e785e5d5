"""What the main process of a node does: parks, loads, compares, commits."""

from __future__ import annotations

from dataclasses import replace

from ingest.commit.table_lifecycle import (
    TRIES_MAX,
    Ask,
    Command,
    DrainEnded,
    Event,
    Failed,
    HeldBy,
    Load,
    ParkTable,
    RecordFound,
    RecordWritten,
    RequestKind,
    StartDrain,
    State,
    StateKnown,
    StopDrain,
    StopWork,
    TellHold,
    TellParked,
    TellReleased,
    Tick,
)
from ingest.model.parked_record import ParkedRecord
from ingest.model.trouble import Cause, Trouble
from tests.faults.protocol_node import Flush, Job, Life, Node, Order, Said, View, Worker
from tests.faults.protocol_world import (
    Commit,
    CommitCheckpoint,
    GroupWrite,
    Message,
    ParkedWrite,
    Violation,
    World,
)

# ---- parking, in the main process


def on(w: World, node: Node, table: str, event: Event) -> bool:
    """The main process tells a table's life of something, and carries out what follows; whether anything
    did."""
    life = node.lives[table]
    _, commands = life.on(event, w.moment_s())
    for command in commands:
        carry_out(w, node, table, command)
    while life.is_parked and life.parked.request is not None and not life.parked.asked:
        on(w, node, table, Tick())
    return bool(commands)


def carry_out(w: World, node: Node, table: str, command: Command) -> None:
    life = node.lives[table]
    match command:
        case StopWork(forget):
            node.jobs.pop(table, None)
            node.waiting = [flush for flush in node.waiting if flush.table != table]
            forget_loaded(node, table)
            if forget:
                node.last.pop(table, None)
        case Load():
            forget_loaded(node, table)
        case Ask(RequestKind.FIND, _, key):
            on(w, node, table, RecordFound(key, w.parked.get(table)))
        case Ask(kind, record, key):
            if not record.id:
                record = replace(record, id=str(w.next_id()), start=len(w.parking))
            written = record if kind is RequestKind.PUT else None
            life.sent = ParkedWrite(table, written, record.version, node.token, key)
            w.air.append(Message(life.sent, node))
        case TellParked():
            node.tell(Order("park", table, record=life.parked.record))
        case TellHold(number):
            node.tell(Order("hold", table, number))
        case StartDrain(number, record, start, reread):
            view = known(node, table, "drained into")
            order = Order("drain", table, number, view, record=record, start=start, reread=reread)
            node.workers[0].orders.append(order)
        case StopDrain():
            node.workers[0].orders.append(Order("stop", table))
        case TellReleased():
            w.seen["released"] += 1
            node.tell(Order("release", table, view=known(node, table, "released")))


def forget_loaded(node: Node, table: str) -> None:
    node.known.pop(table, None)
    node.loaded.pop(table, None)


def known(node: Node, table: str, what: str) -> View:
    if table not in node.known:
        raise Violation(f"{table} is {what} without node {node.token} knowing it")
    return node.known[table]


def failed(w: World, node: Node, table: str, cause: Cause) -> None:
    """A table is in trouble: a live one is parked, one that is being drained rests again. Nobody is patient
    here: what fails counts as if it had failed long enough."""
    life, trouble = node.lives[table], Trouble(cause, "")
    for _ in range(TRIES_MAX if life.is_parked else 0):
        on(w, node, table, Failed(trouble))
    if not life.is_parked:
        w.seen["parked"] += 1
        on(w, node, table, ParkTable(trouble))
        for command in [] if w.rules.record_before_parking else life.park_unwritten():
            carry_out(w, node, table, command)


def heard(w: World, node: Node, worker: Worker, said: Said) -> None:
    """The main process takes a message of a worker."""
    if said.kind == "submit" and said.flush is not None:
        if node.lives[said.table].accepts_flush(said.flush.drain):
            node.waiting.append(said.flush)
    elif said.kind == "durable":
        node.confirmations.append((worker, said.number))
    elif said.kind == "held":
        held = HeldBy(node.workers.index(worker), len(node.workers), said.number)
        on(w, node, said.table, held)
    elif said.kind == "drained":
        on(w, node, said.table, DrainEnded(said.number, said.reached))


def parked_answer(w: World, node: Node, body: ParkedWrite, result: str, version: int) -> bool:
    """The catalog's answer about a parked record; False where the node has lost its lease and ends."""
    life = node.lives[body.table]
    if not life.is_parked or not life.parked.awaits(body.key):
        return True
    if result == "stale":
        return False
    record = body.record or life.parked.record
    on(w, node, body.table, RecordWritten(body.key, record, version if result == "ok" else None))
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
        failed(w, node, body.table, Cause.DELETED if result == "deleted" else Cause.FAILING)


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
            failed(w, node, table, Cause.ROLLED_BACK)
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
        failed(w, node, table, Cause.ROLLED_BACK)
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
        if record is not None and is_news(node.lives[table], record) and w.rules.take_up_before_known:
            continue  # it is loaded again when the record has been taken up
        if has_lost(node.last.get(table), view) and w.rules.marks_never_go_back:
            failed(w, node, table, Cause.ROLLED_BACK)
        else:
            learn(node, table, view, made)
    for table, life in node.tables.items():
        if life.state is State.OPENING and table in node.known:
            on(w, node, table, StateKnown())


def has_lost(before: View | None, now: View) -> bool:
    return (
        before is not None
        and before.uuid == now.uuid
        and any(mark > now.marks.get(p, 0) for p, mark in before.marks.items())
    )


def is_news(life: Life, record: ParkedRecord) -> bool:
    """Whether somebody has changed the parked record since the node read it."""
    return not record.id if life.record is None else record.version != life.record.version


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
