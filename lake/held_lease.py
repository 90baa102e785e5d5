"""A lease of the catalog held for the length of one act, so that two people, or a person and a node, do not
do it at once."""

import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import structlog

from lake.catalog_client import CatalogClient
from lake.errors import ConflictError, FirnError, RefusedError

TTL_S = 60.0
RENEW_EVERY_S = 15.0
log = structlog.get_logger()


class HeldLease:
    """A lease in force; `renew` as often as you like. `token` None: this catalog has no leases."""

    def __init__(self, catalog: CatalogClient, name: str, token: int | None) -> None:
        self._catalog = catalog
        self._path = f"/firn/v1/leases/{name}"
        self.token = token
        self._renewed_s = time.monotonic()

    def renew(self) -> None:
        """Holds on to it. Raises RefusedError where it ran out, UnavailableError."""
        if self.token is not None and time.monotonic() - self._renewed_s > RENEW_EVERY_S:
            self._catalog.post(f"{self._path}/renew", {"token": self.token, "ttl-ms": int(TTL_S * 1000)})
            self._renewed_s = time.monotonic()


@contextmanager
def held_lease(catalog: CatalogClient, name: str, refusal: str) -> Iterator[HeldLease]:
    """Takes a lease and lets it go at the end. Raises RefusedError with `refusal` where another holds it,
    UnavailableError."""
    if not catalog.has_extras:
        log.warning(
            "lease.none",
            lease=name,
            advice="this catalog has no leases: make sure yourself that nobody else does this now",
        )
        yield HeldLease(catalog, name, None)
        return
    holder = f"{socket.gethostname()}:{os.getpid()}:{name}"
    try:
        token = int(
            catalog.post(f"/firn/v1/leases/{name}/acquire", {"holder": holder, "ttl-ms": int(TTL_S * 1000)})[
                "token"
            ]
        )
    except ConflictError as error:
        raise RefusedError(f"{refusal} ({error})") from error
    try:
        yield HeldLease(catalog, name, token)
    finally:
        with suppress(FirnError):
            catalog.post(f"/firn/v1/leases/{name}/release", {"token": token})
