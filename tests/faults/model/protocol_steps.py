"""The steps a node, its workers and the network take. Each is one that nothing interrupts; `None` means that
it cannot be taken now.

A step takes its choices from `pick(n)`, so that a run is a list of (step, picks): replayable and shrinkable.
"""

from ingest.commit.flush_lifecycle import FlushLifecycle, FlushState
from ingest.commit.table_commits import COMMIT_RETRIES
from ingest.commit.table_events import AT_WORK, Gather, NotAnswered, Probe, RecordRead, State
from ingest.commit.table_parking import PROBE_MAX_S
from ingest.commit.table_work import LoadStep
from ingest.model.trouble import Cause
from tests.faults.model.protocol_main import (
    attempt,
    check,
    failed,
    group_write,
    heard,
    is_heeded,
    is_in_air,
    load,
    on,
    request_of,
    time_out,
)
from tests.faults.model.protocol_node import Flush, Node, Order, Said, Worker, view_of
from tests.faults.model.protocol_worker import convert, drain_step, obey
from tests.faults.model.protocol_world import (
    SELDOM,
    Pick,
    World,
)

# ---- a worker


def a_worker(w: World, pick: Pick) -> tuple[Node, Worker] | None:
    begun = [node for node in w.nodes if node.begun]
    if not begun:
        return None
    node = begun[-1 - pick(len(begun))]
    return node, node.workers[pick(len(node.workers))]


def act_poll(w: World, pick: Pick) -> str | None:
    """A batch is taken from Kafka: the consumer's position moves past records that are not routed yet."""
    if (who := a_worker(w, pick)) is None:
        return None
    node, worker = who
    p = worker.partitions[pick(len(worker.partitions))]
    ahead = w.end(p) - worker.position[p]
    if worker.position[p] > worker.routed[p] or not ahead:
        return None
    worker.position[p] += min(ahead, 1 + pick(2))
    return f"node {node.token} takes partition {p} up to {worker.position[p]}"


def act_route(w: World, pick: Pick) -> str | None:
    if (who := a_worker(w, pick)) is None:
        return None
    node, worker = who
    p = worker.partitions[pick(len(worker.partitions))]
    if worker.routed[p] == worker.position[p]:
        return None
    record = w.log[p][worker.routed[p]]
    worker.routed[p] += 1
    if record.table is None:
        worker.send("", record)
        return f"node {node.token} dead-letters {record}"
    if record.table in worker.parked and (record.table not in worker.held or not w.rules.held_records_wait):
        worker.send(worker.parked[record.table], record)
        return f"node {node.token} parks {record}"
    worker.buffer.setdefault(record.table, []).append(record)
    return f"node {node.token} buffers {record}"


def act_acknowledge(w: World, pick: Pick) -> str | None:
    """The broker acknowledges the oldest message of a worker's producers."""
    if (who := a_worker(w, pick)) is None or not who[1].outbox:
        return None
    land(w, who[1])
    return f"a message of node {who[0].token} is acknowledged"


def land(w: World, worker: Worker) -> None:
    parking, record = worker.outbox.popleft()
    if parking:
        w.parking.append((parking, record))
    else:
        w.dead.append(record)


def act_cut(w: World, pick: Pick) -> str | None:
    """A buffer becomes a flush, and is written for the table as the worker knows it."""
    if (who := a_worker(w, pick)) is None or not who[1].buffer:
        return None
    node, worker = who
    table = sorted(worker.buffer)[pick(len(worker.buffer))]
    if (
        table not in worker.views
        or table in worker.held
        or (worker.flights.get(table) and w.rules.one_flush_in_flight)
    ):
        return None
    records, to = worker.buffer.pop(table), worker.routed if w.rules.end_is_routed else worker.position
    ranges = {p: (0, to[p]) for p in {record.partition for record in records}}
    flush = convert(
        w, worker, Flush(table, worker.views[table], ranges, records, worker), worker.views[table]
    )
    if flush.changes_table(w.rules):
        worker.flights.setdefault(table, []).append(FlushLifecycle(flush))
    return f"node {node.token} cuts {table} [{' '.join(map(str, records))}] {flush.ranges}"


def act_hand_over(w: World, pick: Pick) -> str | None:
    """A written flush goes to the main process once the dead letters of its table, and of none, are
    acknowledged."""
    if (who := a_worker(w, pick)) is None:
        return None
    node, worker = who
    lives = [life for flights in worker.flights.values() for life in flights] + [
        drain.flush for drain in worker.drains.values() if drain.flush is not None
    ]
    ready = [
        life for life in lives if life.state is FlushState.WRITING and worker.acknowledged >= life.cut.after
    ]
    if not ready:
        return None
    life = ready[pick(len(ready))]
    flush = life.cut
    life.submitted(len(flush.rows))
    worker.said.append(Said("submit", flush.table, flush.drain, flush))
    return f"node {node.token} hands over {flush.table} {flush.ranges}"


def act_obey(w: World, pick: Pick) -> str | None:
    """A worker takes the next order of its main process; holding waits for the acknowledgement of what was
    parked."""
    if (who := a_worker(w, pick)) is None or not who[1].orders:
        return None
    node, worker = who
    order = worker.orders[0]
    if order.kind == "hold" and worker.outbox and w.rules.hold_after_acknowledgement:
        return None
    worker.orders.popleft()
    if order.kind == "confirmed":
        if order.number == worker.durable[0]:
            for p, offset in worker.durable[1].items():
                group_write(w, node, p, offset)
            worker.durable = order.number, {}
    else:
        obey(w, worker, order)
    return f"a worker of node {node.token} obeys: {order.kind} {order.table}"


def act_drain(w: World, pick: Pick) -> str | None:
    if (who := a_worker(w, pick)) is None or not who[1].drains:
        return None
    node, worker = who
    table = sorted(worker.drains)[pick(len(worker.drains))]
    if worker.drains[table].flush is not None:
        return None
    count = 1 + pick(3) if w.faults_allowed else 100
    return f"node {node.token} {drain_step(w, worker, table, count, goes_on=not pick(3))}"


def act_say_durable(w: World, pick: Pick) -> str | None:
    """The lowest offset that still waits, else the routed position; when all it stands on is acknowledged,
    be it later, the node's lease is asked for."""
    if (who := a_worker(w, pick)) is None:
        return None
    node, worker = who
    if worker.durable[1]:
        return None
    low = {}
    for p in worker.partitions:
        waiting = [
            r.offset
            for r, in_flight in worker.waiting(p)
            if (w.rules.offsets_wait_for_flights if in_flight else w.rules.offsets_wait_for_buffers)
        ]
        low[p] = min([worker.routed[p], *waiting])
    before, worker.stand = worker.stand, None
    if worker.outbox and w.rules.offsets_wait_for_acknowledgements:
        worker.stand = worker.sent, low
        if before is None:
            return f"node {node.token} could store {low} once {worker.sent} messages are acknowledged"
        if worker.acknowledged < before[0]:
            worker.stand = before
            return None
        low = before[1]
    moved = {p: offset for p, offset in low.items() if p not in w.group or w.group[p].offset != offset}
    if not moved:
        return None
    worker.durable = worker.durable[0] + 1, moved
    worker.said.append(Said("durable", number=worker.durable[0]))
    return f"node {node.token} could store {moved}"


# ---- the main process


def a_node(w: World, pick: Pick) -> Node | None:
    return w.nodes[-1 - pick(len(w.nodes))] if w.nodes else None


def act_hear(w: World, pick: Pick) -> str | None:
    if (who := a_worker(w, pick)) is None or not who[1].said:
        return None
    node, worker = who
    said = worker.said.popleft()
    heard(w, node, worker, said)
    return f"node {node.token} hears: {said.kind} {said.table}"


def act_confirm(w: World, pick: Pick) -> str | None:
    """The lease was renewed: what workers said before stands."""
    if (
        (node := a_node(w, pick)) is None
        or not node.confirmations
        or (not node.holds(w) and w.rules.offsets_wait_for_the_lease)
    ):
        return None
    for worker, number in node.confirmations:
        worker.orders.append(Order("confirmed", number=number))
    node.confirmations.clear()
    return f"node {node.token} holds its lease"


def act_load(w: World, pick: Pick) -> str | None:
    if (node := a_node(w, pick)) is None:
        return None
    wanted = {
        t
        for t, life in node.lives.items()
        if (life.job is not None and not life.job.in_air) or life.state is State.OPENING
    }
    wanted |= {
        t
        for worker in node.workers
        for t in worker.buffer
        if t not in worker.views and t not in worker.parked and t not in node.tables
    }
    wanted = {
        t
        for t in wanted
        if (life := node.lives[t]).current is None and (life.loading is None or life.is_at(LoadStep.DUE))
    }
    if not wanted:
        return None
    return f"node {node.token} {load(w, node, sorted(wanted)[pick(len(wanted))])}"


def act_check(w: World, pick: Pick) -> str | None:
    """What was loaded counts as known once the lease was in force after it, and the parked records do not
    name it."""
    if (node := a_node(w, pick)) is None:
        return None
    loaded = [table for table, life in node.lives.items() if life.is_at(LoadStep.LOADED)]
    if not loaded:
        return None
    if not node.holds(w) and w.rules.known_under_the_lease:
        w.nodes.remove(node)
        return f"node {node.token} ends: its lease is lost"
    for table in loaded:
        check(w, node, table)
    return f"node {node.token} reads the parked records"


def act_open(w: World, pick: Pick) -> str | None:
    """A worker that has met a table is told what is known of it."""
    if (who := a_worker(w, pick)) is None:
        return None
    node, worker = who
    told = {order.table for order in worker.orders if order.kind == "opened"}
    asked = [
        t
        for t in sorted(worker.buffer)
        if t not in worker.views and t not in told and t not in node.tables and node.lives[t].current
    ]
    if not asked:
        return None
    table = asked[pick(len(asked))]
    state = node.lives[table].current
    assert state is not None
    worker.orders.append(Order("opened", table, view=view_of(state)))
    return f"node {node.token} opens {table}"


def act_begin_job(w: World, pick: Pick) -> str | None:
    """Flushes of one table that wait become one commit."""
    if (node := a_node(w, pick)) is None:
        return None
    tables = sorted(table for table, life in node.lives.items() if life.waiting and life.job is None)
    if not tables:
        return None
    table = tables[pick(len(tables))]
    on(w, node, table, Gather())
    return f"node {node.token} takes flushes of {table}"


def act_attempt(w: World, pick: Pick) -> str | None:
    if (node := a_node(w, pick)) is None:
        return None
    now_s = w.now_s + COMMIT_RETRIES.max_s
    ready = [
        t
        for t, life in node.lives.items()
        if (from_s := life.compares_from_s) is not None
        and from_s <= now_s
        and life.current is not None
        and not node.resolutions.is_busy(t)
    ]
    return f"node {node.token} {attempt(w, node, ready[pick(len(ready))])}" if ready else None


def act_resolve(w: World, pick: Pick) -> str | None:
    """It is found out which rows of a keyed table go."""
    if (node := a_node(w, pick)) is None or not (waiting := node.resolutions.waiting.waiting):
        return None
    node.resolutions.waiting.run(pick(len(waiting)))
    return f"node {node.token} finds rows of keys"


def act_time_out(w: World, pick: Pick) -> str | None:
    """An answer does not come: the outcome is unknown."""
    if (node := a_node(w, pick)) is None or pick(SELDOM):
        return None
    out = [
        table
        for table, life in node.lives.items()
        if is_in_air(life) and (w.faults_allowed or not any(m.body == request_of(life) for m in w.air))
    ]
    if not out:
        return None
    table = out[pick(len(out))]
    w.seen["unknown outcome"] += 1
    time_out(w, node, table)
    return f"node {node.token} does not know what became of its commit to {table}"


def act_write_again(w: World, pick: Pick) -> str | None:
    """A parked record whose fate is unknown is sent once more, identical."""
    if (node := a_node(w, pick)) is None:
        return None
    writes = [life.sent for life in node.tables.values() if life.sent is not None and life.parked.asked]
    if not writes:
        return None
    body = writes[pick(len(writes))]
    if sum(message.body == body for message in w.air) > int(w.faults_allowed):
        return None
    record = body.record or node.lives[body.table].parked.record
    on(w, node, body.table, NotAnswered(body.key, record))
    return f"node {node.token} sends again: {body}"


def act_probe(w: World, pick: Pick) -> str | None:
    """A parked table is tried again."""
    if (node := a_node(w, pick)) is None or not node.begun:
        return None
    now_s = w.moment_s() + PROBE_MAX_S
    resting = [t for t, life in sorted(node.tables.items()) if life.may_probe(now_s)]
    if not resting:
        return None
    table = resting[pick(len(resting))]
    on(w, node, table, Probe())
    return f"node {node.token} tries {table}"


def act_give_up(w: World, pick: Pick) -> str | None:
    """What goes on with a parked table takes too long."""
    if (node := a_node(w, pick)) is None or not w.faults_allowed:
        return None
    busy = [t for t, life in sorted(node.tables.items()) if life.state in AT_WORK]
    if not busy:
        return None
    failed(w, node, busy[pick(len(busy))], Cause.FAILING)
    w.seen["given up"] += 1
    return f"node {node.token} gives up for now"


def act_list(w: World, pick: Pick) -> str | None:
    """All parked records are read: the catalog parks what moves back, a person decides, another node was
    here."""
    if (node := a_node(w, pick)) is None or not node.begun or pick(SELDOM):
        return None
    if not node.holds(w) and w.rules.known_under_the_lease:  # what its successor parks is not its own to park
        w.nodes.remove(node)
        return f"node {node.token} ends: its lease is lost"
    if node.is_apart(w):
        if not w.parked or not is_heeded(w):
            return None
        w.nodes.remove(node)
        return f"node {node.token} ends: what is parked is for a node that holds all shares"
    read_s = w.moment_s()
    changed = [
        on(w, node, table, RecordRead(w.parked.get(table), read_s))
        for table in sorted(w.parked.keys() | node.tables.keys())
    ]
    return f"node {node.token} reads all parked records" if any(changed) else None
