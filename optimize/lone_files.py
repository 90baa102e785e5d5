"""Hours with a single file as ingestion wrote it, which backfill leaves behind by the thousand: no index of
crowded partitions names them.

The catalog lists partitions by their last change. Those that changed before a mark were looked at; the mark
is kept in the catalog and goes on only past what is done, so an hour that is still open, or a table that
waits or fails, is found again by whoever leads then.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Any

import structlog

from lake.catalog_client import CatalogClient, TableName
from lake.errors import FirnError, NotFoundError
from lake.table_layout import parse_partition_path
from optimize.partition_rows import PartitionRow, changed_partitions

PATH = "/firn/v1/tasks"
KIND = "optimize.mark"
ID = f"{KIND}:lone-files"
# The catalog's clock stamps a change before its transaction ends, so a look begins a little before the end of
# the last one.
OVERLAP_MS = 60_000
log = structlog.get_logger()


@dataclass(slots=True)
class LoneFiles:
    """`rows` at the start of a round, `settle` at its end. `lease`: the leader's, `name:token`."""

    catalog: CatalogClient
    bytes_min: int
    lease: str | None = None
    _looked_ms: int | None = None
    _rows: list[PartitionRow] = field(default_factory=list)

    def rows(self, now_ms: int, done: Collection[tuple[TableName, str]] = ()) -> Iterator[PartitionRow]:
        """Partitions of one file of at least `bytes_min` bytes that changed since they were last looked at,
        but those that are `done`."""
        self._looked_ms, self._rows = now_ms, []
        for row in changed_partitions(self.catalog, files_min=1, since_ms=self._mark()[1]):
            if row.data_files == 1 and row.size_bytes >= self.bytes_min and (row.table, row.path) not in done:
                self._rows.append(row)
                yield row

    def settle(self, unfinished: Collection[str], open_from: int) -> None:
        """The round has ended: the mark goes on up to the first partition of a table that is unfinished, or
        of an hour from `open_from` on."""
        if self._looked_ms is None:
            return
        left = [
            row.changed_ms
            for row in self._rows
            if str(row.table) in unfinished or (parse_partition_path(row.path) or 0) >= open_from
        ]
        version, before_ms = self._mark()
        mark_ms, self._looked_ms = min([self._looked_ms - OVERLAP_MS, *left]), None
        if mark_ms <= before_ms:
            return
        task: dict[str, Any] = {
            "id": ID,
            "kind": KIND,
            "state": "done",
            "version": version,
            "record": {"at-ms": mark_ms},
        }
        try:
            self.catalog.post(PATH, {"tasks": [task]} | ({"lease": self.lease} if self.lease else {}))
        except FirnError as error:  # what was looked at is looked at once more
            log.warning("optimize.mark_not_saved", error=str(error))

    def _mark(self) -> tuple[int, int]:
        """Version of the entry, and up to when changes were looked at, ms since 1970."""
        try:
            tasks = self.catalog.get(PATH, kind=KIND)["tasks"]
        except NotFoundError:
            return 0, 0
        return next(
            ((int(task["version"]), int(task["record"]["at-ms"])) for task in tasks if task["id"] == ID),
            (0, 0),
        )
