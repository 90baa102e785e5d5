"""One leader at a time, and a frozen one cannot commit after it wakes."""

import os
import signal
import threading
from collections.abc import Callable
from contextlib import suppress

import psutil
import pytest

from lake.catalog_client import CatalogClient
from lake.storage import local_path, open_storage
from optimize.leader import leader_lease
from tests.optimize.conftest import Optimizer
from tests.optimize.support.live_files import live_files, missing_files, offsets_of
from tests.optimize.support.maintained import maintenance
from tests.optimize.support.small_files import SmallFiles, this_hour
from tests.stack.support.forked import RoomProcess
from tests.stack.support.waiting import fresh, wait_for

pytestmark = pytest.mark.stack


def test_second_leader_waits_until_the_first_lets_go(catalog: CatalogClient) -> None:
    """While one holds the lease another does not get it; after the release it does, with a larger token."""
    with leader_lease(catalog, 5.0) as first, leader_lease(catalog, 5.0) as second:
        assert first.acquire(threading.Event(), 10.0)
        assert not second.acquire(threading.Event(), 0.0)
        token = first.token
        first.release()
        assert second.acquire(threading.Event(), 10.0)
        assert second.token is not None
        assert token is not None
        assert second.token > token


def test_leader_that_lost_its_lease_cannot_commit(catalog: CatalogClient) -> None:
    """A round that goes on with a stale token merges files, but nothing of it is committed, queued or
    deleted."""
    table = SmallFiles(catalog, open_storage(), fresh("t"))
    table.append(this_hour() - 3, 10, times=4)
    with leader_lease(catalog, 1.0) as frozen, leader_lease(catalog, 5.0) as successor:
        assert frozen.acquire(threading.Event(), 10.0)
        token = frozen.fencing_token
        frozen._released.set()  # no renewal any more, and nobody who notices

        with_token = CatalogClient(catalog.uri, lease=token)

        def wait_for_successor() -> None:
            wait_for(lambda: successor.acquire(threading.Event(), 0.0), 20, "the successor")

        report = maintenance(with_token, [table.name], lease=token, between=wait_for_successor).run()
        assert report.merged_tables == 0
        assert "lease" in report.failures[str(table.name)]
    assert live_files(catalog, table.storage, table.name) == {this_hour() - 3: 4}
    with_token.close()


def executes(process: RoomProcess) -> bool:
    """Whether Spark has begun to start the Python of an executor, for the first task."""
    for each in psutil.Process(process.pid).children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # it has ended since, or is a zombie
            if "pyspark.daemon" in each.cmdline():
                return True
    return False


def test_leader_frozen_past_its_lease_cannot_commit_after_waking(
    catalog: CatalogClient, optimizer_alone: Callable[..., Optimizer]
) -> None:
    """SIGSTOP of the driver when an executor is about to merge, SIGCONT when the merge is written and another
    leads: its commit is refused, its file goes.

    When it leads again it finishes.
    """
    hour = this_hour() - 3
    table = SmallFiles(catalog, open_storage(), fresh("t"))
    table.append(hour, 10, times=4)
    folder = local_path(f"{table.state.location}/data/{hour}")
    one = optimizer_alone(lease_s=1)
    process = one.start("run", "--table", str(table.name))
    wait_for(lambda: executes(process), 120, "an executor")
    os.kill(process.pid, signal.SIGSTOP)  # the driver alone: Spark's JVM and the executor go on
    with leader_lease(catalog, 60.0) as successor:
        wait_for(lambda: successor.acquire(threading.Event(), 0.0), 20, "the successor")
        wait_for(
            lambda: list(folder.glob("merged-*")), 60, "the merged file, by the executor that nobody froze"
        )
        os.kill(process.pid, signal.SIGCONT)
        wait_for(lambda: "lease.lost" in one.log(), 60, "its notice")
        wait_for(
            lambda: "optimize.table_failed" in one.log() or process.poll() is not None,
            120,
            "the answer to its commit",
        )
        assert process.poll() is None, one.log()[-3000:]
        assert "retention.none" in one.log()
        (refusal,) = [line for line in one.log().splitlines() if "optimize.table_failed" in line]
        assert "lease" in refusal
        assert live_files(catalog, table.storage, table.name) == {hour: 4}
        wait_for(lambda: not list(folder.glob("merged-*")), 20, "the end of the file that nobody committed")
    wait_for(
        lambda: live_files(catalog, table.storage, table.name) == {hour: 1},
        120,
        "the merge under a lease of its own",
    )
    assert offsets_of(table) == list(range(40))
    assert missing_files(catalog, table.storage, table.name) == []
