"""Export jobs: parts, checksums, and going on after a restart."""

import hashlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pyarrow.parquet as pq
import pytest

from lake.log_schema import LogSchema
from query.export.export import ExportJobs, Job
from query.export.export_formats import Format

SCHEMA = LogSchema(
    {
        "fields": [
            {"id": 1, "name": "n", "required": False, "type": "long"},
            {"id": 2, "name": "text", "required": False, "type": "string"},
        ]
    }
)
STRETCHES = tuple((f"{at}", f"{at + 1}") for at in range(5))
ROWS_PER_STRETCH = 30


class Rows:
    """Thirty rows a stretch; waits before the stretch `stop_at` until it is let go."""

    schema = SCHEMA

    def __init__(self, stop_at: str | None = None) -> None:
        self._stop_at = stop_at
        self.reached, self.go_on = threading.Event(), threading.Event()

    def rows(self, start: str, end: str) -> Iterator[list[tuple[Any, ...]]]:
        if start == self._stop_at:
            self.reached.set()
            self.go_on.wait(30)
        numbers = [int(start) * ROWS_PER_STRETCH + at for at in range(ROWS_PER_STRETCH)]
        yield from (
            [(number, f"line, {number}" if number % 3 else None) for number in numbers[at : at + 7]]
            for at in range(0, len(numbers), 7)
        )


def job(written_as: Format) -> Job:
    return Job(
        "", "acme", "logs", "", "0", "5", "", written_as, "", columns=("n", "text"), stretches=STRETCHES
    )


def finished(jobs: ExportJobs, job_id: str) -> Job:
    """The job when it runs no longer."""
    state = jobs.get(job_id)
    waited = threading.Event()
    for _ in range(600):
        if state.state != "running":
            return state
        waited.wait(0.05)
        state = jobs.get(job_id)
    raise AssertionError(f"the export still runs: {state}")


def whole(jobs: ExportJobs, done: Job) -> bytes:
    return b"".join(path.read_bytes() for path in jobs.paths(done))


@pytest.mark.parametrize("written_as", ["ndjson", "csv", "parquet"])
def test_an_export_holds_every_row_with_checksums(tmp_path: Path, written_as: Format) -> None:
    """All rows in order, a checksum per part, and one of the whole where parts make one file."""
    jobs = ExportJobs(tmp_path, lambda _: Rows())
    jobs.start()
    done = finished(jobs, jobs.create(job(written_as)).id)
    assert (done.state, done.rows, len(done.parts)) == ("done", 150, 5)
    for part, path in zip(done.parts, jobs.paths(done), strict=True):
        assert hashlib.sha256(path.read_bytes()).hexdigest() == part.sha256
    if written_as == "parquet":
        numbers = [n for path in jobs.paths(done) for n in pq.read_table(path).column("n").to_pylist()]
    else:
        assert hashlib.sha256(whole(jobs, done)).hexdigest() == done.sha256
        lines = whole(jobs, done).decode().splitlines()
        numbers = (
            [orjson.loads(line)["n"] for line in lines]
            if written_as == "ndjson"
            else [int(line.split(",")[0]) for line in lines[1:]]
        )
    assert numbers == list(range(150))
    jobs.stop()


def test_an_export_goes_on_after_a_restart_where_it_was(tmp_path: Path) -> None:
    """The parts that were finished stay as they are, half a part is written again, and the sum is the
    same."""
    first_rows = Rows(stop_at="3")
    first = ExportJobs(tmp_path, lambda _: first_rows)
    first.start()
    made = first.create(job("ndjson"))
    assert first_rows.reached.wait(30)
    before = {path: path.stat().st_mtime_ns for path in first.paths(first.get(made.id))}
    assert len(before) == 3
    first._stopping = True  # as a killed process: nothing more is written after this
    second = ExportJobs(tmp_path, lambda _: Rows())
    second.start()
    done = finished(second, made.id)
    assert (done.state, done.rows) == ("done", 150)
    assert all(path.stat().st_mtime_ns == changed for path, changed in before.items())
    assert [orjson.loads(line)["n"] for line in whole(second, done).splitlines()] == list(range(150))
    first_rows.go_on.set()
    second.stop()
