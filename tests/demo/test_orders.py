"""The shop's orders: messages that lead to the rows they are said to lead to, with all that a database
does."""

import hashlib
from collections import Counter
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infra.demo.order_stream import Stage
from infra.demo.orders import COLUMNS, KEY, KeyedRows, Order, OrderTable, row_texts
from infra.demo.record import ORDERS_TOPIC, ChangeRecord
from ingest.changes.change import Change, Op
from ingest.changes.debezium import read_change
from lake.clock import epoch_ms

AT_MS = epoch_ms(datetime(2026, 11, 21, 15, 28, 29, tzinfo=UTC))
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def sent(orders: OrderTable, changes: int) -> list[ChangeRecord]:
    return [record for at in range(changes) for record in orders.change(AT_MS + at * 700)]


def read(record: ChangeRecord) -> Change:
    found = read_change(record.key, record.value)
    assert isinstance(found, Change), found
    return found


@pytest.mark.long
@settings(deadline=None, max_examples=10)
@given(seed=st.integers(min_value=0, max_value=2**63))
def test_a_seed_and_its_times_decide_all_messages(seed: int) -> None:
    """Two shops of one seed send the same bytes; one of another seed sends others."""
    assert sent(OrderTable(seed), 60) == sent(OrderTable(seed), 60) != sent(OrderTable(seed + 1), 60)


@settings(deadline=None, max_examples=10)
@given(seed=st.integers(min_value=0, max_value=2**63), changes=st.integers(min_value=1, max_value=900))
def test_messages_lead_to_the_rows_that_the_shop_has(seed: int, changes: int) -> None:
    """Whoever applies the messages one after the other, by their keys and types, has as many orders as the
    shop, and the same values in them."""
    orders, rows = OrderTable(seed), dict[int, dict[str, Any]]()
    for record in sent(orders, changes):
        change = read(record)
        assert not change.errors
        key = change.key.values[KEY]
        if change.op is Op.DELETE:
            rows.pop(key, None)
        else:
            kept = {name: rows[key][name] for name in change.unavailable}
            rows[key] = {**change.row.values, **kept}
    assert KeyedRows(len(rows), len(rows), _sum_of(rows)) == orders.truth


@pytest.mark.long
def test_orders_are_placed_changed_and_cancelled() -> None:
    """Every kind of message comes: inserts, updates, some without a large value that they do not touch, and
    deletes, each with its tombstone right behind it."""
    changes = [read(record) for record in sent(OrderTable(1), 8_000)]
    ops = Counter(change.op for change in changes if not change.is_tombstone)
    assert ops.keys() == {Op.INSERT, Op.UPDATE, Op.DELETE}
    assert ops[Op.INSERT] > 2 * ops[Op.DELETE] > 500
    assert ops[Op.UPDATE] > 3_000
    assert sum("note" in change.unavailable for change in changes) > 20
    for before, change in pairwise(changes):
        deleted = before.op is Op.DELETE and not before.is_tombstone
        assert deleted is change.is_tombstone
        assert not deleted or before.key == change.key


def test_columns_have_the_types_of_the_shops_database() -> None:
    """Decimals, days and moments among them, from the schema part of the first message."""
    (record,) = OrderTable(1).change(AT_MS)
    assert (record.topic, record.timestamp_ms) == (ORDERS_TOPIC, AT_MS)
    types = read(record).row.types
    assert types == {
        "id": "long",
        "customer": "string",
        "status": "string",
        "total": "decimal(12,2)",
        "items": "int",
        "is_gift": "boolean",
        "ship_by": "date",
        "placed_at": "timestamp",
        "changed_at": "timestamptz",
        "note": "string",
    }
    assert tuple(types) == COLUMNS


def test_an_update_that_touches_a_large_note_sends_it() -> None:
    """Only an unchanged one is left out, and a deleted row comes with its key alone."""
    orders, notes = OrderTable(3), dict[int, Any]()
    for record in sent(orders, 6_000):
        payload = orjson.loads(record.value)["payload"] if record.value else None
        if payload is not None and payload["op"] == "d":
            assert {name for name, value in payload["before"].items() if value is not None} == {KEY}
        elif payload is not None:
            row = payload["after"]
            assert row["note"] != "__debezium_unavailable_value" or len(notes[row[KEY]]) >= 2_000
            if row["note"] != "__debezium_unavailable_value":
                notes[row[KEY]] = row["note"]


def test_values_are_spelled_as_trino_does() -> None:
    """Cents as a decimal, times with six digits, NULL as nothing."""
    row = Order(7, "c", "paid", 5, 1, True, None, 1_000_000, 86_400_000_001, None)
    assert row_texts(row)[3:] == (
        "0.05",
        "1",
        "true",
        "",
        "1970-01-01 00:00:01.000000",
        "1970-01-02 00:00:00.000001 UTC",
        "",
    )


def test_a_stage_names_what_differs() -> None:
    """A row too many, a key that is doubled, another value: each is a sentence; nothing where all is the
    same."""
    truth = KeyedRows(10, 10, 99)
    assert Stage("after compaction", 5, truth, KeyedRows(10, 10, 99), None).mismatch is None
    for counted in (KeyedRows(11, 11, 99), KeyedRows(10, 9, 99), KeyedRows(10, 10, 98)):
        sentence = Stage("after compaction", 5, truth, counted, None).mismatch
        assert sentence is not None
        assert f"{counted.rows} rows of {counted.keys} keys with checksum {counted.checksum}" in sentence


def _sum_of(rows: dict[int, dict[str, Any]]) -> int:
    """The checksum of rows as the reader of changes types them, spelled without the shop's own code."""
    total = 0
    for row in rows.values():
        texts = [_text(name, row[name]) for name in COLUMNS]
        digest = hashlib.sha256("|".join(texts).encode()).digest()
        total += int.from_bytes(digest[:8], "big", signed=True)
    return total


def _text(name: str, value: Any) -> str:
    if value is None:
        return ""
    if name == "ship_by":
        return (EPOCH + timedelta(days=value)).strftime("%Y-%m-%d")
    if name in ("placed_at", "changed_at"):
        moment = EPOCH + timedelta(microseconds=value)
        return moment.strftime("%Y-%m-%d %H:%M:%S.%f") + (" UTC" if name == "changed_at" else "")
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:.2f}" if isinstance(value, Decimal) else str(value)
