"""`python -m tests.benchmarks.fleet --tables 1000000 --json`: what a fleet of so many tables costs.

About `--own` of the tables are made by the catalog, with metadata and manifests of their own, and only
those are loaded and committed to; the others are rows of the database with their partitions, written by the
benchmark, and point at one metadata file. What is not measured at this size is named in `extrapolated`, with
what it rests on. The last line is one JSON object with --json.
"""

import os
import platform
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import orjson
import typer

from catalog.store.database import Database, migrate
from lake.catalog_client import CatalogClient, TableName
from lake.storage import open_storage
from tests.benchmarks.fleet import questions
from tests.benchmarks.fleet.on_postgres import measure_postgres
from tests.benchmarks.fleet.own_tables import OwnTables, bytes_below
from tests.benchmarks.fleet.rounds import Rounds
from tests.benchmarks.fleet.rows import fill_sqlite
from tests.benchmarks.fleet.server import REPOSITORY, Server
from tests.benchmarks.fleet.shape import Fleet

HOUR_MS = 3_600_000
CHANGED = 0.01
CLOSED_HOURS_AGO = 5
DAILY_TABLES, INGEST_TABLES = 5_000, 20_500
# What an executor takes to merge a small table, of `tests.benchmarks.optimize` (RESULTS.md, 2026-11-21).
MERGE_CPU_S = 0.084
MEASURED = (
    "round_",
    "list_",
    "load_",
    "commit_",
    "names_",
    "start_",
    "vacuum_",
    "database_",
    "catalog_",
    "watch_",
    "ingest_bytes_per_table",
)
Say = Callable[[str], object]
Json = dict[str, Any]


def measure(folder: Path, fleet: Fleet, say: Say) -> Json:
    """Everything on SQLite; Firn's defaults."""
    result: Json = {}
    file = folder / "catalog.db"
    url = f"sqlite:///{file}"
    _migrate(url)
    with Server(folder, url) as server:
        catalog = CatalogClient(server.uri)
        own = OwnTables.of(fleet, catalog, open_storage())
        result |= own.make()
        shared = str(catalog.load_table(fleet.name(fleet.own()[0]))["metadata-location"])
        say(f"{len(fleet.own())} tables made by the catalog: {result}")
    filled = fill_sqlite(file, fleet, f"file://{folder}/warehouse", shared)
    result |= {f"fill_{name}": round(value, 1) for name, value in filled.items()}
    result["database_mb"] = round(file.stat().st_size / 1_048_576)
    say(f"the database is there: {result}")
    with Server(folder, url) as server:
        result["start_s"] = round(server.start_s, 3)
        catalog = CatalogClient(server.uri)
        own = OwnTables.of(fleet, catalog, open_storage())
        for part in (_questions, _rounds, _memory):
            result |= part(own, server, folder)
            say(f"{part.__name__}: {result}")
    result |= _vacuumed(file)
    result |= {f"warehouse_{name}": value for name, value in bytes_below(folder / "warehouse").items()}
    return result


def _migrate(url: str) -> None:
    database = Database(url)
    migrate(database)
    database.close()


def _names(fleet: Fleet) -> list[TableName]:
    return [fleet.name(number) for number in fleet.own()]


def _questions(own: OwnTables, server: Server, _: Path) -> Json:
    names, numbers = _names(own.fleet), own.fleet.own()
    connection = questions.Connection(server.port)
    found: Json = {f"cold_{key}": value for key, value in questions.loads(connection, names).items()}
    found |= questions.loads(connection, names[: questions.LOADS])
    found |= questions.commits(own, numbers[: 3 * questions.COMMITS])
    found |= questions.lists(connection, own.fleet)
    found |= questions.pages(own.catalog, names)
    return found | {"catalog_memory_mb": server.memory_mb()}


def _rounds(own: OwnTables, server: Server, _: Path) -> Json:
    rounds = Rounds(own.catalog, own.storage, server)
    found = rounds.round("round_first") | rounds.round("round_idle")
    changed = own.fleet.own()[: int(own.fleet.tables * CHANGED)]
    for prepared in own.change(changed, CLOSED_HOURS_AGO):
        own.commit(prepared)
    found |= rounds.look("watch")
    found |= rounds.round("round_1pct")
    found |= {"round_1pct_changed": len(changed)}
    return found | rounds.daily(_names(own.fleet)[-DAILY_TABLES:])


def _memory(own: OwnTables, server: Server, folder: Path) -> Json:
    names = folder / "names"
    tables = _names(own.fleet)[:INGEST_TABLES]
    names.write_text("".join(f"{name.namespace} {name.name}\n" for name in tables))
    command = [sys.executable, "-m", "tests.benchmarks.fleet.ingest_memory", server.uri, str(names)]
    ended = subprocess.run(command, cwd=REPOSITORY, env=os.environ, check=True, stdout=subprocess.PIPE)
    found = orjson.loads(ended.stdout.splitlines()[-1])
    memory = server.memory_mb()
    return {
        **found,
        "ingest_bytes_per_table": sum(value for name, value in found.items() if "bytes" in name),
        "catalog_rss_mb": memory["anonymous"],
        "catalog_memory_mb": memory,
    }


def _vacuumed(file: Path) -> Json:
    """What it takes to write the database anew, for which it must be closed, or nobody may write."""
    began_s = time.perf_counter()
    with sqlite3.connect(file, isolation_level=None) as connection:
        connection.execute("VACUUM")
    connection.close()
    return {
        "vacuum_s": round(time.perf_counter() - began_s, 1),
        "database_after_vacuum_mb": round(file.stat().st_size / 1_048_576),
    }


def kinds_of(result: Json, fleet: Fleet) -> Json:
    """Which figures were measured with all tables, and which rest on fewer, and how."""
    own = len(fleet.own())
    daily, ingest, all_ = result["daily_tables"], result["ingest_tables"], fleet.tables
    rest = [f"daily_h: daily_ms_per_table of {daily:,} tables times {all_:,}"]
    rest += [f"ingest_gb: ingest_bytes_per_table of {ingest:,} tables times {all_:,}"]
    rest += [f"round_1pct_merge_cpu_s: {MERGE_CPU_S} CPU s a table, which tests.benchmarks.optimize measured"]
    if own < fleet.tables:
        rest += [
            f"warehouse_all_gb: the {own:,} tables that have files take {result['warehouse_bytes']:,} bytes",
            f"load_ms, cold_load_ms, commit_ms: of these {own:,} tables, in a database of {fleet.tables:,}",
        ]
    measured = sorted(name for name in result if name.startswith(MEASURED))
    return {
        "daily_h": round(result["daily_ms_per_table"] * fleet.tables / 3_600_000, 2),
        "ingest_gb": round(result["ingest_bytes_per_table"] * fleet.tables / 1e9, 2),
        "round_1pct_merge_cpu_s": round(MERGE_CPU_S * result["round_1pct_merges"]),
        "warehouse_all_gb": round(result["warehouse_bytes"] / own * fleet.tables / 1e9, 1),
        "measured": measured,
        "extrapolated": rest,
    }


def main(
    tables: Annotated[int, typer.Option(help="of the fleet")] = 10_000,
    own: Annotated[int, typer.Option(help="about so many with metadata of their own")] = 20_000,
    postgres: Annotated[
        int, typer.Option(help="tables on PostgreSQL, with 1 and 2 processes of the catalog; 0: not at all")
    ] = 0,
    folder: Annotated[Path | None, typer.Option(help="where all of it goes, and is deleted")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="the last line is one JSON object")] = False,
) -> None:
    """Measures a fleet."""
    began_s = time.monotonic()

    def say(line: str) -> None:
        print(f"{time.monotonic() - began_s:.0f} s: {line}", file=sys.stderr, flush=True)

    now_ms = int(time.time() * 1000) // HOUR_MS * HOUR_MS
    fleet = Fleet(tables, own, now_ms)
    place = Path(tempfile.mkdtemp(prefix="firn-fleet-", dir=folder))
    try:
        result = measure(place, fleet, say)
        result |= kinds_of(result, fleet)
        if postgres:
            shutil.rmtree(place / "warehouse")
            result["postgres"] = measure_postgres(place, Fleet(postgres, 2_000, now_ms), say)
    finally:
        shutil.rmtree(place, ignore_errors=True)
    result |= {
        "tables": tables,
        "own_tables": len(fleet.own()),
        "tenants": fleet.tenants,
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
        "date": datetime.now(UTC).date().isoformat(),
        "wall_s": round(time.monotonic() - began_s),
    }
    if as_json:
        print(orjson.dumps(result).decode())
    else:
        for key, value in result.items():
            print(f"{key:36} {value}")


if __name__ == "__main__":
    typer.run(main)
