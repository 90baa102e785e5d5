"""One sending of prepared commits, in a thread of its own: metadata files first, durable, then the request.

Also how long the catalog may take for a table, and which tables go together, so that one that is slow or
refused is found out and holds up nobody: it is sent alone from then on.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from ingest.model.fault_point import reach
from ingest.model.trouble import Cause, Trouble, trouble_of
from lake.catalog_client import CatalogClient, CommitResult, CommitStatus
from lake.clock import SYSTEM_CLOCK, Clock
from lake.commit import Prepared
from lake.errors import FirnError
from lake.storage import AnyStorage
from lake.tenant import TableId

BATCH_TABLES = 500
# A batch that fails as a whole while the catalog answers hides the table that is to blame: it goes in parts.
PARTS = 16
ISOLATED_S = 60.0
TIMEOUT_FIRST_S, TIMEOUT_MIN_S, TIMEOUT_MAX_S = 5.0, 1.0, 30.0
PING_TIMEOUT_S = 2.0
_CAUSES = {
    CommitStatus.INVALID: Cause.REFUSED,
    CommitStatus.DELETED: Cause.DELETED,
    CommitStatus.TIMEOUT: Cause.SLOW,
    CommitStatus.UNKNOWN: Cause.SLOW,
}
_IN_TIME = frozenset(
    {
        CommitStatus.COMMITTED,
        CommitStatus.CONFLICT,
        CommitStatus.INVALID,
        CommitStatus.DELETED,
        CommitStatus.NOT_FOUND,
    }
)


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of one table's commit; `trouble` where that is a fault of the table, or looks like one."""

    result: CommitResult
    trouble: Trouble | None = None


@dataclass(frozen=True, slots=True)
class Sending:
    """The answers to one sending, in order. `took_s` is wall time; `catalog_answers`: whether the catalog was
    there when all of them failed."""

    answers: Sequence[Answer]
    took_s: float
    catalog_answers: bool = True

    @property
    def in_time(self) -> int:
        """How many tables got a definite answer."""
        return sum(answer.result.status in _IN_TIME for answer in self.answers)


def send(
    catalog: CatalogClient,
    storage: AnyStorage,
    prepared: Sequence[Prepared],
    deadline_s: float,
    clock: Clock = SYSTEM_CLOCK,
) -> Sending:
    """Sends commits together; never raises for one of them. What cannot be written is not sent: certainly not
    applied."""
    began_s = clock.monotonic_s()
    problems = _write_files(storage, prepared)
    requests = [commit.request for commit, problem in zip(prepared, problems, strict=True) if problem is None]
    reach("metadata_written")
    results = iter(catalog.commit_all(requests, deadline_s=deadline_s) if requests else ())
    reach("commit_answered")
    sending = Sending(
        [_unsent(problem) if problem is not None else _answered(next(results)) for problem in problems],
        clock.monotonic_s() - began_s,
    )
    return (
        sending if sending.in_time or not requests else replace(sending, catalog_answers=_is_there(catalog))
    )


def _write_files(storage: AnyStorage, prepared: Sequence[Prepared]) -> list[Trouble | None]:
    """Writes and syncs the metadata files of all, each table's own where together they fail."""
    try:
        storage.write_all([file for commit in prepared for file in commit.files])
    except FirnError as error:
        return (
            [trouble_of(error, Cause.STORAGE)]
            if len(prepared) == 1
            else [_write_files(storage, [commit])[0] for commit in prepared]
        )
    return [None] * len(prepared)


def _unsent(problem: Trouble) -> Answer:
    return Answer(CommitResult(CommitStatus.FAILED, problem.sentence), problem)


def _answered(result: CommitResult) -> Answer:
    """Nobody is to blame where it was committed, or somebody else was faster."""
    if result.status in (CommitStatus.COMMITTED, CommitStatus.CONFLICT, CommitStatus.NOT_FOUND):
        return Answer(result)
    return Answer(result, Trouble(_CAUSES.get(result.status, Cause.FAILING), result.message))


def _is_there(catalog: CatalogClient) -> bool:
    try:
        catalog.ping(timeout_s=PING_TIMEOUT_S)
    except FirnError:
        return False
    return True


@dataclass
class AdaptiveTimeout:
    """How long the catalog may take for the tables of a batch, seconds: short, so that a slow one is found
    out, but longer where all are slow."""

    s: float = TIMEOUT_FIRST_S

    def note(self, sending: Sending) -> None:
        """Learns from a batch."""
        late = len(sending.answers) - sending.in_time
        if late * 4 > len(sending.answers):
            self.s = min(TIMEOUT_MAX_S, self.s * 2)
        elif late == 0:
            self.s = min(TIMEOUT_MAX_S, max(TIMEOUT_MIN_S, self.s * 0.8, sending.took_s * 3))


@dataclass
class Isolation:
    """Tables that go in smaller batches, or alone, because they failed lately and others did not. Times are
    monotonic seconds."""

    _sizes: dict[TableId, tuple[int, float]] = field(
        default_factory=dict
    )  # how many together, and until when

    def size(self, table: TableId, now_s: float) -> int:
        """With how many tables it may be sent together, itself included."""
        size, until_s = self._sizes.get(table, (BATCH_TABLES, 0.0))
        if until_s and until_s <= now_s:
            del self._sizes[table]
            return BATCH_TABLES
        return size

    def tables(self, now_s: float) -> list[TableId]:
        """All that are not sent with everybody."""
        return [table for table in list(self._sizes) if self.size(table, now_s) < BATCH_TABLES]

    def note(self, tables: Sequence[TableId], sending: Sending, now_s: float) -> None:
        """Learns from a sending: the few that failed go alone; where all failed and the catalog is there,
        they go in parts."""
        if not sending.catalog_answers:
            return
        for table, answer in zip(tables, sending.answers, strict=True):
            if answer.trouble is not None:
                together = 1 if sending.in_time else max(1, len(tables) // PARTS)
                self._sizes[table] = (together, now_s + ISOLATED_S)
