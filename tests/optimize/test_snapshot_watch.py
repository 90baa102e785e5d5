"""At most ten snapshots, always: tables that get them faster than rounds come."""

import pytest

from lake.catalog_client import CatalogClient, TableName
from lake.settings import OptimizeSettings
from lake.storage import open_storage
from optimize.snapshot_watch import SnapshotWatch
from tests.lake.support.fake_catalog import FakeCatalog
from tests.optimize.support.live_files import missing_files
from tests.optimize.support.maintained import maintenance
from tests.optimize.support.small_files import SmallFiles, this_hour
from tests.stack.support.waiting import fresh

pytestmark = pytest.mark.stack
DAY_MS = 86_400_000


def now_ms(table: SmallFiles) -> int:
    return table.reload().updated_ms


def snapshots(table: SmallFiles) -> int:
    return len(table.catalog.load_table(table.name)["metadata"]["snapshots"])


def test_table_that_is_written_all_the_time_never_has_more_than_ten_snapshots(catalog: CatalogClient) -> None:
    """Two commits between two looks, into hours that are not closed or have one file each: looks alone keep
    the snapshots within the limit."""
    table = SmallFiles(catalog, open_storage(), fresh("busy"))
    m = maintenance(catalog)
    watch = SnapshotWatch(catalog, m.settings)
    counted = []
    for step in range(20):
        table.append(this_hour(), 2)
        counted.append(snapshots(table))
        table.append(this_hour() - 3 - step, 2)
        counted.append(snapshots(table))
        m.expire([name for name in watch.crowded(now_ms(table)) if name == table.name])
    assert max(counted) <= 10
    assert missing_files(catalog, table.storage, table.name) == []


def test_table_at_rest_is_not_looked_at_again(catalog: CatalogClient) -> None:
    """A table is named once for what it has gained; without new files it is not named again, with a few it is
    not yet."""
    table = SmallFiles(catalog, open_storage(), fresh("rest"))
    table.append(this_hour(), 2, times=6)
    watch = SnapshotWatch(catalog, maintenance(catalog).settings)
    assert table.name in watch.crowded(now_ms(table))
    assert table.name not in watch.crowded(now_ms(table))
    table.append(this_hour(), 2)
    assert table.name not in watch.crowded(now_ms(table))
    table.append(this_hour(), 2)
    assert table.name in watch.crowded(now_ms(table))


def _changed(name: str, files: int, changed_ms: int) -> dict[str, object]:
    """A partition as the catalog lists it."""
    return {
        "identifier": {"namespace": [name], "name": "logs"},
        "table-uuid": name,
        "table-id": 1,
        "partition": "timestamp_hour=2026-11-14-10",
        "data-files": files,
        "delete-files": 0,
        "bytes": 10,
        "records": 1,
        "changed-ms": changed_ms,
    }


def test_what_a_table_gained_is_forgotten_a_day_after_its_last_change() -> None:
    """A lake of many tenants that come and go would else be remembered for ever; tables that change are
    counted on."""
    others = FakeCatalog()
    watch = SnapshotWatch(others.client(), OptimizeSettings())
    others.partitions = [_changed("gone", 1, DAY_MS), _changed("slow", 1, DAY_MS)]
    assert watch.crowded(DAY_MS) == []
    assert len(watch._gained) == 2
    others.partitions[1] = _changed("slow", 2, 2 * DAY_MS)
    assert [table.namespace for table in watch.crowded(2 * DAY_MS + 1)] == ["slow"]
    assert watch._gained == {}


def test_a_table_that_was_looked_at_is_named_when_it_can_be_due() -> None:
    """Eight snapshots are due with ten at most: of one with five when three files came, of one with seven at
    the next one. What was told holds for one look."""
    others = FakeCatalog()
    watch = SnapshotWatch(others.client(), OptimizeSettings())

    def named(files: int) -> list[str]:
        others.partitions = [_changed(name, files, DAY_MS + files) for name in ("five", "new", "seven")]
        return [table.namespace for table in watch.crowded(DAY_MS + files)]

    assert named(1) == []
    watch._gained.clear()
    watch.note({TableName("five", "logs"): 5, TableName("seven", "logs"): 7})
    assert [named(files) for files in (2, 3, 4, 5)] == [["seven"], ["new"], ["five", "seven"], ["new"]]
