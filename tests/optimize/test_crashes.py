"""The optimizer killed at random moments: nothing that is live goes missing, nothing is lost or doubled, the work goes on."""

import os
import random
import threading
from collections.abc import Callable

import pytest

from lake.storage import open_storage
from tests.optimize.conftest import Optimizer
from tests.optimize.live_files import live_files, missing_files
from tests.optimize.small_files import SmallFiles, this_hour
from tests.stack.line import Line
from tests.stack.waiting import fresh, pause, wait_for

pytestmark = pytest.mark.stack

KILLS = int(os.environ.get("FIRN_TEST_KILLS", "10"))
TABLES = 6
# From the first commit of a round on; Spark's start before that is the dullest time to be killed in.
KILL_WITHIN_S = 2.0
# No grace and no rest: every file that may be deleted is deleted at once, and every late file re-opens its hour.
EAGER = {"lease_s": 2, "reader_grace_s": 0, "late_cooldown_s": 0, "interval_s": 0.2, "snapshots_max": 3, "manifests_max": 4}


@pytest.mark.timeout(600)
def test_optimizer_killed_at_random_moments_loses_and_doubles_nothing(line: Line, optimizer: Callable[..., Optimizer]) -> None:
    """After SIGKILL at random moments every file of every live snapshot exists, every row is there once, and a last round finishes the work."""
    seed = int(os.environ.get("FIRN_TEST_SEED", random.randrange(2**32)))
    print(f"FIRN_TEST_SEED={seed}")
    draws = random.Random(seed)
    storage, hour = open_storage(), this_hour() - 3
    tables = [SmallFiles(line.catalog, storage, fresh("kill")) for _ in range(TABLES)]
    for table in tables:
        table.append(hour, 5, times=10)
    stop = threading.Event()

    def append_on() -> None:
        while not stop.wait(0.1):
            random.choice(tables).append(hour - random.randrange(2), 5)

    names = [part for table in tables for part in ("--table", f"{table.name.namespace}.{table.name.name}")]
    writer = threading.Thread(target=append_on)
    writer.start()
    try:
        for _ in range(KILLS):
            one = optimizer(**EAGER)
            process = one.start("run", *names)
            wait_for(lambda: process.poll() is not None or "optimize.merged" in one.log(), 150, "the first merge")  # noqa: B023
            assert process.poll() is None, one.log()[-3000:]
            pause(draws.random() * KILL_WITHIN_S)
            one.kill()
            assert [missing_files(line.catalog, storage, table.name) for table in tables] == [[]] * TABLES
    finally:
        stop.set()
        writer.join()
    optimizer(**EAGER).run("run", "--once", *names)
    for table in tables:
        assert missing_files(line.catalog, storage, table.name) == []
        ((rows, distinct, low, high),) = line.sql(
            f'SELECT count(*), count(DISTINCT (_topic_id, _topic_partition, _offset, _index)), min(_offset), max(_offset) FROM "{table.name.namespace}"."logs"'
        )
        assert (rows, distinct, low, high) == (table.offset, table.offset, 0, table.offset - 1)
        assert set(live_files(line.catalog, storage, table.name).values()) == {1}
        assert len(line.catalog.load_table(table.name)["metadata"]["snapshots"]) <= 3
