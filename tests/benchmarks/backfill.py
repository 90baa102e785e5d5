"""`python -m tests.benchmarks.backfill --json`: CPU seconds to take in the JSON data sets of FIRN_DATASETS,
each repeated to some ten thousand records, by `backfill files` into one table.

`--against victorialogs PATH` (a binary that is given) has VictoriaLogs take in the same records by its
JSON-lines endpoint, in turn with Firn in one run. Firn's figure counts the backfill's process and what the
catalog spent, less what a file of one record takes, so without the start; VictoriaLogs' is its server's, from
the first request until every record is found. The least of the runs.
"""

import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Annotated, Any

import orjson
import psutil
import typer
import zstandard

from infra.local.supervisor import Stack
from tests.benchmarks.kept_results import Keep, keep
from tests.benchmarks.victorialogs import VictoriaLogs, victorialogs
from tests.stack.support.waiting import fresh, wait_for

DATASETS_VARIABLE = "FIRN_DATASETS"
# By set: how often it is repeated, and the fields that are time and message for VictoriaLogs.
SETS = {
    "access-weblogs": (5, "timestamp", "message"),
    "cloudtrail": (15, "eventTime", "eventName"),
    "windows-events": (1, "@timestamp", "message"),
    "zeek": (10, "ts", "uri"),
    "access-caddy": (8, "ts", "msg"),
    "access-nginx": (8, "time", "uri"),
}
RETENTION = "100y"
LINES_AT_ONCE = 10_000
FOUND_WITHIN_S = 120.0
EVER = {"start": "1971-01-01T00:00:00Z", "end": "2100-01-01T00:00:00Z"}


def cpu_s(pid: int) -> float:
    """CPU seconds of a process up to now."""
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


@contextmanager
def children_cpu_s(told: list[float]) -> Iterator[None]:
    """Appends the CPU seconds of the processes that end meanwhile."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    yield
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    told.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def by_firn(stack: Stack, file: Path) -> tuple[float, int]:
    """CPU seconds of a backfill into a new table, the catalog's with them, and its rows."""
    catalog_s, told = cpu_s(stack.pid("catalog")), list[float]()
    tenant, rejects = fresh("load-"), file.with_suffix(".rejects")
    command = [sys.executable, "-m", "ingest", "backfill", "files", str(file)]
    command += ["--tenant", tenant, "--rejects", str(rejects), "--json"]
    with children_cpu_s(told):
        done = subprocess.run(
            command, env={**os.environ, **stack.environment()}, capture_output=True, text=True, check=False
        )
    if done.returncode:
        raise SystemExit(f"the backfill of {file.name} failed:\n{done.stderr[-2_000:]}")
    return told[0] + cpu_s(stack.pid("catalog")) - catalog_s, int(orjson.loads(done.stdout)["rows"])


def by_victorialogs(store: VictoriaLogs, server: int, file: Path, time_field: str, message: str) -> float:
    """CPU seconds of the server until it finds all records; each load is told apart by a field of its own."""
    began_s, run = cpu_s(server), fresh("run-")
    lines = file.read_bytes().splitlines(keepends=True)
    fields = {"_time_field": time_field, "_msg_field": message, "extra_fields": f"run={run}"}
    for first in range(0, len(lines), LINES_AT_ONCE):
        body = b"".join(lines[first : first + LINES_AT_ONCE])
        store.http.post("/insert/jsonline", params=fields, content=body).raise_for_status()
    store.http.get("/internal/force_flush").raise_for_status()
    wait_for(lambda: _found(store, run) == len(lines), FOUND_WITHIN_S, "VictoriaLogs to have all records")
    return cpu_s(server) - began_s


def _found(store: VictoriaLogs, run: str) -> int:
    answer = store.http.post("/select/logsql/query", data={"query": f"run:={run} | count() rows", **EVER})
    answer.raise_for_status()
    return int(orjson.loads(answer.content)["rows"])


def files_of(folder: Path) -> Iterator[tuple[str, Path, int]]:
    """The sets as files of lines: name, file, records."""
    for name, (times, *_) in SETS.items():
        packed = (Path(os.environ[DATASETS_VARIABLE]) / f"{name}.jsonl.zst").read_bytes()
        lines = zstandard.decompress(packed, max_output_size=2**30).splitlines()
        file = folder / f"{name}.jsonl"
        file.write_bytes(b"".join(line + b"\n" for line in lines) * times)
        yield name, file, len(lines) * times


def main(
    against: Annotated[
        tuple[str, Path] | None, typer.Option(metavar="STORE PATH", help="victorialogs, and its binary")
    ] = None,
    runs: Annotated[int, typer.Option(help="of each set", min=1)] = 3,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON alone")] = False,
    keeps: Keep = False,
) -> None:
    """Loads and compares."""
    if DATASETS_VARIABLE not in os.environ:
        raise SystemExit(f"set {DATASETS_VARIABLE} to the folder of the data sets")
    if against is not None and against[0] != "victorialogs":
        raise SystemExit(f"no store is called {against[0]!r}; there is victorialogs")
    result: dict[str, Any] = {}
    with (
        tempfile.TemporaryDirectory(prefix="firn-backfill-") as place,
        Stack(Path(place) / "stack", tied=True) as stack,
    ):
        stack.start("catalog")
        folder = Path(place)
        one = folder / "one.jsonl"
        one.write_bytes(b'{"message":"one"}\n')
        start_s = min(by_firn(stack, one)[0] for _ in range(runs))
        with (
            victorialogs(against[1], folder / "victorialogs", retention=RETENTION)
            if against
            else nullcontext() as store
        ):
            for name, file, records in files_of(folder):
                result[name] = _measure(stack, store, name, file, records, start_s, runs)
                typer.echo(f"{name}: {result[name]}", err=True)
    told = {"start_s": round(start_s, 2), "sets": result, "cores": os.cpu_count()}
    text = orjson.dumps(told, option=orjson.OPT_INDENT_2).decode()
    if keeps:
        keep("backfill", told)
    typer.echo(text if as_json else "\n".join(f"{name}: {each}" for name, each in result.items()))


def _measure(
    stack: Stack, store: VictoriaLogs | None, name: str, file: Path, records: int, start_s: float, runs: int
) -> dict[str, Any]:
    firn, other = list[float](), list[float]()
    for _ in range(runs):
        took_s, rows = by_firn(stack, file)
        firn.append(took_s - start_s)
        if rows != records:
            raise SystemExit(f"{name}: {rows} rows of {records} records")
        if store is not None:
            _, time_field, message = SETS[name]
            other.append(by_victorialogs(store, store.pid, file, time_field, message))
    told: dict[str, Any] = {
        "records": records,
        "mb": round(file.stat().st_size / 1e6, 1),
        "cpu_s": round(min(firn), 2),
    }
    if other:
        told |= {"cpu_s_victorialogs": round(min(other), 2), "ratio": round(min(firn) / min(other), 2)}
    return told


if __name__ == "__main__":
    typer.run(main)
