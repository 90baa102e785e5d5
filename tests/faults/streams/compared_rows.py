"""A table of the lake, compared with its source row by row."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

from lake.catalog_client import TableName
from tests.faults.streams.source_database import SourceDatabase
from tests.faults.streams.source_table import SourceTable
from tests.stack.support.line import Sql

SHOWN = 60


@dataclass(frozen=True)
class Compared:
    """How many rows each side has, and a sentence for each that differs."""

    expected: int
    found: int
    different: Sequence[str]


def compare(source: SourceDatabase, table: SourceTable, name: TableName, sql: Sql) -> Compared:
    """Compares a table with its source, as Trino reads it."""
    of_lake = f'"{name.namespace}"."{name.name}"'
    there = [column for column, *_ in sql(f"DESCRIBE {of_lake}")]
    stored = [tuple(map(_plain, row)) for row in sql(table.stored_query(of_lake, there))]
    wanted = [tuple(map(_plain, row)) for row in source.rows(table)]
    width = len(table.key_columns)
    by_key: dict[tuple[Any, ...], list[tuple[Any, ...]]] = {}
    for row in stored:
        by_key.setdefault(row[:width], []).append(row)
    different = []
    for row in wanted:
        found = by_key.pop(row[:width], [])
        if found != [row]:
            different.append(_said(table, row, found))
    different += [f"{table.name} {key}: {len(found)} rows of no source" for key, found in by_key.items()]
    return Compared(len(wanted), len(stored), different)


def _said(table: SourceTable, row: tuple[Any, ...], found: Sequence[tuple[Any, ...]]) -> str:
    key = row[: len(table.key_columns)]
    if len(found) != 1:
        return f"{table.name} {key}: {len(found)} rows"
    names = [*table.key_columns, *(column.name for column in table.columns), "body"]
    unlike = [
        f"{name} is {str(there)[:SHOWN]} not {str(wanted)[:SHOWN]}"
        for name, wanted, there in zip(names, row, found[0], strict=False)
        if wanted != there
    ]
    return f"{table.name} {key}: {', '.join(unlike)}"


def _plain(value: Any) -> Any:
    """A value as both sides spell it."""
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(UTC)
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, Decimal):
        return value.normalize()
    return bytes(value) if isinstance(value, memoryview | bytearray) else value
