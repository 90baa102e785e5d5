"""`python -m tests.benchmarks.optimize --tables 1000 --json`: the same small tables maintained by Firn and by
Spark's own procedures.

`--large`: instead, one hour of 2 GB in 1,000 files, merged by Firn and by `rewrite_data_files`.

Both sides run on the same two-core Spark settings; CPU seconds are those of the driver, its JVM and its
Python workers together.
"""

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import orjson
import psutil
import pyarrow as pa
import typer

from infra.local.jvm_parts import REPOSITORY
from infra.local.services.optimize import environment
from infra.local.supervisor import Stack
from lake.catalog_client import CatalogClient, CommitStatus, TableName
from lake.commit import prepare_append
from lake.data_file import DataFile
from lake.errors import UnavailableError
from lake.storage import open_storage
from tests.benchmarks.kept_results import Keep, keep
from tests.optimize.support.live_files import live_files
from tests.optimize.support.small_files import UTC_US, SmallFiles, grown, rows_of, this_hour, write_small_file

FILES = 12
ROWS = 60
LARGE_FILES = 1_000
LARGE_BYTES = 2 << 30
# Half of a hexadecimal text is air, which zstd takes out; the other columns of a row come to about 20 bytes.
MESSAGE_CHARACTERS = 120
ROW_BYTES = MESSAGE_CHARACTERS // 2 + 20
POLL_S = 0.2


def make_tables(catalog: CatalogClient, prefix: str, count: int, files: int, rows: int) -> list[TableName]:
    """Tables with small files in one closed hour."""
    storage, names = open_storage(), []
    for at in range(count):
        table = SmallFiles(catalog, storage, f"{prefix}{at}")
        table.append(
            this_hour() - 3,
            rows,
            {f"field{c}": [f"value {r}" for r in range(rows)] for c in range(10)},
            times=files,
        )
        names.append(table.name)
    return names


def timed(command: Sequence[str], variables: Mapping[str, str]) -> tuple[float, float]:
    """Wall and CPU seconds of a command with all its descendants, which are looked at often: the JVM is
    nobody's child any more when it ends.

    Raises UnavailableError where the command fails.
    """
    started_s, spent = time.monotonic(), dict[int, float]()
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            command, cwd=REPOSITORY, env={**os.environ, **variables}, stdout=output, stderr=output
        )
        root = psutil.Process(process.pid)
        while process.poll() is None:
            with contextlib.suppress(psutil.Error):
                for one in [root, *root.children(recursive=True)]:
                    with contextlib.suppress(psutil.Error):
                        times = one.cpu_times()
                        spent[one.pid] = times.user + times.system
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(POLL_S)
        wall_s = time.monotonic() - started_s
        if process.returncode != 0:
            output.seek(0)
            raise UnavailableError(
                f"{' '.join(command[:4])} ended with {process.returncode}: "
                f"{output.read()[-2_000:].decode(errors='replace')}"
            )
    return wall_s, sum(spent.values())


def by_firn(variables: Mapping[str, str], names: Sequence[TableName]) -> tuple[float, float]:
    """One round of Firn over the tables; files that nobody reaches any more are deleted in it, as the
    procedures do, and not hours later."""
    command = [
        sys.executable,
        "-m",
        "optimize",
        "run",
        "--once",
        *(part for n in names for part in ("--table", str(n))),
    ]
    return timed(command, {**variables, "FIRN_OPTIMIZE_RETENTION__READER_GRACE_S": "0"})


def by_spark(
    variables: Mapping[str, str], names: Sequence[TableName], *, expire: bool = True
) -> tuple[float, float]:
    """rewrite_data_files and expire_snapshots over the tables, one after the other, as Spark's users do."""
    work = {"tables": [str(name) for name in names], "expire": expire}
    return timed(
        [sys.executable, "-m", "tests.benchmarks.spark_procedures", orjson.dumps(work).decode()], variables
    )


def measure_small(stack: Stack, tables: int, spark_tables: int) -> dict[str, Any]:
    """The comparison on small tables."""
    catalog = CatalogClient(stack.address("catalog"))
    variables = {**stack.environment(), **environment()}
    ours, theirs = (
        make_tables(catalog, "firn", tables, FILES, ROWS),
        make_tables(catalog, "spark", spark_tables, FILES, ROWS),
    )
    wall_s, cpu_s = by_firn(variables, ours)
    spark_wall_s, spark_cpu_s = by_spark(variables, theirs)
    _check_merged(catalog, [*ours, *theirs])
    return {
        "tables": tables,
        "files_per_table": FILES,
        "tables_per_s": round(tables / wall_s, 2),
        "cpu_s": round(cpu_s / tables, 4),
        "spark_tables": spark_tables,
        "spark_procedures_tables_per_s": round(spark_tables / spark_wall_s, 3),
        "spark_procedures_cpu_s": round(spark_cpu_s / spark_tables, 4),
        "ratio": round((spark_cpu_s / spark_tables) / (cpu_s / tables), 1),
        "load_average_before": os.getloadavg()[0],
        "started": "Spark's start is included on both sides",
    }


def _check_merged(catalog: CatalogClient, names: Sequence[TableName]) -> None:
    """A side that left work undone would look fast. Raises UnavailableError."""
    storage = open_storage()
    undone = [str(name) for name in names if set(live_files(catalog, storage, name).values()) != {1}]
    if undone:
        raise UnavailableError(f"{len(undone)} tables were not merged, {undone[0]} for one")


def large_hour(
    catalog: CatalogClient, tenants: Sequence[str], files: int, size_bytes: int
) -> list[TableName]:
    """Tables over the same data: `files` files in one closed hour, together about `size_bytes`, no text in
    them twice."""
    storage, hour = open_storage(), this_hour() - 3
    tables = [SmallFiles(catalog, storage, tenant) for tenant in tenants]
    for table in tables:
        table.append(hour - 1, 1, {"host": ["a"]})  # the table, and its column
    rows, draws, written = (
        max(1, size_bytes // files // ROW_BYTES),
        np.random.default_rng(7),
        list[DataFile](),
    )
    state = tables[0].state
    schema = grown(state, ["host"])
    for at in range(files):
        columns = rows_of(hour, at * rows, rows, {"host": [f"host-{row % 20}" for row in range(rows)]})
        columns["message"] = _texts(draws, rows)
        columns["_errors"] = pa.nulls(rows, columns["_errors"].type)
        columns["timestamp"] = pa.array(
            np.sort(hour * 3_600_000_000 + draws.integers(0, 3_600_000_000, rows)), pa.int64()
        ).cast(UTC_US)
        written.append(write_small_file(storage, state, schema, hour, columns))
    storage.sync([file.uri for file in written])
    for table in tables:
        prepared = prepare_append(
            table.reload(), written, table.state.schema, table.state.marks, table.state.updated_ms
        )
        storage.write_all(prepared.files)
        (result,) = catalog.commit_all([prepared.request])
        if result.status is not CommitStatus.COMMITTED:
            raise UnavailableError(f"{table.name}: {result}")
    return [table.name for table in tables]


def _texts(draws: np.random.Generator, rows: int) -> pa.Array:
    raw = draws.bytes(rows * MESSAGE_CHARACTERS // 2).hex().encode()
    offsets = np.arange(0, (rows + 1) * MESSAGE_CHARACTERS, MESSAGE_CHARACTERS, dtype=np.int32)
    return pa.StringArray.from_buffers(rows, pa.py_buffer(offsets.tobytes()), pa.py_buffer(raw))


def measure_large(stack: Stack, files: int, size_bytes: int) -> dict[str, Any]:
    """The comparison on one large hour; the data files lie in the cache of neither side more than of the
    other: both have just been written or read."""
    catalog = CatalogClient(stack.address("catalog"))
    variables = {**stack.environment(), **environment()}
    ours, theirs = large_hour(catalog, ["firn", "spark"], files, size_bytes)
    spark_wall_s, spark_cpu_s = by_spark(variables, [theirs], expire=False)
    wall_s, cpu_s = by_firn(
        variables, [ours]
    )  # the last: it deletes what it has merged, and the other table has the same files
    hour, storage = this_hour() - 3, open_storage()
    after = [live_files(catalog, storage, name)[hour] for name in (ours, theirs)]
    return {
        "files": files,
        "bytes": size_bytes,
        "files_after": after[0],
        "wall_s": round(wall_s, 1),
        "cpu_s": round(cpu_s, 1),
        "rewrite_data_files_files_after": after[1],
        "rewrite_data_files_wall_s": round(spark_wall_s, 1),
        "rewrite_data_files_cpu_s": round(spark_cpu_s, 1),
        "wall_ratio": round(wall_s / spark_wall_s, 2),
        "cpu_ratio": round(cpu_s / spark_cpu_s, 2),
        "load_average_before": os.getloadavg()[0],
        "started": (
            "Spark's start is included on both sides; Firn's files are in order of time, those of "
            "rewrite_data_files in none"
        ),
    }


def main(
    tables: Annotated[int, typer.Option(help="tables that Firn maintains", min=1)] = 1_000,
    spark_tables: Annotated[int, typer.Option(help="tables that Spark's procedures maintain", min=1)] = 100,
    large: Annotated[
        bool, typer.Option("--large", help="one large hour instead of many small tables")
    ] = False,
    large_files: Annotated[int, typer.Option(help="files of the large hour", min=2)] = LARGE_FILES,
    large_bytes: Annotated[int, typer.Option(help="bytes of the large hour", min=1)] = LARGE_BYTES,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON alone")] = False,
    keeps: Keep = False,
) -> None:
    """Runs the comparison."""
    with (
        tempfile.TemporaryDirectory(prefix="firn-benchmark-") as folder,
        Stack(Path(folder), tied=True) as stack,
    ):
        stack.start("catalog")
        result = (
            measure_large(stack, large_files, large_bytes)
            if large
            else measure_small(stack, tables, spark_tables)
        )
    if keeps:
        keep("optimize_large" if large else "optimize", result)
    text = orjson.dumps(result, option=orjson.OPT_INDENT_2).decode()
    typer.echo(text if as_json else "\n".join(f"{name}: {value}" for name, value in result.items()))


if __name__ == "__main__":
    typer.run(main)
