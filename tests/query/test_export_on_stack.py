"""Exports through the API: the rows of the search, however many, over a crash of the API, in memory that does
not grow."""

import csv
import hashlib
import os
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import orjson
import psutil
import pyarrow.parquet as pq
import pytest

from infra.local.supervisor import Stack
from lake.catalog_client import CatalogClient
from tests.benchmarks.log_volume import load
from tests.query.support.processes import Child
from tests.stack.support.plain_http import http
from tests.stack.support.waiting import wait_for

pytestmark = pytest.mark.stack
# The long proof exports 5,000,000.
ROWS = int(os.environ.get("FIRN_EXPORT_ROWS", "30000"))
HOURS = 12
START = datetime(2026, 2, 1, 0, 0, tzinfo=UTC)
# The process with its engine's memory limit; how many rows there are must not matter.
MEMORY_BYTES_MAX = 1_200_000_000
FINISH_S = 120.0 + ROWS / 2_000


@pytest.fixture(scope="module")
def tenant(catalog_client: CatalogClient) -> tuple[str, int]:
    """A tenant's name and its number of rows."""
    (loaded,) = load(catalog_client, rows=ROWS, tenants=1, start=START, hours=HOURS)
    return loaded.table.tenant.name, loaded.rows


@pytest.fixture
def exporter(stack: Stack, tmp_path: Path) -> Iterator[Child]:
    """An API of the test's own, which it may kill; small stretches, so that there are some to be between."""
    own = {
        "FIRN_QUERY_STATE": str(tmp_path / "state"),
        "FIRN_QUERY_EXPORT__PART_ROWS": str(ROWS // (2 * HOURS)),
        "FIRN_QUERY_EMBEDDED__MEMORY_BYTES": str(256 * 2**20),
        "FIRN_QUERY_SQL__TIMEOUT_S": str(10 * FINISH_S),
    }
    child = Child("query", tmp_path, {**stack.environment(), **own}).start()
    yield child
    child.kill()


def job_of(child: Child, export_id: str) -> dict[str, Any]:
    return dict(http.get(f"{child.address}/v1/exports/{export_id}", timeout=60.0).json())


@pytest.mark.parametrize(
    ("written_as", "hours"),
    [
        ("ndjson", HOURS),
        pytest.param("csv", 2, marks=pytest.mark.prove),
        pytest.param("parquet", 2, marks=pytest.mark.prove),
    ],
)
def test_an_export_outlives_a_crash_and_holds_the_rows_of_the_search(
    exporter: Child, tenant: tuple[str, int], written_as: str, hours: int, tmp_path: Path
) -> None:
    """The API is killed when some parts are written; afterwards these are as they were, the rest is written,
    all rows are there once, checksums hold."""
    name, everything = tenant
    search_request = {
        "tenant": name,
        "from": START.isoformat(),
        "to": (START + timedelta(hours=hours)).isoformat(),
    }
    body = {**search_request, "format": written_as}
    rows = int(
        http.post(f"{exporter.address}/v1/histogram", json=search_request, timeout=60.0).json()["rows"]
    )
    assert rows == everything if hours == HOURS else 0 < rows < everything
    made = http.post(f"{exporter.address}/v1/exports", json=body, timeout=60.0).json()
    wait_for(lambda: job_of(exporter, made["id"])["parts"], FINISH_S, "the first part")
    exporter.kill()
    folder = tmp_path / "state/exports" / made["id"]
    # Of the job: one that was written and not noted before the kill is written again, with the same rows.
    noted = [part["name"] for part in orjson.loads((folder / "job.json").read_bytes())["parts"]]
    before = {name: (folder / name).stat().st_mtime_ns for name in noted}
    exporter.start()
    peak = 0

    def done() -> bool:
        nonlocal peak
        peak = max(peak, psutil.Process(exporter.pid).memory_info().rss)
        return bool(job_of(exporter, made["id"])["state"] != "running")

    wait_for(done, FINISH_S, "the export", poll_s=0.2)
    job = job_of(exporter, made["id"])
    assert (job["state"], job["rows"]) == ("done", rows), job["message"]
    assert peak < MEMORY_BYTES_MAX, f"{peak:,} bytes at its peak"
    assert 0 < len(before) < len(job["parts"]), "it was not killed in the middle"
    assert all((folder / part).stat().st_mtime_ns == at for part, at in before.items())
    parts = [folder / part["name"] for part in job["parts"]]
    assert [hashlib.sha256(path.read_bytes()).hexdigest() for path in parts] == [
        part["sha256"] for part in job["parts"]
    ]
    assert (
        _check_against_search(exporter, body, READERS[written_as](parts), is_csv=written_as == "csv") == rows
    )
    if written_as != "parquet":
        _check_whole_file(exporter, job, parts)
    print(
        f"{written_as}: {job['rows']:,} rows, {job['bytes']:,} bytes in {len(parts)} parts; the process held "
        f"at most {peak:,} bytes"
    )


def _check_whole_file(exporter: Child, job: dict[str, Any], parts: list[Path]) -> None:
    """The download is the parts one after the other, and has the checksum of the manifest."""
    digest = hashlib.sha256()
    with http.stream("GET", f"{exporter.address}/v1/exports/{job['id']}/file", timeout=600.0) as answer:
        for block in answer.iter_raw():
            digest.update(block)
    assert digest.hexdigest() == job["sha256"]
    whole = hashlib.sha256()
    for path in parts:
        whole.update(path.read_bytes())
    assert whole.hexdigest() == job["sha256"]


def _check_against_search(
    exporter: Child, body: dict[str, Any], exported: Iterator[dict[str, Any]], *, is_csv: bool
) -> int:
    """Row by row, in order, every column: what is exported is what a search of the same range finds. Gives
    the number of rows; each is there once."""
    search_request = {name: body[name] for name in ("tenant", "from", "to")} | {"order": "oldest"}
    rows = 0
    with http.stream(
        "POST", f"{exporter.address}/v1/search/stream", json=search_request, timeout=600.0
    ) as answer:
        for line in answer.iter_lines():
            found = orjson.loads(line)
            if "basis" in found:
                assert found["basis"]["complete"], found["basis"]["reasons"]
                break
            wanted, row = _as_text(_columns(found), is_csv=is_csv), _as_text(next(exported), is_csv=is_csv)
            assert row == wanted
            assert row["_offset"] == str(rows), "a row is missing or doubled"
            rows += 1
    assert next(exported, None) is None
    return rows


def _columns(row: dict[str, Any]) -> dict[str, Any]:
    """A row of the search as the table has it."""
    named = {
        f"_{name if name != 'partition' else 'topic_partition'}": value
        for name, value in row["coordinates"].items()
    }
    system = {name: row[name] for name in ("timestamp", "observed_timestamp", "severity", "message")}
    return {
        **system,
        **named,
        "_errors": row["errors"] or None,
        "_overflow": row["overflow"],
        **row["fields"],
    }


def _as_text(row: dict[str, Any], *, is_csv: bool) -> dict[str, str]:
    """Values as a CSV file spells them, without those that are missing; an empty text is missing in CSV."""
    return {
        name: _text(value)
        for name, value in row.items()
        if value is not None and not (is_csv and value == "")
    }


def _text(value: Any) -> str:
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    return orjson.dumps(value).decode() if isinstance(value, list | dict) else str(value)


def _lines(parts: list[Path]) -> Iterator[dict[str, Any]]:
    for path in parts:
        with path.open("rb") as file:
            yield from map(orjson.loads, file)


def _csv_rows(parts: list[Path]) -> Iterator[dict[str, Any]]:
    def texts() -> Iterator[str]:
        for path in parts:
            with path.open(newline="", encoding="utf-8") as file:
                yield from file

    return csv.DictReader(texts())


def _parquet_rows(parts: list[Path]) -> Iterator[dict[str, Any]]:
    for path in parts:
        for batch in pq.ParquetFile(path).iter_batches(10_000):
            yield from batch.to_pylist()


READERS: dict[str, Callable[[list[Path]], Iterator[dict[str, Any]]]] = {
    "ndjson": _lines,
    "csv": _csv_rows,
    "parquet": _parquet_rows,
}
