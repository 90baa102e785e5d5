"""A table that follows a database, and the history beside it: what is sent to them, and what is read back."""

from typing import Any

from tests.changes.support.shop import Shop, changes, flat
from tests.stack.support.kafka_topics import Record
from tests.stack.support.plain_http import http

TENANT, TOPIC, HISTORY = "Shop", "orders", "logs_history"
SETTING = changes(TOPIC, history=True)
ORDERS, DELETED = 40, 10
# The shop's clock.
TIMES = {"from": "2023-11-01", "to": "2023-12-01"}
Rows = list[tuple[int, str, int]]


def first_changes(shop: Shop) -> list[Record]:
    """Each order comes and is changed, and some are deleted."""
    made = [shop.put(id=at, name="new", amount=at) for at in range(ORDERS)]
    changed = [shop.put(id=at, name="changed", amount=2 * at) for at in range(ORDERS)]
    return flat([*made, *changed, *(shop.delete(at) for at in range(DELETED))])


def further_changes(shop: Shop) -> list[Record]:
    """Of orders that are there, of one that was deleted, and of a new one."""
    changed = [shop.put(id=at, name="later", amount=3 * at) for at in (0, DELETED, ORDERS)]
    return flat([*changed, shop.delete(DELETED + 1)])


def recorded(records: list[Record]) -> int:
    """How many of them the history has: a tombstone only repeats the delete before it."""
    return sum(record.value is not None for record in records)


def rows(shop: Shop) -> Rows:
    """What the table has to have."""
    return sorted((int(row["id"]), str(row["name"]), int(row["amount"])) for row in shop.rows.values())


def searched(address: str) -> Rows:
    """What a search finds in the table."""
    found = [each["fields"] for each in _search(address, "logs")]
    return sorted((int(row["id"]), str(row["name"]), int(row["amount"])) for row in found)


def searched_history(address: str) -> int:
    """How many rows a search finds in the history."""
    return len(_search(address, HISTORY))


def _search(address: str, stream: str) -> list[dict[str, Any]]:
    body = {"tenant": TENANT, "stream": stream, "limit": 10_000, **TIMES}
    answer = http.post(f"{address}/v1/search", json=body, timeout=60.0)
    return list(answer.raise_for_status().json()["rows"])
