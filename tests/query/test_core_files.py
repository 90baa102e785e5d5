"""Files that the native core writes, as every engine reads them."""

from datetime import timedelta
from typing import Any

import httpx
import pyarrow.parquet as pq
import pytest

from lake.storage import local_path
from tests.catalog.conftest import spark  # noqa: F401 - the session-wide fixture
from tests.optimize.support.maintained import utc
from tests.query.support.four_engines import READ_RIGHT, readers, right, with_catalog
from tests.query.support.log_table import LogTable, fresh_tenant
from tests.stack.support.line import Line

pytestmark = [pytest.mark.stack, pytest.mark.core]

FIRST = utc(2026, 5, 6, 7)
TYPES = {
    "n": "long",
    "small": "int",
    "is_odd": "boolean",
    "half": "double",
    "quarter": "float",
    "day": "date",
}
COLUMNS = ["n", "text", "long_text", "small", "is_odd", "half", "quarter"]
ROWS = 40


def record(n: int) -> dict[str, Any]:
    """Each column is NULL in rows of its own; long texts differ only behind where a bound is cut."""
    values = {
        "text": ("", "東京 Жук", "naïve", "GET /index.html " * 9)[n % 4],
        "long_text": f"{'𝄞' * 20}{n:03}",
        "small": n - 20,
        "is_odd": n % 2 == 1,
        "half": (n - 20) / 2,
        "quarter": n / 4,
        "day": (FIRST + timedelta(days=n - 20_000)).date(),
    }
    return {name: None if (n + at) % 5 == 0 else value for at, (name, value) in enumerate(values.items())} | {
        "n": n
    }


def test_every_engine_reads_files_of_the_core(line: Line, spark: Any, api: httpx.Client) -> None:  # noqa: F811
    """Trino, Spark, PyIceberg, DuckDB and PyArrow find the same values, in all rows and by conditions that
    skip files, row groups and pages by bounds; aggregates are of values, not of bounds."""
    session = with_catalog(spark, line.stack.address("catalog"))
    table = LogTable(line.catalog, fresh_tenant("core"), types=TYPES, as_flushes=True)
    records = [record(n) for n in range(ROWS)]
    for half in (records[:25], records[25:]):
        table.append([{"timestamp": FIRST + timedelta(minutes=each["n"]), **each} for each in half])
    parquet = [pq.ParquetFile(local_path(file.uri)) for file in table.files()]
    assert all(file.metadata.created_by.startswith("firn-core") for file in parquet)
    read = [row for file in parquet for row in file.read([*COLUMNS, "day"]).to_pylist()]
    assert sorted(read, key=lambda row: row["n"]) == records

    where = {
        "tenant": table.tenant,
        "from": FIRST.isoformat(),
        "to": (FIRST + timedelta(hours=1)).isoformat(),
    }
    engines = readers(line, session, api, where, table.name, COLUMNS)
    assert right(engines, [tuple(each[name] for name in COLUMNS) for each in records]) == READ_RIGHT[2]

    name = f"{table.name.namespace}.{table.name.name}"

    def in_both(statement: str) -> list[tuple[Any, ...]]:
        trino = [tuple(row) for row in line.sql(statement.format(name))]
        assert [tuple(row) for row in session.sql(statement.format(f"deletes.{name}")).collect()] == trino
        return trino

    for n in (1, 24, 39):
        for column, literal in [
            ("long_text", "'{}'"),
            ("small", "{}"),
            ("half", "CAST({} AS double)"),
            ("day", "DATE '{}'"),
        ]:
            if (value := records[n][column]) is not None:
                found = in_both(f"SELECT n FROM {{}} WHERE {column} = {literal.format(value)}")
                assert found == [(n,)], column
    texts = sorted(text for each in records if (text := each["long_text"]) is not None)
    days = sorted(day for each in records if (day := each["day"]) is not None)
    assert in_both("SELECT min(long_text), max(long_text), count(long_text), min(day), max(day) FROM {}") == [
        (texts[0], texts[-1], len(texts), days[0], days[-1])
    ]
