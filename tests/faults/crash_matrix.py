"""`python -m tests.faults.crash_matrix --kills N --seed S [--nodes 2] --json`: SIGKILL at every named step of
the protocol, and at random.

Records flow all the time. One kill is: put things so that a step will be reached, have the process die there
(or stand still while the catalog or the broker dies), start again what died, go on. In the end nothing is
parked any more, and every record that was produced is looked for by its identity. The last line of the output
is one JSON object with --json: kills, lost, doubled, by_step.

With --nodes 2 two nodes share the input and write to the same tables. Whoever reaches the step first dies
while the other goes on; nodes are also paused for longer than their leases last, taken away and added.
"""

import random
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from typing import Annotated

import orjson
import typer

from infra.local.supervisor import Stack
from ingest.model.fault_point import STEPS
from lake.catalog_client import CatalogClient, TableName
from lake.extras_client import ExtrasClient
from lake.storage import local_path
from tests.faults.crash.catalog_proxy import CatalogProxy
from tests.faults.crash.identities import Found, compare, dead, rows
from tests.faults.crash.nodes import Nodes, paused
from tests.faults.crash.record_flow import RecordFlow, table_of
from tests.stack.support.forked import started_by
from tests.stack.support.kafka_topics import KafkaTopics
from tests.stack.support.parked import unwritable
from tests.stack.support.waiting import fresh, pause, wait_for

PARTITIONS = 4
TENANTS = 6
REACHED_S = 30.0
REST_S = 180.0
BACK_S = 90.0
DYING_S = 0.3  # from the signal to the end of the process
WHILE_PARKING = frozenset(
    {"parked_record_written", "parking_told", "parked_in_flight", "parked_acknowledged"}
)
WHILE_DRAINING = frozenset({"drain_handed_over", "held", "parked_record_removed", "released"})
LATE_COMMIT, AT_RANDOM = "late_commit", "at_random"
PAUSED, TAKEN_AWAY, STOPPED = "paused", "taken_away", "stopped"


@dataclass(frozen=True)
class Case:
    """One kill: at which step, and who dies there: the process that reaches it, or `catalog`, `broker`,
    `worker`, `main` while it stands still."""

    step: str
    victim: str = "itself"

    def __str__(self) -> str:
        return self.step if self.victim == "itself" else f"{self.step}/{self.victim}"


# The cases that everybody asks about; with few kills some of these, drawn anew by each seed.
LISTED = (
    Case(LATE_COMMIT),
    Case("settled"),
    Case("dead_letters_acknowledged"),
    Case("rolled_over_in_batch"),
    Case("parked_in_flight"),
    Case("parked_record_removed"),
    Case("metadata_written", "catalog"),
    Case("parked_acknowledged", "broker"),
)
OTHERS = (
    *(Case(step) for step in STEPS if Case(step) not in LISTED),
    *(Case(AT_RANDOM, victim) for victim in ("main", "worker", "catalog", "broker")),
    *(
        Case(step, victim)
        for step in ("handed_over", "commit_answered", "offsets_confirmed", "parking_told", "held")
        for victim in ("catalog", "broker", "worker")
    ),
)
# Several nodes park nothing; the one that has all shares then begins with what is parked.
OF_ONE = frozenset({"parking_told"})
# What only happens to one of several nodes: it stands still, dies for a while, is stopped for a while.
OF_SEVERAL = (Case(PAUSED), Case(TAKEN_AWAY), Case(STOPPED))


def cases(kills: int, draws: random.Random, nodes: int = 1) -> list[Case]:
    """Return so many kills: of fewer than are listed a random part, else first the listed ones, then all, in
    a random order each time."""
    listed = (*OF_SEVERAL, *LISTED) if nodes > 1 else LISTED
    if kills < len(listed):
        return draws.sample(listed, kills)
    others = [case for case in OTHERS if nodes == 1 or case.step not in OF_ONE]
    every = [*listed, *others, *(OF_SEVERAL if nodes > 1 else ())]
    more = (case for _ in cycle([0]) for case in draws.sample(every, len(every)))
    return [*listed, *islice(more, kills - len(listed))]


@dataclass
class Matrix:
    """The services, the flow, and the ingesters that are killed again and again."""

    stack: Stack
    kafka: KafkaTopics
    catalog: CatalogClient
    folder: Path
    draws: random.Random
    count: int = 1
    flow: RecordFlow = field(init=False)
    nodes: Nodes = field(init=False)
    proxy: CatalogProxy = field(init=False)
    by_step: dict[str, dict[str, int]] = field(default_factory=dict)

    @contextmanager
    def running(self) -> Iterator["Matrix"]:
        """Records flow; one tenant is there to be broken."""
        topic, name = self.kafka.topic(PARTITIONS), fresh("g-")
        self.sick = fresh("Sick-")
        self.flow = RecordFlow(
            self.kafka,
            topic,
            [self.sick, *(fresh("well-") for _ in range(TENANTS - 1))],
            PARTITIONS,
            self.draws,
        )
        own = {
            "kafka__group": name,
            "internal_topics__dead_letters": f"dead-{name}",
            "internal_topics__parked": f"parked-{name}",
            "internal_topics__replay": f"replay-{name}",
            "workers": "2" if self.count == 1 else "1",
        }
        quick = {
            "flush__interval_s": "0.4",
            "flush__visibility_max_s": "0.4",
            "tables__park_after_s": "0.8",
            "commit__timeout_s": "5",
            "flush__bytes": "20000",
            "shutdown_s": "30",
        }
        settings = {**own, **quick, "kafka__bootstrap_servers": self.kafka.bootstrap_servers}
        self.nodes = Nodes(
            self.count, self.folder, self.stack.environment(), [{"name": topic}], settings, self.draws
        )
        try:
            with CatalogProxy(self.stack.address("catalog")) as self.proxy, self.flow:
                self.nodes.start()
                self._wait_for_sick_table()
                yield self
        finally:
            self.nodes.kill()

    def _wait_for_sick_table(self) -> None:
        self.nodes.wait_until(
            lambda: rows(self.catalog, table_of(self.sick), self._topic_id()),
            60,
            "rows of the table that is to be broken",
        )
        self.data = local_path(self.catalog.load_table(table_of(self.sick))["metadata"]["location"]) / "data"

    def _topic_id(self) -> str:
        return self.kafka.topic_id(self.flow.topic)

    # ---- one kill

    def kill(self, case: Case) -> None:
        """Arranges, kills, starts again what died."""
        if case in OF_SEVERAL:
            reached = self._one_of_several(case.step)
        elif case.step == LATE_COMMIT:
            reached = self._late_commit()
        elif case.step == AT_RANDOM:
            pause(self.draws.uniform(0.1, 1.5))
            self._end(case.victim)
            reached = True
        elif case.step in WHILE_DRAINING:
            reached = self._while_draining(case)
        elif case.step in WHILE_PARKING:
            reached = self._while_parking(case)
        else:
            reached = self._at(case, lambda: None)
        counted = self.by_step.setdefault(str(case), {"kills": 0, "reached": 0})
        counted["kills"] += 1
        counted["reached"] += reached
        self.nodes.wait_until(self._is_back, BACK_S, f"the ingester coming back after {case}")

    def _is_back(self) -> bool:
        """Whether all read again; a main process that died is started, a worker that died the node replaces
        itself."""
        self.nodes.start(ready=False)
        return self.nodes.are_ready()

    def _one_of_several(self, how: str) -> bool:
        """A node is away until another has taken over, and comes back."""
        victim = self.nodes.drawn()
        if how == PAUSED:
            with paused(victim), self.nodes.left_alone(victim):
                pause(self.draws.uniform(0, 2))
            return True
        if how == STOPPED:
            assert victim.stop() == 0
        else:
            victim.kill()
        with self.nodes.left_alone(victim):
            pause(self.draws.uniform(0, 2))
        return True

    def _at(self, case: Case, act: Callable[[], None]) -> bool:
        """Starts with the fault point set, does something, and waits until the step is reached; whether it
        was. Of several nodes the first to reach it is meant."""
        self.nodes.kill()
        folder = Path(tempfile.mkdtemp(dir=self.folder))
        action = "kill" if case.victim == "itself" else "wait"
        self.nodes.start(
            ready=False,
            environment={"FIRN_FAULT_POINT": f"{case.step}:{action}", "FIRN_FAULT_FOLDER": str(folder)},
        )
        act()
        try:
            wait_for((folder / f"{case.step}.reached").exists, REACHED_S, str(case))
        except AssertionError:
            self._end("main")
            return False
        if case.victim == "itself":
            pause(DYING_S)
        else:
            self._end(case.victim)
            (folder / f"{case.step}.go").touch()
        return True

    def _end(self, victim: str) -> None:
        if victim in ("catalog", "broker"):
            service = "kafka" if victim == "broker" else victim
            self.stack.kill(service)
            self.stack.start(service)
        elif victim == "worker" and (node := self.nodes.drawn()).alive:
            workers = wait_for(lambda: started_by(node.pid), REACHED_S, "a worker to kill")
            self.draws.choice(workers).kill()
        elif victim == "main":
            self.nodes.drawn().kill()

    def _is_parked(self, table: TableName) -> bool:
        """Whether the catalog has a parked record of a table."""
        return ExtrasClient(self.catalog).find_parked(table) is not None

    def _while_parking(self, case: Case) -> bool:
        """The table breaks; the process dies somewhere on the way to its parking; it is healed while records
        flow."""
        # One that an earlier kill has left parked is not parked anew.
        self.nodes.wait_until(
            lambda: self.nodes.are_ready() and not self._is_parked(table_of(self.sick)),
            REST_S,
            "the table that is to be broken being whole",
        )
        with ExitStack() as broken:
            reached = self._at(case, partial(_enter, broken, self.data))
            self.nodes.wait_until(self._is_back, BACK_S, "the ingester coming back while the table is broken")
            pause(self.draws.uniform(0, 2))
        return reached

    def _while_draining(self, case: Case) -> bool:
        """The table is parked, the node starts again, the table is healed, and the process dies somewhere on
        the way back."""
        with ExitStack() as broken:
            broken.enter_context(unwritable(self.data))
            self.nodes.wait_until(
                lambda: self.nodes.parks(str(table_of(self.sick))),
                BACK_S,
                "the broken table being parked",
            )
            return self._at(case, broken.close)

    def _late_commit(self) -> bool:
        """A commit stays in the air, its sender dies, the next one has loaded the marks, and only then it
        lands."""
        sender = self.nodes.drawn()
        sender.kill()
        self.proxy.hold()
        sender.start(ready=False, environment={"FIRN_INGEST_CATALOG__URI": self.proxy.address})
        held = self.proxy.held.wait(REACHED_S)
        sender.kill()
        self.nodes.start()
        before = {name: rows(self.catalog, name, self._topic_id()).total() for name in self.flow.good}
        self.nodes.wait_until(
            lambda: any(
                rows(self.catalog, n, self._topic_id()).total() > count for n, count in before.items()
            ),
            60,
            "marks being loaded",
        )
        if held:
            self.proxy.land()
        return held

    # ---- the end

    def verify(self) -> Found:
        """Everything comes to rest; then every record is looked for."""
        self.flow.end()
        self.nodes.wait_until(
            lambda: self.nodes.are_ready() and not any(map(self._is_parked, self.flow.good)),
            REST_S,
            "nothing being parked",
        )
        ends = self.kafka.ends(self.flow.topic)
        group = self.nodes.first.group
        self.nodes.wait_until(
            lambda: self.kafka.group_offsets(group, self.flow.topic) == ends,
            REST_S,
            f"group offsets at {ends}",
        )
        assert not any(self.nodes.stop())
        found = {name: rows(self.catalog, name, self._topic_id()) for name in self.flow.good}
        letters = dead(self.kafka, self.nodes.first.dead_letter_topic)
        return compare(self.flow.good, self.flow.bad, found, letters)


def _enter(broken: ExitStack, folder: Path) -> None:
    broken.enter_context(unwritable(folder))


def run_matrix(stack: Stack, folder: Path, kills: int, seed: int, nodes: int = 1) -> dict[str, object]:
    """So many kills on a running stack; what the command prints."""
    draws = random.Random(seed)
    catalog = CatalogClient(stack.address("catalog"))
    matrix = Matrix(stack, KafkaTopics(stack.address("kafka")), catalog, folder, draws, nodes)
    with matrix.running():
        for number, case in enumerate(cases(kills, draws, nodes), 1):
            print(f"kill {number}: {case}", file=sys.stderr, flush=True)
            matrix.kill(case)
        found = matrix.verify()
    records = sum(map(len, matrix.flow.good.values())) + len(matrix.flow.bad)
    result: dict[str, object] = {
        "kills": kills,
        "lost": found.lost,
        "doubled": found.doubled,
        "by_step": matrix.by_step,
        "records": records,
        "nodes": nodes,
        "seed": seed,
    }
    return result | ({"details": found.details} if found.details else {})


def main(
    kills: Annotated[int, typer.Option(help="how many")] = 200,
    seed: Annotated[int, typer.Option(help="of everything random")] = 1,
    nodes: Annotated[int, typer.Option(help="that share the input", min=1)] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON object as the last line")] = False,
) -> None:
    """Kills, and counts what was lost or doubled; ends with 1 where anything was."""
    with (
        tempfile.TemporaryDirectory(prefix="firn-crashes-") as name,
        Stack(Path(name) / "stack", tied=True) as stack,
    ):
        stack.start("kafka", "catalog")
        folder = Path(name) / "ingest"
        folder.mkdir()
        result = run_matrix(stack, folder, kills, seed, nodes)
    typer.echo(
        orjson.dumps(result).decode()
        if as_json
        else "\n".join(f"{key}: {value}" for key, value in result.items())
    )
    if result["lost"] or result["doubled"]:
        raise typer.Exit(1)


if __name__ == "__main__":
    app = typer.Typer(pretty_exceptions_enable=False, add_completion=False)
    app.command()(main)
    app()
