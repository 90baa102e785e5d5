"""Ingestion at full speed while everything is maintained all the time: the long proof of how the two get on
with each other."""

import os
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import orjson
import psutil
import pytest

from lake.catalog_client import TableName
from lake.commit import load_state, prepare_append
from lake.storage import open_storage
from lake.tenant import to_identifier
from tests.optimize.conftest import Optimizer
from tests.optimize.support.live_files import live_files, missing_files
from tests.optimize.support.small_files import this_hour
from tests.stack.support.ingester import Ingester
from tests.stack.support.kafka_topics import Record
from tests.stack.support.line import Line
from tests.stack.support.waiting import fresh, wait_for

pytestmark = [pytest.mark.stack, pytest.mark.prove]

SECONDS = float(os.environ.get("FIRN_TEST_FULL_SPEED_S", "60"))
TENANTS = 10
HOURS = 3  # closed hours that keep getting records
BATCH = 2_000
LAG_RECORDS_MAX = 20_000
CONFLICT_CPU_MAX = 0.05
SNAPSHOTS_MAX = 10
EAGER = {
    "interval_s": 5,
    "merge__late_cooldown_s": 20,
    "snapshots__interval_s": 1,
    "retention__reader_grace_s": 60,
}


class Load(threading.Thread):
    """Produces records as fast as the ingester reads them, over all tenants, over closed hours and this
    one."""

    def __init__(self, line: Line, ingester: Ingester, topic: str, tenants: list[str]) -> None:
        super().__init__()
        self._line, self._ingester, self._topic, self._tenants = line, ingester, topic, tenants
        self.stop = threading.Event()
        self.produced = 0

    def run(self) -> None:
        start = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
        while not self.stop.is_set():
            if self.produced - routed(self._ingester) > LAG_RECORDS_MAX:
                self.stop.wait(0.02)
                continue
            self._line.kafka.produce(
                self._topic, [self._record(start, self.produced + at) for at in range(BATCH)]
            )
            self.produced += BATCH

    def _record(self, start: datetime, at: int) -> Record:
        hours_ago = (0, *range(3, 3 + HOURS))[at // BATCH % (HOURS + 1)]
        moment = start - timedelta(hours=hours_ago) + timedelta(seconds=at % 60)
        body = {
            "timestamp": moment.isoformat(),
            "message": f"request {at} took {at % 977} ms",
            "status": 200 + at % 7,
            "path": f"/api/{at % 50}",
        }
        return Record(orjson.dumps(body), headers=(("tenant", self._tenants[at % TENANTS].encode()),))


def routed(ingester: Ingester) -> int:
    return sum(p["routed"] or 0 for p in ingester.status()["partitions"])


def counted(ingester: Ingester, status: str) -> float:
    """Table commits of the ingester with an outcome."""
    prefix = f'firn_ingest_table_commits_total{{status="{status}"}} '
    return sum(
        float(line.removeprefix(prefix))
        for line in ingester.metrics().splitlines()
        if line.startswith(prefix)
    )


def cpu_s(ingester: Ingester) -> float:
    assert ingester._process is not None
    root = psutil.Process(ingester._process.pid)
    return sum(
        times.user + times.system for times in (p.cpu_times() for p in (root, *root.children(recursive=True)))
    )


def conflict_cost_s(line: Line, name: TableName) -> float:
    """CPU seconds of what a committer does again after a conflict: load the table, prepare the commit
    anew."""
    storage, repeats = open_storage(), 20
    started_s = time.process_time()
    for _ in range(repeats):
        state = load_state(line.catalog, storage, name)
        assert state is not None
        prepare_append(state, [], state.schema, state.marks, state.updated_ms)
    return (time.process_time() - started_s) / repeats


@pytest.mark.timeout(1_800)
def test_ingestion_at_full_speed_beside_maintenance(
    line: Line, ingester: Callable[..., Ingester], optimizer: Callable[..., Optimizer]
) -> None:
    """Records come as fast as they are read, into closed hours too, while rounds of maintenance follow each
    other.

    No row is lost or doubled, conflicts cost the ingester less than 5 % of its CPU, no table has more than
    ten snapshots at any time, closed hours end as one file.
    """
    tenants = [fresh("fast") for _ in range(TENANTS)]
    names = [TableName(to_identifier(tenant), "logs") for tenant in tenants]
    topic, storage = line.kafka.topic(2), open_storage()
    ingest = ingester(topic, flush__interval_s=2)
    load = Load(line, ingest, topic, tenants)
    load.start()
    most_snapshots = 0
    try:
        wait_for(lambda: all(line.exists(tenant) for tenant in tenants), 120, "all tables")
        one = optimizer(**EAGER)
        process = one.start("run", *(part for name in names for part in ("--table", str(name))))
        end_s = time.monotonic() + SECONDS
        while time.monotonic() < end_s:
            assert process.poll() is None, one.log()[-3_000:]
            assert ingest.alive, ingest.log()[-3_000:]
            most_snapshots = max(
                most_snapshots,
                *(len(line.catalog.load_table(name)["metadata"]["snapshots"]) for name in names),
            )
            load.stop.wait(1.0)
    finally:
        load.stop.set()
        load.join()
    total = load.produced
    wait_for(lambda: sum(line.rows_written(tenant) for tenant in tenants) >= total, 300, f"{total} rows")
    conflicts, committed, spent_s = counted(ingest, "conflict"), counted(ingest, "committed"), cpu_s(ingest)
    one.kill()
    optimizer(merge__late_cooldown_s=0, lease_s=30).run(
        "run", "--once", *(part for name in names for part in ("--table", str(name)))
    )

    each = [
        f"SELECT _topic_id AS t, _topic_partition AS p, _offset AS o, _index AS i FROM {line.table(tenant)}"
        for tenant in tenants
    ]
    assert line.sql(f"SELECT count(*), count(DISTINCT (t, p, o, i)) FROM ({' UNION ALL '.join(each)})") == [
        (total, total)
    ]
    share = conflicts * conflict_cost_s(line, names[0]) / spent_s
    merged = one.log().count('"optimize.merged"')
    print(
        f"{total} records in {SECONDS:.0f} s, {committed:.0f} commits, {conflicts:.0f} conflicts: "
        f"{share:.2%} of {spent_s:.0f} CPU s; {merged} merges"
    )
    print(f"most snapshots of a table at any time: {most_snapshots}")
    assert most_snapshots <= SNAPSHOTS_MAX
    assert merged >= TENANTS
    assert share < CONFLICT_CPU_MAX
    for name in names:
        assert len(line.catalog.load_table(name)["metadata"]["snapshots"]) <= SNAPSHOTS_MAX
        assert missing_files(line.catalog, storage, name) == []
        assert {
            hour: count
            for hour, count in live_files(line.catalog, storage, name).items()
            if hour < this_hour() - 1 and count != 1
        } == {}
