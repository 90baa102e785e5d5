"""Whether rows ever go."""

from collections.abc import Iterator, Mapping
from contextlib import closing

from infra.production.finding import Finding, ok, unsafe
from infra.production.rooms import Rooms
from lake.catalog_client import CatalogClient
from lake.extras_client import ExtrasClient
from lake.retention import PROPERTY

NAME = "retention"
ANSWER_S = 10.0


def look(rooms: Rooms) -> Iterator[Finding]:
    """Asks the catalog what lake and tenants say. Raises RetryableError, FatalError."""
    with closing(CatalogClient(rooms.ingest.catalog.uri, token=rooms.catalog_key)) as catalog:
        told = ExtrasClient(catalog).policies(timeout_s=ANSWER_S)
    yield judge({name: properties.get(PROPERTY, "") for name, properties in told.items()})


def judge(policies: Mapping[str | None, str]) -> Finding:
    """`policies`: what namespaces say, under None what the lake does; empty: nothing."""
    if of_lake := policies.get(None, ""):
        return ok(NAME, f"rows are kept for {of_lake} where no tenant and no stream says otherwise")
    tenants = sum(1 for name, text in policies.items() if name is not None and text)
    return unsafe(
        NAME,
        f"nobody says how long rows are kept, but for {tenants} tenants: storage fills up until",
        "nothing is written;",
        "set catalog.retention, to `forever` where that is meant",
    )
