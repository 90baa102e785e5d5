"""Firn's query room: the search API. Trino is needed for SQL and wide searches, ingest only asked for its lag
where it runs."""

import sys

from infra.local.jvm_parts import REPOSITORY
from infra.local.ports import LOOPBACK
from infra.local.service import Launch, Service, Site, catalog_needs, ready_page, storage_needs
from infra.local.services import ingest_serve
from infra.local.state import StackState


def _needs(stack: StackState) -> tuple[str, ...]:
    return (*storage_needs(stack), *catalog_needs(stack), "trino")


def _prepare(site: Site) -> Launch:
    address = f"http://{LOOPBACK}:{site.port}"
    ingest = ingest_serve.address(site.stack)
    return Launch(
        command=(sys.executable, "-m", "query", "serve", "--host", LOOPBACK, "--port", str(site.port)),
        address=address,
        folder=REPOSITORY,
        exports={
            "FIRN_UI_API": address,
            "FIRN_QUERY_HTTP__PORT": str(site.port),
            "FIRN_QUERY_STATE": str(site.folder),
        },
        environment={"FIRN_QUERY_INGEST__URI": ingest} if ingest else {},
    )


SERVICE = Service(name="query", prepare=_prepare, probe=ready_page("/readyz"), needs=_needs)
