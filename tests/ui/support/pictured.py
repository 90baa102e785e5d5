"""What stands on the pictures beside the demo's logs: a board, and records for a live tail."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from typing import Any

import orjson

from infra.demo.load import Mixture
from infra.demo.record import STREAM_HEADER, DemoRecord
from lake.catalog_client import CatalogClient
from lake.clock import epoch_ms
from lake.tenant import TenantId
from query.tables.board import board_of
from query.tables.board_store import BoardStore, StoredBoard

BOARD = "shop"
TILES: list[dict[str, Any]] = [
    {"title": "Warnings and errors", "query": "severity:(warn OR error)", "shown": "bars", "size": "large"},
    {
        "title": "Slowest services, in ms",
        "query": "| stats count() as events, p95(duration_ms) as slow by service | sort -slow",
        "size": "medium",
    },
    {"title": "Errors", "query": "severity:error", "shown": "figure", "size": "medium"},
    {
        "title": "Events of each service",
        "query": "| stats count() as events by bucket(30m), service",
        "shown": "lines",
        "size": "large",
    },
]
# What reaches the tail, the oldest first; of the one without a level half is cut off.
LEVELS = (
    "INFO",
    "DEBUG",
    "INFO",
    "WARN",
    "INFO",
    "",
    "INFO",
    "INFO",
    "ERROR",
    "INFO",
    "WARN",
    "DEBUG",
    "INFO",
)
SEED, APART_MS = 7, 700
ONE_PARTITION = b"in order"


def keep_board(catalog: CatalogClient, tenant: TenantId) -> None:
    """Keeps a board of a chart of a search, a table, a single figure and lines."""
    board = board_of({"title": "The shop", "from": "now-6h", "to": "now", "tiles": TILES})
    BoardStore(catalog).keep(StoredBoard(tenant, BOARD, board, "operations", "2026-09-01T09:00:00Z"))


def records_now(tenant: str, now: datetime) -> Iterator[DemoRecord]:
    """Records of a tenant's default stream of every level, and one that is broken, that come one after the
    other until now."""
    mixture, now_ms = Mixture(SEED), epoch_ms(now)
    for before, level in enumerate(LEVELS):
        at_ms = now_ms - APART_MS * (len(LEVELS) - before)
        record = _record(mixture, tenant, level or "INFO", at_ms)
        cut = record.value if level else record.value[: len(record.value) // 2]
        yield replace(record, key=ONE_PARTITION, value=cut)


def _record(mixture: Mixture, tenant: str, level: str, at_ms: int) -> DemoRecord:
    while True:
        record = mixture.record_at(at_ms)
        is_wanted = record.tenant == tenant and record.expected == "row" and not record.errors_expected
        if is_wanted and STREAM_HEADER not in dict(record.headers) and _level(record) == level:
            return record


def _level(record: DemoRecord) -> str:
    return str(orjson.loads(record.value).get("level", ""))
