"""What a node takes up of the parked records depends on its lease."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import pytest

from ingest.commit.table_states import NewTables, TableStates
from ingest.model.link import ToWorker
from ingest.model.parked_record import ParkedRecord, ParkedRecords
from ingest.model.trouble import Cause
from ingest.parking.parking import Parking
from lake.clock import SystemClock
from lake.errors import RefusedError
from lake.tenant import TableId, TenantId

TABLE = TableId(TenantId("t"), "logs")


class Successors:
    """The catalog after another node took over and parked a table."""

    def all(self) -> dict[TableId, ParkedRecord]:
        return {TABLE: ParkedRecord(TABLE, Cause.FAILING, version=1, id="of the successor")}

    def confirm(self, lease: str) -> None:
        raise RefusedError(f"{lease} is not in force")


def test_a_node_whose_lease_is_lost_takes_up_nothing_that_its_successor_parked() -> None:
    """It ends, and no worker is told to park under the successor's id: it would do so from where it stood,
    and leave a gap."""
    told: list[ToWorker] = []

    def tell(_: int | None, message: ToWorker) -> None:
        told.append(message)

    unused = cast("Any", None)
    with ThreadPoolExecutor(1) as pool:
        records = cast("ParkedRecords", Successors())
        clock = SystemClock()
        new_tables = NewTables(1, clock)
        states = TableStates(unused, unused, "", records, pool, clock, 1.0, new_tables, "ingest:1")
        parking = Parking(records, states, pool, clock, 1, "ingest:1", tell, lambda _: ("id", 0, 0))
        parking.step()
        pool.submit(lambda: None).result()  # the listing before it is done
        with pytest.raises(RefusedError):
            parking.step()
    assert told == []
