"""Erasure: rows of a tenant that match a query go, in all of its streams, with what was exported of them;
with a report that proves it.

1. where the query matches every row there is, nothing is erased unless that was asked for in so many words
  (also before the second search)
2. what the tables hold now is erased
3. what had reached Kafka by then and was not in yet is waited for, other erasures going on meanwhile; then 2
  once more
4. exports go; what lies elsewhere is named. With anything named, or where the waiting was in vain, the
  erasure is `incomplete`
5. the query itself is forgotten, but for a keyed hash

A job is a file. It is begun again after a restart: what was erased is not there any more, and what is left is
found. Kafka keeps single messages, so letters that died and records that are parked are not taken out of
their topics: the report names them, with the tool that erases them.
"""

import secrets
import threading
import time
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal, Protocol

import orjson
import structlog

from lake.errors import FirnError, NotFoundError
from lake.tenant import TableId
from query.erasure.awaited import Awaited
from query.erasure.erase_table import TableErasure, TableReport, Tools, Wanted, queue_unreached
from query.erasure.forgotten_query import query_hash, without_words, write_private
from query.model.cancellation import CancelledError, Run
from query.model.problem import BadRequestError
from query.model.table_view import streams, table_id

log = structlog.get_logger()
TIMEOUT_S = 7 * 86_400.0
LOOK_AGAIN_S = 2.0
SUMS = ("rows", "files_rewritten", "files_removed", "snapshots_expired")
UNFIT = "the query does not fit the types of this stream's fields; search the stream for it to see why"
ID_LENGTH_MAX = 64
NO_SUCH = "there is no such erasure; the list shows which there are"


@dataclass(frozen=True, slots=True)
class Erasure:
    """One erasure and what came of it. `streams` empty: all the tenant has. `noted`: files by stream that
    nobody reaches any more; `queued` of them.

    `query`: empty when the erasure has ended, `query_hash` is left then. `every_row`: the asker knows that
    the query may be every row. `awaited`: what had reached Kafka and was not in when the first search began,
    None before that; waited for until `wait_until`. `elsewhere`: what waits outside the tables and was not
    touched, in sentences.
    """

    id: str
    tenant: str
    streams: tuple[str, ...]
    query: str
    start: str
    end: str
    dry_run: bool
    asked_by: str
    created: str
    every_row: bool = False
    query_hash: str = ""
    awaited: tuple[Awaited, ...] | None = None
    wait_until: str = ""
    unknown: str = ""
    state: Literal["running", "done", "incomplete", "failed"] = "running"
    message: str = ""
    finished: str | None = None
    tables: tuple[TableReport, ...] = ()
    exports_removed: tuple[str, ...] = ()
    elsewhere: tuple[str, ...] = ()
    noted: Mapping[str, tuple[str, ...]] | None = None
    queued: tuple[str, ...] = ()

    @property
    def rows(self) -> int:
        return sum(table.rows for table in self.tables)


class Surroundings(Protocol):
    """What lies around the tables."""

    def remove_exports(self, job: Erasure) -> list[str]:
        """Removes exports that may hold erased rows; their ids."""

    def elsewhere(self, job: Erasure) -> list[str]:
        """See `Erasure`."""

    def awaited(self) -> tuple[Awaited, ...]:
        """What has reached Kafka and is not in. Raises FirnError where nobody tells."""

    def still_awaited(self, awaited: Sequence[Awaited]) -> tuple[Awaited, ...]:
        """Of these what is not in yet. Raises FirnError where nobody tells."""


class Erasures:
    """The erasures of one folder, one after the other in a thread of their own; while one waits for Kafka,
    others go on.

    `forget_copies`: removes copies of files that are kept on this machine. `wait_s`: how long one waits for
    Kafka at most.
    """

    def __init__(
        self,
        folder: Path,
        tools: Tools,
        around: Surroundings,
        forget_copies: Callable[[Sequence[str]], None],
        wait_s: float,
    ) -> None:
        self._folder = folder
        self._tools = tools
        self._around = around
        self._forget_copies = forget_copies
        self._wait = timedelta(seconds=wait_s)
        self._lock = threading.Condition()
        self._waiting: list[str] = []
        self._later: dict[str, float] = {}  # when to look again, by the monotonic clock
        self._positions: dict[str, dict[str, list[int]]] = defaultdict(
            dict
        )  # by erasure: files are searched once
        self._run: Run | None = None
        self._stopping = False
        self._thread = threading.Thread(target=self._work, name="erasures", daemon=True)

    def start(self) -> None:
        """Begins again what was running when the process ended."""
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for part in self._folder.glob("*.part"):  # of a process that was killed while it wrote
            part.unlink()
        jobs = self.all()
        for job in jobs:
            if job.state != "running" and job.query:  # ended before queries were forgotten
                self._save(self._forgotten(job))
        self._waiting = [job.id for job in jobs if job.state == "running"][::-1]
        self._thread.start()

    def stop(self) -> None:
        """Stops between two files; what is unfinished begins again at the next start."""
        with self._lock:
            self._stopping = True
            if self._run is not None:
                self._run.cancel()
            self._lock.notify_all()
        self._thread.join(timeout=10)

    def create(self, asked: Erasure) -> Erasure:
        """Keeps an erasure and queues it."""
        made = replace(asked, id=secrets.token_hex(8), created=_now())
        self._save(made)
        with self._lock:
            self._waiting.append(made.id)
            self._lock.notify_all()
        return made

    def all(self) -> list[Erasure]:
        """Every erasure, the newest first."""
        return sorted(
            (self._load(path) for path in self._folder.glob("*.json")),
            key=lambda job: job.created,
            reverse=True,
        )

    def get(self, job_id: str) -> Erasure:
        """One erasure. Raises NotFoundError."""
        path = self._folder / f"{job_id}.json"
        if not job_id.isalnum() or len(job_id) > ID_LENGTH_MAX or not job_id.isascii() or not path.exists():
            raise NotFoundError(NO_SUCH)
        return self._load(path)

    def files_left(self, job: Erasure) -> int:
        """How many of the files that held the rows are still on the storage, unreachable, until their grace
        is over."""
        return sum(self._tools.storage.size(uri) is not None for uri in job.queued)

    # ---- the thread

    def _work(self) -> None:
        while True:
            with self._lock:
                while not self._stopping and (job_id := self._next()) is None:
                    self._lock.wait(LOOK_AGAIN_S / 2 if self._later else None)
                if self._stopping:
                    return
                self._run = Run(TIMEOUT_S)
            with suppress(CancelledError):  # the process ends: the job is still running when it starts again
                assert job_id is not None
                job = self._erase(self.get(job_id), self._run)
                if job.state == "running":
                    with self._lock:
                        self._later[job.id] = time.monotonic() + LOOK_AGAIN_S

    def _next(self) -> str | None:
        if self._waiting:
            return self._waiting.pop(0)
        due = next((job_id for job_id, at_s in self._later.items() if at_s <= time.monotonic()), None)
        if due is not None:
            del self._later[due]
        return due

    def _erase(self, job: Erasure, run: Run) -> Erasure:
        """One go at it; an erasure that still runs afterwards waits for Kafka."""
        try:
            job = self._go(job, run)
        except CancelledError:
            raise
        except FirnError as error:
            job = self._failed(job, str(error))
        except Exception as error:  # noqa: BLE001 - told, though not in its own words: it may quote the query
            log.error("erasure.failed", erasure=job.id, fault=type(error).__name__, at=_place_of(error))  # noqa: TRY400
            job = self._failed(
                job, f"an unexpected fault ({type(error).__name__}), which the API's log tells more of"
            )
        if job.state != "running":
            job = self._forgotten(job)
            self._positions.pop(job.id, None)
            log.info("erasure.ends", erasure=job.id, tenant=job.tenant, state=job.state, rows=job.rows)
        self._save(job)
        return job

    def _go(self, job: Erasure, run: Run) -> Erasure:
        if job.awaited is None:
            log.info("erasure.begins", erasure=job.id, tenant=job.tenant, dry_run=job.dry_run)
            if job.dry_run:
                return self._finished(self._erase_in_tables(job, run))
            if (refusal := self._is_every_row(job, run)) is not None:
                return replace(job, state="failed", message=refusal, finished=_now())
            awaited, unknown = (
                self._awaited()
            )  # before the first search: what comes later is no part of the question
            job = self._erase_in_tables(job, run)
            job = replace(
                job, awaited=awaited, unknown=unknown, wait_until=(datetime.now(UTC) + self._wait).isoformat()
            )
            self._save(job)
            if not awaited:
                return self._finished(job, [unknown] if unknown else [])
        left, why = self._still_awaited(job.awaited or ())
        if left and datetime.now(UTC) < datetime.fromisoformat(job.wait_until):
            return job
        if (refusal := self._is_every_row(job, run)) is not None:  # there may have been no rows at all before
            return replace(job, state="failed", message=refusal, finished=_now())
        return self._finished(self._erase_in_tables(job, run), [why] if left else [])

    def _is_every_row(self, job: Erasure, run: Run) -> str | None:
        """Why nothing is erased (1); None where it may go on."""
        if job.every_row:
            return None
        matching = rows = 0
        for table in self._tables(job):
            with suppress(BadRequestError):  # told where it is erased
                found = TableErasure(
                    self._tools, _wanted(job, table), run, lambda _: None, self._positions[job.id]
                ).share()
                matching, rows = matching + found[0], rows + found[1]
            if matching < rows:
                return None
        if not matching:
            return None
        return (
            f"the query matches every one of the {rows:,} rows there are in its time range; nothing was "
            "erased. Say `all: true` if that is meant"
        )

    def _awaited(self) -> tuple[tuple[Awaited, ...], str]:
        try:
            return self._around.awaited(), ""
        except FirnError as error:
            return (
                (),
                (
                    f"whether everything that had reached Kafka is in the tables is not known: {error}; "
                    "erase "
                    "again when that can be told"
                ),
            )

    def _still_awaited(self, awaited: Sequence[Awaited]) -> tuple[Sequence[Awaited], str]:
        try:
            left, why = self._around.still_awaited(awaited), ""
        except FirnError as error:
            left, why = tuple(awaited), f" ({error})"
        places = ", ".join(map(str, left))
        return (
            left,
            (
                f"{places}: what had reached Kafka there was not in the tables after "
                f"{self._wait.total_seconds():,.0f} s{why}; erase again when it is"
            ),
        )

    def _erase_in_tables(self, job: Erasure, run: Run) -> Erasure:
        for table in self._tables(job):
            job = self._erase_in(job, table, run)
            self._save(job)
        return job

    def _finished(self, job: Erasure, reasons: Sequence[str] = ()) -> Erasure:
        if not job.dry_run:
            job = replace(job, exports_removed=(*job.exports_removed, *self._around.remove_exports(job)))
        job = replace(job, elsewhere=(*reasons, *self._around.elsewhere(job)))
        clean = all(table.problem is None for table in job.tables) and not job.elsewhere
        return replace(job, state="done" if clean or job.dry_run else "incomplete", finished=_now())

    def _failed(self, job: Erasure, sentence: str) -> Erasure:
        return replace(
            self.get(job.id),
            state="failed",
            message=f"{sentence}. What was erased until then is gone; ask again for the rest",
            finished=_now(),
        )

    def _forgotten(self, job: Erasure) -> Erasure:
        """An erasure that has ended, with none of its query's words (5)."""
        said = tuple(without_words(sentence, job.query) for sentence in job.elsewhere)
        tables = tuple(
            replace(each, problem=None if each.problem is None else without_words(each.problem, job.query))
            for each in job.tables
        )
        kept = job.query_hash or query_hash(self._folder, job.query)
        return replace(
            job,
            query="",
            query_hash=kept,
            message=without_words(job.message, job.query),
            elsewhere=said,
            tables=tables,
        )

    def _tables(self, job: Erasure) -> Iterator[TableId]:
        if job.streams:
            yield from (table_id(job.tenant, stream) for stream in job.streams)
            return
        tenant = table_id(job.tenant, "logs").tenant
        try:
            next(self._tools.catalog.tables(tenant.namespace), None)
        except NotFoundError:
            return  # a tenant whose first records are still on their way
        yield from (view.id for view in streams(self._tools.catalog, tenant))

    def _erase_in(self, job: Erasure, table: TableId, run: Run) -> Erasure:
        noted = list((job.noted or {}).get(table.stream, ()))

        def note(uris: Sequence[str]) -> None:
            nonlocal job
            noted.extend(uri for uri in uris if uri not in noted)
            job = replace(job, noted={**(job.noted or {}), table.stream: tuple(noted)})
            self._save(job)

        work = TableErasure(self._tools, _wanted(job, table), run, note, self._positions[job.id])
        try:
            report = work.count() if job.dry_run else work.erase()
        except BadRequestError:
            report = replace(work.report, problem=UNFIT)
        before = next((each for each in job.tables if each.stream == table.stream), None)
        if (
            before is not None and not job.dry_run
        ):  # begun again, or searched again: what was done before counts too
            report = replace(report, **{name: getattr(report, name) + getattr(before, name) for name in SUMS})
        queued = queue_unreached(self._tools, table, noted) if noted else []
        self._forget_copies(queued)
        others = tuple(each for each in job.tables if each.stream != table.stream)
        new = tuple(uri for uri in queued if uri not in job.queued)
        return replace(
            job, tables=(*others, replace(report, files_queued=len(queued))), queued=(*job.queued, *new)
        )

    def _load(self, path: Path) -> Erasure:
        document = orjson.loads(path.read_bytes())
        tables = tuple(TableReport(**table) for table in document.pop("tables"))
        noted = {stream: tuple(uris) for stream, uris in (document.pop("noted") or {}).items()}
        awaited = document.pop("awaited", None)
        document["awaited"] = None if awaited is None else tuple(Awaited(**each) for each in awaited)
        lists: dict[str, Any] = {
            name: tuple(document.pop(name)) for name in ("streams", "exports_removed", "elsewhere", "queued")
        }
        return Erasure(**document, **lists, tables=tables, noted=noted)

    def _save(self, job: Erasure) -> None:
        write_private(self._folder / f"{job.id}.json", orjson.dumps(asdict(job), option=orjson.OPT_INDENT_2))


def _wanted(job: Erasure, table: TableId) -> Wanted:
    return Wanted(table, datetime.fromisoformat(job.start), datetime.fromisoformat(job.end), job.query)


def _place_of(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    return f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""


def _now() -> str:
    return datetime.now(UTC).isoformat()
