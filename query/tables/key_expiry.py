"""Keys whose end is near, for administrators on the health page."""

from datetime import datetime, timedelta

from lake.catalog_client import CatalogClient
from lake.clock import moment_of
from lake.errors import FirnError
from lake.extras_client import KEYS_PATH

SOON = timedelta(days=14)


def expiring_keys(caller: CatalogClient, now: datetime) -> list[str]:
    """`id (day)` of each key in force that expires within two weeks, the next first; none where the caller's
    key, or the catalog, does not tell."""
    try:
        found = caller.get(KEYS_PATH)["keys"]
    except FirnError:
        return []
    ends = sorted(
        (moment_of(key["expires-ms"]), key["id"])
        for key in found
        if key["revoked-ms"] is None and key["expires-ms"] is not None
    )
    return [f"{key_id} ({end:%Y-%m-%d})" for end, key_id in ends if now < end <= now + SOON]
