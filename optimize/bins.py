"""Packs merges onto Spark executors: pieces of work by table, bins by estimated cost."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from lake.data_file import ROW_LINEAGE, DataFile
from lake.span import Partition, in_order
from lake.table_layout import KEY_PROPERTY
from optimize.merge_job import FileLayout, InputFacts, MergeGroup, MergeJob
from optimize.planner import Engine, Merge, TablePlan
from optimize.table_view import TableView

# Measured on two cores with local files, 12 files of 60 rows and 20 columns a table: seconds a table, a file,
# a byte.
COST_TABLE_S = 0.010
COST_FILE_S = 0.004
COST_BYTE_S = 80e-9
# Likewise of a CALL of rewrite_data_files, each hour in it, each byte; and what one CALL may cost, because it
# is not stopped half-way.
REWRITE_CALL_S = 2.0
REWRITE_HOUR_S = 0.3
REWRITE_BYTE_S = 100e-9
REWRITE_COST_MAX_S = 60.0


def cost_s(files: int, size_bytes: int) -> float:
    """Estimated seconds of merging files on one core."""
    return COST_TABLE_S + COST_FILE_S * files + COST_BYTE_S * size_bytes


@dataclass(frozen=True, slots=True)
class Work:
    """Merges of one table by one engine that go into one commit."""

    plan: TablePlan
    merges: tuple[Merge, ...]

    @property
    def engine(self) -> Engine:
        return self.merges[0].engine

    @property
    def cost_s(self) -> float:
        if self.engine is Engine.SPARK:
            return REWRITE_CALL_S + sum(
                REWRITE_HOUR_S + REWRITE_BYTE_S * merge.size_bytes for merge in self.merges
            )
        return sum(cost_s(len(merge.files), merge.size_bytes) for merge in self.merges)


def split_work(plan: TablePlan, cost_max_s: float) -> list[Work]:
    """The merges of a table, in pieces of at most `cost_max_s` (a piece has at least one group of files),
    those that save most files first.

    An hour of many groups may be in several pieces, so that several executors share it; a rewrite by Spark
    shares itself out.
    """
    by_arrow = [
        part for merge in plan.merges if merge.engine is Engine.ARROW for part in _parts(merge, cost_max_s)
    ]
    by_spark = [merge for merge in plan.merges if merge.engine is Engine.SPARK]
    return [*_pieces(plan, by_arrow, cost_max_s), *_pieces(plan, by_spark, REWRITE_COST_MAX_S)]


def _parts(merge: Merge, cost_max_s: float) -> Iterator[Merge]:
    groups: list[tuple[DataFile, ...]] = []
    left = cost_max_s
    for group in merge.groups:
        cost = cost_s(len(group), sum(file.size_bytes for file in group))
        if groups and cost > left:
            yield replace(merge, groups=tuple(groups))
            groups, left = [], cost_max_s
        groups.append(group)
        left -= cost
    yield replace(merge, groups=tuple(groups))


def _pieces(plan: TablePlan, merges: Iterable[Merge], cost_max_s: float) -> list[Work]:
    pieces: list[Work] = []
    for merge in sorted(merges, key=lambda m: (-m.saved_files, in_order(m.partition))):
        larger = Work(plan, (*pieces[-1].merges, merge)) if pieces else None
        if larger is not None and larger.cost_s <= cost_max_s:
            pieces[-1] = larger
        else:
            pieces.append(Work(plan, (merge,)))
    return pieces


def within_budget(work: Sequence[Work], budget_s: float) -> tuple[list[Work], list[Work]]:
    """Splits ordered work into what fits into the budget (at least one piece) and what waits for the next
    round."""
    now: list[Work] = []
    spent = 0.0
    for one in work:
        if now and spent + one.cost_s > budget_s:
            break
        now.append(one)
        spent += one.cost_s
    return now, list(work[len(now) :])


def pack(work: Sequence[Work], slots: int, cost_max_s: float) -> list[list[Work]]:
    """Bins of at most `cost_max_s` in the order of the work, small enough that every slot gets some. A table
    is in a bin only once."""
    total = sum(one.cost_s for one in work)
    size_s = min(cost_max_s, max(total / max(slots, 1) / 2, 0.5))
    bins: list[list[Work]] = []
    left = 0.0
    tables: set[object] = set()
    for one in work:
        if not bins or one.cost_s > left or one.plan.table in tables:
            bins.append([])
            left, tables = size_s, set()
        bins[-1].append(one)
        tables.add(one.plan.table)
        left -= one.cost_s
    return bins


def to_job(work: Work, view: TableView, layout: FileLayout) -> MergeJob:
    """What an executor has to know of a piece of work."""
    state = view.state
    places = {each for merge in work.merges for f in merge.files if (each := f.partition) is not None}
    facts = {uri: each for p in view.partitions(places).values() for uri, each in p.facts.items()}
    changes_rows = KEY_PROPERTY in state.properties or bool(view.delete_files())
    groups = tuple(
        to_group(merge.partition, group, facts, state.sequence_number, changes_rows)
        for merge in work.merges
        for group in merge.groups
    )
    keeps_row_ids = state.version >= ROW_LINEAGE
    return MergeJob(
        view.name, state.location, state.schema.json, groups, layout, state.table_location, keeps_row_ids
    )


def to_group(
    partition: Partition,
    files: tuple[DataFile, ...],
    known: Mapping[str, InputFacts],
    sequence_number: int,
    keeps_places: bool,
) -> MergeGroup:
    """Files that become one of a partition. `known`: by URI what is said of them, where anything is."""
    facts = tuple(known[file.uri] for file in files) if known else ()
    deletes = {file.place: file for each in facts for file in each.deletes}
    return MergeGroup(partition, files, tuple(deletes.values()), facts, sequence_number, keeps_places)
