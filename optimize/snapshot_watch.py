"""Which tables have got so many snapshots since they were last looked at that they must not wait for the next
round.

The catalog's index of changed partitions tells how many files a table has got, and a snapshot brings at least
one: so tables are counted without loading any. What a process does not know yet counts as new, which loads a
table once too often, never once too seldom.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from lake.catalog_client import CatalogClient, TableName
from lake.extras_client import ChangedPartition, ExtrasClient
from lake.settings import OptimizeSettings

# Partitions that have not changed for so long are forgotten; at the start of a process older changes are left
# to the daily task.
REMEMBERED_MS = 24 * 3_600_000
# The catalog's clock stamps a change before its transaction ends, so a look begins a little before the end of
# the last one.
OVERLAP_MS = 60_000


@dataclass(slots=True)
class SnapshotWatch:
    """Counts files that came, table by table."""

    catalog: CatalogClient
    settings: OptimizeSettings
    _since_ms: int | None = None
    _files: dict[tuple[TableName, str], ChangedPartition] = field(default_factory=dict)
    _gained: dict[TableName, int] = field(default_factory=dict)

    def crowded(self, now_ms: int) -> list[TableName]:
        """Tables that may have come near `snapshots.count_max`, each once until it has gained as much again.
        Empty beside a catalog without the index."""
        if not self.catalog.has_extras:
            return []
        since_ms = now_ms - REMEMBERED_MS if self._since_ms is None else self._since_ms
        self._since_ms = now_ms - OVERLAP_MS
        for row in ExtrasClient(self.catalog).changed_partitions(since_ms=since_ms):
            before = self._files.get((row.table, row.path))
            gained = row.data_files - (before.data_files if before is not None else 0)
            self._files[row.table, row.path] = row
            if gained > 0:
                self._gained[row.table] = self._gained.get(row.table, 0) + gained
        self._files = {
            key: row for key, row in self._files.items() if row.changed_ms >= now_ms - REMEMBERED_MS
        }
        changed = {table for table, _ in self._files}  # others, dropped ones among them, are the daily task's
        self._gained = {table: gained for table, gained in self._gained.items() if table in changed}
        return list(self._take())

    def _take(self) -> Iterator[TableName]:
        # Half of the room between what a commit leaves and the limit: the other half is for what comes until
        # the next look.
        room = max(1, self.settings.snapshots.count_max // 4)
        for table in sorted(name for name, gained in self._gained.items() if gained >= room):
            del self._gained[table]
            yield table
