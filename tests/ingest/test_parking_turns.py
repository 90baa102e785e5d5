"""Which parked table is tried next."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from ingest.commit.table_events import State
from ingest.commit.table_parking import PROBE_MAX_S
from ingest.commit.table_states import NewTables, TableStates
from ingest.model.parked_record import ParkedRecords
from ingest.model.trouble import Cause, Trouble
from ingest.parking.parking import DRAINS_AT_ONCE, Parking
from lake.catalog_client import TableName
from lake.storage import open_storage
from lake.tenant import TableId, TenantId
from tests.ingest.support.fake_clock import FakeClock
from tests.lake.support.fake_catalog import FakeCatalog

TABLES = [TableId(TenantId(f"t{number}"), "logs") for number in range(80)]
FAILS_AFTER_S = 5.0


@pytest.mark.long
def test_every_table_is_tried_however_many_fail_for_long() -> None:
    """Those that fail take all places together for longer than they rest: the one that has waited longest
    goes first, or the last ones would never."""
    clock = FakeClock()
    opened: dict[TableId, list[float]] = {table: [] for table in TABLES}
    catalog = FakeCatalog()
    lease = catalog.lease("ingest")
    for table in TABLES:
        catalog.park(TableName(table.tenant.namespace, table.table), "storage", {"id": f"0-{table}"})
    with ThreadPoolExecutor(1) as pool:
        client = catalog.client()
        records = ParkedRecords(client, timeout_s=1.0)
        new_tables = NewTables(1, clock)
        states = TableStates(client, open_storage(), "", records, pool, clock, 1.0, new_tables, lease)
        parking = Parking(records, states, pool, clock, 1, lease, lambda *_: None, lambda _: ("id", 0, 0))
        parking.load()
        at_work: dict[TableId, float] = {}
        round_s = len(TABLES) / DRAINS_AT_ONCE * FAILS_AFTER_S
        began_s = clock.s
        while clock.s < began_s + 4 * (round_s + PROBE_MAX_S):
            parking.step()
            for life in states.lives.parked:
                if life.state is State.OPENING and life.table not in at_work:
                    opened[life.table].append(clock.s)
                    at_work[life.table] = clock.s
            for table in [table for table, since_s in at_work.items() if clock.s - since_s >= FAILS_AFTER_S]:
                del at_work[table]
                parking.failed(table, Trouble(Cause.STORAGE, "still broken"))
            clock.s += 1.0
    gaps = [
        later - earlier
        for times in opened.values()
        for earlier, later in zip([began_s, *times], [*times, clock.s], strict=True)
    ]
    assert max(gaps) <= 2 * round_s + PROBE_MAX_S
