"""What the catalog says of the retention of tables: asked in time, never for long, and for a minute
believed."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import structlog

from ingest.model.table_retention import TableRetention
from lake.catalog_client import CatalogClient, TableName
from lake.clock import Clock
from lake.errors import FirnError, NotFoundError
from lake.retention_policies import BELIEVED_S, Policies
from lake.retention_policies import said as said_of
from lake.settings import IngestSettings
from lake.tenant import TableId

ASK_TIMEOUT_S = 5.0
# Questions what a table says now, in the time that other answers are believed: whoever sends old records to a
# hundred thousand streams of his does not have the worker ask all day. What comes behind them is written.
ASKED_MAX = 1_000
FOR_EVER = TableRetention()
log = structlog.get_logger()


@dataclass(slots=True)
class CatalogRetentions:
    """One worker's, which opens a client of the catalog when it first asks: most never do. After a question
    that the catalog did not answer none is asked for a minute, and after `ASKED_MAX` of them none until that
    minute is over: rows are written then, and maintenance deletes them."""

    open_catalog: Callable[[], CatalogClient]
    clock: Clock
    _policies: Policies | None = None
    _asked: int = 0  # since then
    _since_s: float = float("-inf")
    _silent_until_s: float = float("-inf")

    @classmethod
    def of(cls, settings: IngestSettings, clock: Clock) -> "CatalogRetentions":
        """Those of the catalog that the settings name."""
        token = settings.catalog.token.get_secret_value() if settings.catalog.token else None
        return cls(lambda: CatalogClient(settings.catalog.uri, token=token), clock)

    def retention(self, table: TableId, said: Mapping[str, str], *, anew: bool) -> TableRetention:
        """See `Retentions`."""
        if self.clock.monotonic_s() < self._silent_until_s:
            return FOR_EVER
        name = TableName(table.tenant.namespace, table.table)
        if self._policies is None:
            self._policies = Policies(self.open_catalog(), self.clock, ASK_TIMEOUT_S)
        policies = self._policies
        try:
            known = self._now(policies.catalog, table, said) if anew else said
            if known is None:
                return FOR_EVER
            return TableRetention(policies.of(name, known), policies.holds(name))
        except (FirnError, ValueError) as error:  # of the second kind: what nobody can read deletes nothing
            if not isinstance(error, ValueError | NotFoundError):
                self._silent_until_s = self.clock.monotonic_s() + BELIEVED_S
            log.warning("retention.not_known", table=str(table), error=str(error))
            return FOR_EVER

    def _now(
        self, catalog: CatalogClient, table: TableId, before: Mapping[str, str]
    ) -> Mapping[str, str] | None:
        """What the table says; one that is not there yet, what it will; None where too many were asked."""
        now_s = self.clock.monotonic_s()
        if now_s - self._since_s > BELIEVED_S:
            self._asked, self._since_s = 0, now_s
        if self._asked >= ASKED_MAX:
            return None
        self._asked += 1
        if self._asked == ASKED_MAX:
            log.warning("retention.asked_enough", questions=ASKED_MAX, again_in_s=BELIEVED_S)
        name = TableName(table.tenant.namespace, table.table)
        try:
            metadata = catalog.load_table(name, timeout_s=ASK_TIMEOUT_S)["metadata"]
        except NotFoundError:
            return before
        return said_of(metadata.get("properties") or {})
