"""Dumps of tables: rows of Parquet with their types, how old they are, and which tables take them."""

import io
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ingest.backfill.dump import DumpRules, parse_as_of
from ingest.backfill.parquet_changes import read_rows
from ingest.changes.change import Change, ReadOptions
from ingest.changes.column_type import to_arrow
from ingest.changes.keyed_json import read_change
from ingest.model.source import AsOf
from lake.backfill_mark import backfill_property
from lake.catalog_client import TableName
from lake.commit import TableState, new_table_state
from lake.errors import FatalError, SettingsError
from lake.marks import Marks, TopicPartition
from lake.settings import ChangeSettings
from lake.snapshot import Totals
from lake.table_layout import KEY_PROPERTY, MODE_PROPERTY, ORDER_PROPERTY

COLUMNS: Mapping[str, tuple[pa.DataType, Any, str]] = {
    "id": (pa.int32(), 7, "int"),
    "long": (pa.int64(), 1 << 40, "long"),
    "unsigned": (pa.uint64(), (1 << 64) - 1, "decimal(20,0)"),
    "price": (pa.decimal128(10, 2), Decimal("-12.30"), "decimal(10,2)"),
    "ratio": (pa.float64(), 0.25, "double"),
    "infinite": (pa.float32(), float("inf"), "float"),
    "is_open": (pa.bool_(), True, "boolean"),
    "name": (pa.dictionary(pa.int8(), pa.string()), "Ada", "string"),
    "data": (pa.binary(), b"\x00\xff", "binary"),
    "day": (pa.date32(), date(2026, 3, 1), "date"),
    "clock": (pa.time64("us"), time(1, 2, 3, 4), "time"),
    "local": (pa.timestamp("us"), datetime.fromisoformat("2026-03-01T01:02:03.000004"), "timestamp"),
    "moment": (pa.timestamp("ms", "UTC"), datetime(2026, 3, 1, tzinfo=UTC), "timestamptz"),
    "ident": (pa.uuid(), UUID(int=5), "uuid"),
}


def test_rows_of_parquet_keep_their_types() -> None:
    """Each column becomes one of the same type with the same value; NULL stays NULL, and what no column has
    is JSON text."""
    schema = pa.schema(
        [
            *((name, kind) for name, (kind, _, _) in COLUMNS.items()),
            ("tags", pa.list_(pa.string())),
            ("nested", pa.struct([("a", pa.int64())])),
        ]
    )
    row = {name: value for name, (_, value, _) in COLUMNS.items()} | {"tags": ["x", None], "nested": {"a": 1}}
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist([row, {"id": 8}], schema), sink)
    first, second = (_read(message) for message in read_rows(io.BytesIO(sink.getvalue())))
    assert first.key.values == {"id": 7}
    assert not first.errors
    for name, (_, value, kind) in COLUMNS.items():
        assert first.row.types[name] == kind
        stored = pa.array([first.row.values[name]], to_arrow(kind))[0].as_py()
        assert stored == (value.bytes if isinstance(value, UUID) else value), name
    assert first.row.values["tags"] == ["x", None]
    assert first.row.values["nested"] == '{"a":1}'
    assert {value for name, value in second.row.values.items() if name != "id"} == {None}


def _read(message: bytes) -> Change:
    found = read_change(None, message, (), ReadOptions(key_fields=("id",)))
    assert isinstance(found, Change), found
    return found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("12345", AsOf(position=(12_345,))),
        ("16/B374D848", AsOf(position=(0x16_B374D848,))),
        ("mysql-bin.000003:154", AsOf(position=(3, 154, 0))),
        ("2026-03-01T00:00:00Z", AsOf(time_us=1_772_323_200_000_000)),
    ],
)
def test_the_age_of_a_dump_is_a_position_or_a_time(text: str, expected: AsOf) -> None:
    assert parse_as_of(text) == expected


def test_what_is_neither_is_refused() -> None:
    with pytest.raises(SettingsError, match="no position and no time"):
        parse_as_of("yesterday")


CHANGES = ChangeSettings(format="keyed_json", key=("Id",))


def _table(rows: int = 0, marks: Marks | None = None, **properties: str) -> TableState:
    state = new_table_state(TableName("shop", "orders"), "shop", "orders", "file:///warehouse")
    return replace(
        state,
        uuid="1",
        exists=bool(properties),
        totals=Totals(rows=rows),
        marks=marks or Marks({}),
        properties={**state.properties, **{_property(name): text for name, text in properties.items()}},
    )


def _property(name: str) -> str:
    known = {"key": KEY_PROPERTY, "mode": MODE_PROPERTY, "order": ORDER_PROPERTY}
    return known.get(name) or backfill_property(name)


def _refusal(state: TableState, changes: ChangeSettings | None = CHANGES, as_of: AsOf | None = None) -> str:
    with pytest.raises(FatalError) as refused:
        DumpRules(changes, as_of, ["mine"]).check(state)
    return str(refused.value)


LIVE = Marks({TopicPartition("topic", 0): 5})


def test_an_empty_table_takes_a_dump_and_one_with_other_rows_does_not() -> None:
    """Rows of the same run are no hindrance, those of a stream or of another run are."""
    rules = DumpRules(CHANGES, None, ["mine"])
    rules.check(_table())
    rules.check(_table(key='["id"]'))
    rules.check(_table(10, key='["id"]', mine="{}"))
    assert "nothing tells whether they are older" in _refusal(_table(10, key='["id"]'))
    assert "nothing tells" in _refusal(_table(10, key='["id"]', mine="{}", other="{}"))
    assert "nothing tells" in _refusal(_table(10, LIVE, key='["id"]', mine="{}"))


def test_a_stream_that_begins_meanwhile_ends_the_run() -> None:
    """What the table had in marks when the run began is what it has to have."""
    rules = DumpRules(CHANGES, None, ["mine"])
    rules.check(_table(0, LIVE, key='["id"]'))
    later = Marks({TopicPartition("topic", 0): 6})
    rules.check(_table(10, LIVE, key='["id"]', mine="{}"))
    with pytest.raises(FatalError, match="before its stream is read"):
        rules.check(_table(10, later, key='["id"]', mine="{}"))


def test_a_table_with_an_order_takes_a_dump_that_says_how_old_it_is() -> None:
    by_time = _table(10, LIVE, key='["id"]', order="time")
    DumpRules(CHANGES, AsOf(time_us=1), ["mine"]).check(by_time)
    assert "orders its changes by time; say with --as-of" in _refusal(by_time, as_of=AsOf((1,)))
    for mode in ("first_wins", "delete_only"):
        DumpRules(CHANGES, None, ["mine"]).check(_table(10, LIVE, key='["id"]', mode=mode))


def test_key_and_table_have_to_fit() -> None:
    """Records into a keyed table, a dump into one without a key, or with another key: each is refused."""
    assert "--key id" in _refusal(_table(key='["id"]'), None)
    assert "has no key" in _refusal(_table(mine="{}"))
    assert "is number; give these" in _refusal(_table(key='["number"]'))
    DumpRules(None, None, ["mine"]).check(_table(mine="{}"))
