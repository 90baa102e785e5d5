"""`python -m tests.faults.change_streams --transactions N --kills K --seed S --json`: tables that follow a
real database, under faults.

Random transactions go on in PostgreSQL; Debezium's connector sends them; an ingester writes them, and is
killed, at named steps of the protocol and at random, with other numbers of workers after it. Commits lose
their answers, or arrive late. The connector is killed, too, and set back to where it was before. The
optimizer has its rounds beside. In the end each table is compared with its source, row by row, in Trino, and
every snapshot of each is looked at: whether it has a key twice. The last line of the output is one JSON
object with --json: transactions, tables, kills, rows_expected, rows_found, different,
doubled_in_any_snapshot.
"""

import random
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import orjson
import typer

from infra.local.supervisor import Stack
from lake.catalog_client import CatalogClient, TableName
from lake.storage import open_storage
from lake.tenant import to_identifier
from tests.faults.crash.catalog_proxy import CatalogProxy
from tests.faults.streams.compared_rows import Compared, compare
from tests.faults.streams.connector import Connector
from tests.faults.streams.every_snapshot import SnapshotReader
from tests.faults.streams.killed_ingester import KilledIngester
from tests.faults.streams.source_database import LAST, SourceDatabase
from tests.optimize.conftest import Optimizer
from tests.stack.support.kafka_topics import KafkaTopics
from tests.stack.support.line import Sql, trino_sql
from tests.stack.support.waiting import fresh, wait_for

SERVICES = ("kafka", "catalog", "trino", "postgres", "connect")
REST_S = 400.0
STEP_S = 120.0
# Of so many kills: the connector is set back, commits lose their answers, the optimizer has a round.
SET_BACK_OF, LOST_OF, ROUND_OF = 3, 3, 5


@dataclass
class Streams:
    """The services, the source, and all that happens to what follows it."""

    stack: Stack
    folder: Path
    chance: random.Random
    source: SourceDatabase
    happened: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.kafka = KafkaTopics(self.stack.address("kafka"))
        self.catalog = CatalogClient(self.stack.address("catalog"))
        self.sql: Sql = trino_sql(self.stack)
        self.connector = Connector(self.stack, self.kafka, self.source.name, self.source.topics, self.folder)
        self.optimizer: Optimizer | None = None

    def table(self, name: str) -> TableName:
        """The lake's table of a source's."""
        return TableName(to_identifier(self.source.name), to_identifier(name))

    def run(self, kills: int) -> None:
        """Lets the transactions go on, and things happen; returns when all changes are in their tables."""
        self.connector.start()
        with CatalogProxy(self.stack.address("catalog")) as proxy, self.source, ExitStack() as ended:
            ended.callback(self.connector.stop)
            self.ingester = KilledIngester(self.stack, self.folder, self._topics(), proxy, self.chance)
            ended.callback(self.ingester.end)
            events = self._events(kills)
            apart = self.source.transactions / (len(events) + 1)
            self.source.limit = int(apart)
            wait_for(self.connector.keep_offsets, STEP_S, "the connector behind its snapshot")
            self.source.is_followed = True
            for at, (name, happen) in enumerate(events, 1):
                # While something happens transactions go on, but do not run away from what is to come.
                self.source.limit = int((at + 1) * apart)
                self.source.wait_for(int(at * apart), REST_S * 10)
                self.connector.keep_offsets()
                print(f"after {self.source.made} transactions: {name}", file=sys.stderr, flush=True)
                happen()
                self.happened[name] = self.happened.get(name, 0) + 1
            self.source.limit = self.source.transactions
            self.source.wait_for(self.source.transactions, REST_S * 10)
            self._come_to_rest()
            if self.optimizer is not None:
                self._end_round()

    def _topics(self) -> list[Mapping[str, Any]]:
        changes = {"mode": "upsert", "format": "debezium", "order_by": "position"}
        return [
            {
                "name": self.connector.topic(name),
                "tenant": [f"const:{self.source.name}"],
                "stream": [f"const:{name}"],
                "changes": changes,
            }
            for name in self.source.topics
        ]

    def _events(self, kills: int) -> list[tuple[str, Callable[[], None]]]:
        made: list[tuple[str, Callable[[], None]]] = [
            (kind, partial(self._kill, kind)) for kind in KilledIngester.draw(kills, self.chance)
        ]
        made += [("connector_set_back", self._set_back)] * max(1, kills // SET_BACK_OF)
        made += [("answer_lost", self._lose_answer)] * max(1, kills // LOST_OF)
        made += [("maintenance", self._start_round)] * (kills // ROUND_OF)
        self.chance.shuffle(made)
        return made

    # ---- what happens

    def _kill(self, kind: str) -> None:
        self.ingester.kill(kind)

    def _lose_answer(self) -> None:
        self.ingester.lose_answer()

    def _set_back(self) -> None:
        """The connector dies, and starts where it was some events ago."""
        self.connector.check()
        wait_for(self.connector.keep_offsets, STEP_S, "an offset of the connector to go back to")
        self.connector.restart(back_to=self.chance.choice(self.connector.kept[-4:]))

    def _start_round(self) -> None:
        if self.optimizer is not None:
            self._end_round()
        folder = self.folder / fresh("o-")
        folder.mkdir()
        # Snapshots are kept: each is looked at in the end.
        self.optimizer = Optimizer(folder, self.stack, snapshots__count_max=100_000)
        self.optimizer.start("run", "--once")

    def _end_round(self) -> None:
        assert self.optimizer is not None
        assert self.optimizer.process is not None
        code = self.optimizer.process.wait(REST_S)
        assert code == 0, f"a round of maintenance ended with {code}:\n{self.optimizer.log()[-4_000:]}"
        self.optimizer = None

    # ---- the end

    def _come_to_rest(self) -> None:
        self.source.set_last()
        last = self.connector.topic(LAST)
        wait_for(lambda: sum(self.kafka.ends(last).values()), REST_S, "the last change in its topic")
        # It may be there before changes of other topics that come before it, and a connector that is stopped
        # does not wait for these. The half of a re-send would bring back rows whose deletes are in the other.
        position = orjson.loads(self.kafka.read(last)[0].value or b"")["payload"]["source"]["lsn"]
        wait_for(lambda: self.connector.has_sent(position), REST_S, "all changes in their topics")
        self.connector.stop()
        self.ingester.settle({topic: self.kafka.ends(topic) for topic in self.connector.topics}, REST_S)

    def compare(self) -> list[Compared]:
        """Compares each table with its source."""
        return [compare(self.source, table, self.table(table.name), self.sql) for table in self.source.tables]

    def look_at_snapshots(self) -> SnapshotReader:
        """Looks at every snapshot of each table."""
        reader = SnapshotReader(self.catalog, open_storage())
        for table in self.source.tables:
            reader.read(self.table(table.name), table.key_columns)
        return reader


def run_streams(
    stack: Stack, folder: Path, transactions: int, kills: int, seed: int, per_s: float
) -> dict[str, object]:
    """So many transactions and kills on a running stack; what the command prints."""
    source = SourceDatabase(stack.address("postgres"), fresh("shop_"), transactions, per_s, seed)
    streams = Streams(stack, folder, random.Random(seed), source)
    streams.run(kills)
    compared, reader = streams.compare(), streams.look_at_snapshots()
    source.close()
    result: dict[str, object] = {
        "transactions": transactions,
        "tables": len(compared),
        "kills": kills,
        "rows_expected": sum(each.expected for each in compared),
        "rows_found": sum(each.found for each in compared),
        "different": sum(len(each.different) for each in compared),
        "doubled_in_any_snapshot": len(reader.doubled),
        "snapshots": reader.snapshots,
        "changes": sum(sum(streams.kafka.ends(topic).values()) for topic in streams.connector.topics),
        "happened": streams.happened,
        "steps_reached": streams.ingester.steps_reached,
        "dead_letters": streams.ingester.dead_letters(),
        "seed": seed,
    }
    details = [*(text for each in compared for text in each.different[:5]), *reader.doubled[:10]]
    return result | ({"details": details} if details else {})


def main(
    transactions: Annotated[int, typer.Option(help="how many")] = 20_000,
    kills: Annotated[int, typer.Option(help="of the ingester")] = 20,
    seed: Annotated[int, typer.Option(help="of everything random")] = 1,
    per_s: Annotated[float, typer.Option(help="transactions a second")] = 40.0,
    keep: Annotated[Path | None, typer.Option(help="a new folder for all files, which is left")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON object as the last line")] = False,
) -> None:
    """Follows a database; ends with 1 where a table is not what its source is, or a key was ever twice."""
    with ExitStack() as ended:
        name = str(keep) if keep else ended.enter_context(tempfile.TemporaryDirectory(prefix="firn-streams-"))
        stack = ended.enter_context(Stack(Path(name) / "stack", tied=True))
        stack.start(*SERVICES)
        folder = Path(name) / "streams"
        folder.mkdir()
        result = run_streams(stack, folder, transactions, kills, seed, per_s)
    typer.echo(
        orjson.dumps(result).decode()
        if as_json
        else "\n".join(f"{key}: {value}" for key, value in result.items())
    )
    if result["different"] or result["doubled_in_any_snapshot"] or result["dead_letters"]:
        raise typer.Exit(1)


if __name__ == "__main__":
    app = typer.Typer(pretty_exceptions_enable=False, add_completion=False)
    app.command()(main)
    app()
