"""A node that does not hold all shares parks nothing: it says what is to be parked, and ends."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from catalog.model.error_response import unavailable
from ingest.model.parked_record import ParkedRecords
from ingest.model.trouble import Cause, Trouble
from ingest.parking.left_to_one_node import LeftToOneNode
from lake.catalog_client import TableName
from lake.errors import RefusedError, UnavailableError
from lake.marks import Marks, TopicPartition
from lake.tenant import TableId, TenantId
from tests.lake.support.fake_catalog import FakeCatalog

TABLE = TableId(TenantId("t"), "logs")
NAME = TableName(TABLE.tenant.namespace, TABLE.table)
TROUBLE = Trouble(Cause.STORAGE, "no such folder", Marks({TopicPartition("id", 0): 7}))


class _World:
    def __init__(self) -> None:
        self.catalog = FakeCatalog()
        self.lease = self.catalog.lease("ingest.firn.share-1-of-2")
        self.pool = ThreadPoolExecutor(1)
        records = ParkedRecords(self.catalog.client(), timeout_s=1.0)
        self.left = LeftToOneNode(records, self.pool, self.lease)

    def park(self) -> None:
        self.left.park(TABLE, TROUBLE)
        self.pool.submit(lambda: None).result()


def test_it_writes_a_record_without_an_id_and_ends() -> None:
    """As the catalog does for a table that was moved back: whoever takes all shares takes it up."""
    world = _World()
    assert world.left.load() == {}
    world.left.step()
    world.park()
    with pytest.raises(UnavailableError, match="has all shares"):
        world.left.step()
    found = world.left.records.find(TABLE)
    assert found is not None
    assert (found.id, found.cause, found.expected) == ("", TROUBLE.cause, TROUBLE.expected)
    with pytest.raises(UnavailableError, match="is parked"):
        world.left.load()


def test_where_somebody_was_faster_it_ends_as_well() -> None:
    world = _World()
    world.catalog.park(NAME, "rolled_back", {})
    world.park()
    with pytest.raises(UnavailableError, match="has all shares"):
        world.left.step()
    assert world.catalog.parked[NAME]["reason"] == "rolled_back"


def test_while_the_catalog_is_away_it_goes_on_and_says_it_again() -> None:
    world = _World()
    world.catalog.refuses["parked"] = unavailable("down")
    world.park()
    world.left.step()
    del world.catalog.refuses["parked"]
    world.park()
    with pytest.raises(UnavailableError, match="has all shares"):
        world.left.step()


def test_under_a_lease_that_is_lost_nothing_is_written() -> None:
    world = _World()
    world.catalog.lease("ingest.firn.share-1-of-2")  # another node's
    world.park()
    with pytest.raises(RefusedError):
        world.left.step()
    assert not world.catalog.parked
