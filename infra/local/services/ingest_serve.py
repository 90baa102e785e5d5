"""Firn's ingest tools over HTTP: lag, dead letters, live tail. Its topics come, like those of ingest, from
the environment given at the start."""

import sys

from infra.local.jvm_parts import REPOSITORY
from infra.local.ports import LOOPBACK
from infra.local.service import Launch, Service, Site, catalog_needs, ready_page, storage_needs
from infra.local.state import StackState


def _needs(stack: StackState) -> tuple[str, ...]:
    return (*storage_needs(stack), "kafka", *catalog_needs(stack))


def address(stack: StackState) -> str:
    """Whom to ask how far ingestion is behind: this service where it runs, else the ingester itself; empty
    where there is neither."""
    return stack.record(SERVICE.name).address or stack.record("ingest").address


def _prepare(site: Site) -> Launch:
    return Launch(
        command=(sys.executable, "-m", "ingest", "serve", "--host", LOOPBACK, "--port", str(site.port)),
        address=f"http://{LOOPBACK}:{site.port}",
        folder=REPOSITORY,
        exports={"FIRN_INGEST_SERVE__PORT": str(site.port)},
        environment={"FIRN_INGEST_NODE__URI": site.stack.record("ingest").address},
    )


SERVICE = Service(name="ingest-serve", prepare=_prepare, probe=ready_page("/readyz"), needs=_needs)
