"""`python -m tests.benchmarks.optimize --tables 1000 --json`: the same small tables maintained by Firn and by Spark's own procedures.

Both sides run on the same two-core Spark settings; CPU seconds are those of the driver, its JVM and its Python workers together.
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

import orjson
import psutil
import typer

from infra.local.jvm_parts import REPOSITORY
from infra.local.services.optimize import environment
from infra.local.supervisor import Stack
from lake.catalog_client import CatalogClient, TableName
from lake.errors import UnavailableError
from lake.storage import open_storage
from tests.optimize.small_files import SmallFiles, this_hour

FILES = 12
ROWS = 60
POLL_S = 0.2
RESULTS = Path(__file__).parent / "results"


def make_tables(catalog: CatalogClient, prefix: str, count: int, files: int, rows: int) -> list[TableName]:
    """Tables with small files in one closed hour."""
    storage, names = open_storage(), []
    for at in range(count):
        table = SmallFiles(catalog, storage, f"{prefix}{at}")
        table.append(this_hour() - 3, rows, {f"field{c}": [f"value {r}" for r in range(rows)] for c in range(10)}, times=files)
        names.append(table.name)
    return names


def timed(command: Sequence[str], variables: Mapping[str, str]) -> tuple[float, float]:
    """Wall and CPU seconds of a command with all its descendants, which are looked at often: the JVM is nobody's child any more when it ends.

    Raises UnavailableError where the command fails.
    """
    started_s, spent = time.monotonic(), dict[int, float]()
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(command, cwd=REPOSITORY, env={**os.environ, **variables}, stdout=output, stderr=output)
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
            raise UnavailableError(f"{' '.join(command[:4])} ended with {process.returncode}: {output.read()[-2_000:].decode(errors='replace')}")
    return wall_s, sum(spent.values())


def by_firn(variables: Mapping[str, str], names: Sequence[TableName]) -> tuple[float, float]:
    """One round of Firn over the tables."""
    return timed([sys.executable, "-m", "optimize", "run", "--once", *(part for n in names for part in ("--table", str(n)))], variables)


def by_spark(variables: Mapping[str, str], names: Sequence[TableName], *, expire: bool = True) -> tuple[float, float]:
    """rewrite_data_files and expire_snapshots over the tables, one after the other, as Spark's users do."""
    work = {"tables": [str(name) for name in names], "expire": expire}
    return timed([sys.executable, "-m", "tests.benchmarks.spark_procedures", orjson.dumps(work).decode()], variables)


def measure(stack: Stack, tables: int, spark_tables: int) -> dict[str, Any]:
    """The comparison on small tables."""
    catalog = CatalogClient(stack.address("catalog"))
    variables = {**stack.environment(), **environment()}
    ours, theirs = make_tables(catalog, "firn", tables, FILES, ROWS), make_tables(catalog, "spark", spark_tables, FILES, ROWS)
    wall_s, cpu_s = by_firn(variables, ours)
    spark_wall_s, spark_cpu_s = by_spark(variables, theirs)
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


def main(
    tables: Annotated[int, typer.Option(help="tables that Firn maintains", min=1)] = 1_000,
    spark_tables: Annotated[int, typer.Option(help="tables that Spark's procedures maintain", min=1)] = 100,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON alone")] = False,
) -> None:
    """Runs the comparison and keeps its result beside this file."""
    with tempfile.TemporaryDirectory(prefix="firn-benchmark-") as folder, Stack(Path(folder), tied=True) as stack:
        stack.start("catalog")
        result = measure(stack, tables, spark_tables)
    RESULTS.mkdir(exist_ok=True)
    text = orjson.dumps(result, option=orjson.OPT_INDENT_2).decode()
    (RESULTS / "optimize.json").write_text(text + "\n")
    typer.echo(text if as_json else "\n".join(f"{name}: {value}" for name, value in result.items()))


if __name__ == "__main__":
    typer.run(main)
