"""`python -m tests.benchmarks.sort_order --json`: what an hour's file is worth in another order than that of
time: by the fields that say who logs (service, host and the like), then by time.

Over the demo's six shapes and the data sets of FIRN_DATASETS: bytes of the merged file in both orders, the
bytes of the smallest order by any one text field with few values (what could be won at best), and the time of
a page, which is the newest hundred rows of the hour, and of a word over the hour. In turn, the least of the
runs.
"""

import tempfile
import time
from collections.abc import Sequence
from typing import Annotated, Any

import duckdb
import orjson
import pyarrow as pa
import pyarrow.compute as pc
import typer

from lake.log_schema import SYSTEM_COLUMNS, TIMESTAMP
from lake.storage import local_path, open_storage
from optimize.compaction import write_file
from optimize.merge_job import FileLayout
from tests.benchmarks.filters import Rows, sources
from tests.benchmarks.kept_results import Keep, keep

# How fields that say who logs are called.
NATURAL = (
    "service",
    "app",
    "application",
    "program",
    "container",
    "pod",
    "host",
    "hostname",
    "server",
    "node",
)
NATURAL_MAX = 2
FEW_VALUES = 1_000
CANDIDATES = 6


def natural_keys(table: pa.Table) -> list[str]:
    """The columns of a table that say who logs."""
    names = [name for name in table.column_names if name.rsplit("_", 1)[-1] in NATURAL or name in NATURAL]
    return [name for name in names if len(pc.unique(table.column(name))) > 1][:NATURAL_MAX]


def candidates(table: pa.Table) -> list[str]:
    """Text columns with some, and few, values, those with the most text first."""
    found = []
    for name in table.column_names:
        column = table.column(name)
        if name not in SYSTEM_COLUMNS and pa.types.is_string(column.type):
            values = pc.count_distinct(column).as_py()
            if 1 < values <= FEW_VALUES:
                found.append((column.nbytes, name))
    return [name for _, name in sorted(found, reverse=True)[:CANDIDATES]]


def written(rows: Rows, keys: Sequence[str], folder: str) -> tuple[str, int]:
    """A file of the rows in the order of these columns, then of time; its path and bytes."""
    order = [*((key, "ascending") for key in keys), (TIMESTAMP, "ascending")]
    uri = f"file://{folder}/{'-'.join(keys) or 'time'}.parquet"
    file = write_file(open_storage(), uri, 0, rows.table.sort_by(order), rows.fields, FileLayout())
    return str(local_path(file.uri)), file.size_bytes


def asked_s(path: str, sql: str, runs: int) -> float:
    """Seconds of a statement over a file, warm."""
    with duckdb.connect() as connection:
        connection.execute("SET threads = 1")
        took = []
        for _ in range(runs + 1):
            began_s = time.perf_counter()
            connection.execute(sql, [path]).fetchall()
            took.append(time.perf_counter() - began_s)
    return min(took[1:])


def measure(rows: Rows, runs: int) -> dict[str, Any]:
    """One source."""
    keys, text = natural_keys(rows.table), candidates(rows.table)
    page = f"SELECT * FROM read_parquet(?) ORDER BY {TIMESTAMP} DESC LIMIT 100"
    word = (
        f"SELECT count(*) FROM read_parquet(?) WHERE contains(lower(\"{text[0]}\"), 'zq7')" if text else page
    )
    with tempfile.TemporaryDirectory(prefix="firn-order-") as folder:
        by_time, time_bytes = written(rows, (), folder)
        result: dict[str, Any] = {
            "rows": rows.table.num_rows,
            "bytes_by_time": time_bytes,
            "page_by_time_ms": round(asked_s(by_time, page, runs) * 1e3, 2),
            "word_by_time_ms": round(asked_s(by_time, word, runs) * 1e3, 2),
            "keys": keys,
        }
        if keys:
            by_keys, key_bytes = written(rows, keys, folder)
            result |= {
                "bytes_by_keys": round(key_bytes / time_bytes, 3),
                "page_by_keys": round(asked_s(by_keys, page, runs) * 1e3 / result["page_by_time_ms"], 2),
                "word_by_keys": round(asked_s(by_keys, word, runs) * 1e3 / result["word_by_time_ms"], 2),
            }
        sizes = {key: round(written(rows, (key,), folder)[1] / time_bytes, 3) for key in text}
        return result | {"best_single_key": min(sizes.items(), key=lambda each: each[1]) if sizes else None}


def main(
    rows: Annotated[int, typer.Option(help="rows of an hour of each shape", min=1_000)] = 200_000,
    runs: Annotated[int, typer.Option(help="questions of each kind", min=1)] = 7,
    seed: Annotated[int, typer.Option(help="of the shapes' records")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON alone")] = False,
    keeps: Keep = False,
) -> None:
    """Compares. `bytes_by_keys`, `page_by_keys`, `word_by_keys`:
    divided by those in the order of time."""
    result = {}
    for name, make in sources(rows, seed):
        result[name] = measure(make(), runs)
        typer.echo(f"{name}: {result[name]}", err=True)
    if keeps:
        keep("sort_order", result)
    if as_json:
        typer.echo(orjson.dumps(result, option=orjson.OPT_INDENT_2).decode())


if __name__ == "__main__":
    typer.run(main)
