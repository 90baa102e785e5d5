"""`python -m tests.benchmarks.storage --json`: bytes of merged files, and what they cost to write and read.

Over the demo's six shapes and the data sets of FIRN_DATASETS, as the converter makes rows of them. `before`
is how merges wrote until 2026-11-26: dictionaries for all text, zstd level 3, pages of 1 MiB. `after` is how
they write now. Each source is cut into files as ingestion writes them and merged as a Spark task does it, in
turn; CPU seconds of this process, the least of the runs. The variants say what each choice is worth.
"""

import os
import platform
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from statistics import median
from typing import Annotated, Any
from unittest import mock

import duckdb
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import typer

from lake.data_file import DataFile
from lake.log_schema import SYSTEM_COLUMNS
from lake.storage import local_path, open_storage
from optimize.compaction import write_file
from optimize.merge_job import FileLayout
from optimize.parquet_options import leaf_paths, parquet_options
from tests.benchmarks.filters import SHAPES, Rows, merged, small_files, sources
from tests.benchmarks.kept_results import Keep, keep
from tests.benchmarks.sort_order import natural_keys

WHOLE_NUMBERS = ("timestamp", "timestamptz", "long", "int")
COLUMNS_TOLD = 6
MIB = 1 << 20

Fields = Sequence[Mapping[str, Any]]
# Arguments of Arrow's writer.
Options = Callable[[pa.Table, Fields, FileLayout], dict[str, Any]]


def before(_: pa.Table, fields: Fields, layout: FileLayout, level: int = 3) -> dict[str, Any]:
    """As merges wrote before."""
    delta = [field["name"] for field in fields if field["type"] in WHOLE_NUMBERS]
    return {
        "compression": "zstd",
        "compression_level": level,
        "use_dictionary": [path for path in leaf_paths(fields) if path not in delta] or False,
        "column_encoding": dict.fromkeys(delta, "DELTA_BINARY_PACKED"),
        "write_page_index": True,
        "store_schema": False,
    }


def at_level(level: int) -> Options:
    """As before, with another zstd level for all columns."""
    return lambda rows, fields, layout: before(rows, fields, layout, level)


def split_bytes(rows: pa.Table, fields: Fields, layout: FileLayout) -> dict[str, Any]:
    """As before, but for whole numbers and times by BYTE_STREAM_SPLIT."""
    found = before(rows, fields, layout)
    return found | {"column_encoding": dict.fromkeys(found["column_encoding"], "BYTE_STREAM_SPLIT")}


def now_with(layout_changes: Mapping[str, Any], **changes: Any) -> Options:
    """As now, with another layout or other arguments of Arrow's writer."""

    def options(rows: pa.Table, fields: Fields, _: FileLayout) -> dict[str, Any]:
        return parquet_options(rows, fields, FileLayout(**layout_changes)) | changes

    return options


def without_dictionaries(rows: pa.Table, fields: Fields, layout: FileLayout) -> dict[str, Any]:
    """As now, without any dictionary."""
    plain = tuple(field["name"] for field in fields)
    return now_with({"plain": plain})(rows, fields, layout)


VARIANTS: Mapping[str, Options] = {
    "zstd_6": at_level(6),
    "zstd_10": at_level(10),
    "zstd_15": at_level(15),
    "byte_stream_split": split_bytes,
    "now": parquet_options,
    "now_at_zstd_3": now_with({"zstd_level": 3}),
    "now_at_zstd_6": now_with({"zstd_level": 6}),
    "now_at_zstd_12": now_with({"zstd_level": 12}),
    "now_at_zstd_15": now_with({"zstd_level": 15}),
    "now_with_text_deltas": now_with({"delta_text": True}),
    "now_without_dictionaries": without_dictionaries,
    "now_with_pages_of_1_mib": now_with({}, data_page_size=MIB),
    "now_with_dictionaries_to_4_mib": now_with({}, dictionary_pagesize_limit=4 * MIB),
    "now_with_pages_of_any_rows": now_with({}, max_rows_per_page=1 << 20),
}


def written(rows: Rows, options: Options, folder: str, name: str) -> tuple[DataFile, float]:
    """A file of the rows, and the CPU seconds of its writing, its token filter included."""
    began_s = time.process_time()
    with mock.patch("optimize.compaction.parquet_options", options):
        file = write_file(
            open_storage(), f"file://{folder}/{name}.parquet", 0, rows.table, rows.fields, FileLayout()
        )
    return file, time.process_time() - began_s


def merge_cpu(rows: Rows, options: Options, files: Sequence[DataFile]) -> tuple[DataFile, float]:
    """The merged file of some small ones, and the CPU seconds of all that a merge does."""
    with mock.patch("optimize.compaction.parquet_options", options):
        return merged(files, rows.fields, token_filter=True)


def read_by_arrow(path: str) -> float:
    """CPU seconds of reading all columns by PyArrow."""
    began_s = time.process_time()
    pq.read_table(path, use_threads=False)
    return time.process_time() - began_s


def read_by_duckdb(path: str, names: Sequence[str]) -> float:
    """CPU seconds of reading all columns by DuckDB: the longest value of each."""
    longest = ", ".join(f'max(length("{name}"))' for name in names)
    with duckdb.connect() as connection:
        connection.execute("SET threads = 1")
        began_s = time.process_time()
        connection.execute(f"SELECT {longest} FROM read_parquet(?)", [path]).fetchall()
        return time.process_time() - began_s


def newest_by_duckdb(path: str) -> float:
    """CPU seconds of the newest hundred rows by DuckDB."""
    with duckdb.connect() as connection:
        connection.execute("SET threads = 1")
        began_s = time.process_time()
        connection.execute(
            "SELECT * FROM read_parquet(?) ORDER BY timestamp DESC LIMIT 100", [path]
        ).fetchall()
        return time.process_time() - began_s


def columns_of(file: DataFile) -> dict[str, tuple[int, str]]:
    """Bytes and encodings of the columns of a file."""
    found = dict[str, tuple[int, str]]()
    footer = pq.read_metadata(local_path(file.uri))
    for group in range(footer.num_row_groups):
        for at in range(footer.num_columns):
            chunk = footer.row_group(group).column(at)
            before_bytes, _ = found.get(chunk.path_in_schema, (0, ""))
            encodings = [each for each in chunk.encodings if each != "RLE"]
            found[chunk.path_in_schema] = (
                before_bytes + chunk.total_compressed_size,
                "RLE_DICTIONARY" if "RLE_DICTIONARY" in encodings else "".join(encodings),
            )
    return found


def largest_columns(old: DataFile, new: DataFile) -> dict[str, dict[str, Any]]:
    """What became of the columns that took most."""
    was, is_now = columns_of(old), columns_of(new)
    names = sorted(was, key=lambda name: -was[name][0])[:COLUMNS_TOLD]
    return {
        name: {"before": was[name][0], "after": is_now[name][0], "encoding": is_now[name][1]}
        for name in names
    }


def measure(rows: Rows, runs: int) -> dict[str, Any]:
    """One source."""
    texts = [
        name
        for name in rows.table.column_names
        if name not in SYSTEM_COLUMNS and pa.types.is_string(rows.table.column(name).type)
    ]
    sides: dict[str, Options] = {"before": before, "after": parquet_options}
    least = dict[str, dict[str, float]]()
    ends = dict[str, DataFile]()

    def kept(side: str, what: str, seconds: float) -> None:
        figures = least.setdefault(side, {})
        figures[what] = min(figures.get(what, seconds), seconds)

    with tempfile.TemporaryDirectory(prefix="firn-storage-") as folder:
        files = small_files(rows, folder)
        for _ in range(runs):
            for side, options in sides.items():
                ends[side], took_s = merge_cpu(rows, options, files)
                kept(side, "merge_cpu_s", took_s)
                path = str(local_path(ends[side].uri))
                kept(side, "arrow_read_cpu_s", read_by_arrow(path))
                kept(side, "duckdb_read_cpu_s", read_by_duckdb(path, ["message", *texts]))
                kept(side, "duckdb_newest_cpu_s", newest_by_duckdb(path))
        base, base_s = min((written(rows, before, folder, "base") for _ in range(runs)), key=lambda x: x[1])
        variants = dict[str, dict[str, float]]()
        for name, options in VARIANTS.items():
            file, took_s = min((written(rows, options, folder, name) for _ in range(2)), key=lambda x: x[1])
            variants[name] = _beside(file, took_s, base, base_s)
        keys = natural_keys(rows.table)
        if keys:
            order = [(key, "ascending") for key in (*keys, "timestamp")]
            by_keys = Rows(rows.table.sort_by(order).combine_chunks(), rows.fields)
            variants["now_by_" + "_".join(keys)] = _beside(
                *written(by_keys, parquet_options, folder, "keys"), base, base_s
            )
        return {
            "rows": rows.table.num_rows,
            "columns": rows.table.num_columns,
            "raw_bytes": rows.raw_bytes,
            "small_bytes": sum(file.size_bytes for file in files),
            "before_bytes": ends["before"].size_bytes,
            "after_bytes": ends["after"].size_bytes,
            "bytes": round(ends["after"].size_bytes / ends["before"].size_bytes, 3),
            **{what: round(least["after"][what] / was, 2) for what, was in least["before"].items()},
            "seconds_before": {what: round(value, 4) for what, value in least["before"].items()},
            "variants": variants,
            "largest_columns": largest_columns(ends["before"], ends["after"]),
        }


def _beside(file: DataFile, took_s: float, base: DataFile, base_s: float) -> dict[str, float]:
    return {
        "bytes": round(file.size_bytes / base.size_bytes, 3),
        "write_cpu_s": round(took_s / base_s, 2),
    }


def medians(found: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The figures of the median source; of the variants those that all sources have."""
    figures = ("bytes", "merge_cpu_s", "arrow_read_cpu_s", "duckdb_read_cpu_s", "duckdb_newest_cpu_s")
    return {
        **{name: round(median(each[name] for each in found.values()), 3) for name in figures},
        "variants": {
            name: {
                figure: round(median(each["variants"][name][figure] for each in found.values()), 3)
                for figure in ("bytes", "write_cpu_s")
            }
            for name in VARIANTS
        },
    }


def main(
    rows: Annotated[int, typer.Option(help="rows of each of the demo's shapes", min=1_000)] = 200_000,
    runs: Annotated[int, typer.Option(help="merges and readings of each kind", min=1)] = 5,
    seed: Annotated[int, typer.Option(help="of the shapes' records")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON alone")] = False,
    keeps: Keep = False,
) -> None:
    """Measures every source. Figures of `after` and of the variants
    are divided by those of `before`; `seconds_before` and bytes are not."""
    pa.set_cpu_count(1)  # as tasks of Spark have it
    found = dict[str, dict[str, Any]]()
    for name, make in sources(rows, seed):
        found[name] = measure(make(), runs)
        told = {
            key: value for key, value in found[name].items() if key not in ("variants", "largest_columns")
        }
        typer.echo(f"{name}: {told}", err=True)
    data_sets = {name: each for name, each in found.items() if name not in SHAPES}
    result = {
        "date": datetime.now(UTC).date().isoformat(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "load_average": round(os.getloadavg()[0], 1),
        "median_of_data_sets": medians(data_sets) if data_sets else None,
        "median_of_all": medians(found),
        "sources": found,
    }
    if keeps:
        keep("storage", result)
    typer.echo(orjson.dumps(result, option=None if as_json else orjson.OPT_INDENT_2).decode())


if __name__ == "__main__":
    typer.run(main)
