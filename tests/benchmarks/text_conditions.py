"""`python -m tests.benchmarks.text_conditions --json`: what it costs to find a word, by the condition as it
is and by one over the joined text of all columns, which it was before.

Access logs (17 columns of text that have values) and the same with 380 columns more, in files as maintenance
writes them; every file holds the same rows. Nothing runs but this process, and with --trino a catalog and
Trino. The last line of the output is one JSON object with --json: CPU microseconds a row, the least of some
runs, the reading included (`read`: a condition that costs next to nothing).
"""

import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

import duckdb
import orjson
import pyarrow as pa
import trino
import typer
from sqlglot import exp

from infra.demo.draws import Draws
from infra.demo.generators.nginx_json import NginxJson
from infra.local.service import host_port
from infra.local.supervisor import Stack
from lake.catalog_client import CatalogClient, CommitStatus, TableName
from lake.clock import epoch_ms, epoch_us
from lake.commit import new_table_state, prepare_append
from lake.data_file import DataFile
from lake.log_schema import LogSchema, new_log_schema
from lake.marks import Marks, TopicPartition
from lake.storage import LocalStorage, local_path, open_storage
from lake.table_layout import US_PER_HOUR, data_file_uri
from lake.tenant import TableId, TenantId
from optimize.compaction import write_file
from optimize.merge_job import FileLayout
from query.executors.embedded import sql_over
from query.executors.executor import from_source
from query.language.search_language import parse_search
from query.language.search_sql import compile_search, text_columns
from query.language.sql_parts import any_of, column, text_literal
from query.language.text_match import as_trino_filters
from tests.ingest.support.conversion import converted

START = datetime(2026, 3, 1, tzinfo=UTC)
FILE_ROWS = 131_072
WIDE_MORE, WIDE_FILLED = 380, 40
RUNS = 5
# Of the demo's values, as people type them: in most rows, in a few, in none.
WORDS = {
    "common": "mozilla",
    "any_case": "fIREFOX",
    "number": "404",
    "absent": "zanzibar",
    "not": "NOT zanzibar",
}
# CPU seconds and rows found of one condition.
Ask = Callable[[exp.Expression], tuple[float, int]]


@dataclass(frozen=True, slots=True)
class Made:
    """A table: its schema, its files, and an id that one row of each file has."""

    schema: LogSchema
    files: list[DataFile]
    id: str

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)


def narrow_records(count: int) -> Iterator[dict[str, Any]]:
    """Records of the access log."""
    shape = NginxJson(Draws("text"), "bench.example")
    return ({**shape.event(epoch_ms(START) + at)} for at in range(count))


def wide_records(count: int) -> Iterator[dict[str, Any]]:
    """The same, each with some of many fields more: ids, numbers, names, sentences of a few words."""
    drawn = random.Random(1)
    words = (
        "alpha",
        "timeout",
        "refused",
        "checkout",
        "payment",
        "worker",
        "replica",
        "cache",
        "queue",
        "500",
    )
    names = [f"{word}-{at}" for word in words for at in range(12)]
    kinds: tuple[Callable[[], str], ...] = (
        lambda: f"{drawn.getrandbits(128):032x}",
        lambda: str(drawn.randint(0, 5_000)),
        lambda: drawn.choice(names),
        lambda: " ".join(drawn.choices(words, k=6)),
    )
    for record in narrow_records(count):
        more = drawn.sample(range(WIDE_MORE), WIDE_FILLED)
        yield record | {f"more_{at:03}": kinds[at % len(kinds)]() for at in more}


def make(records: Iterator[dict[str, Any]], location: str, files: int) -> Made:
    """Converts records as ingestion does and writes them as maintenance does, so many times."""
    bodies = [orjson.dumps(record) for record in records]
    times_ms = [epoch_ms(START) + at for at in range(len(bodies))]
    rows = converted(bodies, times_ms=times_ms).rows.combine_chunks()
    own = new_log_schema()
    fields = [name for name in rows.column_names if name not in own.by_name]
    schema = own.with_strings({name: (100 + at, f"/{name}") for at, name in enumerate(fields)}, 1)
    kept = [field for field in schema.json["fields"] if field["name"] in rows.column_names]
    arrow = LogSchema({"fields": kept}).arrow
    typed = pa.table([rows.column(name) for name in arrow.names], names=arrow.names).cast(arrow)
    layout, hour = FileLayout(row_group_rows=FILE_ROWS), epoch_us(START) // US_PER_HOUR
    made = [
        write_file(LocalStorage(), data_file_uri(location, hour), hour, typed, kept, layout)
        for _ in range(files)
    ]
    request_id = orjson.loads(bodies[len(bodies) // 2])["request_id"]
    return Made(schema, made, str(request_id))


def joined_condition(schema: LogSchema, word: str) -> exp.Expression:
    """The condition as it was: one text of all columns in lower case, a hundred at a time."""
    names = [each.name for each in text_columns(schema)]
    letters = "0-9_a-z\u00c0-\u024f\u0370-\u052f\ua7dc"

    def of(group: list[str]) -> exp.Expression:
        text = exp.Anonymous(this="CONCAT_WS", expressions=[text_literal("\x1f"), *map(column, group)])
        holds = exp.Like(this=exp.Lower(this=text), expression=text_literal(f"%{word.lower()}%"))
        pattern = text_literal(f"(^|[^{letters}]){word.lower()}([^{letters}]|$)")
        return exp.and_(holds, exp.RegexpLike(this=exp.Lower(this=text.copy()), expression=pattern))

    return any_of([of(names[at : at + 100]) for at in range(0, len(names), 100)])


def conditions(made: Made, query: str) -> Mapping[str, exp.Expression]:
    """The condition of a query, and what it was."""
    word = query.removeprefix("NOT ")
    joined = joined_condition(made.schema, word)
    if word != query:
        joined = exp.Not(this=exp.Coalesce(this=joined, expressions=[exp.false()]))
    new = compile_search(parse_search(query), made.schema).condition
    assert new is not None
    return {"old": joined, "new": new}


def measure(made: Made, ask: Ask) -> dict[str, float]:
    """CPU microseconds a row of every question in both forms, in turn. Raises AssertionError where the two do
    not find the same."""
    nothing = [
        exp.EQ(this=column(each.name), expression=text_literal("?")) for each in text_columns(made.schema)
    ]
    asked = {"read": any_of(nothing)}
    for name, query in {**WORDS, "id": made.id}.items():
        asked |= {f"{name}_{form}": condition for form, condition in conditions(made, query).items()}
    least: dict[str, float] = {}
    found: dict[str, int] = {}
    for _ in range(RUNS):
        for name, condition in asked.items():
            cpu_s, found[name] = ask(condition)
            least[name] = min(least.get(name, cpu_s), cpu_s)
    assert all(found[f"{name}_old"] == found[f"{name}_new"] for name in (*WORDS, "id")), found
    return {name: cpu_s / made.rows * 1e6 for name, cpu_s in least.items()}


def counting(condition: exp.Expression) -> exp.Select:
    return exp.select(exp.Count(this=exp.Star())).from_(from_source()).where(condition)


def in_duckdb(made: Made) -> dict[str, float]:
    """Measures DuckDB in this process, with all cores."""
    paths = [str(local_path(file.uri)) for file in made.files]
    with duckdb.connect(config={"preserve_insertion_order": "false"}) as connection:
        connection.execute("SET parquet_metadata_cache = true")

        def ask(condition: exp.Expression) -> tuple[float, int]:
            sql = sql_over(paths, made.schema, counting(condition))
            before_s = time.process_time()
            (rows,) = connection.execute(sql).fetchall()[0]
            return time.process_time() - before_s, rows

        return measure(made, ask)


def in_trino(
    stack: Stack, catalog: CatalogClient, name: str, records: Iterator[dict[str, Any]], files: int
) -> dict[str, float]:
    """Measures Trino over a table of such files."""
    assert catalog.warehouse is not None
    table = TableId(TenantId(name), "logs")
    state = new_table_state(TableName(table.tenant.namespace, table.table), name, "logs", catalog.warehouse)
    made = make(records, state.location, files)
    marks = Marks({TopicPartition("bench", 0): made.rows})
    prepared = prepare_append(state, made.files, made.schema, marks, epoch_ms(START + timedelta(hours=1)))
    open_storage().write_all(list(prepared.files))
    catalog.create_namespace(table.tenant.namespace, {})
    (result,) = catalog.commit_all([prepared.request])
    assert result.status is CommitStatus.COMMITTED, result
    host, port = host_port(stack.address("trino"))
    connection: Any = trino.dbapi.Connection(
        host=host, port=port, user="bench", catalog="lake", http_scheme="http"
    )
    with closing(connection):
        cursor = connection.cursor()

        def ask(condition: exp.Expression) -> tuple[float, int]:
            select = as_trino_filters(counting(condition), lambda: True)
            select.set("from_", exp.From(this=exp.to_table(table.table, db=table.tenant.namespace)))
            cursor.execute(select.sql("trino"))
            (rows,) = cursor.fetchall()[0]
            return cursor.stats["cpuTimeMillis"] / 1e3, rows

        return measure(made, ask)


def main(
    files: Annotated[int, typer.Option(help="files of 131,072 rows; of wide rows half as many")] = 8,
    with_trino: Annotated[bool, typer.Option("--trino", help="asks Trino too, which takes minutes")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="one JSON object as the last line")] = False,
) -> None:
    """Makes the rows, asks, prints."""
    os.environ.setdefault("FIRN_INFRA_QUICK_JAVA", "false")  # Trino as people run it
    shapes = {"narrow": (narrow_records, files), "wide": (wide_records, -(-files // 2))}
    result: dict[str, Any] = {"files": files, "cores": os.cpu_count()}
    with tempfile.TemporaryDirectory() as scratch:
        for name, (records, count) in shapes.items():
            folder = Path(scratch) / name
            folder.mkdir()
            result |= _named(f"duckdb_{name}", in_duckdb(make(records(FILE_ROWS), f"file://{folder}", count)))
        if with_trino:
            with Stack(Path(scratch), tied=True) as stack:
                stack.start("catalog", "trino")
                with closing(CatalogClient(stack.address("catalog"))) as catalog:
                    for name, (records, count) in shapes.items():
                        result |= _named(
                            f"trino_{name}", in_trino(stack, catalog, name, records(FILE_ROWS), count)
                        )
    if as_json:
        print(orjson.dumps(result).decode())


def _named(prefix: str, measured: Mapping[str, float]) -> dict[str, float]:
    named = {f"{prefix}_{name}_us": round(value, 3) for name, value in measured.items()}
    for name, value in named.items():
        print(f"{name:32} {value:8.3f}", file=sys.stderr, flush=True)
    return named


if __name__ == "__main__":
    typer.run(main)
