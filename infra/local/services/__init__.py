"""The services the supervisor knows, in an order in which they can be started."""

from collections.abc import Mapping

from infra.local.service import Service
from infra.local.services import catalog, ingest, kafka, postgres, s3, trino

SERVICES: Mapping[str, Service] = {module.SERVICE.name: module.SERVICE for module in (postgres, s3, kafka, catalog, trino, ingest)}
DEFAULT = ("kafka", "catalog", "trino", "ingest")
