"""Packs merges onto Spark executors: jobs by table, bins by estimated cost, tenants taking turns."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from lake.settings import OptimizeSettings
from optimize.merge_job import FileLayout, MergeGroup, MergeJob
from optimize.planner import Engine, Merge, TablePlan
from optimize.table_view import TableView

# Measured on two cores with local files, 12 files of 60 rows and 20 columns a table: seconds a table, a file, a byte.
COST_TABLE_S = 0.010
COST_FILE_S = 0.004
COST_BYTE_S = 60e-9


def cost_s(files: int, size_bytes: int) -> float:
    """Estimated seconds of merging files on one core."""
    return COST_TABLE_S + COST_FILE_S * files + COST_BYTE_S * size_bytes


@dataclass(frozen=True, slots=True)
class Work:
    """Merges of one table that go into one commit."""

    plan: TablePlan
    merges: tuple[Merge, ...]

    @property
    def cost_s(self) -> float:
        return sum(cost_s(len(merge.files), merge.size_bytes) for merge in self.merges)


def split_work(plan: TablePlan, engine: Engine, cost_max_s: float) -> list[Work]:
    """The merges of a table, in pieces of at most `cost_max_s` (a piece has at least one merge), those that save most files first."""
    pieces: list[list[Merge]] = []
    left = 0.0
    for merge in sorted((m for m in plan.merges if m.engine is engine), key=lambda m: (-m.saved_files, m.hour)):
        cost = cost_s(len(merge.files), merge.size_bytes)
        if not pieces or cost > left:
            pieces.append([])
            left = cost_max_s
        pieces[-1].append(merge)
        left -= cost
    return [Work(plan, tuple(piece)) for piece in pieces]


def take_turns(work: Iterable[Work]) -> list[Work]:
    """Orders work so that every tenant gets the same share: next is always who has cost least so far (start-time fair queueing).

    Within a tenant, what saves most files per second goes first.
    """
    by_tenant: dict[str, list[Work]] = {}
    for one in work:
        by_tenant.setdefault(one.plan.tenant, []).append(one)
    finish: list[tuple[float, str, int, Work]] = []
    for tenant, own in by_tenant.items():
        spent = 0.0
        for at, one in enumerate(sorted(own, key=lambda w: -sum(m.saved_files for m in w.merges) / w.cost_s)):
            finish.append((spent, tenant, at, one))
            spent += one.cost_s
    return [one for _, _, _, one in sorted(finish, key=lambda item: item[:3])]


def within_budget(work: Sequence[Work], budget_s: float) -> tuple[list[Work], list[Work]]:
    """Splits ordered work into what fits into the budget (at least one piece) and what waits for the next round."""
    now: list[Work] = []
    spent = 0.0
    for one in work:
        if now and spent + one.cost_s > budget_s:
            break
        now.append(one)
        spent += one.cost_s
    return now, list(work[len(now) :])


def pack(work: Sequence[Work], slots: int, cost_max_s: float) -> list[list[Work]]:
    """Bins of at most `cost_max_s` in the order of the work, small enough that every slot gets some. A table is in a bin only once."""
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
    groups = tuple(MergeGroup(merge.hour, group) for merge in work.merges for group in merge.groups)
    return MergeJob(view.name, view.state.location, view.state.schema.json, groups, layout, work.cost_s)


def layout_of(properties: Mapping[str, str], columns: Sequence[str], settings: OptimizeSettings) -> FileLayout:
    """How a table's merged files are written: its properties `firn.sort`, `firn.bloom` and `firn.plain` name columns, separated by commas."""

    def named(key: str) -> tuple[str, ...]:
        return tuple(name for part in properties.get(key, "").split(",") if (name := part.strip()) in columns)

    base = FileLayout(settings.zstd_level, settings.row_group_rows)
    return replace(base, sort_by=tuple(dict.fromkeys((*named("firn.sort"), *base.sort_by))), bloom=named("firn.bloom"), plain=named("firn.plain"))
