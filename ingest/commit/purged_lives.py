"""Tables whose files are gone are forgotten: a node that runs for months would else know every tenant that
there ever was.

Maintenance notes each table that it has purged in the catalog's work list (`lake/purged_tables.py`). Its uuid
never comes back, so what the node knows of it can protect nothing any more; a table that gets its name is
another one, and is loaded like any that is met for the first time. Beside a catalog without such a list
nothing is forgotten.
"""

from concurrent.futures import Executor, Future
from dataclasses import dataclass, field

import structlog

from ingest.commit.tables import Tables
from lake.catalog_client import CatalogClient
from lake.clock import Clock
from lake.errors import FirnError
from lake.isolation import isolate
from lake.purged_tables import purged_tables
from lake.tenant import TableId

# A purged table takes some kilobytes, and a day more or less of these does not matter.
LOOK_EVERY_S = 86_400.0
log = structlog.get_logger()


@dataclass
class PurgedLives:
    """Asks once a day which tables were purged. One thread calls it; the catalog is asked in another."""

    lives: Tables
    catalog: CatalogClient
    pool: Executor
    clock: Clock
    _next_s: float = field(init=False)
    _asked: Future[frozenset[str]] | None = None

    def __post_init__(self) -> None:
        self._next_s = self.clock.monotonic_s() + LOOK_EVERY_S  # what a node begins with is not purged

    def take(self) -> list[TableId]:
        """Forgets tables that were purged, as far as nothing is under way with them; returns these. Never
        blocks."""
        now_s = self.clock.monotonic_s()
        if self._asked is None:
            if now_s >= self._next_s:
                self._next_s, self._asked = now_s + LOOK_EVERY_S, self.pool.submit(_uuids, self.catalog)
            return []
        if not self._asked.done():
            return []
        uuids, self._asked = self._asked.result(), None
        gone = [life.table for life in self.lives.values() if life.is_idle and life.uuid in uuids]
        for table in gone:
            self.lives.forget(table)
        if gone:
            log.info("tables.forgotten", tables=len(gone))
        return gone


def _uuids(catalog: CatalogClient) -> frozenset[str]:
    """Those of all tables that are noted as purged; none where that cannot be told now."""
    try:
        with isolate("tables.purged_not_told", foreseen=(FirnError,)):
            return (
                frozenset(each.uuid for each in purged_tables(catalog)) if catalog.has_extras else frozenset()
            )
    except FirnError as error:
        log.info("tables.purged_not_told", reason=str(error))
    return frozenset()
