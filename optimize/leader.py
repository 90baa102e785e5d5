"""One leader of maintenance at a time: a lease of the catalog, held by a thread, and its fencing token on
every change."""

import os
import socket
import uuid

from lake.catalog_client import CatalogClient
from lake.lease import Lease, LeaseTimes

NAME = "optimize"
RENEWALS_PER_LEASE = 3


def leader_lease(catalog: CatalogClient, lease_s: float) -> Lease:
    """The lease of whoever leads maintenance, for `acquire`. It lasts `lease_s` seconds beyond its last
    renewal. Every call is a holder of its own, in the same process too."""
    times = LeaseTimes(
        ttl_s=lease_s,
        renew_every_s=lease_s / RENEWALS_PER_LEASE,
        try_every_s=min(1.0, lease_s / 4),
        timeout_s=lease_s,
    )
    holder = f"{socket.gethostname()}/{os.getpid()}/{uuid.uuid4().hex[:8]}"
    return Lease(catalog, NAME, times, holder=holder)
