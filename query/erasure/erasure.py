"""Erasure: rows of a tenant that match a query go, in all of its streams, with what was exported of them;
with a report that proves it.

Tables are searched here; their files are written anew by `optimize`, which is asked for one table after the
other through the catalog's work list, and answers there (`lake/erasure_work.py`).

1. where the query matches every row there is, nothing is erased unless that was asked for in so many words
  (also before the second search)
2. what the tables hold now is erased
3. what had reached Kafka by then and was not in yet is waited for, other erasures going on meanwhile; then 2
  once more
4. exports go; what lies elsewhere is named. With anything named, or where the waiting was in vain, the
  erasure is `incomplete`
5. the query itself is forgotten, but for a keyed hash

A job is a file. It goes on after a restart: what was asked for is known, what was erased is not there any
more, and what is left is found. While it waits, for Kafka or for the optimizer, others go on. Kafka keeps
single messages, so dead letters that died and records that are parked are not taken out of their topics: the
report names them, with the tool that erases them. What a legal hold is on is refused when it is asked for,
and by the optimizer before each commit.
"""

import secrets
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Protocol

import structlog

from lake.clock import SYSTEM_CLOCK, Clock
from lake.errors import FirnError, NotFoundError
from lake.isolation import raised_at
from lake.tenant import TableId
from query.erasure.awaited import Awaited
from query.erasure.forgotten_query import query_hash, without_words
from query.erasure.job import Erasure
from query.erasure.optimizer_requests import OptimizerRequests, request_of, wait_s
from query.erasure.table_search import TableSearch, Tools, Wanted
from query.model.cancellation import CancelledError, Run
from query.model.limits import BusyError
from query.model.problem import BadRequestError
from query.model.table_view import streams, table_id

log = structlog.get_logger()
TIMEOUT_S = 7 * 86_400.0
LOOK_AGAIN_S = 2.0
WAKE_EVERY_S = 0.1
# One table is asked for whole so often; beyond that more is written to it than can be erased.
ROUNDS = 20
UNFINISHED_PER_TENANT = 100
TOO_FAST = "the table changes faster than rows can be erased; erase again when less is written to it"
UNFIT = "the query does not fit the types of this stream's fields; search the stream for it to see why"
ID_LENGTH_MAX = 64
NO_SUCH = "there is no such erasure; the list shows which there are"


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
    """The erasures of one folder, one after the other in a thread of their own; while one waits for Kafka or
    for the optimizer, others go on.

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
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._folder = folder
        self._clock = clock
        self._tools = tools
        self._around = around
        self._requests = OptimizerRequests(tools.work_list, self._save, forget_copies, clock)
        self._wait = timedelta(seconds=wait_s)
        self._lock = threading.Condition()
        self._waiting: list[str] = []
        self._later: dict[str, float] = {}  # when to look again, by the monotonic clock
        self._positions: dict[str, dict[str, list[int]]] = defaultdict(
            dict
        )  # by erasure: files are searched once
        self._rounds: dict[str, Counter[str]] = defaultdict(Counter)  # of streams by erasure
        self._unfinished: dict[str, str] = {}  # tenants by erasure
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
        self._unfinished = {job.id: job.tenant for job in jobs if job.state == "running"}
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
        """Keeps an erasure and queues it. Raises BusyError where too many of the tenant's have not ended."""
        made = replace(asked, id=secrets.token_hex(8), created=self._now())
        with self._lock:
            unfinished = sum(tenant == made.tenant for tenant in self._unfinished.values())
            if unfinished >= UNFINISHED_PER_TENANT:
                raise BusyError(
                    f"{unfinished} erasures of the tenant have not ended; ask again when some of them have"
                )
        self._save(made)
        with self._lock:
            self._unfinished[made.id] = made.tenant
            self._waiting.append(made.id)
            self._lock.notify_all()
        return made

    def all(self) -> list[Erasure]:
        """Every erasure, the newest first."""
        return sorted(
            (Erasure.from_file(path) for path in self._folder.glob("*.json")),
            key=lambda job: job.created,
            reverse=True,
        )

    def get(self, job_id: str) -> Erasure:
        """One erasure. Raises NotFoundError."""
        path = self._folder / f"{job_id}.json"
        if not job_id.isalnum() or len(job_id) > ID_LENGTH_MAX or not job_id.isascii() or not path.exists():
            raise NotFoundError(NO_SUCH)
        return Erasure.from_file(path)

    def files_left(self, job: Erasure) -> int:
        """How many of the files that held the rows are still on the storage, unreachable, until their grace
        is over."""
        return sum(self._tools.storage.size(uri) is not None for uri in job.queued)

    # ---- the thread

    def _work(self) -> None:
        while True:
            with self._lock:
                while not self._stopping and (job_id := self._next()) is None:
                    self._lock.wait(WAKE_EVERY_S if self._later else None)
                if self._stopping:
                    return
                self._run = Run(TIMEOUT_S)
            with suppress(CancelledError):  # the process ends: the job is still running when it starts again
                assert job_id is not None
                job = self._erase(self.get(job_id), self._run)
                if job.state == "running":
                    again_s = LOOK_AGAIN_S if job.asked is None else wait_s(job.asked, self._clock.now())
                    with self._lock:
                        self._later[job.id] = self._clock.monotonic_s() + again_s

    def _now(self) -> str:
        return self._clock.now().isoformat()

    def _next(self) -> str | None:
        if self._waiting:
            return self._waiting.pop(0)
        due = next(
            (job_id for job_id, at_s in self._later.items() if at_s <= self._clock.monotonic_s()), None
        )
        if due is not None:
            del self._later[due]
        return due

    def _erase(self, job: Erasure, run: Run) -> Erasure:
        """One go at it; an erasure that still runs afterwards waits for Kafka or for the optimizer."""
        before = job
        try:
            job = self._go(job, run)
        except CancelledError:
            raise
        except FirnError as error:
            job = self._failed(job, str(error))
        except Exception as error:  # noqa: BLE001 - told, though not in its own words: it may quote the query
            log.error("erasure.failed", erasure=job.id, fault=type(error).__name__, at=raised_at(error))  # noqa: TRY400
            job = self._failed(
                job, f"an unexpected fault ({type(error).__name__}), which the API's log tells more of"
            )
        if job.state != "running":
            job = self._forgotten(self._requests.withdraw(job))
            self._positions.pop(job.id, None)
            self._rounds.pop(job.id, None)
            log.info("erasure.ends", erasure=job.id, tenant=job.tenant, state=job.state, rows=job.rows)
        if job != before:
            self._save(job)
        if job.state != "running":
            with self._lock:
                self._unfinished.pop(job.id, None)
        return job

    def _go(self, job: Erasure, run: Run) -> Erasure:
        if job.dry_run:
            log.info("erasure.begins", erasure=job.id, tenant=job.tenant, dry_run=True)
            return self._finished(self._count_in_tables(job, run))
        if job.awaited is None:
            log.info("erasure.begins", erasure=job.id, tenant=job.tenant, dry_run=False)
            if (refusal := self._is_every_row(job, run)) is not None:
                return replace(job, state="failed", message=refusal, finished=self._now())
            awaited, unknown = (
                self._awaited()
            )  # before the first search: what comes later is no part of the question
            job = replace(job, awaited=awaited, unknown=unknown)
            self._save(job)
        if not job.wait_until:
            job = self._erase_in_tables(job, run)
            if job.asked is not None:
                return job
            job = replace(job, wait_until=(self._clock.now() + self._wait).isoformat(), settled=())
            self._save(job)
        if not job.awaited:
            return self._finished(job, [job.unknown] if job.unknown else [])
        return self._search_again(job, run)

    def _search_again(self, job: Erasure, run: Run) -> Erasure:
        """When everything is in that had reached Kafka, or the waiting was in vain (3)."""
        if not job.searches_again:
            left, why = self._still_awaited(job.awaited or ())
            if left and self._clock.now() < datetime.fromisoformat(job.wait_until):
                return job
            refusal = self._is_every_row(job, run)  # there may have been no rows at all before
            if refusal is not None:
                return replace(job, state="failed", message=refusal, finished=self._now())
            job = replace(job, searches_again=True, missing=why if left else "")
            self._rounds.pop(job.id, None)
            self._save(job)
        job = self._erase_in_tables(job, run)
        if job.asked is not None:
            return job
        return self._finished(job, [job.missing] if job.missing else [])

    def _is_every_row(self, job: Erasure, run: Run) -> str | None:
        """Why nothing is erased (1); None where it may go on."""
        if job.every_row:
            return None
        matching = rows = 0
        for table in self._tables(job):
            with suppress(BadRequestError):  # told where it is erased
                found = self._search(job, table, run).share()
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

    def _count_in_tables(self, job: Erasure, run: Run) -> Erasure:
        for table in self._tables(job):
            search = self._search(job, table, run)
            try:
                report = search.count()
            except BadRequestError:
                report = replace(search.report, problem=UNFIT)
            job = job.with_report(report)
            self._save(job)
        return job

    def _erase_in_tables(self, job: Erasure, run: Run) -> Erasure:
        """Erases table by table, as far as that goes without waiting for the optimizer."""
        job = self._requests.take_in(job)
        if job.waits_for_optimizer:
            return job
        for table in self._tables(job):
            if table.stream not in job.settled:
                job = self._erase_in(job, table, run)
                self._save(job)
            if job.waits_for_optimizer:
                return job
        return replace(job, asked=None)  # of a table that was dropped meanwhile

    def _finished(self, job: Erasure, reasons: Sequence[str] = ()) -> Erasure:
        if not job.dry_run:
            job = replace(job, exports_removed=(*job.exports_removed, *self._around.remove_exports(job)))
        job = replace(job, elsewhere=(*reasons, *self._around.elsewhere(job)))
        clean = all(table.problem is None for table in job.tables) and not job.elsewhere
        return replace(job, state="done" if clean or job.dry_run else "incomplete", finished=self._now())

    def _failed(self, job: Erasure, sentence: str) -> Erasure:
        return replace(
            self.get(job.id),
            state="failed",
            message=f"{sentence}. What was erased until then is gone; ask again for the rest",
            finished=self._now(),
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
        """Searches a table, after an answer the one snapshot that was left; asks the optimizer where rows or
        snapshots have to go."""
        about = job.asked if job.asked is not None and job.asked.stream == table.stream else None
        search = self._search(job, table, run)
        try:
            look = search.look(about.left if about is not None else None)
        except BadRequestError:
            return job.with_settled(replace(search.report, problem=UNFIT))
        if look.is_settled:
            return job.with_settled(look.report)
        request = request_of(job, look, self._tools.grace_s)
        if len(request.rows) == len(look.hits):  # otherwise there are more rows than one request holds
            self._rounds[job.id][table.stream] += 1
        if self._rounds[job.id][table.stream] > ROUNDS:
            return job.with_settled(replace(look.report, problem=TOO_FAST))
        return self._requests.ask(job, table.stream, request)

    def _search(self, job: Erasure, table: TableId, run: Run) -> TableSearch:
        wanted = Wanted(table, datetime.fromisoformat(job.start), datetime.fromisoformat(job.end), job.query)
        return TableSearch(self._tools, wanted, run, self._positions[job.id])

    def _save(self, job: Erasure) -> None:
        job.to_file(self._folder / f"{job.id}.json")
