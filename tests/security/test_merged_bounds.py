"""Merged files of several row groups, columns of every type: Trino, which skips files by their bounds, counts
what it counts without skipping any."""

import math
import os
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

import pyarrow as pa
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from lake import bounds, data_file
from lake.catalog_client import CatalogClient
from lake.commit import prepare_append
from lake.data_file import DataFile
from lake.log_schema import LogSchema, leaf_ids, new_log_schema
from lake.storage import open_storage
from lake.table_layout import US_PER_HOUR
from optimize.bounds_proof import SeenValues
from optimize.compaction import write_file
from optimize.merge_job import FileLayout
from optimize.verify import ProofFailed, check_written
from tests.optimize.support.maintained import maintenance
from tests.optimize.support.small_files import UTC_US, SmallFiles, rows_of, write_small_file
from tests.stack.support.line import Line, Sql
from tests.stack.support.waiting import fresh

pytestmark = pytest.mark.finding(12)

HOUR = 490_000
# A group of rows has those of one era, whose bounds are none of another's. The long proof has more tables,
# each of more hours.
TABLES = int(os.environ.get("FIRN_BOUNDS_TABLES", "1"))
HOURS, FILES, ROWS = 1 if TABLES == 1 else 3, 3, 1_000
NEVER_S = 1e10  # the hours of old rows stay hours
SUBQUERIES = 40
Part = TypeVar("Part")
Draw = Callable[[random.Random, int], Any]


@dataclass(frozen=True, slots=True)
class Kind:
    """A column's Iceberg type, how a value is drawn (`era`: rows of one era have values of their own range),
    and how Trino spells one."""

    iceberg: str
    draw: Draw
    literal: Callable[[Any], str]


def _decimal(precision: int, scale: int) -> Kind:
    def draw(chance: random.Random, era: int) -> Decimal:
        most = 10 ** chance.randint(1, precision) - 1
        return Decimal(chance.randint(0, most) * (-1 if era % 2 else 1)).scaleb(-scale)

    return Kind(
        f"decimal({precision},{scale})",
        draw,
        lambda value: f"CAST('{value:f}' AS decimal({precision},{scale}))",
    )


def _real(chance: random.Random, era: int) -> float:
    edges = {
        1: [0.0, -0.0, math.nan, 1.5, -(2.0**-20), math.inf, -math.inf],
        2: [math.nan],
        3: [0.0],
        4: [-0.0],
    }
    return chance.choice(edges.get(era, [float(era), -float(era) - 0.5]))


def _text(chance: random.Random, era: int) -> str:
    return chance.choice(
        [
            "",
            "\U0010ffff" * 17,
            "a" * 16 + "\U0010ffff",
            "a" * 17,
            "\ud7ff" * 20,
            f"{era}" * 18,
            "é" * 17,
            "z",
        ]
    )


def _bytes(chance: random.Random, era: int) -> bytes:
    return chance.choice(
        [b"", b"\xff" * 20, b"\xff" * 15 + b"\x00" * 5, b"a" * 30, bytes([era, 0xFF] * 9), b"\x80"]
    )


def _text_literal(value: str) -> str:
    return "U&'" + "".join(f"\\+{ord(character):06x}" for character in value) + "'"


def _moment(chance: random.Random, era: int) -> datetime:
    return datetime(1900 + 60 * era, 1, 1, tzinfo=UTC) + timedelta(microseconds=chance.randint(0, 10**15))


def _real_literal(cast: str) -> Callable[[float], str]:
    return lambda value: f"CAST('{_spelled(value)}' AS {cast})"


def _spelled(value: float) -> str:
    if math.isinf(value):
        return "-Infinity" if value < 0 else "Infinity"
    return "NaN" if math.isnan(value) else str(value)


KINDS = (
    Kind("boolean", lambda _, era: era % 2 == 0, str),
    Kind(
        "int",
        lambda chance, era: chance.randint(0, 2**31 - 1) * (-1 if era % 2 else 1),
        lambda v: f"INTEGER '{v}'",
    ),
    Kind(
        "long",
        lambda chance, era: chance.randint(0, 2**63 - 1) * (-1 if era % 2 else 1),
        lambda v: f"BIGINT '{v}'",
    ),
    Kind("float", _real, _real_literal("real")),
    Kind("double", _real, _real_literal("double")),
    _decimal(5, 2),
    _decimal(18, 4),
    _decimal(38, 10),
    Kind("date", lambda chance, era: _moment(chance, era).date(), lambda v: f"DATE '{v}'"),
    Kind(
        "time",
        lambda chance, era: time(era, chance.randint(0, 59), 1, chance.randint(0, 999_999)),
        lambda v: f"TIME '{v.isoformat('microseconds')}'",
    ),
    Kind(
        "timestamp",
        lambda chance, era: _moment(chance, era).replace(tzinfo=None),
        lambda v: f"TIMESTAMP '{v.isoformat(' ', 'microseconds')}'",
    ),
    Kind(
        "timestamptz",
        _moment,
        lambda v: f"TIMESTAMP '{v.replace(tzinfo=None).isoformat(' ', 'microseconds')} UTC'",
    ),
    Kind(
        "uuid",
        lambda chance, era: bytes([0x7F + era]) + chance.randbytes(15),
        lambda v: f"UUID '{UUID(bytes=v)}'",
    ),
    Kind(
        "fixed[20]",
        lambda chance, era: chance.choice([b"\xff" * 20, b"\xff" * 16 + b"abcd", bytes([era]) * 20]),
        lambda v: f"X'{v.hex()}'",
    ),
    Kind("binary", _bytes, lambda v: f"X'{v.hex()}'"),
    Kind("string", _text, _text_literal),
)
NAMES = [f"c{at}" for at in range(len(KINDS))]


def _schema(schema_id: int = 0) -> LogSchema:
    base = new_log_schema()
    more = [
        {"id": base.last_column_id + 1 + at, "name": name, "required": False, "type": KINDS[at].iceberg}
        for at, name in enumerate(NAMES)
    ]
    return LogSchema({**base.json, "schema-id": schema_id, "fields": [*base.json["fields"], *more]})


def _table(catalog: CatalogClient, chance: random.Random) -> tuple[SmallFiles, dict[str, list[Any]]]:
    """A table with columns of every type and its values: in each hour three files, each of an era of its
    own."""
    table, schema = SmallFiles(catalog, open_storage(), fresh("bounds-")), _schema(1)
    table.append(HOUR - 100, 1)  # a new table has the system columns, the others come with the next commit
    arrow, seen = schema.arrow, dict[str, list[Any]]((name, []) for name in NAMES)
    for hour in range(HOUR, HOUR + HOURS):
        for at, era in enumerate(chance.sample(range(6), FILES)):
            drawn = {
                name: [None if chance.random() < 0.05 else kind.draw(chance, era) for _ in range(ROWS)]
                for name, kind in zip(NAMES, KINDS, strict=True)
            }
            columns = {name: pa.array(values, arrow.field(name).type) for name, values in drawn.items()}
            first_us = (
                hour * US_PER_HOUR + at * US_PER_HOUR // FILES
            )  # merged rows are ordered by time: one file's after the other's
            columns["timestamp"] = pa.array(range(first_us, first_us + ROWS), pa.int64()).cast(UTC_US)
            file = write_small_file(
                table.storage, table.state, schema, hour, rows_of(hour, table.offset, ROWS) | columns
            )
            prepared = prepare_append(
                table.state, [file], schema, table.state.marks, int(datetime.now(UTC).timestamp() * 1000)
            )
            table.storage.write_all(prepared.files)
            (result,) = catalog.commit_all([prepared.request])
            assert result.status == "committed", result
            table.state, table.offset = prepared.after, table.offset + ROWS
            for name, values in drawn.items():
                seen[name] += [value for value in values if value is not None]
    return table, seen


def _predicates(seen: dict[str, list[Any]], chance: random.Random) -> Iterator[str]:
    for name, kind in zip(NAMES, KINDS, strict=True):
        values = seen[name]
        ordered = sorted(
            (value for value in values if value == value),
            key=lambda v: v.encode() if isinstance(v, str) else v,
        )
        for operator, value in (
            ("=", ordered[0]),
            ("=", ordered[-1]),
            ("=", chance.choice(values)),
            ("<", chance.choice(ordered)),
            (">=", chance.choice(ordered)),
        ):
            yield f"{name} {operator} {kind.literal(value)}"


def _some(predicates: list[str], chance: random.Random) -> list[str]:
    """As many as one statement takes, others each time; the long proof tries all."""
    return predicates if TABLES > 1 else chance.sample(predicates, SUBQUERIES)


def _parts(many: Sequence[Part]) -> Iterator[Sequence[Part]]:
    return (many[at : at + SUBQUERIES] for at in range(0, len(many), SUBQUERIES))


def _skipping(sql: Sql, table: str, predicates: Sequence[str]) -> list[int]:
    statement = " UNION ALL ".join(
        f"SELECT {at}, count(*) FROM {table} WHERE {predicate}" for at, predicate in enumerate(predicates)
    )
    return [count for _, count in sorted(sql(statement))]


def _reading_all(sql: Sql, table: str, predicates: Sequence[str]) -> list[int]:
    (counts,) = sql(f"SELECT {', '.join(f'count_if({predicate})' for predicate in predicates)} FROM {table}")
    return list(counts)


@pytest.mark.stack
@pytest.mark.timeout(900)
def test_skipping_files_by_their_bounds_loses_no_row(line: Line, catalog_client: CatalogClient) -> None:
    """After the merge every hour is one file of several row groups, and the counts by value are those of a
    full read."""

    @settings(max_examples=TABLES, phases=[Phase.generate])
    @given(st.integers(0, 2**32))
    def with_values(seed: int) -> None:
        chance = random.Random(seed)
        table, seen = _table(catalog_client, chance)
        name = f'"{table.name.namespace}"."{table.name.name}"'
        predicates = _some(list(_predicates(seen, chance)), chance)
        report = maintenance(
            catalog_client, [table.name], merge__row_group_rows=ROWS, cold__after_s=NEVER_S
        ).run()
        assert (report.files_before, report.files_after, report.failures) == (HOURS * FILES, HOURS, {})
        for part in _parts(predicates):
            skipped, read = _skipping(line.sql, name, part), _reading_all(line.sql, name, part)
            assert [*zip(part, skipped, strict=True)] == [*zip(part, read, strict=True)]

    with_values()


def test_the_proof_finds_bounds_that_hide_rows(tmp_path: Path) -> None:
    """Whatever the footer says: bounds that are one step too narrow are refused, for every type."""
    schema, chance = _schema(), random.Random(1)
    arrow, storage = schema.arrow, open_storage()
    columns = {
        name: pa.array([kind.draw(chance, at % 6) for at in range(60)], arrow.field(name).type)
        for name, kind in zip(NAMES, KINDS, strict=True)
    }
    given_rows = rows_of(HOUR, 0, 60) | columns
    rows = pa.table([given_rows[name].cast(arrow.field(name).type) for name in arrow.names], schema=arrow)
    file = write_file(
        storage,
        f"file://{tmp_path}/f.parquet",
        HOUR,
        rows,
        schema.json["fields"],
        FileLayout(row_group_rows=10),
    )
    leaves = leaf_ids(schema.json["fields"])
    check_written(storage, file, rows, leaves)
    seen = SeenValues(leaves)
    seen.take(rows)
    assert seen.hidden(file) == ""
    for at, name in enumerate(NAMES):
        leaf = schema.by_name[name].id
        wrong: list[DataFile] = []
        if leaf in (file.lower_bounds or {}) and leaf in (file.upper_bounds or {}):
            low, high = (file.lower_bounds or {})[leaf], (file.upper_bounds or {})[leaf]
            wrong = [replace(file, lower_bounds={leaf: high}), replace(file, upper_bounds={leaf: low})]
        assert wrong or KINDS[at].iceberg in ("float", "double", "string", "binary", "fixed[20]"), (
            f"{name} has no bounds"
        )
        for one in wrong:
            assert seen.hidden(one).startswith(f"field {leaf} of "), (
                name,
                one.lower_bounds,
                one.upper_bounds,
            )


def test_a_merge_with_wrong_bounds_fails_its_proof(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where whoever describes files describes all of them wrong in the same way, so that footers and
    manifests agree."""
    rows = pa.table(
        {
            "price": pa.array(
                [Decimal("-5.00"), Decimal("-1.00"), Decimal("1.00"), Decimal("300.00")], pa.decimal128(5, 2)
            )
        }
    )
    fields = [{"id": 1, "name": "price", "required": False, "type": "decimal(5,2)"}]
    by_bytes = bounds.Encoding(bytes, bytes, bytes)
    monkeypatch.setattr(data_file, "encoding_of", lambda *_: by_bytes)
    rows = rows.cast(LogSchema({"fields": fields}).arrow)
    file = write_file(
        open_storage(), f"file://{tmp_path}/f.parquet", HOUR, rows, fields, FileLayout(row_group_rows=2)
    )
    with pytest.raises(ProofFailed, match="below its lower bound"):
        check_written(open_storage(), file, rows, leaf_ids(fields))
