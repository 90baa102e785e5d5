"""One leader at a time, and a frozen one cannot commit after it wakes."""

import threading

import pytest

from lake.catalog_client import CatalogClient
from lake.storage import open_storage
from optimize.leader import Leader
from tests.optimize.live_files import live_files
from tests.optimize.maintained import maintenance
from tests.optimize.small_files import SmallFiles, this_hour
from tests.stack.waiting import fresh, wait_for

pytestmark = pytest.mark.stack


def test_second_leader_waits_until_the_first_lets_go(catalog: CatalogClient) -> None:
    """While one holds the lease another does not get it; after the release it does, with a larger token."""
    with Leader(catalog, 5.0) as first, Leader(catalog, 5.0) as second:
        assert first.acquire(threading.Event(), 10.0)
        assert not second.acquire(threading.Event(), 0.0)
        token = first.token
        first.release()
        assert second.acquire(threading.Event(), 10.0)
        assert second.token is not None
        assert token is not None
        assert int(second.token.split(":")[1]) > int(token.split(":")[1])


def test_leader_that_lost_its_lease_cannot_commit(catalog: CatalogClient) -> None:
    """A round that goes on with a stale token (frozen past its lease, then woken) merges files, but nothing of it is committed."""
    table = SmallFiles(catalog, open_storage(), fresh("t"))
    table.append(this_hour() - 3, 10, times=4)
    with Leader(catalog, 1.0) as frozen, Leader(catalog, 5.0) as successor:
        assert frozen.acquire(threading.Event(), 10.0)
        token = frozen.token
        frozen._stop.set()  # no renewal any more: what SIGSTOP does
        with_token = CatalogClient(catalog.uri, lease=token)

        def wait_for_successor() -> None:
            wait_for(lambda: successor.acquire(threading.Event(), 0.0), 20, "the successor")

        report = maintenance(with_token, [table.name], lease=token, between=wait_for_successor).run()
        assert report.merged_tables == 0
        assert "lease" in report.failures[str(table.name)]
    assert live_files(catalog, table.storage, table.name) == {this_hour() - 3: 4}
    with_token.close()
