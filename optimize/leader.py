"""One leader at a time: a lease of the catalog, held by a thread, and its token on every change.

A leader that was frozen past its lease may wake up and go on; the catalog refuses its token, so it changes
nothing any more.
"""

import os
import socket
import threading
import uuid
from types import TracebackType
from typing import Self

import structlog

from lake.catalog_client import CatalogClient
from lake.errors import ConflictError, FirnError, NotFoundError, RefusedError, UnavailableError

NAME = "optimize"
PATH = f"/firn/v1/leases/{NAME}"
RENEWALS_PER_LEASE = 3
log = structlog.get_logger()


class Leader:
    """Holds the lease `optimize` while it is open. `token` is None beside a catalog without leases: then
    nothing guards against a second one."""

    def __init__(self, catalog: CatalogClient, lease_s: float) -> None:
        self._catalog = catalog
        self._lease_s = lease_s
        self._holder = f"{socket.gethostname()}/{os.getpid()}/{uuid.uuid4().hex[:8]}"
        self._stop = threading.Event()
        self._lost = threading.Event()
        self._token: int | None = None
        self._thread: threading.Thread | None = None

    @property
    def token(self) -> str | None:
        """What goes into the header of every change: `name:token`."""
        return None if self._token is None else f"{NAME}:{self._token}"

    @property
    def lost(self) -> bool:
        """Whether somebody else may lead by now."""
        return self._lost.is_set()

    def acquire(self, stop: threading.Event, wait_s: float) -> bool:
        """Waits for the lease; False where it is not to be had in `wait_s`, or `stop` was set. The token is a
        new one each time."""
        waited_s, poll_s = 0.0, min(1.0, self._lease_s / 4)
        while not stop.is_set():
            if self._try():
                return True
            if waited_s >= wait_s:
                return False
            stop.wait(poll_s)
            waited_s += poll_s
        return False

    def _try(self) -> bool:
        if not self._catalog.has_extras:
            return True
        try:
            answer = self._catalog.post(
                f"{PATH}/acquire", {"holder": self._holder, "ttl-ms": int(self._lease_s * 1000)}
            )
        except NotFoundError:
            return True
        except (ConflictError, UnavailableError) as error:
            log.debug("optimize.standing_by", reason=str(error))
            return False
        self._token = int(answer["token"])
        self._lost.clear()
        self._stop.clear()
        self._thread = threading.Thread(target=self._renew, args=(self._token,), name="lease", daemon=True)
        self._thread.start()
        log.info("optimize.leads", lease=self.token)
        return True

    def _renew(self, token: int) -> None:
        while not self._stop.wait(self._lease_s / RENEWALS_PER_LEASE):
            try:
                self._catalog.post(
                    f"{PATH}/renew",
                    {"token": token, "ttl-ms": int(self._lease_s * 1000)},
                    timeout_s=self._lease_s,
                )
            except (RefusedError, NotFoundError) as error:
                log.warning("optimize.lease_lost", error=str(error))
                self._lost.set()
                return
            except FirnError as error:
                log.warning("optimize.lease_not_renewed", error=str(error))

    def release(self) -> None:
        """Lets the next one lead at once."""
        self._stop.set()
        token, self._token = self._token, None
        if token is not None and not self._lost.is_set():
            try:
                self._catalog.post(f"{PATH}/release", {"token": token})
            except FirnError as error:
                log.info("optimize.lease_not_released", error=str(error))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.release()
