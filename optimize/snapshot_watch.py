"""Which tables have got so many snapshots since they were last looked at that they must not wait for the next
round.

The catalog's index of changed partitions tells how many files a table has got, and a snapshot brings at least
one: so tables are counted without loading any. What a process does not know yet counts as new, which loads a
table once too often, never once too seldom.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from lake.catalog_client import CatalogClient, TableName
from lake.extras_client import ExtrasClient
from lake.settings import OptimizeSettings

# Partitions that have not changed for so long are forgotten; at the start of a process older changes are left
# to the daily task. An hour of logs changes during that hour and seldom after; of a day a million tables that
# are written all the time would leave 24 million.
REMEMBERED_MS = 3 * 3_600_000
# The catalog's clock stamps a change before its transaction ends, so a look begins a little before the end of
# the last one.
OVERLAP_MS = 60_000


@dataclass(slots=True)
class SnapshotWatch:
    """Counts files that came, table by table."""

    catalog: CatalogClient
    settings: OptimizeSettings
    _since_ms: int | None = None
    # By the hash of table and path, which takes a fifth of their memory: files, and the last change. Two of
    # the same hash would have a table looked at too early, or late, by the daily task.
    _files: dict[int, tuple[int, int]] = field(default_factory=dict)
    _gained: dict[TableName, int] = field(default_factory=dict)
    _changed: dict[TableName, int] = field(default_factory=dict)  # when each changed last

    def crowded(self, now_ms: int) -> list[TableName]:
        """Tables that may have come near `snapshots.count_max`, each once until it has gained as much again.
        Empty beside a catalog without the index."""
        if not self.catalog.has_extras:
            return []
        since_ms = now_ms - REMEMBERED_MS if self._since_ms is None else self._since_ms
        self._since_ms = now_ms - OVERLAP_MS
        for row in ExtrasClient(self.catalog).changed_partitions(since_ms=since_ms):
            key = hash((row.table, row.path))
            gained = row.data_files - self._files.get(key, (0, 0))[0]
            self._files[key] = row.data_files, row.changed_ms
            self._changed[row.table] = max(row.changed_ms, self._changed.get(row.table, 0))
            if gained > 0:
                self._gained[row.table] = self._gained.get(row.table, 0) + gained
        since_ms = now_ms - REMEMBERED_MS
        self._files = {key: each for key, each in self._files.items() if each[1] >= since_ms}
        # Others, dropped ones among them, are the daily task's.
        self._changed = {table: at_ms for table, at_ms in self._changed.items() if at_ms >= since_ms}
        self._gained = {table: gained for table, gained in self._gained.items() if table in self._changed}
        return list(self._take())

    def _take(self) -> Iterator[TableName]:
        # Half of the room between what a commit leaves and the limit: the other half is for what comes until
        # the next look.
        room = max(1, self.settings.snapshots.count_max // 4)
        for table in sorted(name for name, gained in self._gained.items() if gained >= room):
            del self._gained[table]
            yield table
