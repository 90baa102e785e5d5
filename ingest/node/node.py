"""What the main process of a node does with what its workers say: commits, loads, parks. One thread; nothing
here blocks.

worker says             what follows
OpenTables              the tables are loaded; Opened
GrowTables              columns are promised; Grown
Submit                  committer, until it is Settled
Stuck                   trouble of the table
Held, Drained           the next stage of its parking
Durable                 Confirmed, once the lease was held after it
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from typing import Any, Protocol

import structlog

from ingest.commit.committer import Committer
from ingest.commit.purged_lives import PurgedLives
from ingest.commit.table_states import Arrivals, TableStates
from ingest.model.fault_point import reach
from ingest.model.link import (
    Confirmed,
    Drained,
    Durable,
    Forget,
    FromWorker,
    Grown,
    GrowTables,
    Held,
    Opened,
    OpenTables,
    Settled,
    Stuck,
    Submit,
    ToWorker,
)
from ingest.model.trouble import Cause, Trouble, Troubles, Where
from ingest.parking.health_probe import HealthProbe
from ingest.parking.left_to_one_node import LeftToOneNode
from ingest.parking.parking import Parking
from lake import metrics
from lake.clock import Clock
from lake.errors import FatalError
from lake.tenant import TableId

log = structlog.get_logger()


class HeldLease(Protocol):
    """What a node asks of its lease, or of all it holds."""

    def confirm_soon(self) -> None:
        """Somebody waits for `held_after`."""

    def held_after(self, moment_s: float, /) -> bool:
        """Whether it was certainly held at some time after a monotonic moment."""


@dataclass
class Node:
    """`parking` None: there is no place for parked records, so a table that fails waits, and one that was
    moved back stops the node."""

    states: TableStates
    committer: Committer
    parking: Parking | LeftToOneNode | None
    troubles: Troubles
    health_probe: HealthProbe
    lease: HeldLease
    pool: Executor
    clock: Clock
    tell: Callable[[int | None, ToWorker], None]
    purged: PurgedLives = field(init=False)
    _durable: dict[int, tuple[int, float]] = field(default_factory=dict)
    _probing: tuple[float, Future[bool]] | None = None  # when the health probe was asked, and its answer
    _told: set[Cause] = field(default_factory=set)  # why tables fail, as far as the log has it
    _works_since_s: float | None = (
        None  # since when the health probe has passed without a pause, while there are suspects
    )

    def __post_init__(self) -> None:
        self.purged = PurgedLives(self.states.lives, self.states.catalog, self.pool, self.clock)

    @property
    def is_busy(self) -> bool:
        """Whether something is under way that will be heard of soon."""
        is_asked = any(life.asked_by for life in self.states.lives.loading)
        return not self.committer.is_idle or is_asked or bool(self._durable)

    def status(self) -> dict[str, Any]:
        """Tables that take no rows now, and who else writes to them."""
        failing = [
            {"table": str(table), "reason": trouble.cause.value, "sentence": trouble.sentence}
            for table, trouble in self.troubles.now.items()
        ]
        parked = [] if self.parking is None else self.parking.status()
        second = [
            {"writer": writer, "table": str(table)}
            for writer, table in self.committer.second_writers.named.items()
        ]
        return {
            "breakers": failing,
            "parked": parked,
            "second_writers": second,
            "postponed_tables": len(self.states.lives.postponed),
        }

    # ---- what workers say

    def handle(self, worker: int, message: FromWorker) -> None:
        """Takes a message of a worker; answers at once or when it can."""
        match message:
            case OpenTables(tables):
                self._open(worker, tables)
            case GrowTables(names):
                # What a person has just decided about is not known any more; its drain is given up.
                known = {
                    table: new for table, new in names.items() if self.states.last_known(table) is not None
                }
                self.tell(
                    worker, Grown({table: self.states.grow(table, new) for table, new in known.items()})
                )
                # Or it was forgotten just now, and is written to again: the flush that is stuck comes again.
                self.states.want(t for t in names if t not in known and not self._is_parked(t))
            case Submit(flushes):
                for flush in flushes:
                    self.troubles.passed(flush.table, Where.WRITE)
                self.committer.submit(worker, flushes)
            case Stuck(table, trouble):
                self._failed(table, Where.WRITE, trouble)
            case Held() if self.parking is not None:
                self.parking.held(worker, message)
            case Drained() if self.parking is not None:
                self.parking.drained(message)
            case Durable(number):
                self._durable[worker] = number, self.clock.monotonic_s()
                self.lease.confirm_soon()

    def _open(self, worker: int, tables: Iterable[TableId]) -> None:
        known = {table: self.states.view(table) for table in tables if self.states.get(table) is not None}
        if known:
            self.tell(worker, Opened(known))
        missing = [table for table in tables if table not in known and not self._is_parked(table)]
        for table in missing:
            self.states.lives[table].asked_by.add(worker)
        self.states.want(missing)

    def _is_parked(self, table: TableId) -> bool:
        return self.parking is not None and table in self.parking

    # ---- as time goes on

    def step(self, *, stopping: bool) -> None:
        """Takes in what threads have found, settles, parks. Raises RefusedError where the lease is lost,
        FatalError for what a person has to decide."""
        self._arrived(self.states.poll(live=self.parking is not None))
        self._commit()
        self._judge()
        if self.parking is not None:
            self.parking.step(stopping=stopping)
        self._forget_purged()
        self._confirm()

    def _arrived(self, arrivals: Arrivals) -> None:
        answers: dict[int | None, dict[TableId, Any]] = defaultdict(dict)
        for table in arrivals.known:
            self.troubles.passed(table, Where.LOAD)
            life = self.states.lives[table]
            # As all were told that it waits.
            asked: Iterable[int | None] = [None] if life.told_postponed else life.asked_by
            for worker in asked:
                answers[worker][table] = self.states.view(table)
            life.asked_by.clear()
            life.told_postponed = False
        for worker, views in answers.items():
            self.tell(worker, Opened(views))
        if arrivals.refused:
            for table in arrivals.refused:
                self.states.lives.forget(table)
            self.tell(None, Opened({}, refused=arrivals.refused))
        for table, trouble in arrivals.failed:
            self._failed(table, Where.LOAD, trouble)
        if new := [life for life in arrivals.postponed if not life.told_postponed]:
            for life in new:
                life.told_postponed = True
            self.tell(None, Opened({}, [life.table for life in new]))

    def _commit(self) -> None:
        step = self.committer.step()
        now_s = self.clock.monotonic_s()
        for table in step.committed:
            self.troubles.succeeded(table, now_s)
        for table, trouble in step.failed:
            self._failed(table, Where.COMMIT, trouble)
        outcomes: dict[int, list[Any]] = defaultdict(list)
        for worker, table, outcome, view in step.settled:
            outcomes[worker].append((table, outcome, view))
        for worker, entries in outcomes.items():
            self.tell(worker, Settled(entries))
        if outcomes:
            log.info("commit.done", tables=sum(map(len, outcomes.values())))
            reach("settled")

    def _forget_purged(self) -> None:
        if gone := self.purged.take():
            for table in gone:
                self.committer.reliefs.forget(table)
                self.committer.contested.forget(table)
            self.tell(None, Forget(gone))

    def _failed(self, table: TableId, where: Where, trouble: Trouble) -> None:
        if self.parking is not None and table in self.parking:
            self.parking.failed(table, trouble)
        elif self.parking is None and trouble.cause is Cause.ROLLED_BACK:
            raise FatalError(
                f"{trouble.sentence}. Set control.uri to a `python -m catalog serve --control`, so that "
                f"such a table waits for `python -m ingest resolve {table}` while the others go on"
            )
        else:
            self.troubles.failed(table, where, trouble, self.clock.monotonic_s())

    def _judge(self) -> None:
        """Parks who fails alone."""
        failing = self.troubles.now
        metrics.TABLES_FAILING.set(len(failing))
        self._tell_why(failing)
        metrics.TABLES_POSTPONED.set(len(self.states.lives.postponed))
        if self.parking is None:
            return
        for table, trouble in self.troubles.verdicts().items():
            self._park(table, trouble)
        now_s = self.clock.monotonic_s()
        suspects = self.troubles.suspects(now_s)
        if not suspects:
            self._works_since_s = None
        if self._probing is not None and self._probing[1].done():
            (began_s, answer_of_probe), self._probing = self._probing, None
            self._works_since_s = (
                (self._works_since_s or began_s) if answer_of_probe.result() and suspects else None
            )
            for table in self._guilty(suspects):
                self._park(table, suspects[table])
        elif suspects and self._probing is None and (self._works_since_s is None or self._guilty(suspects)):
            self._probing = now_s, self.pool.submit(self.health_probe.works)

    def _tell_why(self, failing: Mapping[TableId, Trouble]) -> None:
        """Says once for each cause why tables take no rows, by one of them, and when all take rows again."""
        by_cause = {trouble.cause: (table, trouble) for table, trouble in failing.items()}
        for cause in by_cause.keys() - self._told:
            table, trouble = by_cause[cause]
            log.warning(
                "tables.failing",
                reason=cause.value,
                tables=len(failing),
                table=str(table),
                sentence=trouble.sentence,
            )
        if self._told and not failing:
            log.info("tables.take_rows")
        self._told = self._told | by_cause.keys() if failing else set()

    def _guilty(self, suspects: Iterable[TableId]) -> list[TableId]:
        """Those that have failed once more since the health probe passes."""
        since_s = self._works_since_s
        return (
            []
            if since_s is None
            else [table for table in suspects if self.troubles.failed_after(table, since_s)]
        )

    def _park(self, table: TableId, trouble: Trouble) -> None:
        assert self.parking is not None
        self.troubles.forget(table)
        self.parking.park(table, trouble)

    def _confirm(self) -> None:
        for worker, (number, heard_s) in list(self._durable.items()):
            if self.lease.held_after(heard_s):
                reach("offsets_confirmed")
                del self._durable[worker]
                self.tell(worker, Confirmed(number, self.states.newest.text))
