"""What a node takes up of the parked records depends on its lease."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from ingest.commit.table_states import NewTables, TableStates
from ingest.model.link import ToWorker
from ingest.model.parked_record import ParkedRecords
from ingest.parking.parking import Parking
from lake.catalog_client import TableName
from lake.clock import SystemClock
from lake.errors import RefusedError
from lake.storage import open_storage
from lake.tenant import to_identifier
from tests.lake.support.fake_catalog import FakeCatalog

NAME = TableName(to_identifier("t"), "logs")


def test_a_node_whose_lease_is_lost_takes_up_nothing_that_its_successor_parked() -> None:
    """It ends, and no worker is told to park under the successor's id: it would do so from where it stood,
    and leave a gap."""
    told: list[ToWorker] = []

    def tell(_: int | None, message: ToWorker) -> None:
        told.append(message)

    catalog = FakeCatalog()
    ours = catalog.lease("ingest")
    catalog.lease("ingest")  # another node's
    catalog.park(NAME, "failing", {"id": "of the successor"})
    with ThreadPoolExecutor(1) as pool:
        client, clock = catalog.client(), SystemClock()
        records = ParkedRecords(client, timeout_s=1.0)
        new_tables = NewTables(1, clock)
        states = TableStates(client, open_storage(), "", records, pool, clock, 1.0, new_tables, ours)
        parking = Parking(records, states, pool, clock, 1, ours, tell, lambda _: ("id", 0, 0))
        parking.step()
        pool.submit(lambda: None).result()  # the listing before it is done
        with pytest.raises(RefusedError):
            parking.step()
    assert told == []
