"""Firn's ingest room: Kafka to Iceberg. Its other settings come from the environment given at the start and
from firn.toml."""

import sys

from infra.local.jvm_parts import REPOSITORY
from infra.local.ports import LOOPBACK
from infra.local.service import Launch, Service, Site, catalog_needs, ready_page, storage_needs
from infra.local.state import StackState


def _needs(stack: StackState) -> tuple[str, ...]:
    return (*storage_needs(stack), "kafka", *catalog_needs(stack))


def _prepare(site: Site) -> Launch:
    return Launch(
        command=(sys.executable, "-m", "ingest", "run"),
        address=f"http://{LOOPBACK}:{site.port}",
        folder=REPOSITORY,
        exports={"FIRN_INGEST_NODE__PORT": str(site.port)},
        environment={"FIRN_INGEST_KEY_INDEX__FOLDER": str(site.folder / "keys")},
    )


# The grace is long because a polite stop flushes and commits what is buffered.
SERVICE = Service(name="ingest", prepare=_prepare, probe=ready_page("/readyz"), needs=_needs, grace_s=60.0)
