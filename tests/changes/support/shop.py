"""A made-up shop: what Debezium's connector sends for what is done to a table of its, and what is stored of
that."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

import orjson

from lake.catalog_client import TableName
from lake.tenant import to_identifier
from tests.stack.support.kafka_topics import Record
from tests.stack.support.line import Line
from tests.stack.support.waiting import POLL_S, wait_for

FIELDS: list[dict[str, Any]] = [
    {"type": "int32", "optional": False, "field": "id"},
    {"type": "string", "optional": True, "field": "name"},
    {"type": "int64", "optional": True, "field": "amount"},
]
# Beside other load. Trino is asked less often than what answers by itself: it shares the cores with what is
# waited for.
LONGEST_S, QUERY_EVERY_S = 120.0, 0.5
KEY_SCHEMA = {"type": "struct", "optional": False, "fields": FIELDS[:1]}
ROW_SCHEMA = {"type": "struct", "optional": True, "fields": FIELDS}
Row = Mapping[str, Any]


class Shop:
    """A table of a made-up database: what its connector sends for what is done to it."""

    def __init__(self, tenant: str, fields: list[dict[str, Any]] | None = None) -> None:
        self.tenant = tenant
        self.rows: dict[int, Row] = {}
        self.fields = fields or FIELDS
        self._lsn = 0

    def put(self, **row: Any) -> Record:
        before = self.rows.get(row["id"])
        self.rows[row["id"]] = row
        return self._message("u" if before else "c", row["id"], before, row)

    def delete(self, key: int) -> list[Record]:
        before = self.rows.pop(key)
        return [self._message("d", key, before, None), self._tombstone(key)]

    def snapshot(self, key: int) -> Record:
        """The row as a snapshot finds it."""
        return self._message("r", key, None, self.rows[key])

    def truncate(self) -> Record:
        self.rows.clear()
        return Record(self._value("t", None, None), headers=self._headers)

    def _message(self, op: str, key: int, before: Row | None, after: Row | None) -> Record:
        return Record(self._value(op, before, after), key=self._key(key), headers=self._headers)

    def _tombstone(self, key: int) -> Record:
        return Record(None, key=self._key(key), headers=self._headers)

    @property
    def _headers(self) -> list[tuple[str, bytes | None]]:
        return [("tenant", self.tenant.encode())]

    @staticmethod
    def _key(key: int) -> bytes:
        return orjson.dumps({"schema": KEY_SCHEMA, "payload": {"id": key}})

    def _value(self, op: str, before: Row | None, after: Row | None) -> bytes:
        self._lsn += 1
        row = {**ROW_SCHEMA, "fields": self.fields}
        schema = {
            "type": "struct",
            "fields": [{**row, "field": "before"}, {**row, "field": "after"}],
        }
        source = {"lsn": self._lsn, "ts_ms": 1_700_000_000_000 + self._lsn}
        payload = {"op": op, "before": before, "after": after, "source": source, "ts_ms": 1}
        return orjson.dumps({"schema": schema, "payload": payload})


def name_of(shop: Shop) -> TableName:
    return TableName(to_identifier(shop.tenant), to_identifier("logs"))


def stored(line: Line, tenant: str, columns: str = "id, name, amount") -> list[tuple[Any, ...]]:
    return sorted(line.sql(f"SELECT {columns} FROM {line.table(tenant)}"))


def wanted(shop: Shop) -> list[tuple[Any, ...]]:
    return sorted((row["id"], row["name"], row["amount"]) for row in shop.rows.values())


def flat(groups: Iterable[Record | list[Record]]) -> list[Record]:
    return [record for group in groups for record in (group if isinstance(group, list) else [group])]


def wait_for_table(line: Line, shop: Shop) -> None:
    """Returns when Trino reads what the shop has. It is asked once for each commit: a query costs more than
    what is waited for, which shares the cores with it."""
    name, last = name_of(shop), (None, list[tuple[Any, ...]]())

    def read() -> list[tuple[Any, ...]]:
        nonlocal last
        head = line.catalog.load_table(name)["metadata-location"]
        last = last if head == last[0] else (head, stored(line, shop.tenant))
        return last[1]

    wait_for(lambda: line.exists(shop.tenant), LONGEST_S, "the table")
    wait_until_equal(read, wanted(shop), poll_s=POLL_S)


def upgrade(line: Line, name: TableName) -> None:
    """A table to format version 3, as any client of the REST catalog may."""
    update = {"action": "upgrade-format-version", "format-version": 3}
    line.catalog.post(
        f"/v1/namespaces/{name.namespace}/tables/{name.name}", {"requirements": [], "updates": [update]}
    )


def changes(topic: str, **more: Any) -> dict[str, Any]:
    return {"name": topic, "changes": {"mode": "upsert", "format": "debezium", **more}}


def wait_until_equal(
    found: Callable[[], list[tuple[Any, ...]]],
    expected: list[tuple[Any, ...]],
    poll_s: float = QUERY_EVERY_S,
) -> None:
    """Returns when a query gives these rows; fails with what it gives instead."""
    rows = list[tuple[Any, ...]]()

    def is_equal() -> bool:
        rows[:] = found()
        return rows == expected

    with suppress(AssertionError):
        wait_for(is_equal, LONGEST_S, poll_s=poll_s)
    assert rows == expected
