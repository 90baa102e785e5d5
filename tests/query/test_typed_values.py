"""What `field:value` finds in columns that have a type, on both engines."""

from collections.abc import Callable, Mapping
from datetime import date, timedelta
from typing import Any
from uuid import UUID

import duckdb
import pytest

from query.language.search_language import parse_search
from query.language.search_sql import compile_search
from tests.query.test_search_sql import schema
from tests.stack.support.line import Sql

IDS = [str(UUID(int=number)) for number in (0, 7, 2**127 + 5)]
AMOUNTS = ["0.00", "-12.50", "12.50", "9999999999.99", "9999999999.98"]
DAYS = [date(2024, 1, 1) + timedelta(days=at) for at in range(0, 800, 7)] + [
    date(1, 1, 1),
    date(9999, 12, 31),
]
VALUES: Mapping[str, tuple[str, list[str]]] = {
    "id": ("UUID", IDS),
    "amount": ("DECIMAL(12, 2)", AMOUNTS),
    "day": ("DATE", [day.isoformat() for day in DAYS]),
}
# A query, and which values it finds.
ASKED: tuple[tuple[str, Callable[[str], bool]], ...] = (
    (f"id:{IDS[1]}", lambda value: value == IDS[1]),
    (f"id:{IDS[2].upper()}", lambda value: value == IDS[2]),
    ("amount:12.5", lambda value: value == "12.50"),
    ("amount:-1.25e1", lambda value: value == "-12.50"),
    ("amount:12.505", lambda _: False),
    ("amount:0", lambda value: value == "0.00"),
    ("amount:9999999999.99", lambda value: value == "9999999999.99"),
    ("amount:99999999999", lambda _: False),
    ("amount:1e99", lambda _: False),
    *(
        (f'day:"{written}"', lambda value, written=written: value.startswith(written))
        for written in (
            "2024-01-01",
            "2024-01-02",
            "2024-02",
            "2025",
            "0001",
            "9999-12",
            "9999-12-31",
            "2024-13",
        )
    ),
    ("day:01-01", lambda value: value.endswith("01-01")),
    ("day:2024-0*", lambda value: value.startswith("2024-0")),
)


def check(ask: Callable[[str], list[tuple[Any, ...]]], dialect: str) -> None:
    """Every question on every value of its column, and on a missing one."""
    for query, is_found in ASKED:
        field = query.partition(":")[0]
        kind, values = VALUES[field]
        condition = compile_search(parse_search(query), schema()).condition
        assert condition is not None
        rows = ", ".join(f"('{value}', CAST('{value}' AS {kind}))" for value in values)
        listed = f"(VALUES {rows}, ('none', NULL)) AS t (said, \"{field}\")"
        found = {row[0] for row in ask(f"SELECT said FROM {listed} WHERE {condition.sql(dialect)}")}
        assert found == {value for value in values if is_found(value)}, query


def test_duckdb_compares_values_by_their_types() -> None:
    """Dates, UUIDs and decimals: the values that are meant and no others."""
    check(lambda sql: duckdb.execute(sql).fetchall(), "duckdb")


@pytest.mark.stack
def test_trino_compares_values_by_their_types(trino: Sql) -> None:
    """The same of Trino."""
    check(trino, "trino")


def test_engines_look_such_values_up_in_statistics() -> None:
    """No cast or pattern stands between a column and its bounds: by these alone DuckDB knows that it need not
    look."""
    for query in (f"id:{IDS[1]}", "amount:12.5", "day:2024-02", "day:2024-02-03"):
        condition = compile_search(parse_search(query), schema()).condition
        assert condition is not None
        field = query.partition(":")[0]
        kind, values = VALUES[field]
        duckdb.execute(
            f"CREATE OR REPLACE TEMP TABLE typed AS SELECT CAST('{values[0]}' AS {kind}) AS {field}"
        )
        plan = duckdb.execute(f"EXPLAIN SELECT * FROM typed WHERE {condition.sql('duckdb')}").fetchall()
        assert "EMPTY_RESULT" in plan[0][1], plan[0][1]
