"""Messages of a real PostgreSQL by Debezium: what each of them says, and the rows that they lead to."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ingest.changes.change import Cells, Change, Op
from ingest.changes.column_type import to_arrow
from lake.log_schema import ValueReason
from tests.ingest.support.change_messages import read_change

pytestmark = pytest.mark.datasets

ORDERS, TYPES = "shop.public.orders", "shop.public.types"


@dataclass(frozen=True, slots=True)
class Message:
    """One message and the change that it was read as."""

    topic: str
    partition: int
    offset: int
    headers: Mapping[str, bytes]
    change: Change


@lru_cache(maxsize=1)
def _messages() -> list[Message]:
    lines = Path(os.environ["FIRN_DATASETS"], "changes", "debezium-postgres.jsonl").read_bytes().splitlines()
    return [_read(json.loads(line)) for line in lines]


def _read(line: Mapping[str, Any]) -> Message:
    headers = [(name, text.encode()) for name, text in line["headers"]]
    value = None if line["value"] is None else line["value"].encode()
    change = read_change("debezium", line["key"].encode(), value, headers)
    return Message(line["topic"], line["partition"], line["offset"], dict(headers), change)


def _of(topic: str) -> list[Message]:
    return [message for message in _messages() if message.topic == topic]


def _stored(cells: Cells) -> dict[str, Any]:
    """The values of a row as its Arrow columns give them back."""
    return {
        name: pa.array([value], to_arrow(cells.types.get(name, "string"))).to_pylist()[0]
        for name, value in cells.values.items()
    }


def test_every_message_is_a_change_without_errors() -> None:
    """None is rejected or passed over, and nothing is left that did not fit."""
    assert len(_messages()) == 26
    assert [message.change.errors for message in _messages() if message.change.errors] == []
    assert all(message.change.key.values for message in _messages())
    assert {message.change.op for message in _messages()} == {Op.INSERT, Op.UPDATE, Op.DELETE, Op.SNAPSHOT}


def test_rows_are_typed_by_their_schema_part() -> None:
    """Decimals with their scale, moments with their zone, before and after the columns changed."""
    first = _of(ORDERS)[0].change
    assert first.op is Op.SNAPSHOT
    assert first.row.types == {
        "id": "long",
        "customer": "string",
        "amount": "decimal(12,2)",
        "note": "string",
        "at": "timestamptz",
    }
    assert _stored(first.row) == {
        "id": 1,
        "customer": "a",
        "amount": Decimal("10.50"),
        "note": "xxx",
        "at": datetime(2026, 11, 23, 9, 16, 39, 120_450, tzinfo=UTC),
    }
    kinds = [message.change.row.types.get("amount") for message in _of(ORDERS)]
    assert "decimal(14,4)" in kinds
    assert (first.position, first.time_us) == ((22_191_376,), 1_795_425_421_236_564)


def test_a_changed_key_is_told_by_both_of_its_messages() -> None:
    """The delete names the new key, the insert the old one, and the large text is not in the message."""
    gone = [message.change for message in _of(ORDERS) if message.change.new_key is not None]
    assert all(change.op is Op.DELETE for change in gone)
    come = [message.change for message in _of(ORDERS) if message.change.old_key is not None]
    assert all(change.op is Op.INSERT for change in come)
    moves = {(change.key.values["id"], change.new_key.values["id"]) for change in gone if change.new_key}
    assert (7, 8) in moves
    assert moves == {
        (change.old_key.values["id"], change.key.values["id"]) for change in come if change.old_key
    }
    last = next(change for change in come if change.key.values["id"] == 8)
    assert last.unavailable == {"doc"}
    assert "doc" not in last.row.values


def test_deletes_are_followed_by_tombstones_of_the_same_key() -> None:
    """A tombstone says nothing else than the delete before it."""
    before: dict[int, Message] = {}
    tombstones = 0
    for message in _of(ORDERS):
        if message.change.is_tombstone:
            tombstones += 1
            deleted = before[message.partition].change
            assert (deleted.op, deleted.is_tombstone) == (Op.DELETE, False)
            assert message.change.key == deleted.key
            assert message.change.new_key == deleted.new_key
        before[message.partition] = message
    assert tombstones == sum(m.change.op is Op.DELETE for m in _of(ORDERS)) - tombstones > 0


def test_a_key_and_a_row_without_a_schema_part_keep_their_spelling() -> None:
    """The last messages were sent without one: nothing in them has a type."""
    last = _of(ORDERS)[-1].change
    assert (last.key.values, last.key.types, last.row.types) == ({"id": "9"}, {}, {})
    assert last.row.values == {
        "id": "9",
        "customer": "after restart",
        "amount": None,
        "at": "2026-11-23T09:18:27.699655Z",
        "paid": None,
        "doc": None,
    }
    first, second = (message.change for message in _of(TYPES))
    assert first.row.values["d"] == str((date(2024, 2, 29) - date(1970, 1, 1)).days)
    assert second.row.values["d"] is None
    assert first.row.values["f8"] == "NaN"
    assert first.row.values["tz"] == "infinity"
    assert first.row.values["a"] == "[1,null,3]"
    assert first.row.values["j"] == '{"a": [1, 2]}'
    assert (first.row.values["n_scale"], first.row.values["bo"]) == ("3", "true")


def _last_rows() -> dict[int, dict[str, Any]]:
    """The rows that a table of orders has when all is applied, by key."""
    rows: dict[int, dict[str, Any]] = {}
    gone: dict[int, dict[str, Any]] = {}
    for message in sorted(_of(ORDERS), key=lambda each: (each.change.position or (0,), each.offset)):
        change = message.change
        key = int(change.key.values["id"])
        if change.is_tombstone:
            continue
        if change.op is Op.DELETE:
            gone[key] = rows.pop(key)
            continue
        old = key if change.old_key is None else int(change.old_key.values["id"])
        kept = rows.get(old) or gone.get(old) or {}
        rows[key] = _stored(change.row) | {name: kept[name] for name in change.unavailable}
    return rows


def test_the_changes_lead_to_the_rows_of_the_database() -> None:
    """Applied by their positions, with the large text taken over from the row of the old key."""
    rows = _last_rows()
    assert sorted(rows)
    moved = rows[8]
    assert (moved["customer"], moved["amount"]) == ("toast 2", None)
    assert len(moved["doc"]) > 2_000
    assert 7 not in rows
    assert not any(
        "__debezium_unavailable_value" in str(value) for row in rows.values() for value in row.values()
    )


def test_infinite_moments_have_no_place_in_a_calendar() -> None:
    """With a schema part the same value is NULL, and whole in the errors."""
    field = {"type": "string", "optional": True, "name": "io.debezium.time.ZonedTimestamp", "field": "tz"}
    text = _of(TYPES)[0].change.row.values["tz"]
    message = {"schema": {"type": "struct", "fields": [field]}, "payload": {"tz": text}}
    change = read_change("keyed_json", b"1", json.dumps(message).encode())
    assert change.row.values == {"tz": None}
    assert change.errors == (("/tz", "infinity", ValueReason.OUT_OF_RANGE),)
