"""`python -m tests.faults.protocol_model --runs N --seed S`: the protocol as built, and a scheduler that tries to break it.

Every `act_*` function is one step that nothing interrupts; it takes its choices from `pick(n)`, so that a run is a list of (step, picks):
replayable and shrinkable. `None` means that the step cannot be taken now. After a run all is healed, all nodes die once, and everything has to
come to rest with every record in its table once, or among the dead letters.

`--without RULE` leaves a rule out; `--without all` does so with each in turn and says which run noticed. The rules are in `protocol_world.py`.
"""

import copy
from collections.abc import Callable
from dataclasses import replace

from tests.faults.protocol_node import (
    AT_WORK,
    Entry,
    Flush,
    Job,
    Node,
    Order,
    Said,
    Stage,
    Worker,
    adopt,
    attempt,
    back,
    commit_answer,
    convert,
    drain_step,
    group_write,
    heard,
    load,
    look_for_rollbacks,
    obey,
    parked_answer,
    settle,
    write,
)
from tests.faults.protocol_world import (
    RESOLVED,
    ROLLED_BACK,
    Commit,
    GroupWrite,
    Message,
    ParkedRecord,
    World,
    commit,
    park,
    roll_back,
)

Pick = Callable[[int], int]
Step = tuple[str, list[int]]
STEPS = 150
SETBACKS_MAX = 2


# ---- what the network does


def act_deliver(w: World, pick: Pick) -> str | None:
    """One message arrives, in any order; it, its answer, or neither may be lost; a copy may stay in the air."""
    if not w.air:
        return None
    at = pick(len(w.air))
    fate = ("", "", "", "answer lost", "copy stays", "lost")[pick(6)] if w.faults_allowed else ""
    message = w.air[at] if fate == "copy stays" else w.air.pop(at)
    w.seen[fate or "delivered"] += 1
    body, node = message.body, message.sender
    if fate == "lost":
        return f"{body} is lost"
    if isinstance(body, GroupWrite):
        w.group[body.partition] = body
        return f"{body} of node {node.token} lands"
    heard_of = fate != "answer lost" and node in w.nodes
    if isinstance(body, Commit):
        result = commit(w, body)
        if heard_of:
            commit_answer(w, node, body, result)
        return f"{body} of node {node.token}: {result} {fate}"
    result, version = park(w, body)
    if heard_of and not parked_answer(w, node, body, result, version):
        w.nodes.remove(node)
    return f"{body} of node {node.token}: {result} {fate}"


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
    worker.position[p] += min(ahead, 1 + pick(3))
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
        worker.send(0, record)
        return f"node {node.token} buries {record}"
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
    if table not in worker.views or table in worker.held or (worker.flights.get(table) and w.rules.one_flush_in_flight):
        return None
    records, to = worker.buffer.pop(table), worker.routed if w.rules.end_is_routed else worker.position
    ranges = {p: (0, to[p]) for p in {record.partition for record in records}}
    flush = convert(w, worker, Flush(table, worker.views[table], ranges, records, worker), worker.views[table])
    if flush.rows:
        worker.flights.setdefault(table, []).append(flush)
    return f"node {node.token} cuts {table} [{' '.join(map(str, records))}] {flush.ranges}"


def act_hand_over(w: World, pick: Pick) -> str | None:
    """A written flush goes to the main process once its dead letters are acknowledged."""
    if (who := a_worker(w, pick)) is None:
        return None
    node, worker = who
    flushes = [flush for flights in worker.flights.values() for flush in flights] + [drain.flush for drain in worker.drains.values() if drain.flush]
    ready = [flush for flush in flushes if not flush.handed_over and worker.acknowledged >= flush.after]
    if not ready:
        return None
    flush = ready[pick(len(ready))]
    flush.handed_over = True
    worker.said.append(Said("submit", flush.table, flush.drain, flush))
    return f"node {node.token} hands over {flush.table} {flush.ranges}"


def act_obey(w: World, pick: Pick) -> str | None:
    """A worker takes the next order of its main process; holding waits for the acknowledgement of what was parked."""
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
    return f"node {node.token} {drain_step(w, worker, table, 1 + pick(3) if w.faults_allowed else 100)}"


def act_say_durable(w: World, pick: Pick) -> str | None:
    """The lowest offset that still waits, else the routed position; when all it stands on is acknowledged, the node's lease is asked for."""
    if (who := a_worker(w, pick)) is None:
        return None
    node, worker = who
    if worker.durable[1] or (worker.outbox and w.rules.offsets_wait_for_acknowledgements):
        return None
    low = {}
    for p in worker.partitions:
        waiting = [r.offset for r, in_flight in worker.waiting(p) if (w.rules.offsets_wait_for_flights if in_flight else w.rules.offsets_wait_for_buffers)]
        low[p] = min([worker.routed[p], *waiting])
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
    if (node := a_node(w, pick)) is None or not node.confirmations or (node.token != w.token and w.rules.offsets_wait_for_the_lease):
        return None
    for worker, number in node.confirmations:
        worker.orders.append(Order("confirmed", number=number))
    node.confirmations.clear()
    return f"node {node.token} holds its lease"


def act_load(w: World, pick: Pick) -> str | None:
    if (node := a_node(w, pick)) is None:
        return None
    wanted = {job.table for job in node.jobs.values() if not job.in_air} | {t for t, e in node.tables.items() if e.stage is Stage.OPENING}
    wanted |= {t for worker in node.workers for t in worker.buffer if t not in worker.views and t not in worker.parked and t not in node.tables}
    wanted = {t for t in wanted if t not in node.known and t not in node.loaded}
    if not wanted:
        return None
    return f"node {node.token} {load(w, node, sorted(wanted)[pick(len(wanted))])}"


def act_check(w: World, pick: Pick) -> str | None:
    """What was loaded counts as known once the lease was in force after it, and the parked records do not name it."""
    if (node := a_node(w, pick)) is None or not node.loaded:
        return None
    if node.token != w.token and w.rules.known_under_the_lease:
        w.nodes.remove(node)
        return f"node {node.token} ends: its lease is lost"
    look_for_rollbacks(w, node)
    return f"node {node.token} reads the parked records"


def act_open(w: World, pick: Pick) -> str | None:
    """A worker that has met a table is told what is known of it."""
    if (who := a_worker(w, pick)) is None:
        return None
    node, worker = who
    told = {order.table for order in worker.orders if order.kind == "opened"}
    asked = [t for t in sorted(worker.buffer) if t not in worker.views and t not in told and t not in node.tables and t in node.known]
    if not asked:
        return None
    table = asked[pick(len(asked))]
    worker.orders.append(Order("opened", table, view=node.known[table]))
    return f"node {node.token} opens {table}"


def act_begin_job(w: World, pick: Pick) -> str | None:
    """Flushes of one table that wait become one commit; one of each worker."""
    if (node := a_node(w, pick)) is None:
        return None
    tables = sorted({flush.table for flush in node.waiting if flush.table not in node.jobs})
    if not tables:
        return None
    table = tables[pick(len(tables))]
    flushes = {id(flush.worker): flush for flush in reversed(node.waiting) if flush.table == table}
    node.waiting = [flush for flush in node.waiting if flush not in flushes.values()]
    node.jobs[table] = Job(table, list(flushes.values()))
    return f"node {node.token} takes {len(flushes)} flushes of {table}"


def act_attempt(w: World, pick: Pick) -> str | None:
    if (node := a_node(w, pick)) is None:
        return None
    ready = [job for job in node.jobs.values() if not job.in_air and job.table in node.known]
    return f"node {node.token} {attempt(w, node, ready[pick(len(ready))])}" if ready else None


def act_time_out(w: World, pick: Pick) -> str | None:
    """An answer does not come: the outcome is unknown."""
    if (node := a_node(w, pick)) is None:
        return None
    jobs = [j for j in node.jobs.values() if j.in_air and (w.faults_allowed or not any(m.body == j.request for m in w.air))]
    if not jobs:
        return None
    job = jobs[pick(len(jobs))]
    job.in_air = False
    w.seen["unknown outcome"] += 1
    if not w.rules.find_out_unknown:
        settle(node, job, "settled")
    node.known.pop(job.table, None)
    return f"node {node.token} does not know what became of its commit to {job.table}"


def act_write_again(w: World, pick: Pick) -> str | None:
    """A parked record whose fate is unknown is sent once more, identical."""
    if (node := a_node(w, pick)) is None:
        return None
    writes = [entry.write for entry in node.tables.values() if entry.write is not None]
    if not writes:
        return None
    body = writes[pick(len(writes))]
    if sum(message.body == body for message in w.air) > int(w.faults_allowed):
        return None
    w.air.append(Message(body, node))
    return f"node {node.token} sends again: {body}"


def awaits_person(w: World, record: ParkedRecord) -> bool:
    return record.cause == ROLLED_BACK and w.rules.keep_rolled_back


def act_probe(w: World, pick: Pick) -> str | None:
    """A parked table is tried again."""
    if (node := a_node(w, pick)) is None or not node.begun:
        return None
    resting = [t for t, e in sorted(node.tables.items()) if e.stage is Stage.PARKED and not awaits_person(w, e.record)]
    if not resting:
        return None
    table = resting[pick(len(resting))]
    node.tables[table].stage = Stage.OPENING
    node.known.pop(table, None)
    node.loaded.pop(table, None)
    return f"node {node.token} tries {table}"


def act_give_up(w: World, pick: Pick) -> str | None:
    """What goes on with a parked table takes too long."""
    if (node := a_node(w, pick)) is None or not w.faults_allowed:
        return None
    busy = [t for t, e in sorted(node.tables.items()) if e.stage in AT_WORK]
    if not busy:
        return None
    back(w, node, busy[pick(len(busy))], "late")
    w.seen["given up"] += 1
    return f"node {node.token} gives up for now"


def act_list(w: World, pick: Pick) -> str | None:
    """All parked records are read: the catalog parks what moves back, a person decides, another node was here."""
    if (node := a_node(w, pick)) is None or not node.begun:
        return None
    changed = [t for t, r in sorted(w.parked.items()) if (e := node.tables.get(t)) is None or (e.write is None and e.record.version != r.version)]
    missing = [t for t, e in sorted(node.tables.items()) if t not in w.parked and e.write is None]
    for table in changed:
        adopt(w, node, table, w.parked[table])
    for table in missing:
        write(w, node, table, node.tables[table], replace(node.tables[table].record, version=0))
    return f"node {node.token} reads all parked records" if changed or missing else None


# ---- starts, crashes, other people


def new_node(w: World) -> str:
    """A start takes a new token, asks the witnesses, and reads what is parked."""
    w.token += 1
    workers = [Worker(tuple(range(at, len(w.log), w.workers))) for at in range(w.workers)]
    node = Node(w.token, workers)
    w.nodes.append(node)
    for table, record in w.parked.items() if w.rules.parked_at_start else ():
        entry = node.tables[table] = Entry(record, Stage.PARKED, told=record.id)
        if not record.id:
            write(w, node, table, entry, record)
    return f"node {w.token} starts"


def went_back(w: World) -> bool:
    """Whether the catalog does not know a commit it acknowledged; behind a foreign one a table that is gone may have been dropped."""
    for table, snapshot in {written.witness for written in w.group.values() if written.witness is not None}:
        found = w.tables.get(table)
        if (w.own and found is None) or (found is not None and not found.dropped and snapshot not in found.snapshots.keys() | found.expired):
            return True
    return False


def act_start(w: World, pick: Pick) -> str | None:
    """A node starts, or begins to read once it knows what is parked; where the catalog went back, a person has everything read again."""
    if not w.nodes:
        return new_node(w)
    node = w.nodes[-1]
    if node.begun or any(not entry.told for entry in node.tables.values()):
        return None
    if w.rules.ask_witness and went_back(w):
        w.seen["resolved all"] += 1
        w.nodes.clear()
        w.air = [message for message in w.air if not isinstance(message.body, GroupWrite)]
        w.group.clear()
        return "a person has all input topics read again"
    node.begun = True
    for worker in node.workers:
        worker.parked = {table: entry.told for table, entry in node.tables.items()}
        for p in worker.partitions:
            worker.position[p] = worker.routed[p] = w.group[p].offset if p in w.group else 0
    return f"node {node.token} reads from { {p: g.offset for p, g in w.group.items()} }"


def act_crash(w: World, pick: Pick) -> str | None:
    if (node := a_node(w, pick)) is None:
        return None
    for worker in node.workers:
        for _ in range(min(pick(3), len(worker.outbox))):
            land(w, worker)
    w.nodes.remove(node)
    w.seen["crash"] += 1
    return f"node {node.token} crashes"


def act_take_over(w: World, pick: Pick) -> str | None:
    """The old node is paused, not dead: it may go on at any time with what it believed."""
    if len(w.nodes) != 1 or not w.nodes[0].begun:
        return None
    w.seen["takeover"] += 1
    return "takeover: " + new_node(w)


def act_maintain(w: World, pick: Pick) -> str | None:
    """Compaction by Firn or by an engine that does not repeat the marks; expiry of all snapshots but the head."""
    name = w.names()[pick(len(w.names()))]
    table, how = w.tables.get(name), pick(4)
    if table is None or table.dropped or table.head is None:
        return None
    if how == 3 and w.own:  # behind a foreign catalog, a rollback to what nobody can tell the marks of goes unseen
        table.expired |= table.snapshots.keys() - {table.head}
        table.snapshots = {table.head: table.snapshots[table.head]}
        return f"somebody expires {name}"
    head = table.head_marks()
    marks = None if how == 2 else head if w.rules.maintenance_repeats_head else dict(table.marks)
    table.add(w.next_id(), table.rows, marks, w.ids)
    return f"somebody compacts {name}"


def act_disturb(w: World, pick: Pick) -> str | None:
    """One table fails, or is well again; it is dropped, or the drop undone."""
    name = w.names()[pick(len(w.names()))]
    if pick(3):
        w.failing ^= {name}
        return f"{name} {'fails' if name in w.failing else 'is well'}"
    table = w.tables.get(name)
    if table is None:
        return None
    table.dropped = not table.dropped
    w.seen["dropped"] += 1
    return f"somebody {'drops' if table.dropped else 'undrops'} {name}"


def act_set_back(w: World, pick: Pick) -> str | None:
    """A table is rolled back; or a copy of the catalog's database is made and later put in its place."""
    name = w.names()[pick(len(w.names()))]
    if pick(2):
        if w.backup is None:
            w.backup = copy.deepcopy((w.tables, w.parked))
            return "the database is copied"
        # What a restore takes away of parked records and drops alone, nobody can notice.
        if not w.own or w.setbacks >= SETBACKS_MAX or w.parked != w.backup[1] or w.seen["dropped"]:
            return None
        w.setbacks += 1
        w.seen["restored"] += 1
        w.tables, w.parked, w.backup = w.backup[0], w.backup[1], None
        w.deciding.clear()
        w.token += 1  # the leases went back, too: the one in force is not in the copy, or ran out there
        return "the database is restored"
    table = w.tables.get(name)
    if table is None or table.dropped or table.head is None or w.setbacks >= SETBACKS_MAX:
        return None
    parent = table.snapshots[table.head].parent
    if parent is None or parent not in table.snapshots:
        return None
    w.setbacks += 1
    w.seen["rolled back"] += 1
    roll_back(w, name)
    return f"somebody rolls {name} back to #{table.head}"


def act_decide(w: World, pick: Pick) -> str | None:
    """A person resolves a table that was moved back: reads it, commits the marks of its head, changes the parked record."""
    waiting = [name for name, record in sorted(w.parked.items()) if record.cause == ROLLED_BACK]
    if not waiting:
        return None
    name = waiting[pick(len(waiting))]
    table, record = w.tables.get(name), w.parked[name]
    if table is not None and table.dropped:
        return None
    if name not in w.deciding:
        head = table.head_marks() if table else {}
        if head is None and table is not None:  # nobody says: what its rows say
            head = {p: max(r.offset for r in table.rows if r.partition == p) + 1 for p in {r.partition for r in table.rows}}
        w.deciding[name] = record.version, table.head if table else None, dict(head or {})
        return f"a person looks at {name}"
    version, old_head, marks = w.deciding.pop(name)
    if table is not None:
        if w.rules.resolve_in_a_commit:
            if table.head != old_head:
                return f"a person finds {name} changed"
            table.add(w.next_id(), table.rows, marks, w.ids)
        table.marks = marks
    if record.version == version:
        w.parked[name] = replace(record, version=version + 1, cause=RESOLVED)
    return f"a person has {name} read again from {marks}"


_PROGRESS = (
    act_deliver, act_poll, act_route, act_acknowledge, act_cut, act_hand_over, act_obey, act_drain, act_say_durable, act_hear, act_confirm, act_load,
    act_check, act_open, act_begin_job, act_attempt, act_time_out, act_write_again, act_probe, act_list, act_start, act_decide,
)  # fmt: skip
_FAULTS = (act_crash, act_take_over, act_maintain, act_disturb, act_set_back, act_give_up)
ACTIONS = {act.__name__.removeprefix("act_"): act for act in (*_PROGRESS, *_FAULTS)}
PROGRESS, FAULTS = list(ACTIONS)[: len(_PROGRESS)], list(ACTIONS)[len(_PROGRESS) :]
FAULT_WEIGHTS = [1, 1, 4, 6, 2, 4]
