"""Tables that maintenance has left alone for too long get relief from the committer, in threads, while their
flushes wait: see `lake/relief.py`."""

from concurrent.futures import Executor, Future
from dataclasses import dataclass, field

import structlog

from lake import metrics
from lake.catalog_client import CatalogClient, CommitStatus
from lake.clock import Clock, epoch_ms
from lake.commit import TableState, state_of
from lake.errors import FirnError, NotFoundError
from lake.isolation import isolate
from lake.relief import Bounds, is_crowded, prepare_relief
from lake.storage import AnyStorage
from lake.tenant import TableId

AT_ONCE = 4
DEADLINE_S = 10.0
# After one that did not succeed a table has so many more commits until the next.
COMMITS_UNTIL_NEXT = 5
log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Relieved:
    """What became of one relief: `outcome` is that of its commit, or `nothing`, `failed`; `snapshots` and
    `manifests` are what is left."""

    outcome: str
    snapshots: int
    manifests: int
    expired: int = 0
    problem: str = ""


@dataclass
class Reliefs:
    """Who waits for relief and who gets it. One thread calls it; only `relieve` runs in others."""

    catalog: CatalogClient
    storage: AnyStorage
    pool: Executor
    clock: Clock
    bounds: Bounds = field(default_factory=Bounds)
    _running: dict[TableId, Future[Relieved]] = field(default_factory=dict)
    _floors: dict[TableId, tuple[int, int]] = field(default_factory=dict)

    def note(self, table: TableId, state: TableState) -> None:
        """The state after a commit: where it is too much, relief begins. For others it begins after one of
        their next commits."""
        if (
            table in self._running
            or len(self._running) >= AT_ONCE
            or not is_crowded(state, self.bounds, self._floors.get(table, (0, 0)))
        ):
            return
        self._running[table] = self.pool.submit(
            relieve, self.catalog, self.storage, state, self.bounds, epoch_ms(self.clock.now())
        )

    def holds(self, table: TableId) -> bool:
        """Whether a commit now would only be in its way."""
        return table in self._running

    def forget(self, table: TableId) -> None:
        """The table is gone."""
        self._floors.pop(table, None)

    def finished(self) -> list[TableId]:
        """Tables whose relief has ended, each once, however it ended; what was known of them is old."""
        done = [table for table, future in self._running.items() if future.done()]
        for table in done:
            relieved = self._running.pop(table).result()
            metrics.TABLE_RELIEFS.labels(relieved.outcome).inc()
            metrics.RELIEF_SNAPSHOTS.inc(relieved.expired)
            settled = relieved.outcome in (CommitStatus.COMMITTED.value, "nothing")
            more = (
                (0, 0)
                if settled
                else (
                    COMMITS_UNTIL_NEXT - self.bounds.snapshots // 2,
                    COMMITS_UNTIL_NEXT - self.bounds.manifests // 2,
                )
            )
            self._floors[table] = relieved.snapshots + more[0], relieved.manifests + more[1]
            what = log.info if settled else log.warning
            what(
                "table.relieved",
                table=str(table),
                outcome=relieved.outcome,
                expired=relieved.expired,
                left=relieved.snapshots,
                problem=relieved.problem,
            )
        return done


def relieve(
    catalog: CatalogClient, storage: AnyStorage, known: TableState, bounds: Bounds, now_ms: int
) -> Relieved:
    """In a thread: loads the table, prepares, commits. Never raises; what does not succeed is tried again
    some commits later.

    Nothing is done to a table that was moved back or created anew: that is for others to find out.
    """
    # Whatever somebody has written into a table's metadata, it must not stop the others.
    counted = metrics.UNFORESEEN.labels("relief").inc
    try:
        with isolate("table.not_relieved", counted, foreseen=(FirnError,), table=str(known.name)) as outcome:
            metadata = catalog.load_table(known.name, timeout_s=DEADLINE_S)["metadata"]
            state = state_of(metadata, known.name, storage)
            prepared = (
                None
                if state.moved_back or state.uuid != known.uuid
                else prepare_relief(metadata, state, storage, bounds, now_ms, schemas_too=catalog.has_extras)
            )
            if prepared is None:
                return Relieved("nothing", state.snapshots, len(state.manifests))
            storage.write_all(prepared.files)
            (result,) = catalog.commit_all([prepared.request], deadline_s=DEADLINE_S)
    except NotFoundError:
        return Relieved("nothing", known.snapshots, len(known.manifests))
    except FirnError as error:
        return Relieved(
            "failed", known.snapshots, len(known.manifests), problem=f"{type(error).__name__}: {error}"
        )
    if outcome.error is not None:
        return Relieved("failed", known.snapshots, len(known.manifests), problem=repr(outcome.error))
    if result.status is not CommitStatus.COMMITTED:
        return Relieved(result.status.value, state.snapshots, len(state.manifests), problem=result.message)
    expired = sum(
        len(update["snapshot-ids"])
        for update in prepared.request["updates"]
        if update["action"] == "remove-snapshots"
    )
    return Relieved(result.status.value, prepared.after.snapshots, len(prepared.after.manifests), expired)
