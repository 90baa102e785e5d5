"""Maintenance whose merges run in this process instead of on Spark: the same plan, the same merge, the same
commits."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from lake.catalog_client import CatalogClient, TableName
from lake.clock import Clock, SystemClock, epoch_ms
from lake.errors import PrerequisiteError
from lake.retention_policies import Policies
from lake.settings import OptimizeSettings, StorageSettings
from lake.storage import AnyStorage, open_storage
from optimize.commit_round import CommitRound
from optimize.compaction import merge_bin
from optimize.deletions import DeletionQueue, Throttle
from optimize.equality_deletes import EqualityJob, Turned, turn_all
from optimize.history import History
from optimize.inventory import Inventory, NamedTables, open_inventory
from optimize.maintenance import Maintenance
from optimize.merge_job import Bin, JobResult
from optimize.rewrite_proof import Proof, Rewrite, prove_all
from optimize.spark_executor import Executor
from optimize.table_states import TableStates


class InProcess:
    """An executor without Spark. `between` is called after the merges and before their commit: where other
    writers get in."""

    def __init__(self, storage: AnyStorage, between: Callable[[], object] = lambda: None) -> None:
        self._storage = storage
        self._between = between

    def slots(self) -> int:
        return 2

    def run(self, bins: Sequence[Bin], halted: Callable[[], bool]) -> Iterator[list[JobResult]]:
        for one in bins:
            results = merge_bin(one, self._storage)
            self._between()
            yield results

    def rewrite(
        self,
        table: TableName,
        hours: Sequence[int],
        *,
        branch: str,
        sort_by: Sequence[str],
        target_bytes: int,
    ) -> Mapping[str, Any]:
        raise PrerequisiteError("there is no Spark here")

    def contents(
        self, table: TableName, hours: Sequence[int], *, branch: str, columns: Sequence[str]
    ) -> Mapping[str, Any]:
        raise PrerequisiteError("there is no Spark here")

    def prove(self, rewrites: Sequence[Rewrite]) -> list[Proof]:
        return list(prove_all(rewrites))

    def turn(self, jobs: Sequence[EqualityJob]) -> list[Turned]:
        return list(turn_all(jobs, StorageSettings.load()))


class FixedClock:
    """Stands still at a moment."""

    def __init__(self, moment: datetime) -> None:
        self.moment = moment

    def now(self) -> datetime:
        return self.moment

    def monotonic_s(self) -> float:
        return self.moment.timestamp()


def maintenance(
    catalog: CatalogClient,
    tables: Sequence[TableName] = (),
    *,
    lease: str | None = None,
    clock: Clock | None = None,
    between: Callable[[], object] = lambda: None,
    storage: AnyStorage | None = None,
    executor: Executor | None = None,
    **settings: Any,
) -> Maintenance:
    """Maintenance of some tables (none named: of all) with settings of the test."""
    chosen = OptimizeSettings.load(catalog__uri=catalog.uri, **settings)
    clock, storage = clock or SystemClock(), storage or open_storage()
    queue = DeletionQueue(catalog, Throttle(chosen.retention.storage_requests_per_s_max), lease)
    inventory: Inventory = (
        NamedTables(tables) if tables else open_inventory(catalog, chosen, lambda: epoch_ms(clock.now()))
    )
    states = TableStates(catalog, chosen.failures_max, int(chosen.pause_s * 1000), lease)
    commits, history = CommitRound(catalog, storage, queue, chosen, clock), History(catalog, storage, clock)
    return Maintenance(
        catalog,
        storage,
        chosen,
        clock,
        inventory,
        commits,
        executor or InProcess(storage, between),
        states,
        history,
        Policies(catalog, clock),
    )


def utc(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=UTC)  # type: ignore[misc,arg-type]
