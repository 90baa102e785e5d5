"""The services the supervisor knows, in an order in which they can be started."""

from collections.abc import Mapping

from infra.local.service import Service
from infra.local.services import catalog, ingest, kafka, optimize, postgres, query, s3, trino, ui

SERVICES: Mapping[str, Service] = {module.SERVICE.name: module.SERVICE for module in (postgres, s3, kafka, catalog, trino, ingest, optimize, query, ui)}
DEFAULT = ("kafka", "catalog", "trino", "ingest")
