"""Exports: all rows of a search as files, however many. A job is a folder: `job.json` and its parts.

The rows are fixed when the job is made: its time range and pin. They are written stretch by stretch, the
oldest first, each stretch a part that is complete when it has its name; so a job goes on after a restart
where it was, and never holds more than a batch in memory.
"""

import hashlib
import os
import secrets
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Literal, Protocol

import orjson
import structlog

from lake.clock import SYSTEM_CLOCK, Clock
from lake.errors import FirnError, NotFoundError, RetryableError
from lake.limits import UNBOUND, Bound, Limit
from lake.log_schema import LogSchema
from lake.metrics import QUERY_LIMITED
from query.export.export_formats import WRITERS, Format

log = structlog.get_logger()
ROWS_AT_ONCE = 5_000
ATTEMPTS = 60
RETRY_S = 5.0
KEPT_S = 7 * 86_400.0
WRITERS_AT_ONCE = (
    4  # of them one for each tenant: where an engine hangs, it hangs for those whose export it is
)
STOP_S = 10.0
ID_LENGTH_MAX = 64
NO_SUCH = "there is no such export: it was deleted, or the address is wrong"


class QuotaError(FirnError):
    """A tenant has as many exports, or as large ones, as it may."""


@dataclass(frozen=True, slots=True)
class Quota:
    """What is kept of one tenant: how many exports, and how many bytes of all of them."""

    number: int = 100
    size_bytes: int = 64 * 1024**3


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
    """An export. `stretches`: the pieces of time its parts are written for. `sha256`: of all parts one after
    the other, where that makes a file.

    `made_by`: id of the key; empty: made before it was kept. `spreadsheet_safe`: cells of a CSV that
    spreadsheets would calculate are marked as text.
    """

    id: str
    tenant: str
    stream: str
    query: str
    start: str
    end: str
    pin: str
    format: Format
    created: str
    state: Literal["running", "done", "failed"] = "running"
    message: str = ""
    columns: tuple[str, ...] = ()
    column_ids: tuple[int, ...] = ()
    stretches: tuple[tuple[str, str], ...] = ()
    parts: tuple[Part, ...] = ()
    sha256: str = ""
    made_by: str = ""
    spreadsheet_safe: bool = False

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
    """The jobs of one folder, part by part in turn, in threads of their own. `open_source` makes the rows of
    a job; `kept_s`: how long finished ones stay; `number_of`: how many of a tenant, where that is said
    elsewhere than in the quota."""

    def __init__(
        self,
        folder: Path,
        open_source: Callable[[Job], RowSource],
        *,
        kept_s: float = KEPT_S,
        quota: Quota | None = None,
        number_of: Callable[[str], Bound] = lambda _: UNBOUND,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._clock = clock
        self._folder = folder
        self._quota = quota or Quota()
        self._number_of = number_of
        self._creating = threading.Lock()
        self._open_source = open_source
        self._lock = threading.Condition()
        self._kept_s = kept_s
        self._waiting: list[tuple[str, str]] = []  # id and tenant
        self._busy: set[str] = set()  # tenants of which a part is being written
        self._sources: dict[str, RowSource] = {}
        self._failures: dict[str, tuple[int, float]] = {}  # attempts in a row, and when the next may be
        self._stopping = False
        self._threads = [
            threading.Thread(target=self._work, name="exports", daemon=True) for _ in range(WRITERS_AT_ONCE)
        ]

    def start(self) -> None:
        """Takes up the jobs that were running when the process ended."""
        self._folder.mkdir(parents=True, exist_ok=True)
        self._remove_old()
        self._waiting = [(job.id, job.tenant) for job in reversed(self.jobs()) if job.state == "running"]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Stops after the batch being written; what is unfinished goes on at the next start."""
        with self._lock:
            self._stopping = True
            self._lock.notify_all()
        until_s = self._clock.monotonic_s() + STOP_S
        for thread in self._threads:
            thread.join(timeout=max(0.0, until_s - self._clock.monotonic_s()))

    def create(self, job: Job) -> Job:
        """Keeps a job and queues it. Raises QuotaError."""
        self._remove_old()
        made = replace(
            job,
            id=secrets.token_urlsafe(12).replace("-", "a").replace("_", "b"),
            created=self._clock.now().isoformat(),
        )
        with self._creating:  # counted and kept as one
            self._check_quota(job.tenant)
            self._path(made.id).mkdir(parents=True)
            self._save(made)
        with self._lock:
            self._waiting.append((made.id, made.tenant))
            self._lock.notify_all()
        return made

    def _check_quota(self, tenant: str) -> None:
        own = [job for job in self.jobs() if job.tenant == tenant]
        bound = self._number_of(tenant)
        most = self._quota.number if bound.level is None else bound.most
        if most is not None and len(own) >= most:
            QUERY_LIMITED.labels(Limit.EXPORTS.value).inc()
            by = f", as the {bound.level} says" if bound.level is not None else ""
            raise QuotaError(
                f"tenant {tenant!r} has {len(own):,} exports, and no more are kept{by}; delete one that "
                f"nobody needs (the oldest is {own[-1].id})"
            )
        if (size_bytes := sum(job.size_bytes for job in own)) >= self._quota.size_bytes:
            raise QuotaError(
                f"the exports of tenant {tenant!r} hold {size_bytes:,} of {self._quota.size_bytes:,} bytes; "
                "delete one that nobody needs"
            )

    def _is_full(self, tenant: str) -> bool:
        return sum(job.size_bytes for job in self.jobs() if job.tenant == tenant) >= self._quota.size_bytes

    def resume(self, job_id: str) -> Job:
        """Goes on with a job that failed, where it was. Raises NotFoundError, QuotaError."""
        job = self.get(job_id)
        if job.state != "failed":
            return job
        if self._is_full(job.tenant):
            raise QuotaError(self._too_large(job.tenant))
        job = replace(job, state="running", message="")
        self._save(job)
        with self._lock:
            self._waiting.append((job.id, job.tenant))
            self._lock.notify_all()
        return job

    def jobs(self) -> list[Job]:
        """Every job, the newest first."""
        found: list[Job] = []
        for path in self._folder.glob("*/job.json"):
            with suppress(NotFoundError):  # deleted meanwhile
                found.append(self._load(path.parent.name))
        return sorted(found, key=lambda job: job.created, reverse=True)

    def get(self, job_id: str) -> Job:
        """One job. Raises NotFoundError."""
        if not (job_id.isascii() and job_id.isalnum()) or len(job_id) > ID_LENGTH_MAX:
            raise NotFoundError(NO_SUCH)
        return self._load(job_id)

    def delete(self, job_id: str) -> None:
        """Cancels a job where it runs, and removes its files."""
        self.get(job_id)
        with self._lock:
            self._waiting = [each for each in self._waiting if each[0] != job_id]
        shutil.rmtree(self._path(job_id), ignore_errors=True)

    def _remove_old(self) -> None:
        oldest = self._clock.now() - timedelta(seconds=self._kept_s)
        for job in self.jobs():
            if job.state != "running" and datetime.fromisoformat(job.created) < oldest:
                shutil.rmtree(self._path(job.id), ignore_errors=True)

    def part_path(self, job: Job, name: str) -> Path:
        """The file of a finished part. Raises NotFoundError."""
        if name not in {part.name for part in job.parts}:
            raise NotFoundError(f"this export has no part {name!r} yet")
        return self._path(job.id) / name

    def paths(self, job: Job) -> list[Path]:
        """The files of all parts, in order."""
        return [self._path(job.id) / part.name for part in job.parts]

    # ---- the threads

    def _work(self) -> None:
        while (taken := self._next()) is not None:
            job_id, tenant = taken
            try:
                goes_on = self._step(self.get(job_id))
            except NotFoundError:  # deleted meanwhile
                goes_on = False
            with self._lock:
                self._busy.discard(tenant)
                if goes_on:
                    self._waiting.append(
                        taken
                    )  # behind the others: a long export does not hold up short ones
                else:
                    self._sources.pop(job_id, None)
                    self._failures.pop(job_id, None)
                self._lock.notify_all()

    def _next(self) -> tuple[str, str] | None:
        """The job whose turn it is, and its tenant; waits for one. None: the process ends."""
        with self._lock:
            while not self._stopping:
                now_s = self._clock.monotonic_s()
                free = [each for each in self._waiting if each[1] not in self._busy]
                ready = [each for each in free if self._failures.get(each[0], (0, 0.0))[1] <= now_s]
                if ready:
                    self._waiting.remove(ready[0])
                    self._busy.add(ready[0][1])
                    return ready[0]
                self._lock.wait(RETRY_S if self._waiting else None)
        return None

    def _step(self, job: Job) -> bool:
        """Writes one part; whether there are more."""
        try:
            if len(job.parts) < len(job.stretches):
                if self._is_full(job.tenant):
                    self._save(replace(job, state="failed", message=self._too_large(job.tenant)))
                    return False
                if job.id not in self._sources:
                    self._sources[job.id] = self._open_source(job)
                job = replace(
                    job,
                    parts=(
                        *job.parts,
                        self._write_part(job, self._sources[job.id], *job.stretches[len(job.parts)]),
                    ),
                    message="",
                )
                self._failures.pop(job.id, None)
            if len(job.parts) == len(job.stretches):
                job = replace(job, state="done", sha256="" if job.format == "parquet" else self._sum(job))
            self._save(job)
        except RetryableError as error:
            return self._try_again(job, error)
        except FirnError as error:
            self._save(
                replace(
                    job,
                    state="failed",
                    message=f"{error}. Resume it when that is mended; what is written stays",
                )
            )
            return False
        except OSError as error:
            if self._path(job.id).exists():
                self._save(
                    replace(
                        job,
                        state="failed",
                        message=f"the disk refuses ({error.strerror}): free space and resume the export",
                    )
                )
            return False
        except Exception as error:
            log.exception("export.failed", export=job.id)
            self._save(
                replace(
                    job,
                    state="failed",
                    message=(
                        f"an unexpected fault ({type(error).__name__}), which the API's log tells more of"
                    ),
                )
            )
            return False
        return job.state == "running"

    def _too_large(self, tenant: str) -> str:
        most = self._quota.size_bytes
        return (
            f"the exports of tenant {tenant!r} hold {most:,} bytes, and no more are kept: delete one that "
            "nobody needs, then resume this one"
        )

    def _try_again(self, job: Job, error: RetryableError) -> bool:
        """A passing fault: the part is written again in a moment, at most so many times in a row."""
        attempts = self._failures.get(job.id, (0, 0.0))[0] + 1
        self._failures[job.id] = (attempts, self._clock.monotonic_s() + RETRY_S)
        log.warning("export.interrupted", export=job.id, attempts=attempts, error=str(error))
        goes_on = attempts < ATTEMPTS
        say = (
            f"waits: {error}" if goes_on else f"{error}. Resume it when that is mended; what is written stays"
        )
        self._save(replace(job, state="running" if goes_on else "failed", message=say))
        return goes_on

    def _write_part(self, job: Job, source: RowSource, start: str, end: str) -> Part:
        number = len(job.parts)
        name = f"part-{number:06d}.{job.format}"
        path = self._path(job.id) / name
        temporary = path.with_suffix(".tmp")
        with temporary.open("wb") as file:
            writer = WRITERS[job.format](
                file, source.schema, job.columns, is_first=number == 0, spreadsheet_safe=job.spreadsheet_safe
            )
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
        try:
            document = orjson.loads((self._path(job_id) / "job.json").read_bytes())
        except FileNotFoundError as error:
            raise NotFoundError(NO_SUCH) from error
        parts = tuple(Part(**part) for part in document.pop("parts"))
        stretches = tuple((start, end) for start, end in document.pop("stretches"))
        lists = {name: tuple(document[name]) for name in ("columns", "column_ids")}
        return Job(**{**document, **lists}, parts=parts, stretches=stretches)

    def _save(self, job: Job) -> None:
        path = self._path(job.id) / "job.json"
        temporary = path.with_suffix(f".{threading.get_ident()}")
        temporary.write_bytes(orjson.dumps(asdict(job), option=orjson.OPT_INDENT_2))
        temporary.rename(path)
