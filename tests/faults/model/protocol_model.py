"""`python -m tests.faults.model.protocol_model --runs N --seed S`: the protocol as built, and a scheduler
that tries to break it.

After a run all is healed, all nodes die once, and everything has to come to rest with every record in its
table once, or a dead letter. `--without RULE` leaves a rule out; `--without all` does so with each in turn
and says which run noticed. The rules are in `protocol_rules.py`.
"""

import random
from collections import Counter
from dataclasses import dataclass, replace
from typing import Annotated

import typer

from ingest.model.link import TableKey
from lake.settings import ChangeMode, ChangeOrder
from tests.faults.model import protocol_disturbances as disturbances
from tests.faults.model import protocol_merge as merges
from tests.faults.model import protocol_network as network
from tests.faults.model import protocol_steps as steps
from tests.faults.model.protocol_check import check_end, check_rows
from tests.faults.model.protocol_node import Node
from tests.faults.model.protocol_rules import RULES, Rules, Violation
from tests.faults.model.protocol_table import Record
from tests.faults.model.protocol_world import World

Step = tuple[str, list[int]]
STEPS = 250
PHASE_STEPS = 50
REST_STEPS = 6_000
NEW_KEY = 1_000

ACTIONS = {
    name.removeprefix("act_"): act
    for module in (network, steps, merges, disturbances)
    for name, act in vars(module).items()
    if name.startswith("act_")
}
FAULTS = {
    "crash": 1,
    "take_over": 1,
    "maintain": 4,
    "disturb": 6,
    "set_back": 2,
    "give_up": 4,
}  # how often, against each other
# What keyed tables have beside.
KEYED_FAULTS = {"merge": 40}
KEYED_PROGRESS = ["resolve", "merge_commit"]
PROGRESS = [name for name in ACTIONS if name not in {*FAULTS, *KEYED_FAULTS, *KEYED_PROGRESS}]
KEYED_SHARE, KEYED_TROUBLE = 0.25, 0.05


def make_world(rules: Rules, seed: int, nodes: int = 1) -> World:
    """A small input: one to three partitions, one or two tables, a few records that cannot be routed or
    converted. Mostly very small: what breaks a protocol needs few records and many things that go wrong."""
    draw = random.Random(seed)
    partitions, names = draw.choice((1, 1, 1, 2, 2, 3)), ["a", "b"][: draw.choice((1, 1, 1, 2))]
    most = draw.choice((2, 4, 9))
    log = []
    for p in range(partitions):
        kinds = [
            (draw.choice(names), draw.random() < 0.1) if draw.random() > 0.08 else (None, True)
            for _ in range(draw.randint(2, most))
        ]
        log.append([Record(p, offset, table, bad) for offset, (table, bad) in enumerate(kinds)])
    log[0][0] = Record(0, 0, "a", False)
    w = World(rules, log, draw.randint(1, partitions), own=draw.random() < 0.7 or nodes > 1, shares=nodes)
    log += [  # each share has a partition
        [Record(p, at, draw.choice(names), bad=False) for at in range(draw.randint(1, most))]
        for p in range(partitions, nodes)
    ]
    if draw.random() < KEYED_SHARE:
        give_keys(w, draw)
    return w


def give_keys(w: World, draw: random.Random) -> None:
    """Some tables get a key, their records become changes: of few keys, mostly each in one partition."""
    names = w.names()
    keyed = [name for name in names if draw.random() < 0.8] or names[:1]
    terms: list[tuple[ChangeMode, ChangeOrder]] = [("upsert", "offset")] * 6
    terms += [("first_wins", "offset"), ("upsert", "position")]
    for name in keyed:
        w.keyed[name] = TableKey(("id",), *draw.choice(terms))
    w.part, w.vectors = draw.choice((1, 2, 100)), draw.random() < 0.5
    keys, shared = draw.choice((1, 2, 3)), draw.random() < 0.25
    # A truncation is about all partitions, so that only with one of them it is certain what it is before.
    ops = ["put", "put", "put", "delete", "delete", "move", *["truncate"] * (len(w.log) == 1)]
    for p, part in enumerate(w.log):  # a key changes more than once
        part += [
            Record(p, len(part) + at, draw.choice(keyed), draw.random() < 0.05)
            for at in range(draw.randrange(7))
        ]
    positions = iter(draw.sample(range(100), sum(map(len, w.log))))
    for part in w.log:
        for at, record in enumerate(part):
            first = 0 if shared else 10 * record.partition
            old = first + draw.randrange(keys)
            key, op = first + draw.randrange(keys), draw.choice(ops)
            if record.table in keyed:
                only_puts = w.keyed[record.table].order_by == "position"
                op = "put" if only_puts or (op == "move" and key == old) else op
                position = next(positions)
                part[at] = record._replace(op=op, key=key, old=old, position=position)


@dataclass
class Run:
    """One run: its schedule, what it saw, what it broke (None: nothing), and, where asked for, every step in
    words."""

    schedule: list[Step]
    seen: Counter[str]
    violation: str | None = None
    trace: list[str] | None = None


def random_run(rules: Rules, seed: int, steps: int = STEPS, nodes: int = 1) -> Run:
    """A random schedule, then healing. How often something goes wrong, differs from run to run; who is quick
    and who is slow, from phase to phase."""
    w, draw, schedule = make_world(rules, seed, nodes), random.Random(seed + 0.5), list[Step]()
    trouble = draw.choice((0.01, 0.03, 0.06, 0.12))
    faults = FAULTS | (KEYED_FAULTS if w.keyed else {})
    trouble = max(trouble, KEYED_TROUBLE) if w.keyed else trouble
    progress = PROGRESS + (KEYED_PROGRESS if w.keyed else [])
    weights = [draw.choice((0, 1, 3, 10)) * weight + 0.01 for weight in faults.values()]
    pace = dict[str, int]()
    name, picks = "", list[int]()

    def pick(n: int) -> int:
        picks.append(draw.randrange(n))
        return picks[-1]

    try:
        for at in range(steps):
            if not at % PHASE_STEPS:
                pace = {name: draw.choice((1, 1, 4, 12)) for name in progress}
            faulty = draw.random() < trouble
            for name in (
                draw.choices(list(faults), weights)
                if faulty
                else sorted(progress, key=lambda name: draw.expovariate(pace[name]))
            ):
                picks = []
                if ACTIONS[name](w, pick) is not None:
                    schedule.append((name, picks))
                    check_rows(w)
                    break
        come_to_rest(w, [])
    except Violation as violation:
        return Run([*schedule, (name, picks)], w.seen, str(violation))
    return Run(schedule, w.seen)


def replay(rules: Rules, seed: int, schedule: list[Step], nodes: int = 1) -> Run:
    """The same world, a given schedule; choices wrap around, so that any part of a schedule is one."""
    w, trace = make_world(rules, seed, nodes), list[str]()
    try:
        for name, picks in schedule:
            left = iter(picks)
            trace.append(ACTIONS[name](w, lambda n, left=left: next(left, 0) % n) or "")
            check_rows(w)
        come_to_rest(w, trace)
    except Violation as violation:
        return Run(schedule, w.seen, str(violation), trace)
    return Run(schedule, w.seen, None, trace)


def come_to_rest(w: World, trace: list[str]) -> None:
    """Everything is healed, what is in the air lands, a node drains and reads all; once more after it died.

    Every table gets one more record: behind a foreign catalog nobody notices that a table was moved back
    before it is written to.
    """
    w.faults_allowed = False
    ops = {name: "put" if name in w.keyed else "" for name in w.names()}
    w.log[0] += [
        Record(0, w.end(0) + at, name, bad=False, op=ops[name], key=NEW_KEY)
        for at, name in enumerate(w.names())
    ]
    w.failing.clear()
    w.merges.clear()
    for table in w.tables.values():
        table.dropped = False
    draw, progress = random.Random(w.ids), PROGRESS + (KEYED_PROGRESS if w.keyed else [])
    for _ in range(2):
        w.nodes.clear()
        trace.append("-- all nodes die, all is healed")
        for _ in range(REST_STEPS):
            if is_at_rest(w):
                break
            trace.append(ACTIONS[progress[draw.randrange(len(progress))]](w, draw.randrange) or "")
            check_rows(w)
        else:
            raise Violation(f"does not come to rest; parked {w.parked}, group {w.group}")
    check_end(w)


def is_at_rest(w: World) -> bool:
    if w.air or w.parked or w.deciding:
        return False
    working = w.nodes[-1:] if w.shares == 1 else [node for node in w.nodes if node.holds(w)]
    if sum(len(node.shares) for node in working) < w.shares:
        return False
    return all(has_read_all(w, node) for node in working)


def has_read_all(w: World, node: Node) -> bool:
    """Whether it has nothing more to do."""
    if not node.begun or any(life.has_flushes or life.is_parked for life in node.lives.values()):
        return False
    for worker in node.workers:
        if (
            worker.outbox
            or worker.orders
            or worker.said
            or worker.drains
            or any(worker.buffer.values())
            or any(worker.flights.values())
        ):
            return False
        if any(
            worker.routed[p] != w.end(p) or p not in w.group or w.group[p].offset != w.end(p)
            for p in worker.partitions
        ):
            return False
    return True


def shrink(rules: Rules, seed: int, schedule: list[Step], nodes: int = 1) -> list[Step]:
    """Leaves out steps as long as something still breaks."""
    size = max(1, len(schedule) // 2)
    while size:
        at, before = 0, len(schedule)
        while at < len(schedule):
            shorter = schedule[:at] + schedule[at + size :]
            if replay(rules, seed, shorter, nodes).violation:
                schedule = shorter
            else:
                at += size
        size = size // 2 if size > 1 else int(len(schedule) < before)
    return schedule


def noticed_in(rule: str, runs: int, seed: int, nodes: int = 1) -> int | None:
    """The first run that breaks without the rule, and does not with it; None where none does."""
    broken = replace(Rules(), **{rule: False})
    for number in range(1, runs + 1):
        run = random_run(broken, seed + number, nodes=nodes)
        if run.violation and not replay(Rules(), seed + number, run.schedule, nodes).violation:
            return number
    return None


def main(
    runs: Annotated[int, typer.Option(help="how many schedules")] = 1_000,
    seed: Annotated[int, typer.Option(help="of the first; the others follow")] = 1,
    without: Annotated[str, typer.Option(help="a rule to leave out, or all: each in turn")] = "",
    nodes: Annotated[int, typer.Option(help="shares of the input, each of which may be another node's")] = 1,
) -> None:
    """Says what the runs have seen, and shows the shortest failure."""
    if without == "all" or "," in without:
        for rule in RULES if without == "all" else without.split(","):
            number = noticed_in(rule, runs, seed, nodes)
            typer.echo(
                f"{rule:34} {'NOT NOTICED' if number is None else f'noticed with seed {seed + number}'}"
            )
        return
    rules, seen = replace(Rules(), **({without: False} if without else {})), Counter[str]()
    for number in range(1, runs + 1):
        run = random_run(rules, seed + number, nodes=nodes)
        seen.update(run.seen)
        if run.violation:
            shrunk = shrink(rules, seed + number, run.schedule, nodes)
            short = replay(rules, seed + number, shrunk, nodes)
            typer.echo(
                "\n  ".join(
                    [
                        f"run {number} (seed {seed + number}):",
                        *(line for line in short.trace or () if line),
                        f"VIOLATION: {short.violation}",
                    ]
                )
            )
            raise typer.Exit(1)
    typer.echo(
        f"{runs} runs, nothing lost, nothing doubled; "
        + ", ".join(f"{what} {count}" for what, count in sorted(seen.items()))
    )


if __name__ == "__main__":
    app = typer.Typer(pretty_exceptions_enable=False, add_completion=False)
    app.command()(main)
    app()
