"""Exports through the API: the rows of the search, however many, over a crash of the API, in memory that does not grow."""

import hashlib
import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import orjson
import psutil
import pyarrow.parquet as pq
import pytest

from infra.local.supervisor import Stack
from lake.catalog_client import CatalogClient
from tests.benchmarks.log_volume import load
from tests.query.processes import Child
from tests.stack.waiting import wait_for

pytestmark = pytest.mark.stack
# The long proof exports 5,000,000.
ROWS = int(os.environ.get("FIRN_EXPORT_ROWS", "60000"))
HOURS = 12
START = datetime(2026, 2, 1, 0, 0, tzinfo=UTC)
# The process with its engine's memory limit; how many rows there are must not matter.
MEMORY_BYTES_MAX = 1_200_000_000
FINISH_S = 120.0 + ROWS / 5_000


@pytest.fixture(scope="module")
def tenant(catalog_client: CatalogClient) -> tuple[str, int]:
    """A tenant's name and its number of rows."""
    (loaded,) = load(catalog_client, rows=ROWS, tenants=1, start=START, hours=HOURS)
    return loaded.table.tenant.name, loaded.rows


@pytest.fixture
def exporter(stack: Stack, tmp_path: Path) -> Iterator[Child]:
    """An API of the test's own, which it may kill; small stretches, so that there are some to be between."""
    child = Child(
        "query", tmp_path, {**stack.environment(), "FIRN_QUERY_STATE": str(tmp_path / "state"), "FIRN_QUERY_EMBEDDED_MEMORY_BYTES": "268435456"}
    ).start()
    yield child
    child.kill()


def job_of(child: Child, export_id: str) -> dict[str, Any]:
    return dict(httpx.get(f"{child.address}/v1/exports/{export_id}", timeout=60.0, trust_env=False).json())


@pytest.mark.parametrize("written_as", ["ndjson", pytest.param("csv", marks=pytest.mark.prove), pytest.param("parquet", marks=pytest.mark.prove)])
def test_an_export_outlives_a_crash_and_holds_the_rows_of_the_search(exporter: Child, tenant: tuple[str, int], written_as: str, tmp_path: Path) -> None:
    """The API is killed when some parts are written; afterwards these are as they were, the rest is written, all rows are there once, checksums hold."""
    name, rows = tenant
    times = {"from": START.isoformat(), "to": (START + timedelta(hours=HOURS)).isoformat()}
    body = {"tenant": name, **times, "format": written_as}
    made = httpx.post(f"{exporter.address}/v1/exports", json=body, timeout=60.0, trust_env=False).json()
    wait_for(lambda: job_of(exporter, made["id"])["parts"], FINISH_S, "the first part")
    exporter.kill()
    before = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "state/exports" / made["id"]).glob("part-*.*") if path.suffix != ".tmp"}
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
    folder = tmp_path / "state/exports" / made["id"]
    assert all((folder / part).stat().st_mtime_ns == at for part, at in before.items())
    parts = [folder / part["name"] for part in job["parts"]]
    assert [hashlib.sha256(path.read_bytes()).hexdigest() for path in parts] == [part["sha256"] for part in job["parts"]]
    if written_as == "ndjson":
        _check_whole_file(exporter, job, rows)
    elif written_as == "parquet":
        offsets = [offset for path in parts for offset in pq.read_table(path, columns=["_offset"]).column(0).to_pylist()]
        assert sorted(offsets) == list(range(rows))
    _check_against_search(exporter, body, rows)


def _check_whole_file(exporter: Child, job: dict[str, Any], rows: int) -> None:
    """The download is the parts one after the other, each row once, in order of time."""
    digest, seen, last = hashlib.sha256(), bytearray(rows), ""
    with httpx.stream("GET", f"{exporter.address}/v1/exports/{job['id']}/file", timeout=600.0, trust_env=False) as answer:
        for line in answer.iter_lines():
            digest.update(line.encode() + b"\n")
            row = orjson.loads(line)
            seen[row["_offset"]] += 1
            assert row["timestamp"] >= last
            last = row["timestamp"]
    assert seen == b"\x01" * rows
    assert digest.hexdigest() == job["sha256"]


def _check_against_search(exporter: Child, body: dict[str, Any], rows: int) -> None:
    """As many rows as the histogram of the same range counts."""
    question = {name: body[name] for name in ("tenant", "from", "to")}
    assert httpx.post(f"{exporter.address}/v1/histogram", json=question, timeout=60.0, trust_env=False).json()["rows"] == rows
