"""Which shares of the input a node holds, as nodes come and go, and while a table is parked."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import pytest

from ingest.node.node_leases import NodeLeases
from lake.catalog_client import TableName
from lake.clock import SystemClock
from lake.errors import SettingsError, UnavailableError
from lake.settings import IngestSettings
from tests.lake.support.fake_catalog import FakeCatalog
from tests.stack.support.waiting import wait_for

NAME = TableName("t", "logs")


def _node(catalog: FakeCatalog, holder: str, shares: int = 2) -> NodeLeases:
    settings = IngestSettings.load(shares=shares)
    return NodeLeases(settings, catalog.client(), holder, SystemClock(), 60.0)


@contextmanager
def _taking(leases: NodeLeases) -> Iterator[threading.Thread]:
    """The node waits for its shares in a thread."""
    stopping = threading.Event()
    thread = threading.Thread(target=leases.acquire, args=(stopping,))
    thread.start()
    try:
        yield thread
    finally:
        stopping.set()
        thread.join()


def _got(leases: NodeLeases) -> tuple[int, ...]:
    assert leases.acquire(threading.Event())
    return leases.shares.held


@pytest.mark.long
def test_a_node_alone_has_all_shares_and_gives_one_to_the_next() -> None:
    """Who has too many flushes and gives them back; who comes waits until then."""
    catalog = FakeCatalog()
    one, two = _node(catalog, "one"), _node(catalog, "two")
    assert _got(one) == (0, 1)
    assert one.shares.are_all
    with _taking(two) as thread:
        wait_for(lambda: one.are_moving, 10, "the first node being told of the second")
        one.check()  # it goes on meanwhile
        assert thread.is_alive()
        one.release(stays=True)
        assert _got(one) == (0,)
        thread.join(10)
    assert two.shares.held == (1,)
    assert not one.are_moving
    for leases in (one, two):
        assert len(leases.fencing_tokens) == 1
        leases.release()


@pytest.mark.long
def test_what_a_node_leaves_the_other_takes_over() -> None:
    catalog = FakeCatalog()
    one, two = _node(catalog, "one"), _node(catalog, "two")
    assert one._has_place()
    assert two._has_place()
    assert (_got(one), _got(two)) == ((0,), (1,))
    two.release()
    wait_for(lambda: one.are_moving, 10, "the node that is left being told")
    one.release(stays=True)
    assert _got(one) == (0, 1)
    one.release()


def test_more_nodes_than_shares_stand_by() -> None:
    catalog = FakeCatalog()
    nodes = [_node(catalog, str(at)) for at in range(3)]
    assert [node._has_place() for node in nodes] == [True, True, False]
    nodes[0].release()
    assert nodes[2]._has_place()
    for node in nodes:
        node.release()


@pytest.mark.long
def test_while_a_table_is_parked_one_node_has_all_shares() -> None:
    """Those that have some end their work; the one that had the first takes all, and keeps them for a while
    after."""
    catalog = FakeCatalog()
    one, two = _node(catalog, "one"), _node(catalog, "two")
    assert one._has_place()
    assert two._has_place()
    assert (_got(one), _got(two)) == ((0,), (1,))
    catalog.park(NAME, "failing", {})
    for leases in (one, two):
        wait_for(partial(_ends, leases), 10, "the parked table being noticed")
    two.release(stays=True)
    with _taking(two):
        one.release(stays=True)
        wait_for(lambda: one.acquire(threading.Event()), 10, "one node having all shares")
        assert one.shares.are_all
        one.check()
        catalog.parked.clear()
        assert not one.are_moving
    for leases in (one, two):
        leases.release()


def _ends(leases: NodeLeases) -> bool:
    try:
        leases.check()
    except UnavailableError as error:
        return "is parked" in str(error)
    return False


def test_shares_need_firns_catalog() -> None:
    with pytest.raises(SettingsError, match="own catalog"):
        _node(FakeCatalog(has_extras=False), "one").acquire(threading.Event())


def test_with_one_share_there_is_the_lease_of_the_group_and_no_other() -> None:
    catalog = FakeCatalog()
    leases = _node(catalog, "one", shares=1)
    assert _got(leases) == (0,)
    assert set(catalog._leases) == {"ingest.firn"}
    assert leases.shares.are_all
    assert not leases.are_moving
    leases.check()
    leases.release()


def test_on_spark_nothing_is_shared() -> None:
    with pytest.raises(SettingsError, match="shares"):
        IngestSettings.load(shares=2, engine="spark")
