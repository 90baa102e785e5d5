"""Crashes at random moments, and every record identity once: on local files with SQLite, on S3 with
PostgreSQL."""

import os
import random
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

import orjson
import pytest

from infra.local.supervisor import Stack
from tests.stack.support.ingester import Ingester
from tests.stack.support.kafka_topics import Delivered, KafkaTopics, Record
from tests.stack.support.line import Line
from tests.stack.support.shared_services import lend_trino
from tests.stack.support.waiting import fresh, pause, wait_for

pytestmark = pytest.mark.stack

SEED_VARIABLE = "FIRN_TEST_SEED"
# The long proof kills sixty times.
KILLS = int(os.environ.get("FIRN_TEST_KILLS", "4"))
PARTITIONS = 4
TENANTS = 6
CHUNK_RECORDS = 100
BAD_SHARE = 0.03


@pytest.fixture(scope="module")
def s3_line(kafka: KafkaTopics, services: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Line]:
    """A line whose warehouse is on S3 and whose catalog is on PostgreSQL; the broker is the shared one."""
    with Stack(tmp_path_factory.mktemp("s3-stack"), warehouse="s3://firn-warehouse/line", tied=True) as stack:
        stack.start("catalog", database="postgres")
        lend_trino(services, stack)
        line = Line(stack, kafka, tmp_path_factory.mktemp("s3-line"))
        yield line
        line.catalog.close()


@dataclass
class Flow:
    """Records that keep coming in a thread of their own. `good` and `bad`: identity (partition, offset) ->
    number of the record."""

    kafka: KafkaTopics
    topic: str
    tenants: list[str]
    total: int
    random: random.Random
    good: dict[str, dict[tuple[int, int], int]] = field(default_factory=dict)
    bad: set[tuple[int, int]] = field(default_factory=set)
    failure: BaseException | None = None

    def run(self) -> None:
        try:
            for first in range(0, self.total, CHUNK_RECORDS):
                self._chunk(range(first, min(first + CHUNK_RECORDS, self.total)))
                pause(self.random.uniform(0, 0.3))
        except BaseException as error:  # shown by the test, which runs in another thread
            self.failure = error
            raise

    def _chunk(self, numbers: range) -> None:
        records, kinds = list[Record](), list[tuple[str, bool]]()
        for number in numbers:
            tenant, bad = self.random.choice(self.tenants), self.random.random() < BAD_SHARE
            body = (
                b'{"n":' + str(number).encode()
                if bad
                else orjson.dumps({"n": number, f"field_{number % 7}": "x" * (number % 50)})
            )
            headers = (("tenant", tenant.encode()),)
            records.append(Record(body, headers=headers, partition=self.random.randrange(PARTITIONS)))
            kinds.append((tenant, bad))
        for number, (tenant, bad), place in zip(
            numbers, kinds, self.kafka.produce(self.topic, records), strict=True
        ):
            identity = (place.partition, place.offset)
            if bad:
                self.bad.add(identity)
            else:
                self.good.setdefault(tenant, {})[identity] = number


def _crash_while_flowing(
    ingester: Ingester, producing: threading.Thread, kills: int, draws: random.Random
) -> None:
    """Kills and restarts; mostly in the middle of work, now and then while it is still starting."""
    producing.start()
    for _ in range(kills):
        while_starting = draws.random() < 0.2
        ingester.start(ready=not while_starting)
        pause(draws.uniform(0.1, 1.5))
        ingester.kill()
    ingester.start()


def _rows(line: Line, tenant: str, topic_id: str) -> list[tuple[tuple[int, int], int]]:
    found = line.sql(f"SELECT _topic_partition, _offset, n, _topic_id, _index FROM {line.table(tenant)}")
    assert {(row[3], row[4]) for row in found} == {(topic_id, 0)}
    return [((row[0], row[1]), int(row[2])) for row in found]


def _check(line: Line, ingester: Ingester, flow: Flow) -> None:
    """Gaps and doubles, by identity and by what the record says."""
    topic_id = line.kafka.topic_id(flow.topic)
    for tenant, expected in flow.good.items():
        rows = _rows(line, tenant, topic_id)
        assert len(rows) == len(dict(rows)), f"{tenant}: {len(rows) - len(dict(rows))} identities are doubled"
        assert dict(rows) == expected, (
            f"{tenant}: {len(expected.keys() - dict(rows).keys())} records are missing"
        )
    letters: dict[tuple[str, int, int], Delivered] = line.kafka.dead_letters(ingester.dead_letter_topic)
    assert {identity[1:] for identity in letters} == flow.bad
    assert {identity[0] for identity in letters} <= {topic_id}


@pytest.mark.parametrize(
    ("where", "records", "kills"),
    [("line", 700 * KILLS, KILLS), ("s3_line", 2_000, 3)],
    ids=["local files, SQLite", "S3, PostgreSQL"],
)
def test_every_record_is_there_once_however_often_the_ingester_is_killed(
    request: pytest.FixtureRequest, where: str, records: int, kills: int
) -> None:
    """After SIGKILLs at random moments while records flow, Trino finds every identity exactly once, and the
    group offset is where the topic ends."""
    line: Line = request.getfixturevalue(where)
    seed = int(os.environ.get(SEED_VARIABLE, random.SystemRandom().randrange(10**9)))
    print(f"{SEED_VARIABLE}={seed}")
    draws = random.Random(seed)
    topic = line.kafka.topic(PARTITIONS)
    tenants = [fresh("Crash-") for _ in range(TENANTS)]
    flow = Flow(line.kafka, topic, tenants, records, random.Random(seed + 1))
    ingester = line.ingester(topic, start=False, flush__interval_s=0.4)
    producing = threading.Thread(target=flow.run, name="producing")
    try:
        _crash_while_flowing(ingester, producing, kills, draws)
        producing.join(60)
        assert flow.failure is None
        for tenant, expected in flow.good.items():
            line.wait_for_rows(ingester, tenant, len(expected))
        line.wait_for_dead_letters(ingester, len(flow.bad))
        ends = line.kafka.ends(
            topic
            # the last one may have all rows from before the kill: it has to read the rest again before it is
            # stopped
        )
        wait_for(
            lambda: line.kafka.group_offsets(ingester.group, topic) == ends, 30, f"group offsets at {ends}"
        )
        assert ingester.stop() == 0
        _check(line, ingester, flow)
    finally:
        producing.join(60)
        ingester.kill()


def test_tables_of_the_s3_line_lie_on_s3(s3_line: Line) -> None:
    """The parametrised test above really ran on S3 and PostgreSQL: the catalog of its second stack says
    so."""
    assert s3_line.catalog.warehouse == "s3://firn-warehouse/line"
    assert s3_line.stack.environment()["FIRN_CATALOG_DATABASE_URL"].startswith("postgresql+psycopg://")
    locations = [
        s3_line.catalog.load_table(t)["metadata"]["location"]
        for n in s3_line.catalog.namespaces()
        for t in s3_line.catalog.tables(n)
    ]
    assert len(locations) >= TENANTS
    assert all(location.startswith("s3://firn-warehouse/line/") for location in locations)
