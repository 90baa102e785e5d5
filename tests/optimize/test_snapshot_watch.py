"""At most ten snapshots, always: tables that get them faster than rounds come."""

import pytest

from lake.catalog_client import CatalogClient
from lake.storage import open_storage
from optimize.snapshot_watch import SnapshotWatch
from tests.optimize.support.live_files import missing_files
from tests.optimize.support.maintained import maintenance
from tests.optimize.support.small_files import SmallFiles, this_hour
from tests.stack.support.waiting import fresh

pytestmark = pytest.mark.stack


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
