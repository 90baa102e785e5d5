"""Which parked table is tried next."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

from ingest.commit.table_events import State
from ingest.commit.table_lifecycle import PROBE_MAX_S
from ingest.commit.table_states import NewTables, TableStates
from ingest.model.parked_record import ParkedRecord, ParkedRecords
from ingest.model.trouble import Cause, Trouble
from ingest.parking.parking import DRAINS_AT_ONCE, Parking
from lake.tenant import TableId, TenantId
from tests.ingest.support.fake_clock import FakeClock

TABLES = [TableId(TenantId(f"t{number}"), "logs") for number in range(80)]
FAILS_AFTER_S = 5.0


class Records:
    """All tables are parked, and nothing else happens to them."""

    def all(self) -> dict[TableId, ParkedRecord]:
        return {table: ParkedRecord(table, Cause.STORAGE, version=1, id=f"0-{table}") for table in TABLES}

    def confirm(self, lease: str) -> None:
        """It is in force."""


def test_every_table_is_tried_however_many_fail_for_long() -> None:
    """Those that fail take all places together for longer than they rest: the one that has waited longest
    goes first, or the last ones would never."""
    clock = FakeClock()
    opened: dict[TableId, list[float]] = {table: [] for table in TABLES}
    with ThreadPoolExecutor(1) as pool:
        unused: Any = None
        records = cast("ParkedRecords", Records())
        new_tables = NewTables(1, clock)
        states = TableStates(unused, unused, "", records, pool, clock, 1.0, new_tables, "ingest:1")
        parking = Parking(records, states, pool, clock, 1, "ingest:1", lambda *_: None, unused)
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
