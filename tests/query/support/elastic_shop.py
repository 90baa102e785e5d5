"""A shop's logs for the clients of Elasticsearch: two streams of one tenant."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from lake.catalog_client import CatalogClient
from tests.query.support.log_table import LogTable, fresh_tenant

START = datetime(2026, 3, 4, 10, 0, tzinfo=UTC)
END = START + timedelta(hours=2)
FROM_MS, TO_MS = (int(each.timestamp() * 1_000) for each in (START, END))
ROWS, AUDIT_ROWS = 720, 60
TYPES = {"bytes": "long", "ok": "boolean", "took": "double"}
Json = dict[str, Any]


@dataclass(frozen=True)
class ElasticShop:
    """`logs`: a row every ten seconds, every fourth one an error. `audit`: rows at the times of some of
    them."""

    logs: LogTable
    audit: LogTable

    @classmethod
    def made(cls, catalog: CatalogClient) -> "ElasticShop":
        """Both tables, of a tenant of their own."""
        logs = LogTable(catalog, fresh_tenant("shop"), types=TYPES)
        logs.append([row(at) for at in range(ROWS)])
        audit = LogTable(catalog, logs.tenant, "audit", types={"bytes": "long"})
        audit.append([audit_row(at) for at in range(AUDIT_ROWS)])
        return cls(logs, audit)

    @property
    def index(self) -> str:
        return f"{self.logs.tenant}.logs"

    @property
    def both(self) -> str:
        """A pattern that fits both indices."""
        return f"{self.logs.tenant}.*"


def row(at: int) -> Json:
    """A row of the shop's logs."""
    is_error = at % 4 == 0
    return {
        "timestamp": START + timedelta(seconds=10 * at, microseconds=at),
        "severity": "ERROR" if is_error else "info",
        "message": f"connection refused by db-{at % 3}" if is_error else f"GET /api/items/{at} answered",
        "status": "500" if is_error else "200",
        "bytes": at * 10,
        "ok": not is_error,
        "took": at / 8,
        "host": f"host {at % 5}",
        "http_method": None if is_error else "GET",
    }


def audit_row(at: int) -> Json:
    """A row of the other stream."""
    return {
        "timestamp": START + timedelta(seconds=100 * at, microseconds=10 * at),
        "message": f"user {at} logged in",
        "bytes": at,
        "host": f"host {at % 2}",
    }


def offsets_in(hits: list[Json]) -> list[int]:
    """The numbers of the rows that hits are: a row of the shop's logs has its own in its bytes."""
    return [hit["_source"]["bytes"] // 10 for hit in hits]
