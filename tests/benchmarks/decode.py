"""`python -m tests.benchmarks.decode --json`: JSON to text columns, by the native core and by the exact path
in Python, in one run.

Over the JSON data sets, where FIRN_DATASETS names their folder, and over the uniform records of the benchmark
of ingestion. The core reads chunks of 4,096 records into Arrow columns; the exact path decodes a record and
flattens it, without columns. CPU seconds of this process: the least of the runs for the core, one run for the
other. `rows_equal`: every record has been compared.
"""

import os
import statistics
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import orjson
import typer
import zstandard

from ingest.decode.decoder import decode
from ingest.decode.formats.json_object import Pairs
from tests.benchmarks.ingest import records as uniform_records
from tests.benchmarks.kept_results import Keep, keep
from tests.ingest.support.json_comparison import check, leaves_of, parser

DATASETS_VARIABLE = "FIRN_DATASETS"
CHUNK = 4_096
DEPTH_MAX = 100


def sources(uniform: int) -> Iterator[tuple[str, list[bytes]]]:
    """The records of each source."""
    yield "uniform", [value for _, value in uniform_records(100, uniform, zipf=False, seed=1)]
    if folder := os.environ.get(DATASETS_VARIABLE):
        for path in sorted(Path(folder).glob("*.jsonl.zst")):
            text = zstandard.decompress(path.read_bytes(), max_output_size=2**30)
            yield path.name.removesuffix(".jsonl.zst"), text.splitlines()


def measure(values: Sequence[bytes], runs: int) -> dict[str, Any]:
    """The figures of one source."""
    chunks = [values[first : first + CHUNK] for first in range(0, len(values), CHUNK)]
    reader, took_s = parser(DEPTH_MAX), list[float]()
    for _ in range(runs):
        started_s = time.process_time()
        for chunk in chunks:
            reader.parse(chunk)
        took_s.append(time.process_time() - started_s)
    core_s, python_s = min(took_s), _python_s(values)
    columns = set[tuple[str, ...]]()
    plain = 0
    for chunk in chunks:
        parsed = reader.parse(chunk)
        plain += check(chunk, parsed, DEPTH_MAX)["plain"]
        columns |= {column.route for column in parsed.columns}
    return {
        "records": len(values),
        "bytes": sum(map(len, values)),
        "columns": len(columns),
        "odd": len(values) - plain,
        "us_per_record_core": round(core_s / len(values) * 1e6, 3),
        "us_per_record_python": round(python_s / len(values) * 1e6, 2),
        "mb_per_s_core": round(sum(map(len, values)) / core_s / 1e6),
        "speedup": round(python_s / core_s, 1),
        "rows_equal": True,  # else `check` has failed
    }


def _python_s(values: Sequence[bytes]) -> float:
    started_s = time.process_time()
    for value in values:
        if isinstance(pairs := decode(value, "json", DEPTH_MAX), Pairs):
            dict(leaves_of(pairs, ()))
    return time.process_time() - started_s


def main(
    uniform: Annotated[int, typer.Option(help="uniform records", min=CHUNK)] = 100_000,
    runs: Annotated[int, typer.Option(help="of the core", min=1)] = 5,
    as_json: Annotated[bool, typer.Option("--json", help="one JSON object as the last line")] = False,
    keeps: Keep = False,
) -> None:
    """Measures every source."""
    sets = dict[str, dict[str, Any]]()
    for name, values in sources(uniform):
        sets[name] = measure(values, runs)
        typer.echo(f"{name}: {sets[name]}", err=as_json)
    result = {
        "speedup_median": statistics.median(each["speedup"] for each in sets.values()),
        "sets": sets,
        "load_average": os.getloadavg()[0],
    }
    if keeps:
        keep("decode", result)
    typer.echo(orjson.dumps(result).decode() if as_json else f"median: {result['speedup_median']} times")


if __name__ == "__main__":
    typer.run(main)
