"""Why a table is as it is: what was done, what is due, what is skipped and why, what a query would gain."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from lake.clock import epoch_ms
from lake.errors import FirnError
from lake.retention import MS_PER_HOUR
from lake.span import Span, Unit
from optimize.ingestion_lag import Share
from optimize.maintenance import Maintenance
from optimize.merged_file import merged_at_ms
from optimize.planner import PartitionPlan, Standing, TablePlan
from optimize.table_states import Memory, State
from optimize.table_view import TableView

PARTITIONS_SHOWN = 10
# A file costs a query about as much to open as this many bytes to read.
OPEN_COST_BYTES = 4 * 1024 * 1024


def explain(
    view: TableView, plan: TablePlan, memory: Memory | None, share: Share, now_ms: int
) -> Iterator[str]:
    """The answer as sentences, the verdict first."""
    yield f"{view.name}: {verdict(plan, memory, share, now_ms)}"
    yield from _done(view)
    yield from _partitions(plan)
    yield from _cold(plan)
    if plan.expire:
        yield (
            f"snapshots: {len(view.snapshots)} are kept, {len(plan.expire)} of them expire at the next round"
        )
    else:
        yield f"snapshots: {len(view.snapshots)} are kept, none expires now"
    manifests = len(view.own_manifests())
    yield (
        f"manifests: {manifests} of "
        f"files{', they are merged at the next round' if plan.merge_manifests else ''}"
    )
    yield _gain(plan)


def verdict(plan: TablePlan, memory: Memory | None, share: Share, now_ms: int) -> str:
    """One reason, the one that matters most."""
    if memory is not None and memory.state is State.PAUSED and now_ms < memory.until_ms:
        failed = f"paused after {count_failures(memory.failures)} until {_time(memory.until_ms)}"
        return f"{failed}; the last: {memory.reason}. `python -m optimize resume` ends the pause"
    standings = [partition.standing for partition in plan.partitions]
    if memory is not None and memory.state is State.FAILING:
        return (
            f"failing: {count_failures(memory.failures)} in a row ({memory.reason}); it is tried again at "
            "the next round"
        )
    if plan.equality_deletes:
        return (
            f"{plan.equality_deletes} equality deletes of another engine: the next round turns them into "
            "positions, then merges"
        )
    if Standing.EQUALITY_DELETES in standings:
        return (
            "foreign writer with equality deletes under another partitioning: what they touch is left alone "
            "until that writer compacts it"
        )
    if Standing.TOO_LARGE in standings:
        return (
            "has files too large to be rewritten in a task: raise merge.rewrite_bytes_min beyond them, with "
            "memory for it"
        )
    if plan.merges:
        return _why_not_merged(plan, memory, share)
    return _waiting(plan, standings) or "up to date"


def _waiting(plan: TablePlan, standings: Sequence[Standing]) -> str:
    """Until when nothing is due; empty where nothing waits."""

    def ends(standing: Standing) -> str:
        waiting = (p.due_at_ms for p in plan.partitions if p.standing is standing)
        return _time(min(at for at in waiting if at is not None))

    if Standing.COOLING_DOWN in standings:
        return (
            "cooling down: late data came to merged hours, which are merged again from "
            f"{ends(Standing.COOLING_DOWN)} on"
        )
    if Standing.GATHERING in standings:
        return (
            "gathering: few small files, which are merged when they are more, or from "
            f"{ends(Standing.GATHERING)} on"
        )
    if standings and all(standing is Standing.OPEN_HOUR for standing in standings):
        return (
            f"open hour: its data is of hours that still fill; the first closes at {ends(Standing.OPEN_HOUR)}"
        )
    return ""


def _why_not_merged(plan: TablePlan, memory: Memory | None, share: Share) -> str:
    """Why merges that are due have not been done."""
    if share.reason:
        return f"lag: {share.reason}, {share.share:.0%} of a round's work is done until it has caught up"
    reasons = {
        State.RUNNING: "in work: part of its merges is done, a round does the rest",
        State.WAITING: "waiting its turn: other tables filled the last round",
        State.LAG: "waiting its turn: the last round did only a part of the work, because ingestion lagged",
    }
    if memory is not None and memory.state in reasons:
        return reasons[memory.state]
    return "never optimized: it is due at the next round" if plan.never_optimized else "due at the next round"


def count_failures(failures: int) -> str:
    """`1 failure`, `2 failures`."""
    return "1 failure" if failures == 1 else f"{failures} failures"


def _done(view: TableView) -> Iterator[str]:
    replaced = [s for s in view.snapshots if s.get("summary", {}).get("operation") == "replace"]
    merged = sorted(
        {
            at
            for p in view.partitions().values()
            for file in p.files
            if (at := merged_at_ms(file.uri)) is not None
        }
    )
    if merged:
        yield (
            f"done: merged last at {_time(merged[-1])}; {len(merged)} merges are behind its files; its "
            "whole story is in firn_system.maintenance"
        )
    elif replaced:
        yield (
            f"done: files replaced last at {_time(replaced[-1]['timestamp-ms'])}, by "
            f"{replaced[-1]['summary'].get('engine-name', 'another engine')}"
        )
    else:
        yield "done: nothing yet that is still to be seen"


def _partitions(plan: TablePlan) -> Iterator[str]:
    shown = sorted(
        (p for p in plan.partitions if p.standing is not Standing.UP_TO_DATE),
        key=lambda p: (p.standing is not Standing.DUE, -p.files),
    )
    for partition in shown[:PARTITIONS_SHOWN]:
        yield (
            f"{_named(partition)}: {partition.files} files, {partition.size_bytes / 2**20:.1f} MiB, "
            f"{_standing(partition)}"
        )
    if len(shown) > PARTITIONS_SHOWN:
        yield f"and {len(shown) - PARTITIONS_SHOWN} more partitions"
    yield (
        f"up to date: {sum(p.standing is Standing.UP_TO_DATE for p in plan.partitions)} of "
        f"{len(plan.partitions)} partitions"
    )


def _cold(plan: TablePlan) -> Iterator[str]:
    """What is said of days and months, where there are some."""
    for unit in Unit:
        spans = [p for p in plan.partitions if isinstance(p.partition, Span) and p.partition.unit is unit]
        if spans:
            due = sum(p.standing is Standing.DUE for p in spans)
            done = sum(p.standing is Standing.UP_TO_DATE for p in spans)
            yield f"cold: {len(spans)} {unit.value}s, {due} of them due, {done} done"


def _standing(partition: PartitionPlan) -> str:
    if partition.merge is not None:
        return (
            f"due: {len(partition.merge.files)} files into {len(partition.merge.groups)} by "
            f"{partition.merge.engine.value}"
        )
    return partition.standing.value + (
        f" until {_time(partition.due_at_ms)}" if partition.due_at_ms is not None else ""
    )


def _gain(plan: TablePlan) -> str:
    files, size = sum(p.files for p in plan.partitions), sum(p.size_bytes for p in plan.partitions)
    saved = sum(merge.saved_files for merge in plan.merges)
    if not saved:
        return (
            f"a query over the whole table opens {files} files of {size / 2**20:.1f} MiB; merging would "
            "not change that now"
        )
    cost, after = size + files * OPEN_COST_BYTES, size + (files - saved) * OPEN_COST_BYTES
    return (
        f"a query over the whole table opens {files} files; after the merge {files - saved}, about "
        f"{cost / after:.1f} times cheaper"
    )


def _time(at_ms: int) -> str:
    return f"{datetime.fromtimestamp(at_ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"


def _named(partition: PartitionPlan) -> str:
    if partition.by_bucket:
        return f"bucket {partition.partition}"
    if isinstance(partition.partition, Span):
        return f"{partition.partition.unit.value} {partition.partition}"
    return f"hour {datetime.fromtimestamp(partition.partition * MS_PER_HOUR / 1000, UTC):%Y-%m-%d %H:00}"


def explain_table(maintenance: Maintenance, view: TableView) -> Sequence[str]:
    """Everything about one loaded table. Raises FirnError."""
    if view.state.head is None:
        return [f"{view.name}: up to date: it has no data yet"]
    maintenance.states.load()
    try:
        plan = maintenance.plan_view(view, None)
    except (FirnError, ValueError, KeyError) as error:
        return [f"{view.name}: cannot be planned: {error}"]
    return list(
        explain(
            view,
            plan,
            maintenance.states.of(view.name),
            maintenance.share(),
            epoch_ms(maintenance.clock.now()),
        )
    )
