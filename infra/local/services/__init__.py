"""The services the supervisor knows, in an order in which they can be started."""

from collections.abc import Mapping

from infra.local.service import Service
from infra.local.services import (
    catalog,
    connect,
    ingest,
    ingest_serve,
    kafka,
    optimize,
    postgres,
    query,
    registry,
    s3,
    trino,
    ui,
)

_MODULES = (postgres, s3, kafka, catalog, trino, ingest, ingest_serve, optimize, query, ui, registry, connect)
SERVICES: Mapping[str, Service] = {module.SERVICE.name: module.SERVICE for module in _MODULES}
DEFAULT = ("kafka", "catalog", "trino", "ingest")
