"""The health probe: do catalog and storage work at all, so that a table which fails has nobody to blame but
itself?

One small object lies in the warehouse from the first start on. A storage that lost it, or shows an empty
folder where a disk should be mounted, is an outage, however readily it takes new files.
"""

import structlog

from lake.catalog_client import CatalogClient
from lake.errors import FirnError
from lake.storage import AnyStorage

TIMEOUT_S = 5.0
log = structlog.get_logger()


class HealthProbe:
    """Calls block; run them in a thread."""

    def __init__(self, catalog: CatalogClient, storage: AnyStorage, warehouse: str, group: str) -> None:
        self._catalog = catalog
        self._storage = storage
        self._uri = f"{warehouse.rstrip('/')}/canary/{group}"

    def settle(self) -> None:
        """Puts the object where it belongs; called at start, when there is nothing to compare with yet.
        Raises UnavailableError, PrerequisiteError."""
        self._storage.write_all([(self._uri, b"alive")])

    def works(self) -> bool:
        """Whether the catalog answers, the object is there, and storage takes it anew."""
        try:
            self._catalog.ping(timeout_s=TIMEOUT_S)
            if self._storage.size(self._uri) is None:
                log.warning(
                    "health_probe.gone",
                    uri=self._uri,
                    advice="the storage is not what it was at start; nobody is parked meanwhile",
                )
                return False
            self._storage.write_all([(self._uri, b"alive")])
        except FirnError as error:
            log.warning(
                "health_probe.silent",
                reason=str(error),
                advice="this is an outage, not a fault of a table; nobody is parked meanwhile",
            )
            return False
        return True
