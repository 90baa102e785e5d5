"""What the main process of a node does around the lives of its tables, which are the product's own: it tells
them what happens, and carries out what they ask for."""

from __future__ import annotations

from dataclasses import replace

from ingest.commit.table_events import (
    Answered,
    Ask,
    BecameKnown,
    BeginCheck,
    BeginLoad,
    Checked,
    Command,
    CommitTrouble,
    Compare,
    CreateTable,
    Discard,
    DrainEnded,
    Event,
    Failed,
    Flushed,
    Gone,
    HeldBy,
    Loaded,
    LoadTable,
    LoadTrouble,
    MayCreate,
    NotChecked,
    NoteAhead,
    Outdated,
    ParkTable,
    RecordFound,
    RecordWritten,
    RequestKind,
    Sent,
    Settle,
    StartDrain,
    StopDrain,
    Submitted,
    TellHold,
    TellParked,
    TellReleased,
    Tick,
    Took,
    Want,
)
from ingest.commit.table_events import Commit as SendCommit
from ingest.model.link import Outcome
from ingest.model.parked_record import ParkedRecord
from ingest.model.trouble import Cause, Trouble
from lake.catalog_client import CommitStatus
from lake.commit import Prepared, TableState
from tests.faults.model.protocol_node import Handed, Life, Node, Order, Said, View, Worker, handed, view_of
from tests.faults.model.protocol_rules import Violation
from tests.faults.model.protocol_table import EMPTY, Delta, product_marks, table_id
from tests.faults.model.protocol_world import (
    Commit,
    CommitCheckpoint,
    GroupWrite,
    Message,
    ParkedWrite,
    World,
)

ORDERS = {Outcome.DONE: "settled", Outcome.REDO: "redo"}
STATUS = {
    "ok": CommitStatus.COMMITTED,
    "conflict": CommitStatus.CONFLICT,
    "deleted": CommitStatus.DELETED,
    "failed": CommitStatus.FAILED,
}


def on(w: World, node: Node, table: str, event: Event) -> bool:
    """Tells a table's life of something, and carries out what follows; whether anything did."""
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
        case LoadTable(number):
            found = w.tables.get(table)
            there = found is not None and not found.dropped
            gone = Gone(number, dropped=found is not None)
            on(w, node, table, Loaded(number, found.state()) if there and found is not None else gone)
        case CreateTable(number):
            on(w, node, table, Loaded(number, replace(EMPTY, uuid=str(w.next_id()))))
        case BecameKnown(state):
            note_newest(node, table, state, state.head_ms)
        case Took(_, after):
            node.resolutions.forget(life.table)
            if after is not None:
                note_newest(node, table, after, w.next_id())
        case LoadTrouble(trouble) | CommitTrouble(trouble):
            failed(w, node, table, trouble.cause)
        case Discard() | NoteAhead():
            carry_out_aside(w, table, command)
        case SendCommit():
            send(w, node, table)
        case Settle(flushes, outcome):
            for flush in (flushed.flush.of for flushed in flushes if isinstance(flushed.flush, Handed)):
                if flush is not None:
                    view = known(life, "settled")
                    flush.worker.orders.append(Order(ORDERS[outcome], table, flush.drain, view, flush))
        case _:
            carry_out_parking(w, node, table, command)


def carry_out_aside(w: World, table: str, command: Discard | NoteAhead) -> None:
    """What changes nothing of the table's life."""
    match command:
        case Discard(prepared):
            w.discard(table, prepared.snapshot_id)
        case NoteAhead():
            w.seen["ahead"] += 1


def carry_out_parking(w: World, node: Node, table: str, command: Command) -> None:
    life = node.lives[table]
    match command:
        case Ask(RequestKind.FIND, _, key):
            on(w, node, table, RecordFound(key, w.parked.get(table)))
        case Ask(kind, record, key):
            if not record.id:
                record = replace(record, id=str(w.next_id()), start=len(w.parking))
            written = record if kind is RequestKind.PUT else None
            life.sent = ParkedWrite(table, written, record.version, node.token, key, min(node.shares))
            w.air.append(Message(life.sent, node))
        case TellParked():
            node.tell(Order("park", table, record=life.parked.record))
        case TellHold(number):
            node.tell(Order("hold", table, number))
        case StartDrain(number, record, start, reread):
            view = known(life, "drained into")
            order = Order("drain", table, number, view, record=record, start=start, reread=reread)
            node.workers[0].orders.append(order)
        case StopDrain():
            node.workers[0].orders.append(Order("stop", table))
        case TellReleased():
            w.seen["released"] += 1
            node.tell(Order("release", table, view=known(life, "released")))


def known(life: Life, what: str) -> View:
    if life.current is None:
        raise Violation(f"{life.table} is {what} without the node knowing it")
    return view_of(life.current)


def note_newest(node: Node, table: str, state: TableState, made: int) -> None:
    """The newest commit a node knows of is the checkpoint of the offsets it stores."""
    if state.head is not None and (node.newest is None or made >= node.newest.made):
        node.newest = CommitCheckpoint(made, table, state.head)


def failed(w: World, node: Node, table: str, cause: Cause) -> None:
    """A table is in trouble: a live one is parked, one that is being drained rests again."""
    life, trouble = node.lives[table], Trouble(cause, "")
    if node.is_apart(w):
        say_what_is_to_be_parked(w, node, table, cause)
        return
    if life.is_parked:
        on(w, node, table, Failed(trouble))
        return
    w.seen["parked"] += 1
    on(w, node, table, ParkTable(trouble))
    for command in [] if w.rules.record_before_parking else life.park_unwritten():
        carry_out(w, node, table, command)


def say_what_is_to_be_parked(w: World, node: Node, table: str, cause: Cause) -> None:
    """A node that does not hold all shares writes a parked record without an id, as the catalog does, for the
    one that will."""
    if not any(message.sender is node and isinstance(message.body, ParkedWrite) for message in w.air):
        w.seen["left to one node"] += 1
        record = ParkedRecord(table_id(table), cause)
        body = ParkedWrite(table, record, 0, node.token, f"{node.token}-{w.next_id()}", min(node.shares))
        w.air.append(Message(body, node))


def is_heeded(w: World) -> bool:
    """Whether nodes that do not hold all shares heed what is parked; in the end they do in any case, or it
    would stay parked."""
    return w.rules.nothing_parked_is_shared or not w.faults_allowed


def heard(w: World, node: Node, worker: Worker, said: Said) -> None:
    """The main process takes a message of a worker."""
    at = node.workers.index(worker)
    if said.kind == "submit" and said.flush is not None:
        on(w, node, said.table, Submitted(Flushed(at, handed(said.flush))))
    elif said.kind == "durable":
        node.confirmations.append((worker, said.number))
    elif said.kind == "held":
        on(w, node, said.table, HeldBy(at, len(node.workers), said.number))
    elif said.kind == "drained":
        on(w, node, said.table, DrainEnded(said.number, said.reached))


def parked_answer(w: World, node: Node, body: ParkedWrite, result: str, version: int) -> bool:
    """The catalog's answer about a parked record; False where the node ends: it has lost its lease, or has
    said what another one is to park."""
    if node.is_apart(w):
        return False
    life = node.lives[body.table]
    if not life.is_parked or not life.parked.awaits(body.key):
        return True
    if result == "stale":
        return False
    record = body.record or life.parked.record
    on(w, node, body.table, RecordWritten(body.key, record, version if result == "ok" else None))
    return True


# ---- tables


def load(w: World, node: Node, table: str) -> str:
    """Loads a table; what is found is compared with the parked records before it counts as known."""
    on(w, node, table, Want())
    on(w, node, table, BeginLoad())
    return f"loads {table}"


def check(w: World, node: Node, table: str) -> None:
    """The lease is in force, and the parked records are read."""
    loading = node.lives[table].loading
    assert loading is not None
    on(w, node, table, BeginCheck())
    if node.is_apart(w) and table in w.parked and is_heeded(w):
        on(w, node, table, NotChecked(loading.number))
        return
    on(w, node, table, Checked(loading.number, w.parked.get(table), live=True))
    on(w, node, table, MayCreate())


# ---- commits


def attempt(w: World, node: Node, table: str) -> str:
    """Compares with the marks and sends; the state is known."""
    life = node.lives[table]
    assert life.known is not None
    on(w, node, table, Compare(life.known.marks))
    job = life.job
    sent = job is not None and job.in_air and job.sent is not None
    return f"sends {request_of(life)}" if sent else f"has nothing to commit to {table} now"


def send(w: World, node: Node, table: str) -> None:
    """What the flushes of a table make, or the identical request again; not before it is known which rows of
    a keyed table go."""
    life = node.lives[table]
    assert life.job is not None
    prepared = life.job.sent or prepare(w, node, life)
    if prepared is None:
        return
    on(w, node, table, Sent(prepared))
    body = request_of(life)
    if body.delta is None or w.rules.rows_go_in_the_commit:
        w.air.append(Message(body, node))
        return
    added, gone = body.delta._replace(deleted=(), removed=()), body.delta._replace(added=())
    later = body._replace(exists=True, head=body.snapshot, snapshot=w.next_id(), rows=(), delta=gone)
    w.air += [Message(body._replace(delta=added), node), Message(later, node)]


def prepare(w: World, node: Node, life: Life) -> Prepared | None:
    """The commit of a table's flushes; None where it cannot be made yet."""
    job, state, table = life.job, life.current, life.table.tenant.name
    assert job is not None
    assert state is not None
    view = view_of(state)
    flushes = [flushed.flush.of for flushed in job.flushes if isinstance(flushed.flush, Handed)]
    rows = tuple(record for flush in flushes if flush is not None for record in flush.rows)
    delta = Delta() if table in w.keyed else None
    if any(flushed.flush.keyed is not None for flushed in job.flushes):
        found = node.resolutions.take(
            life.table, state, state.schema, [flushed.flush for flushed in job.flushes]
        )
        if isinstance(found, Trouble):
            on(w, node, table, Outdated())
            failed(w, node, table, found.cause)
        if not isinstance(found, Delta):
            return None
        delta = found
    snapshot, sequence = w.next_id(), state.sequence_number + 1
    ends = {topic_partition.partition: r.end for topic_partition, r in job.ranges.items()}
    others = view.marks if w.rules.marks_of_others_stay else node.first_marks.setdefault(table, view.marks)
    marks = others | {p: max(end, view.marks.get(p, 0)) for p, end in ends.items()}
    body = Commit(
        table,
        state.uuid,
        state.exists,
        state.head,
        sequence,
        snapshot,
        rows,
        tuple(sorted(marks.items())),
        delta,
    )
    after = replace(
        state,
        exists=True,
        head=snapshot,
        sequence_number=sequence,
        marks=product_marks(marks),
        head_marks=product_marks(marks),
    )
    return Prepared({"commit": body}, (), snapshot, after)


def request_of(life: Life) -> Commit:
    """The commit of a table that is out, or of unknown outcome."""
    assert life.job is not None
    assert life.job.sent is not None
    body = life.job.sent.request["commit"]
    assert isinstance(body, Commit)
    return body


def is_in_air(life: Life) -> bool:
    """Whether an answer to a commit is awaited."""
    return life.job is not None and life.job.in_air


def commit_answer(w: World, node: Node, body: Commit, result: str) -> None:
    life = node.lives[body.table]
    if not is_in_air(life) or request_of(life) != body or life.job is None or life.job.sent is None:
        return
    before, table = life.known, w.tables.get(body.table)
    if result == "ok" and table is not None and not w.rules.marks_in_the_commit:
        table.marks = dict(body.marks)
    if result != "ok":
        w.seen[result] += 1
    causes = {"deleted": Cause.DELETED, "failed": Cause.FAILING}
    trouble = Trouble(causes[result], "") if result in causes else None
    on(w, node, body.table, Answered(life.job.sent, STATUS[result], "", trouble))
    if (
        result == "conflict"
        and not w.rules.reload_after_conflict
        and before is not None
        and table is not None
    ):
        life.learn(replace(table.state(), marks=before.marks))


def time_out(w: World, node: Node, table: str) -> None:
    """Nobody knows what became of a commit."""
    life = node.lives[table]
    assert life.job is not None
    assert life.job.sent is not None
    status = CommitStatus.UNKNOWN if w.rules.find_out_unknown else CommitStatus.COMMITTED
    on(w, node, table, Answered(life.job.sent, status))
    on(w, node, table, Outdated())


def group_write(w: World, node: Node, partition: int, offset: int) -> None:
    w.air.append(Message(GroupWrite(partition, offset, node.newest), node))
