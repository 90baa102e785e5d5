"""Firn's own Iceberg REST catalog, on SQLite or on the stack's PostgreSQL."""

import sys

from infra.local.jvm_parts import REPOSITORY
from infra.local.ports import LOOPBACK
from infra.local.service import Launch, Service, Site, ready_page, storage_needs
from infra.local.state import StackState


def _needs(stack: StackState) -> tuple[str, ...]:
    return (*storage_needs(stack), *(("postgres",) if stack.database == "postgres" else ()))


def exports(uri: str) -> dict[str, str]:
    """The variables through which the rooms find a catalog."""
    return {f"FIRN_{room}_CATALOG__URI": uri for room in ("INGEST", "OPTIMIZE", "QUERY")}


def _prepare(site: Site) -> Launch:
    database = (
        site.stack.record("postgres").address
        if site.stack.database == "postgres"
        else f"sqlite:///{site.state_folder / 'catalog.db'}"
    )
    address = f"http://{LOOPBACK}:{site.port}"
    return Launch(
        # The database's address comes by the environment: everybody on the machine can read a command line,
        # and it may hold a password.
        command=(
            sys.executable,
            "-m",
            "catalog",
            "serve",
            "--host",
            LOOPBACK,
            "--port",
            str(site.port),
            "--anonymous",
        ),
        address=address,
        folder=REPOSITORY,
        exports={
            **exports(address),
            "FIRN_CATALOG_DATABASE_URL": database,
            "FIRN_CATALOG_WAREHOUSE": site.stack.warehouse,
        },
    )


SERVICE = Service(name="catalog", prepare=_prepare, probe=ready_page("/readyz"), needs=_needs)
