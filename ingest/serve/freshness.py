"""When each tenant's tables last changed, from the catalog's index of changed partitions: one listing for all
tenants, no table is loaded."""

from collections import OrderedDict
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from lake.catalog_client import CatalogClient
from lake.clock import Clock, epoch_ms
from lake.extras_client import ChangedPartition, ExtrasClient
from lake.tenant import from_identifier

WINDOW_S = 3_600
PAGE_SIZE = 10_000
PARTITIONS_MAX = 200_000  # whose rows are remembered, about 30 MB
_START = datetime(1970, 1, 1, tzinfo=UTC)


class Freshness:
    """Tenants that got rows within the last hour, or since this was made. One thread at a time.

    A partition that changed without getting rows was merged or lost some. That cannot be told of one seen for
    the first time: it counts.
    """

    def __init__(self, catalog: CatalogClient, clock: Clock) -> None:
        self._catalog = catalog
        self._clock = clock
        self._since_ms: int | None = None
        self._changed_ms: dict[str, int] = {}
        self._records: OrderedDict[tuple[int, str], int] = (
            OrderedDict()
        )  # by table and partition, the one changed last at the end

    def last_commits(self) -> Mapping[str, datetime] | None:
        """By tenant; None beside a catalog that keeps no such index. Asks only for what changed since the
        last call. Raises FirnError."""
        if not self._catalog.has_extras:
            return None
        if self._since_ms is None:
            self._since_ms = epoch_ms(self._clock.now()) - WINDOW_S * 1000
        extras = ExtrasClient(self._catalog)
        for changed in extras.changed_partitions(since_ms=self._since_ms, page_size=PAGE_SIZE):
            tenant = from_identifier(changed.table.levels[0])
            if self._got_rows(changed) and tenant is not None:
                self._changed_ms[tenant] = max(changed.changed_ms, self._changed_ms.get(tenant, 0))
            self._since_ms = max(self._since_ms, changed.changed_ms)
        return {tenant: _START + timedelta(milliseconds=ms) for tenant, ms in self._changed_ms.items()}

    def _got_rows(self, changed: ChangedPartition) -> bool:
        partition_of_table = changed.table_id, changed.path
        before = self._records.pop(partition_of_table, 0)
        self._records[partition_of_table] = changed.rows
        if len(self._records) > PARTITIONS_MAX:
            self._records.popitem(last=False)
        return changed.rows > before
