"""Spark merges closed hours while ingestion and Trino go on."""

import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import orjson
import pytest

from lake.catalog_client import TableName
from lake.marks import MARKS_PROPERTY, parse_marks
from lake.storage import open_storage
from tests.optimize.conftest import Optimizer
from tests.optimize.support.live_files import live_files, missing_files
from tests.stack.support.ingester import Ingester
from tests.stack.support.kafka_topics import Record
from tests.stack.support.line import Line
from tests.stack.support.waiting import fresh, wait_for

pytestmark = pytest.mark.stack

FLUSHES = 12
ROWS = 25
IDENTITY = "(_topic_id, _topic_partition, _offset, _index)"


def records(tenant: str, moment: datetime, count: int) -> list[Record]:
    return [
        Record(
            orjson.dumps(
                {"timestamp": (moment + timedelta(seconds=at)).isoformat(), "message": f"m{at}", "n": at}
            ),
            headers=(("tenant", tenant.encode()),),
        )
        for at in range(count)
    ]


@pytest.mark.prove
def test_small_files_of_a_closed_hour_become_one_while_ingestion_goes_on(
    line: Line, ingester: Callable[..., Ingester], optimizer: Callable[..., Optimizer]
) -> None:
    """Twelve files of a closed hour become one with the same rows; Trino counts the same before, during and
    after; the marks only move on."""
    tenant, topic = fresh("acme"), line.kafka.topic()
    ingest = ingester(topic, flush__interval_s=0.2)
    closed = datetime.now(UTC).replace(minute=5, second=0, microsecond=0) - timedelta(hours=3)
    for flush in range(1, FLUSHES + 1):
        line.kafka.produce(topic, records(tenant, closed, ROWS))
        line.wait_for_rows(ingest, tenant, flush * ROWS)
    table, name = line.table(tenant), TableName(tenant, "logs")
    storage, hour = open_storage(), int(closed.timestamp()) // 3600
    name = next(
        t
        for t in line.catalog.tables(
            next(n for n in line.catalog.namespaces() if tenant.replace("-", "_2d") == n)
        )
    )
    assert live_files(line.catalog, storage, name)[hour] >= 10
    before = parse_marks(line.catalog.load_table(name)["metadata"]["properties"][MARKS_PROPERTY])

    stop = threading.Event()
    counted: list[tuple[int, int]] = []
    produced = 0

    def produce_on() -> None:
        nonlocal produced
        while not stop.wait(0.15):
            line.kafka.produce(topic, records(tenant, datetime.now(UTC), 5))
            produced += 5

    def count_on() -> None:
        upper = closed.replace(minute=0) + timedelta(hours=1)
        while not stop.wait(1.5):
            ((rows, distinct),) = line.sql(
                f"SELECT count(*), count(DISTINCT {IDENTITY}) FROM {table} WHERE timestamp < TIMESTAMP "
                f"'{upper:%Y-%m-%d %H:%M:%S} UTC'"
            )
            counted.append((rows, distinct))

    threads = [threading.Thread(target=work) for work in (produce_on, count_on)]
    for thread in threads:
        thread.start()
    try:
        wait_for(lambda: len(counted) >= 2, 120, "two counts before")
        optimizer().run("run", "--once", "--table", f"{name.namespace}.{name.name}")
        seen = len(counted)
        wait_for(lambda: len(counted) >= seen + 2, 120, "two counts after")
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    line.wait_for_rows(ingest, tenant, FLUSHES * ROWS + produced)

    assert live_files(line.catalog, storage, name)[hour] == 1
    assert set(counted) == {(FLUSHES * ROWS, FLUSHES * ROWS)}, (
        "every count, before, during and after, sees all rows once"
    )
    metadata = line.catalog.load_table(name)["metadata"]
    assert any(s["summary"]["operation"] == "replace" for s in metadata["snapshots"])
    after = parse_marks(metadata["properties"][MARKS_PROPERTY])
    assert all(after.of(partition) >= offset for partition, offset in before.offsets.items())
    total = FLUSHES * ROWS + produced
    assert line.sql(f"SELECT count(*), count(DISTINCT {IDENTITY}), max(_offset) FROM {table}") == [
        (total, total, total - 1)
    ]
    assert missing_files(line.catalog, storage, name) == []
    told = line.sql(
        f"SELECT action, outcome, files_after FROM firn_system.maintenance WHERE tenant_table = '{name}'"
    )
    assert told == [("merge", "done", 1)]
