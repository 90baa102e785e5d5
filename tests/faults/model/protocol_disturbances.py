"""What goes wrong around a node, and what people do: starts, crashes, takeovers, maintenance, drops,
rollbacks, a restored database, decisions."""

import copy
from collections.abc import Sequence
from dataclasses import replace

from ingest.commit.table_events import RecordRead
from ingest.model.parked_record import REREAD
from ingest.model.trouble import Cause
from tests.faults.model.protocol_keys import ModelResolutions
from tests.faults.model.protocol_main import is_heeded, on
from tests.faults.model.protocol_merge import rewrite
from tests.faults.model.protocol_node import Life, Node, Worker
from tests.faults.model.protocol_steps import a_node, land
from tests.faults.model.protocol_table import Delta
from tests.faults.model.protocol_world import (
    CommitCheckpoint,
    GroupWrite,
    Pick,
    World,
    add_files,
    repeated_marks,
    roll_back,
)

SETBACKS_MAX = 2
NODES_MAX = 3


def new_node(w: World, shares: Sequence[int] = ()) -> str:
    """A start takes new tokens (of all shares where none are named), asks the checkpoints, and reads what is
    parked."""
    w.token += 1
    shares = tuple(shares or range(w.shares))
    w.held |= dict.fromkeys(shares, w.token)
    mine = [p for p in range(len(w.log)) if p % w.shares in shares]
    workers = [Worker(part) for at in range(w.workers) if (part := tuple(mine[at :: w.workers]))]
    lives = {name: Life(name, w.rules, w.token) for name in w.names()}
    node = Node(w.token, workers, lives, ModelResolutions.of(w), shares)
    w.nodes.append(node)
    for table, record in w.parked.items() if w.rules.parked_at_start and not node.is_apart(w) else ():
        if record.id:
            node.lives[table].resume(record, w.moment_s())
        else:
            on(w, node, table, RecordRead(record, w.moment_s()))
    return f"node {w.token} starts" + (f" with shares {shares}" if w.shares > 1 else "")


def one_needs_all(w: World) -> bool:
    """Whether one node is to hold all shares."""
    return bool(w.parked) and w.rules.one_node_parks and is_heeded(w)


def shares_to_take(w: World, pick: Pick) -> Sequence[int]:
    """Those that a node is to start with, as nobody who is alive holds them: all shares where something is
    parked. None of them: nobody has to start."""
    if w.shares == 1:
        return () if w.nodes else (0,)
    whole = range(w.shares)
    if one_needs_all(w):
        is_there = any(node.holds(w) and len(node.shares) == w.shares for node in w.nodes)
        return () if is_there else whole
    held = {share for node in w.nodes if node.holds(w) for share in node.shares}
    free = [share for share in whole if share not in held]
    return free if not free or pick(2) else [free[pick(len(free))]]


def reread_parked(w: World) -> None:
    """A node parked these tables from where it stood, not from where they stand now: what lies between comes
    first. Those that wait for a person go on waiting."""
    for name, record in w.parked.items():
        if record.cause is not Cause.ROLLED_BACK:
            w.parked[name] = replace(
                record, version=record.version + 1, cause=Cause.RESOLVED, resolution=REREAD
            )


def went_back(w: World) -> bool:
    """Whether the catalog does not know a commit it acknowledged; behind a foreign one a table that is gone
    may have been dropped."""
    for _, table, snapshot in checkpoints(w):
        found = w.tables.get(table)
        if (w.own and found is None) or (
            found is not None and not found.dropped and snapshot not in found.snapshots.keys() | found.expired
        ):
            return True
    return False


def checkpoints(w: World) -> set[CommitCheckpoint]:
    return {written.checkpoint for written in w.group.values() if written.checkpoint is not None}


def act_start(w: World, pick: Pick) -> str | None:
    """A node starts, or begins to read once it knows what is parked; where the catalog went back, a person
    has everything read again."""
    if shares := shares_to_take(w, pick):
        return new_node(w, shares)
    node = next((node for node in reversed(w.nodes) if not node.begun), None)
    if node is None or any(not life.parked.told for life in node.tables.values()):
        return None
    if node.is_apart(w) and w.parked and is_heeded(w):
        w.nodes.remove(node)
        return f"node {node.token} does not begin: something is parked"
    if w.hidden or (
        w.rules.ask_checkpoint and went_back(w)
    ):  # who restores a database under a lease in force knows that he did
        w.seen["resolved all"] += 1
        w.hidden.clear()
        w.nodes.clear()
        w.air = [message for message in w.air if not isinstance(message.body, GroupWrite)]
        w.group.clear()
        if w.rules.reread_what_is_parked:
            reread_parked(w)
        return "a person has all input topics read again"
    # What a dead process had sent arrived while its lease ran out, or never will: its connection ended with
    # it.
    w.air = [
        message for message in w.air if not isinstance(message.body, GroupWrite) or message.sender in w.nodes
    ]
    node.begun = True
    if w.rules.keep_newer_checkpoint:
        node.newest = max(checkpoints(w), default=None)
    for worker in node.workers:
        worker.parked = {table: life.parked.told for table, life in node.tables.items()}
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
    if w.shares > 1:
        return take_some_over(w, pick)
    if len(w.nodes) != 1 or not w.nodes[0].begun:
        return None
    w.seen["takeover"] += 1
    return "takeover: " + new_node(w)


def take_some_over(w: World, pick: Pick) -> str | None:
    """Leases of some shares run out, or are given back: of one that moves, or of all that one node is to
    have."""
    if not 0 < len(w.nodes) <= NODES_MAX or not w.nodes[-1].begun:
        return None
    shares = range(w.shares) if one_needs_all(w) or not pick(3) else [pick(w.shares)]
    w.seen["takeover" if len(shares) == w.shares else "share moved"] += 1
    return "takeover: " + new_node(w, shares)


def act_maintain(w: World, pick: Pick) -> str | None:
    """Compaction by Firn or by an engine that does not repeat the marks; expiry of all snapshots but the
    head."""
    name = w.names()[pick(len(w.names()))]
    table, how = w.tables.get(name), pick(4)
    if table is None or table.dropped or table.head is None:
        return None
    if (
        how == 3 and w.own
    ):  # behind a foreign catalog, a rollback to what nobody can tell the marks of goes unseen
        table.expired |= table.snapshots.keys() - {table.head}
        # A copy of the database that is older than files live on is none to be restored.
        copied = w.backup[0].get(name) if w.backup is not None else None
        for snapshot in (
            table.snapshots.keys() - {table.head} - (copied.snapshots.keys() if copied else set())
        ):
            w.stored.pop(snapshot, None)
        table.snapshots = {table.head: table.snapshots[table.head]}
        return f"somebody expires {name}"
    if name in w.keyed:
        rewrite(w, table, repeats_marks=how != 2)
        return f"somebody rewrites {name}"
    marks = None if how == 2 else repeated_marks(w, table)
    table.add(w.next_id(), table.rows, marks, w.ids)
    return f"somebody compacts {name}"


def act_disturb(w: World, pick: Pick) -> str | None:
    """One table fails, or is well again; it is dropped, or the drop undone."""
    name = w.names()[pick(len(w.names()))]
    if pick(3):
        w.failing ^= {name}
        return f"{name} {'fails' if name in w.failing else 'is well'}"
    table = w.tables.get(name)
    if table is None or w.seen["restored"]:  # a drop hides what a restore took away
        return None
    table.dropped = not table.dropped
    w.seen["dropped"] += 1
    return f"somebody {'drops' if table.dropped else 'undrops'} {name}"


def act_set_back(w: World, pick: Pick) -> str | None:
    """A table is rolled back; or a copy of the catalog's database is made and later put in its place."""
    name = w.names()[pick(len(w.names()))]
    if pick(2):
        if w.backup is None:
            w.backup = copy.deepcopy((w.tables, w.parked, w.parkings_ended, w.token))
            return "the database is copied"
        # What a restore takes away of parkings and drops alone, ended ones included, nobody can notice.
        parkings = w.parked != w.backup[1] or w.parkings_ended != w.backup[2]
        if not w.own or w.setbacks >= SETBACKS_MAX or parkings or w.seen["dropped"]:
            return None
        w.setbacks += 1
        w.seen["restored"] += 1
        # Where several nodes write, a copy so fresh that leases are in force in it is not to be restored.
        if w.backup[3] != w.token or w.shares > 1 or pick(2):
            w.token += 1  # the leases went back, too: the one in force is not in the copy, or ran out there
            w.held = dict.fromkeys(range(w.shares), w.token)
        else:
            w.hidden |= {
                at
                for at, now in w.tables.items()
                if at not in w.backup[0] or w.backup[0][at].marks != now.marks
            }
        w.tables, w.parked, w.backup = w.backup[0], w.backup[1], None
        w.deciding.clear()
        w.air = [
            message for message in w.air if isinstance(message.body, GroupWrite)
        ]  # the catalog was down: what was on its way to it is gone
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
    """A person resolves a table that was moved back: reads it, commits the marks of its head, changes the
    parked record."""
    waiting = [name for name, record in sorted(w.parked.items()) if record.cause is Cause.ROLLED_BACK]
    if not waiting:
        return None
    name = waiting[pick(len(waiting))]
    table, record = w.tables.get(name), w.parked[name]
    if table is not None and table.dropped:
        return None
    if name not in w.deciding:
        head = table.head_marks() if table else {}
        if head is None and name in w.keyed:  # nobody says, and what is deleted says nothing: all of it
            w.reread_all.add(name)
        elif head is None and table is not None:  # nobody says: what its rows say
            head = {
                p: max(r.offset for r in table.rows if r.partition == p) + 1
                for p in {r.partition for r in table.rows}
            }
        w.deciding[name] = record.version, table.head if table else None, dict(head or {})
        return f"a person looks at {name}"
    version, old_head, marks = w.deciding.pop(name)
    if table is not None:
        if w.rules.resolve_in_a_commit:
            if table.head != old_head:
                return f"a person finds {name} changed"
            if name in w.keyed:
                add_files(w, table, w.next_id(), Delta(), marks)
            else:
                table.add(w.next_id(), table.rows, marks, w.ids)
        table.marks = marks
    if record.version == version:
        w.parked[name] = replace(record, version=version + 1, cause=Cause.RESOLVED, resolution=REREAD)
    return f"a person has {name} read again from {marks}"
