"""What maintenance is doing, did, and has before it: from the catalog's extras, and from its history, which
is a table like any other."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice
from typing import Any

from sqlglot import exp

from lake.catalog_client import CatalogClient, TableName
from lake.clock import Clock
from lake.errors import NotFoundError
from lake.extras_client import ExtrasClient, Task
from lake.tenant import SYSTEM_NAMESPACE, TableId, TenantId
from query.executors.executor import Executor, Source, from_source
from query.files.file_index import FileIndex
from query.language.search_language import Everything
from query.language.search_sql import all_of, column, text_literal, within
from query.model.cancellation import Run
from query.model.table_view import EPOCH, view_of
from query.search.file_planner import plan_files, slices

LEASE = "optimize"
TABLES = "optimize.table"
MAINTENANCE_TASKS = "optimize.duty"
MANY_FILES = 3
COUNTED_MAX = 10_000
HISTORY = TableName(SYSTEM_NAMESPACE, "maintenance")
_COLUMNS = (
    "timestamp",
    "tenant_table",
    "action",
    "outcome",
    "files_before",
    "files_after",
    "size_bytes",
    "row_count",
    "snapshots_expired",
)


@dataclass(frozen=True, slots=True)
class Waiting:
    """A table that maintenance left for later, and why."""

    table: str
    state: str
    reason: str
    failures: int
    until: datetime | None


@dataclass(frozen=True, slots=True)
class MaintenanceState:
    """`leader` None: nobody runs maintenance now. `partitions_with_many_files`: of the first 10,000 such
    hours, the open ones among them: hours with at least three files."""

    leader: str | None
    partitions_with_many_files: int
    waiting: list[Waiting]
    tasks: dict[str, datetime]
    deletions_due: int


def maintenance_state(catalog: CatalogClient, tenant: TenantId | None) -> MaintenanceState:
    """As the catalog knows it, of one tenant or of all. Raises NotFoundError beside a catalog without
    extras."""
    extras = ExtrasClient(catalog)
    leader = extras.lease_holder(LEASE)
    waiting = [_waiting(task) for task in extras.tasks(TABLES)]
    tasks = {task.id.rpartition(":")[2]: _moment(task.changed_ms) for task in extras.tasks(MAINTENANCE_TASKS)}
    listed = islice(extras.changed_partitions(files_min=MANY_FILES), COUNTED_MAX)
    crowded = sum(tenant is None or each.table.namespace == tenant.namespace for each in listed)
    due = len(extras.due_deletions()) if tenant is None else 0
    return MaintenanceState(
        leader, crowded, [each for each in waiting if _is_of(each.table, tenant)], tasks, due
    )


def _waiting(task: Task) -> Waiting:
    until_ms = int(task.record.get("until-ms", 0))
    return Waiting(
        task.id.removeprefix(f"{TABLES}:"),
        task.state,
        str(task.record.get("reason", "")),
        int(task.record.get("failures", 0)),
        _moment(until_ms) if until_ms else None,
    )


def maintenance_history(
    catalog: CatalogClient,
    index: FileIndex,
    executor: Executor,
    clock: Clock,
    tenant: TenantId | None,
    run: Run,
    *,
    limit: int,
    hours: int,
) -> list[dict[str, Any]]:
    """The newest entries of the history, newest first; none where maintenance never ran. `executor` reads
    files."""
    try:
        metadata = catalog.load_table(HISTORY)["metadata"]
    except NotFoundError:
        return []
    view = view_of(TableId(TenantId("maintenance"), "history"), HISTORY, metadata)
    end = clock.now() + timedelta(minutes=1)
    start = end - timedelta(hours=hours)
    plan = plan_files(index.files(view), start, end, Everything(), view.schema)
    rows: list[tuple[Any, ...]] = []
    for piece in slices(plan):
        theirs = None if tenant is None else _starts_with(f"{tenant.namespace}.")
        condition = all_of([within(piece.start, piece.end), theirs])
        newest = exp.Ordered(this=column("timestamp"), desc=True, nulls_first=False)
        select = (
            exp.select(*(column(name) for name in _COLUMNS))
            .from_(from_source())
            .where(condition)
            .order_by(newest)
            .limit(limit - len(rows))
        )
        rows += executor.fetch(Source(view, piece.files), select, run).rows
        if len(rows) >= limit:
            break
    return [dict(zip(_COLUMNS, row, strict=True)) for row in rows]


def _starts_with(prefix: str) -> exp.Expression:
    start = exp.Substring(
        this=column("tenant_table"), start=exp.Literal.number(1), length=exp.Literal.number(len(prefix))
    )
    return exp.EQ(this=start, expression=text_literal(prefix))


def _is_of(table: str, tenant: TenantId | None) -> bool:
    return tenant is None or table.startswith(f"{tenant.namespace}.")


def _moment(ms: int) -> datetime:
    return EPOCH + timedelta(milliseconds=ms)
