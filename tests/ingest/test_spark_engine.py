"""The engine on Spark: exact by record identity, alone and in turns with the local one, whatever dies."""

import os
import random
import tempfile
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pytest

from infra.local.supervisor import Stack
from ingest.model.fault_point import SPARK_STEPS
from lake.catalog_client import CatalogClient, TableName
from lake.settings import IngestSettings
from lake.settings.group import variable
from lake.settings.secret_files import secret_names
from lake.storage import local_path, open_storage
from tests.faults.crash.identities import compare, dead, rows
from tests.faults.crash.record_flow import RecordFlow, table_of
from tests.optimize.support.live_files import live_files, live_uris
from tests.stack.support.ingester import Ingester
from tests.stack.support.kafka_topics import KafkaTopics, Record
from tests.stack.support.parked import unwritable
from tests.stack.support.secured_kafka import grant
from tests.stack.support.spark_cluster import OPTIONS, spark_machines
from tests.stack.support.waiting import fresh, pause, wait_for

pytestmark = pytest.mark.stack

KILLS = int(os.environ.get("FIRN_TEST_KILLS", "50"))
PARTITIONS = 4
REACHED_S, BACK_S, REST_S = 90.0, 120.0, 120.0
# Every run of the tests has the driver die at one of these five, drawn by its seed: by itself at four, with
# the main process at one.
FIRST_STEPS = ("job_ended", "metadata_written", "job_collected", "handed_over", "offsets_stored")
FIRST_DEATHS = 1
# Those at which tasks and the main process die; of the death of a task on this machine alone the driver dies,
# too.
STEPS = (
    *FIRST_STEPS,
    "routed_in_batch",
    "commit_answered",
    "dead_letters_acknowledged",
    "settled",
    "files_synced",
    "offsets_confirmed",
)


@dataclass
class Flowing:
    """Records that keep coming, and an ingester whose engine a test chooses at every start."""

    stack: Stack
    kafka: KafkaTopics
    flow: RecordFlow
    ingester: Ingester
    draws: random.Random

    @property
    def catalog(self) -> CatalogClient:
        return CatalogClient(self.stack.address("catalog"))

    def rows(self, names: Collection[TableName]) -> int:
        return sum(rows(self.catalog, name, self.kafka.topic_id(self.flow.topic)).total() for name in names)

    def wait_for_more(self, *names: TableName) -> None:
        """Returns when more rows are committed than there were, in these tables or in all."""
        tables = names or tuple(self.flow.good)
        before = self.rows(tables)
        self.ingester.wait_until(lambda: self.rows(tables) > before, BACK_S, "more rows")

    def is_back(self) -> bool:
        """Whether it reads again; a main process that died is started, everything else the node replaces
        itself."""
        if not self.ingester.alive:
            self.ingester.start(ready=False)
        return self.ingester.is_ready()

    def die_at(self, steps: Sequence[str], folder: Path) -> None:
        """Starts it and has it die at each of these steps, one after the other as it comes to them; returns
        when it has died the last time.

        It is armed once for all of them: a start for each would cost more than what is tested.
        """
        fault = ",".join(f"{step}:kill" for step in steps)
        reached = [folder / f"{step}.reached" for step in steps]
        deadline_s = time.monotonic() + REACHED_S * len(steps)
        while not all(file.exists() for file in reached):
            missing = [file.stem for file in reached if not file.exists()]
            assert time.monotonic() < deadline_s, (
                f"it never came to {missing}:\n{self.ingester.log()[-4_000:]}"
            )
            if not self.ingester.alive:
                self.ingester.start(
                    ready=False, environment={"FIRN_FAULT_POINT": fault, "FIRN_FAULT_FOLDER": str(folder)}
                )
            pause(0.2)

    def check(self) -> None:
        """Ends the flow; when everything is at rest, every record is looked for by its identity."""
        self.flow.end()
        ends = self.kafka.ends(self.flow.topic)
        self.ingester.wait_until(
            lambda: self.ingester.is_ready() and self.ingester.parked(*self.flow.good) == {},
            REST_S,
            "nothing being parked",
        )
        self.ingester.wait_until(
            lambda: self.kafka.group_offsets(self.ingester.group, self.flow.topic) == ends,
            REST_S,
            f"group offsets at {ends}",
        )
        assert self.ingester.stop() == 0
        found = {
            name: rows(self.catalog, name, self.kafka.topic_id(self.flow.topic)) for name in self.flow.good
        }
        result = compare(
            self.flow.good, self.flow.bad, found, dead(self.kafka, self.ingester.dead_letter_topic)
        )
        assert (result.lost, result.doubled) == (0, 0), result.details


@contextmanager
def _flowing(stack: Stack, kafka: KafkaTopics, folder: Path, **settings: str) -> Iterator[Flowing]:
    seed = int(os.environ.get("FIRN_TEST_SEED", random.SystemRandom().randrange(10**9)))
    print(f"FIRN_TEST_SEED={seed}")
    topic, name = kafka.topic(PARTITIONS), fresh("g-")
    own = {
        "kafka__group": name,
        "internal_topics__dead_letters": f"dead-{name}",
        "internal_topics__parked": f"parked-{name}",
        "internal_topics__replay": f"replay-{name}",
        "shutdown_s": "30",
    }
    quick = {
        "flush__interval_s": "0.4",
        "tables__park_after_s": "0.8",
        "commit__timeout_s": "5",
        "kafka__bootstrap_servers": kafka.bootstrap_servers,
    }
    flow = RecordFlow(kafka, topic, [fresh("spark-") for _ in range(5)], PARTITIONS, random.Random(seed))
    ingester = Ingester(
        folder, stack.environment(), [{"name": topic}], {"engine": "spark", **own, **quick, **settings}
    )
    grant(kafka.bootstrap_servers, ingester.grants())
    try:
        with flow:
            yield Flowing(stack, kafka, flow, ingester, random.Random(seed + 1))
    finally:
        ingester.kill()


@pytest.mark.timeout(900)
def test_engines_take_turns_on_one_topic(stack: Stack, kafka: KafkaTopics, tmp_path: Path) -> None:
    """Local, Spark, whose driver dies at steps of the protocol, local, while records flow: every identity is
    there once. What Spark tells of its applications names no secret."""
    events = tmp_path / "events"
    events.mkdir()
    told = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": events.as_uri(),
        "spark.eventLog.compress": "false",
    }
    with _flowing(stack, kafka, tmp_path, spark__options=orjson.dumps(told).decode()) as flowing:
        ingester = flowing.ingester
        ingester.restart_with(engine="local")
        flowing.wait_for_more()
        assert ingester.stop() == 0
        ingester.set(engine="spark")
        flowing.die_at(flowing.draws.sample(FIRST_STEPS, FIRST_DEATHS), tmp_path)
        ingester.kill()
        ingester.restart_with(engine="local")
        flowing.wait_for_more()
        flowing.check()
    text = "".join(file.read_text() for file in events.rglob("*") if file.is_file())
    assert "SparkListenerEnvironmentUpdate" in text
    secrets = _secrets(ingester.environment)
    assert secrets
    assert [secret for secret in secrets if secret in text] == []


def _secrets(variables: Mapping[str, str]) -> list[str]:
    """Those that the settings of an ingester hold, in variables or in files."""
    found: list[str] = []
    for name in secret_names(IngestSettings):
        at = variable("FIRN_INGEST_", name)
        if at in variables:
            found += orjson.loads(variables[at]) if variables[at].startswith("[") else [variables[at]]
        if f"{at}_FILE" in variables:
            found.append(Path(variables[f"{at}_FILE"]).read_text().strip())
    return found


@pytest.mark.prove
@pytest.mark.timeout(300 * KILLS + 300)
def test_nothing_is_lost_or_doubled_whichever_process_dies_at_whatever_step(
    stack: Stack, kafka: KafkaTopics, tmp_path: Path
) -> None:
    """SIGKILL of tasks, of the driver and of the main process at named steps while records flow."""
    assert set(STEPS) >= set(SPARK_STEPS)
    with _flowing(stack, kafka, tmp_path) as flowing:
        for at in range(0, KILLS, len(STEPS)):
            flowing.ingester.kill()
            flowing.die_at(STEPS[: KILLS - at], Path(tempfile.mkdtemp(dir=tmp_path)))
            wait_for(flowing.is_back, BACK_S, "the ingester coming back")
            flowing.wait_for_more()
        flowing.check()


@pytest.mark.prove
@pytest.mark.timeout(600)
def test_a_table_that_takes_no_rows_is_parked_by_tasks_and_drained(
    stack: Stack, kafka: KafkaTopics, tmp_path: Path
) -> None:
    """The others go on meanwhile; healed, it has every record once."""
    with _flowing(stack, kafka, tmp_path) as flowing:
        flowing.ingester.start()
        flowing.wait_for_more()
        sick = table_of(flowing.flow.tenants[0])
        flowing.ingester.wait_until(
            lambda: rows(flowing.catalog, sick, kafka.topic_id(flowing.flow.topic)),
            BACK_S,
            "rows of the table",
        )
        data = local_path(flowing.catalog.load_table(sick)["metadata"]["location"]) / "data"
        with unwritable(data):
            flowing.ingester.wait_until(
                lambda: flowing.ingester.has_parked(str(sick)), BACK_S, "the table being parked"
            )
            flowing.wait_for_more(*(name for name in flowing.flow.good if name != sick))
        flowing.check()


@pytest.mark.prove
@pytest.mark.timeout(900)
def test_a_cluster_of_which_one_worker_dies_in_the_middle_of_a_task(
    stack: Stack, kafka: KafkaTopics, tmp_path: Path
) -> None:
    """On a standalone cluster, with our packages shipped to it: what the dead worker had read, the other one
    reads again."""
    reached = tmp_path / "files_written.reached"
    fault = {"FIRN_FAULT_POINT": "files_written:wait", "FIRN_FAULT_FOLDER": str(tmp_path)}
    options = OPTIONS | {f"spark.executorEnv.{name}": value for name, value in fault.items()}
    with spark_machines(tmp_path) as machines:
        with _flowing(
            stack,
            kafka,
            tmp_path,
            spark__master=machines.master,
            spark__options=orjson.dumps(options).decode(),
        ) as flowing:
            flowing.ingester.start()
            flowing.ingester.wait_until(
                lambda: reached.exists() and reached.read_text(),
                REACHED_S,
                "a task that has written its files",
            )
            machines.kill_worker_of(int(reached.read_text()))
            flowing.wait_for_more()
            flowing.check()


MANY_TENANTS, BATCH_RECORDS = 150, 45_000


@pytest.mark.prove
@pytest.mark.timeout(600)
def test_small_parts_of_many_tables_become_one_file_each(
    stack: Stack, kafka: KafkaTopics, tmp_path: Path
) -> None:
    """Two tasks that both meet all tables write two files of each in the first batch; in the next they hand
    on what they have, and each has one more."""
    topic, name, draws = kafka.topic(PARTITIONS), fresh("g-"), random.Random(1)
    tenants = [fresh("many-") for _ in range(MANY_TENANTS)]
    own = {
        "kafka__group": name,
        "internal_topics__dead_letters": f"dead-{name}",
        "internal_topics__parked": f"parked-{name}",
        "internal_topics__replay": f"replay-{name}",
    }
    settings = {
        "engine": "spark",
        **own,
        "flush__interval_s": "20",
        "shutdown_s": "30",
        "kafka__bootstrap_servers": kafka.bootstrap_servers,
    }
    ingester, catalog, storage = (
        Ingester(tmp_path, stack.environment(), [{"name": topic}], settings),
        CatalogClient(stack.address("catalog")),
        open_storage(),
    )
    grant(kafka.bootstrap_servers, ingester.grants())
    good: dict[TableName, set[tuple[int, int]]] = {table_of(tenant): set() for tenant in tenants}
    bad: set[tuple[int, int]] = set()

    def produce() -> None:
        sent = [draws.choice(tenants) for _ in range(BATCH_RECORDS)]
        records = [
            Record(
                b'{"n":%d}' % at if at % 1_000 else b"{",
                headers=(("tenant", tenant.encode()),),
                partition=at % PARTITIONS,
            )
            for at, tenant in enumerate(sent)
        ]
        for at, (tenant, place) in enumerate(zip(sent, kafka.produce(topic, records), strict=True)):
            (good[table_of(tenant)] if at % 1_000 else bad).add((place.partition, place.offset))

    def files() -> int:
        return sum(sum(live_files(catalog, storage, table).values()) for table in good)

    def written() -> bool:
        stored = kafka.group_offsets(ingester.group, topic)
        return stored == kafka.ends(topic)

    try:
        produce()
        ingester.start()
        ingester.wait_until(written, BACK_S, "the first batch")
        first = files()
        assert first == 2 * MANY_TENANTS
        produce()
        ingester.wait_until(written, BACK_S, "the second batch")
        assert files() == first + MANY_TENANTS
        assert [job["handed_on"] for job in _jobs(ingester)] == [False, True]
    finally:
        ingester.kill()
    found = {table: rows(catalog, table, kafka.topic_id(topic)) for table in good}
    result = compare(good, bad, found, dead(kafka, ingester.dead_letter_topic))
    assert (result.lost, result.doubled) == (0, 0), result.details


def _jobs(ingester: Ingester) -> list[dict[str, Any]]:
    return [
        event
        for text in ingester.log().splitlines()
        if "job.ended" in text and (event := orjson.loads(text))["event"] == "job.ended"
    ]


# A task that runs for longer than a second is run a second time, beside it.
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "200ms",
    "spark.speculation.task.duration.threshold": "1s",
}


@pytest.mark.prove
@pytest.mark.timeout(900)
def test_a_task_that_runs_twice_at_once_and_once_more(
    stack: Stack, kafka: KafkaTopics, tmp_path: Path
) -> None:
    """One that hangs with its files written gets a twin; that dies with its own written and its dead letters
    sent, and is tried again: nothing is there twice, and what the others wrote belongs to no table."""
    fault = {
        "FIRN_FAULT_POINT": "files_synced:wait,dead_letters_acknowledged:kill",
        "FIRN_FAULT_FOLDER": str(tmp_path),
    }
    options = OPTIONS | SPECULATION | {f"spark.executorEnv.{name}": value for name, value in fault.items()}
    with spark_machines(tmp_path) as machines:
        with _flowing(
            stack,
            kafka,
            tmp_path,
            spark__master=machines.master,
            spark__options=orjson.dumps(options).decode(),
        ) as flowing:
            flowing.ingester.start()
            for step in ("files_synced", "dead_letters_acknowledged"):
                flowing.ingester.wait_until(
                    (tmp_path / f"{step}.reached").exists, 2 * REACHED_S, step
                )  # two executors begin at once
            (tmp_path / "files_synced.go").touch()
            flowing.wait_for_more()
            flowing.check()
            assert "node.restarts" not in flowing.ingester.log()
            assert any(_unreferenced(flowing.catalog, name) for name in flowing.flow.good)


def _unreferenced(catalog: CatalogClient, name: TableName) -> set[str]:
    """Data files of a table that lie there and belong to no snapshot."""
    location = local_path(catalog.load_table(name)["metadata"]["location"])
    return {str(file) for file in (location / "data").rglob("*.parquet")} - {
        str(local_path(uri)) for uri in live_uris(catalog, open_storage(), name)
    }
