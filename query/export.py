"""Exports: all rows of a search as files, however many. A job is a folder: `job.json` and its parts.

The rows are fixed when the job is made: its time range and pin. They are written stretch by stretch, the oldest first, each stretch a part
that is complete when it has its name; so a job goes on after a restart where it was, and never holds more than a batch in memory.
"""

import contextlib
import csv
import hashlib
import io
import os
import secrets
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO, Literal, Protocol

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import structlog

from lake.errors import FatalError, FirnError, NotFoundError
from lake.log_schema import LogSchema, arrow_type
from query.results import plain_row

log = structlog.get_logger()
Format = Literal["ndjson", "csv", "parquet"]
ENDINGS: dict[str, str] = {"ndjson": "ndjson", "csv": "csv", "parquet": "parquet"}
STRETCH_ROWS = 250_000
ROWS_AT_ONCE = 5_000


@dataclass(frozen=True, slots=True)
class Part:
    """One finished file of an export."""

    name: str
    start: str
    end: str
    rows: int
    size_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Job:
    """An export. `stretches`: the pieces of time its parts are written for. `sha256`: of all parts one after the other, where that makes a file."""

    id: str
    tenant: str
    stream: str
    query: str
    start: str
    end: str
    pin: str
    format: Format
    created: str
    state: Literal["running", "done", "failed", "cancelled"] = "running"
    message: str = ""
    columns: tuple[str, ...] = ()
    stretches: tuple[tuple[str, str], ...] = ()
    parts: tuple[Part, ...] = ()
    sha256: str = ""

    @property
    def rows(self) -> int:
        return sum(part.rows for part in self.parts)

    @property
    def size_bytes(self) -> int:
        return sum(part.size_bytes for part in self.parts)


class RowSource(Protocol):
    """Where a job's rows come from."""

    schema: LogSchema

    def rows(self, start: str, end: str) -> Iterator[list[tuple[Any, ...]]]:
        """The rows of a stretch, oldest first, in batches."""


class ExportJobs:
    """The jobs of one folder. `open_source` makes the rows of a job; jobs run one after the other in a thread of their own."""

    def __init__(self, folder: Path, open_source: Callable[[Job], RowSource]) -> None:
        self._folder = folder
        self._open_source = open_source
        self._lock = threading.Condition()
        self._waiting: list[str] = []
        self._stopping = False
        self._thread = threading.Thread(target=self._work, name="exports", daemon=True)

    def start(self) -> None:
        """Takes up the jobs that were running when the process ended."""
        self._folder.mkdir(parents=True, exist_ok=True)
        self._waiting = [job.id for job in self.jobs() if job.state == "running"]
        self._thread.start()

    def stop(self) -> None:
        """Stops after the batch being written; what is unfinished goes on at the next start."""
        with self._lock:
            self._stopping = True
            self._lock.notify_all()
        self._thread.join(timeout=10)

    def create(self, job: Job) -> Job:
        """Keeps a job and queues it."""
        made = replace(job, id=secrets.token_urlsafe(12).replace("-", "a").replace("_", "b"), created=datetime.now(UTC).isoformat())
        self._path(made.id).mkdir(parents=True)
        self._save(made)
        with self._lock:
            self._waiting.append(made.id)
            self._lock.notify_all()
        return made

    def jobs(self) -> list[Job]:
        """Every job, the newest first."""
        jobs = [self._load(path.parent.name) for path in self._folder.glob("*/job.json")]
        return sorted(jobs, key=lambda job: job.created, reverse=True)

    def get(self, job_id: str) -> Job:
        """One job. Raises NotFoundError."""
        if not job_id.isalnum() or not (self._path(job_id) / "job.json").exists():
            raise NotFoundError("there is no such export: it was deleted, or the address is wrong")
        return self._load(job_id)

    def delete(self, job_id: str) -> None:
        """Cancels a job where it runs, and removes its files."""
        self.get(job_id)
        with self._lock:
            self._waiting = [each for each in self._waiting if each != job_id]
        shutil.rmtree(self._path(job_id), ignore_errors=True)

    def part_path(self, job: Job, name: str) -> Path:
        """The file of a finished part. Raises NotFoundError."""
        if name not in {part.name for part in job.parts}:
            raise NotFoundError(f"this export has no part {name!r} yet")
        return self._path(job.id) / name

    def paths(self, job: Job) -> list[Path]:
        """The files of all parts, in order."""
        return [self._path(job.id) / part.name for part in job.parts]

    # ---- the thread

    def _work(self) -> None:
        while True:
            with self._lock:
                self._lock.wait_for(lambda: self._stopping or bool(self._waiting))
                if self._stopping:
                    return
                job_id = self._waiting.pop(0)
            with contextlib.suppress(NotFoundError):
                self._run(self.get(job_id))

    def _run(self, job: Job) -> None:
        try:
            source = self._open_source(job)
            for start, end in job.stretches[len(job.parts) :]:
                if self._stopping:
                    return
                part = self._write_part(job, source, start, end)
                job = replace(job, parts=(*job.parts, part))
                self._save(job)
            self._save(replace(job, state="done", sha256="" if job.format == "parquet" else self._sum(job)))
        except FatalError as error:
            self._save(replace(job, state="failed", message=str(error)))
        except FirnError as error:
            log.warning("export.interrupted", export=job.id, error=str(error))
            self._save(replace(job, state="failed", message=f"{error}. Make the export again, or restart the API to go on where it was"))
        except OSError as error:
            if self._path(job.id).exists():
                self._save(replace(job, state="failed", message=f"the disk refuses ({error.strerror}): free space and make the export again"))

    def _write_part(self, job: Job, source: RowSource, start: str, end: str) -> Part:
        number = len(job.parts)
        name = f"part-{number:06d}.{ENDINGS[job.format]}"
        path = self._path(job.id) / name
        temporary = path.with_suffix(".tmp")
        with temporary.open("wb") as file:
            writer = _WRITERS[job.format](file, source.schema, job.columns, is_first=number == 0)
            for batch in source.rows(start, end):
                writer.write(batch)
            writer.close()
            file.flush()
            os.fsync(file.fileno())
        with temporary.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        temporary.rename(path)
        return Part(name, start, end, writer.rows, path.stat().st_size, digest)

    def _sum(self, job: Job) -> str:
        digest = hashlib.sha256()
        for path in self.paths(job):
            with path.open("rb") as file:
                while block := file.read(1 << 20):
                    digest.update(block)
        return digest.hexdigest()

    def _path(self, job_id: str) -> Path:
        return self._folder / job_id

    def _load(self, job_id: str) -> Job:
        document = orjson.loads((self._path(job_id) / "job.json").read_bytes())
        parts = tuple(Part(**part) for part in document.pop("parts"))
        stretches = tuple((start, end) for start, end in document.pop("stretches"))
        return Job(**{**document, "columns": tuple(document["columns"])}, parts=parts, stretches=stretches)

    def _save(self, job: Job) -> None:
        path = self._path(job.id) / "job.json"
        temporary = path.with_suffix(f".{threading.get_ident()}")
        temporary.write_bytes(orjson.dumps(asdict(job), option=orjson.OPT_INDENT_2))
        temporary.rename(path)


class _Ndjson:
    """A JSON object per line; columns without a value are left out."""

    def __init__(self, file: BinaryIO, schema: LogSchema, columns: Sequence[str], *, is_first: bool) -> None:  # noqa: ARG002 - one shape for all formats
        self._file, self._columns, self.rows = file, columns, 0

    def write(self, batch: list[tuple[Any, ...]]) -> None:
        lines = ({name: value for name, value in zip(self._columns, plain_row(row), strict=True) if value is not None} for row in batch)
        self._file.write(b"".join(orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE) for line in lines))
        self.rows += len(batch)

    def close(self) -> None:
        """Nothing is kept back."""


class _Csv:
    """RFC 4180 with a header; lists and structures as JSON."""

    def __init__(self, file: BinaryIO, schema: LogSchema, columns: Sequence[str], *, is_first: bool) -> None:  # noqa: ARG002
        self._file, self.rows = file, 0
        if is_first:
            self._write([list(columns)])

    def write(self, batch: list[tuple[Any, ...]]) -> None:
        self._write([[orjson.dumps(value).decode() if isinstance(value, list | dict) else value for value in plain_row(row)] for row in batch])
        self.rows += len(batch)

    def _write(self, rows: list[list[Any]]) -> None:
        text = io.StringIO(newline="")
        csv.writer(text).writerows(rows)
        self._file.write(text.getvalue().encode())

    def close(self) -> None:
        """Nothing is kept back."""


class _Parquet:
    """The table's own types."""

    def __init__(self, file: BinaryIO, schema: LogSchema, columns: Sequence[str], *, is_first: bool) -> None:  # noqa: ARG002
        kinds = {column.name: column.kind for column in schema.columns}
        self._schema = pa.schema([pa.field(name, arrow_type(kinds[name])) for name in columns])
        self._writer = pq.ParquetWriter(file, self._schema, compression="zstd")
        self.rows = 0

    def write(self, batch: list[tuple[Any, ...]]) -> None:
        arrays = [pa.array([_for_arrow(row[at]) for row in batch], field.type) for at, field in enumerate(self._schema)]
        self._writer.write_table(pa.table(arrays, schema=self._schema))
        self.rows += len(batch)

    def close(self) -> None:
        self._writer.close()


def _for_arrow(value: Any) -> Any:
    """Trino gives structures as named tuples."""
    if isinstance(value, list):
        return [_for_arrow(each) for each in value]
    names = getattr(value, "__annotations__", {}).get("names") if isinstance(value, tuple) else None
    return dict(zip(names, value, strict=True)) if names else value


_WRITERS: dict[str, Callable[..., Any]] = {"ndjson": _Ndjson, "csv": _Csv, "parquet": _Parquet}
