"""The optimizer and its executors killed at random moments: nothing that is live goes missing, nothing is
lost or doubled, the work goes on."""

import os
import random
import threading
from collections.abc import Callable

import psutil
import pytest

from lake.storage import open_storage
from tests.optimize.conftest import Optimizer
from tests.optimize.support.live_files import live_files, missing_files
from tests.optimize.support.small_files import SmallFiles, this_hour
from tests.stack.support.line import Line
from tests.stack.support.waiting import fresh, pause, wait_for

pytestmark = pytest.mark.stack

# In every run of the tests the driver and an executor once each; the long proof kills fifty times.
KILLS = int(os.environ.get("FIRN_TEST_KILLS", "2"))
TABLES = 6
# From the first commit of a round on; Spark's start before that is the dullest time to be killed in.
KILL_WITHIN_S = 2.0
# No grace and no rest: every file that may be deleted is deleted at once, and every late file re-opens its
# hour. Nobody pauses.
EAGER = {
    "lease_s": 2,
    "retention__reader_grace_s": 0,
    "merge__late_cooldown_s": 0,
    "interval_s": 0.2,
    "snapshots__count_max": 3,
    "merge__manifests_max": 4,
    "failures_max": 1_000,
}
SPARK_WORKER = "pyspark.daemon"


def kill_an_executor(one: Optimizer, draws: random.Random) -> bool:
    """SIGKILL of a Python process that runs tasks of Spark; False where there is none at the moment."""
    assert one.process is not None
    workers = [
        p for p in psutil.Process(one.process.pid).children(recursive=True) if SPARK_WORKER in _command(p)
    ]
    if workers:
        draws.choice(workers).kill()
    return bool(workers)


def _command(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:  # it has ended meanwhile
        return ""


@pytest.mark.timeout(300 + 60 * KILLS)
def test_optimizer_killed_at_random_moments_loses_and_doubles_nothing(
    line: Line, optimizer: Callable[..., Optimizer]
) -> None:
    """Driver or executor killed with SIGKILL at random moments: every file of every live snapshot exists,
    every row is there once, and the work goes on.

    A killed driver is started again; a driver whose executor was killed goes on by itself.
    """
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
    one = optimizer(**EAGER)
    try:
        for kill in range(KILLS):
            if one.process is None or one.process.poll() is not None:
                one = optimizer(**EAGER)
                one.start("run", *names)
            process, seen = one.process, one.log().count("optimize.merged")
            assert process is not None
            wait_for(
                lambda: process.poll() is not None or one.log().count("optimize.merged") > seen,  # noqa: B023
                150,
                "a merge",
            )
            assert process.poll() is None, one.log()[-3000:]
            pause(draws.random() * KILL_WITHIN_S)
            # Every other time an executor, so that few kills show both.
            if kill % 2 == 0 or not kill_an_executor(one, draws):
                one.kill()
            assert [missing_files(line.catalog, storage, table.name) for table in tables] == [[]] * TABLES
    finally:
        stop.set()
        writer.join()
    one.kill()
    optimizer(**EAGER).run("run", "--once", *names)
    for table in tables:
        assert missing_files(line.catalog, storage, table.name) == []
        ((rows, distinct, low, high),) = line.sql(
            "SELECT count(*), count(DISTINCT (_topic_id, _topic_partition, _offset, _index)), min(_offset), "
            f'max(_offset) FROM "{table.name.namespace}"."logs"'
        )
        assert (rows, distinct, low, high) == (table.offset, table.offset, 0, table.offset - 1)
        assert set(live_files(line.catalog, storage, table.name).values()) == {1}
        assert len(line.catalog.load_table(table.name)["metadata"]["snapshots"]) <= 3
