"""Erasure: rows of a tenant that match a query go, in all of its streams, with what was exported of them; with a report that proves it.

A job is a file. It is begun again after a restart: what was erased is not there any more, and what is left is found.
Kafka keeps single messages, so letters that died and records that are parked are not taken out of their topics: the report names them.
"""

import secrets
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, Protocol

import orjson
import structlog

from lake.errors import FirnError, NotFoundError
from lake.tenant import TableId
from query.cancellation import CancelledError, Run
from query.erase_table import TableErasure, TableReport, Tools, Wanted, queue_unreached
from query.problem import BadQuestionError
from query.table_view import streams, table_id

log = structlog.get_logger()
TIMEOUT_S = 7 * 86_400.0


@dataclass(frozen=True, slots=True)
class Erasure:
    """One erasure and what came of it. `streams` empty: all the tenant has. `noted`: files by stream that nobody reaches any more; `queued` of them.

    `elsewhere`: what waits outside the tables and was not touched, in sentences.
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


class Erasures:
    """The erasures of one folder, one after the other in a thread of their own. `forget_copies`: removes copies of files that are kept on this machine."""

    def __init__(self, folder: Path, tools: Tools, around: Surroundings, forget_copies: Callable[[Sequence[str]], None]) -> None:
        self._folder = folder
        self._tools = tools
        self._around = around
        self._forget_copies = forget_copies
        self._lock = threading.Condition()
        self._waiting: list[str] = []
        self._run: Run | None = None
        self._stopping = False
        self._thread = threading.Thread(target=self._work, name="erasures", daemon=True)

    def start(self) -> None:
        """Begins again what was running when the process ended."""
        self._folder.mkdir(parents=True, exist_ok=True)
        self._waiting = [job.id for job in self.all() if job.state == "running"][::-1]
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
        return sorted((self._load(path) for path in self._folder.glob("*.json")), key=lambda job: job.created, reverse=True)

    def get(self, job_id: str) -> Erasure:
        """One erasure. Raises NotFoundError."""
        path = self._folder / f"{job_id}.json"
        if not job_id.isalnum() or not path.exists():
            raise NotFoundError("there is no such erasure; the list shows which there are")
        return self._load(path)

    def files_left(self, job: Erasure) -> int:
        """How many of the files that held the rows are still on the storage, unreachable, until their grace is over."""
        return sum(self._tools.storage.size(uri) is not None for uri in job.queued)

    # ---- the thread

    def _work(self) -> None:
        while True:
            with self._lock:
                self._lock.wait_for(lambda: self._stopping or bool(self._waiting))
                if self._stopping:
                    return
                job_id, self._run = self._waiting.pop(0), Run(TIMEOUT_S)
            with suppress(CancelledError):  # the process ends: the job is still running when it starts again
                self._erase(self.get(job_id), self._run)

    def _erase(self, job: Erasure, run: Run) -> None:
        log.info("erasure.begins", erasure=job.id, tenant=job.tenant, dry_run=job.dry_run)
        try:
            for table in self._tables(job):
                job = self._erase_in(job, table, run)
                self._save(job)
            if not job.dry_run:
                job = replace(job, exports_removed=(*job.exports_removed, *self._around.remove_exports(job)))
            job = replace(job, elsewhere=tuple(self._around.elsewhere(job)))
            clean = all(table.problem is None for table in job.tables) and not job.elsewhere
            job = replace(job, state="done" if clean or job.dry_run else "incomplete", finished=_now())
        except CancelledError:
            raise
        except FirnError as error:
            job = self._failed(job, str(error))
        except Exception as error:
            log.exception("erasure.failed", erasure=job.id)
            job = self._failed(job, f"an unexpected fault ({type(error).__name__}), which the API's log tells more of")
        self._save(job)
        log.info("erasure.ends", erasure=job.id, tenant=job.tenant, state=job.state, rows=job.rows)

    def _failed(self, job: Erasure, sentence: str) -> Erasure:
        return replace(self.get(job.id), state="failed", message=f"{sentence}. What was erased until then is gone; ask again for the rest", finished=_now())

    def _tables(self, job: Erasure) -> Iterator[TableId]:
        if job.streams:
            yield from (table_id(job.tenant, stream) for stream in job.streams)
        else:
            yield from (view.id for view in streams(self._tools.catalog, table_id(job.tenant, "logs").tenant))

    def _erase_in(self, job: Erasure, table: TableId, run: Run) -> Erasure:
        noted = list((job.noted or {}).get(table.stream, ()))

        def note(uris: Sequence[str]) -> None:
            nonlocal job
            noted.extend(uri for uri in uris if uri not in noted)
            job = replace(job, noted={**(job.noted or {}), table.stream: tuple(noted)})
            self._save(job)

        wanted = Wanted(table, datetime.fromisoformat(job.start), datetime.fromisoformat(job.end), job.query)
        work = TableErasure(self._tools, wanted, run, note)
        try:
            report = work.count() if job.dry_run else work.erase()
        except BadQuestionError as error:
            report = replace(work.report, problem=error.problem.message)
        before = next((each for each in job.tables if each.stream == table.stream), None)
        if before is not None:  # begun again: what the first attempt did counts too
            report = replace(report, rows=report.rows + before.rows)
        queued = queue_unreached(self._tools, table, noted) if noted else []
        self._forget_copies(queued)
        others = tuple(each for each in job.tables if each.stream != table.stream)
        new = tuple(uri for uri in queued if uri not in job.queued)
        return replace(job, tables=(*others, replace(report, files_queued=len(queued))), queued=(*job.queued, *new))

    def _load(self, path: Path) -> Erasure:
        document = orjson.loads(path.read_bytes())
        tables = tuple(TableReport(**table) for table in document.pop("tables"))
        noted = {stream: tuple(uris) for stream, uris in (document.pop("noted") or {}).items()}
        lists: dict[str, Any] = {name: tuple(document.pop(name)) for name in ("streams", "exports_removed", "elsewhere", "queued")}
        return Erasure(**document, **lists, tables=tables, noted=noted)

    def _save(self, job: Erasure) -> None:
        path = self._folder / f"{job.id}.json"
        temporary = path.with_suffix(f".{threading.get_ident()}")
        temporary.write_bytes(orjson.dumps(asdict(job), option=orjson.OPT_INDENT_2))
        temporary.rename(path)


def _now() -> str:
    return datetime.now(UTC).isoformat()
