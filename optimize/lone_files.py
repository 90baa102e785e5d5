"""Hours with a single file as ingestion wrote it, which backfill leaves behind by the thousand: no index of
crowded partitions names them.

The catalog lists partitions by their last change. Those that changed before a mark were looked at; the mark
is kept in the catalog and goes on only past what is done, so an hour that is still open, or a table that
waits or fails, is found again by whoever leads then. For longer than `BEHIND_MS` it waits for nobody: among
very many tables there is always one that fails, and each round would look at all changes since it began to.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

import structlog

from lake.catalog_client import CatalogClient, TableName
from lake.errors import FirnError, NotFoundError
from lake.extras_client import ChangedPartition, ExtrasClient, Task
from lake.table_layout import parse_partition_path

KIND = "optimize.mark"
ID = f"{KIND}:lone-files"
# The catalog's clock stamps a change before its transaction ends, so a look begins a little before the end of
# the last one.
OVERLAP_MS = 60_000
BEHIND_MS = 24 * 3_600_000
log = structlog.get_logger()


@dataclass(slots=True)
class LoneFiles:
    """`rows` at the start of a round, `settle` at its end. `lease`: the leader's, `name:token`."""

    catalog: CatalogClient
    bytes_min: int
    lease: str | None = None
    _looked_ms: int | None = None
    _rows: list[ChangedPartition] = field(default_factory=list)

    def rows(self, now_ms: int, done: Collection[tuple[TableName, str]] = ()) -> Iterator[ChangedPartition]:
        """Partitions of one file of at least `bytes_min` bytes that changed since they were last looked at,
        but those that are `done`."""
        self._looked_ms, self._rows = now_ms, []
        changed = ExtrasClient(self.catalog).changed_partitions(
            since_ms=self._mark()[1], data_files_max=1, bytes_min=self.bytes_min
        )
        for row in changed:
            if row.data_files == 1 and row.size_bytes >= self.bytes_min and (row.table, row.path) not in done:
                self._rows.append(row)
                yield row

    def settle(self, unfinished: Collection[str], open_from: int) -> None:
        """The round has ended: the mark goes on up to the first partition of a table that is unfinished, or
        of an hour from `open_from` on; for a table at least up to `BEHIND_MS` ago."""
        if self._looked_ms is None:
            return
        behind_ms = self._looked_ms - BEHIND_MS
        left = [
            row.changed_ms if is_open else max(row.changed_ms, behind_ms)
            for row in self._rows
            if (is_open := (parse_partition_path(row.path) or 0) >= open_from) or str(row.table) in unfinished
        ]
        version, before_ms = self._mark()
        mark_ms, self._looked_ms = min([self._looked_ms - OVERLAP_MS, *left]), None
        if mark_ms <= before_ms:
            return
        task = Task(ID, KIND, "done", version, {"at-ms": mark_ms})
        try:
            ExtrasClient(self.catalog).save_tasks([task], lease=self.lease)
        except FirnError as error:  # what was looked at is looked at once more
            log.warning("optimize.mark_not_saved", error=str(error))

    def _mark(self) -> tuple[int, int]:
        """Version of the entry, and up to when changes were looked at, ms since 1970."""
        try:
            task = ExtrasClient(self.catalog).find_task(KIND, ID)
        except NotFoundError:
            return 0, 0
        return (0, 0) if task is None else (task.version, int(task.record["at-ms"]))
