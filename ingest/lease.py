"""The node's lease: one node ingests, others stand by. On the catalog's database clock; beside a foreign catalog there is none."""

import threading

import structlog

from lake.catalog_client import CatalogClient
from lake.errors import ConflictError, RefusedError, RetryableError, UnavailableError
from lake.settings import IngestSettings

TTL_S = 6.0
RENEW_EVERY_S = 1.5
TRY_EVERY_S = 0.5
log = structlog.get_logger()


class NodeLease:
    """The lease `ingest/<group>`. A thread renews it; `check` tells the node when it is lost."""

    def __init__(self, catalog: CatalogClient, settings: IngestSettings, holder: str) -> None:
        self._catalog = catalog
        self._path = f"/firn/v1/leases/ingest.{settings.group}"
        self._holder = holder
        self._lost: str | None = None
        self._released = threading.Event()
        self._renewer: threading.Thread | None = None
        self.token: int | None = None

    def acquire(self, stopping: threading.Event) -> bool:
        """Waits until the lease is this node's; False where the node is stopped first."""
        while not stopping.is_set():
            try:
                if self._take():
                    return True
            except RetryableError as error:
                log.info("lease.waits", reason=str(error))
            stopping.wait(TRY_EVERY_S)
        return False

    def _take(self) -> bool:
        if not self._catalog.has_extras:
            log.warning("lease.none", advice="this catalog has no leases: never start a second node on the same group")
            return True
        try:
            self.token = self._catalog.post(f"{self._path}/acquire", {"holder": self._holder, "ttl-ms": int(TTL_S * 1000)})["token"]
        except ConflictError as error:
            log.info("lease.standby", reason=str(error))
            return False
        self._lost = None
        self._released = threading.Event()
        self._renewer = threading.Thread(target=self._renew, args=(self._released,), name="lease", daemon=True)
        self._renewer.start()
        return True

    def _renew(self, released: threading.Event) -> None:
        while not released.wait(RENEW_EVERY_S):
            try:
                self._catalog.post(f"{self._path}/renew", {"token": self.token, "ttl-ms": int(TTL_S * 1000)}, timeout_s=RENEW_EVERY_S)
            except RefusedError as error:
                self._lost = str(error)
                return
            except RetryableError as error:
                log.warning("lease.not_renewed", reason=str(error))

    def check(self) -> None:
        """Raises UnavailableError where another node may have taken over."""
        if self._lost is not None:
            raise UnavailableError(f"the node's lease is lost ({self._lost})")

    def release(self) -> None:
        """Lets a standby take over at once."""
        self._released.set()
        if self.token is not None and self._lost is None:
            try:
                self._catalog.post(f"{self._path}/release", {"token": self.token}, timeout_s=RENEW_EVERY_S)
            except (RetryableError, RefusedError) as error:
                log.info("lease.not_released", reason=str(error))
        self.token = None
