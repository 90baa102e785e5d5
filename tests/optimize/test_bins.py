"""Pieces and bins: every piece of work goes into exactly one bin, none costs more than it may."""

from hypothesis import given
from hypothesis import strategies as st

from lake.catalog_client import TableName
from lake.data_file import DataFile
from optimize.bins import REWRITE_COST_MAX_S, Work, cost_s, pack, split_work, within_budget
from optimize.planner import Engine, Merge, PartitionPlan, Standing, TablePlan

MIB = 1024 * 1024


def merge(hour: int, files: int, size: int = MIB) -> Merge:
    return Merge(
        hour, Engine.ARROW, (tuple(DataFile(f"file:///{hour}/{at}", hour, 1, size) for at in range(files)),)
    )


def table(tenant: str, name: str, *merges: Merge) -> TablePlan:
    partitions = tuple(
        PartitionPlan(m.partition, Standing.DUE, len(m.files), m.size_bytes, m) for m in merges
    )
    return TablePlan(TableName(tenant, name), tenant, partitions)


@given(st.lists(st.integers(2, 400), min_size=1, max_size=80), st.integers(1, 8))
def test_every_piece_goes_into_one_bin(files: list[int], slots: int) -> None:
    """Packing loses nothing, doubles nothing, and no bin costs more than its limit unless a single piece
    does."""
    work = [
        Work(plan, plan.merges)
        for plan in (table("a", f"t{at}", merge(1, count)) for at, count in enumerate(files))
    ]
    bins = pack(work, slots, 2.0)
    assert [one for group in bins for one in group] == work
    assert all(len(group) == 1 or sum(one.cost_s for one in group) <= 2.0 + 1e-9 for group in bins)


def test_pieces_of_one_table_go_into_different_bins() -> None:
    """Two pieces of a table never meet in one bin, where they would be two commits to it in one request."""
    plan = table("a", "logs", *(merge(hour, 10) for hour in range(6)))
    pieces = split_work(plan, cost_s(10, 10 * MIB) * 2.5)
    assert [len(piece.merges) for piece in pieces] == [2, 2, 2]
    assert all(len(group) == 1 for group in pack(pieces, 1, 1_000.0))


def test_budget_takes_at_least_one_piece() -> None:
    """However small the budget, something is done, in order; the rest waits."""
    work = [Work(plan, plan.merges) for plan in (table("a", f"t{at}", merge(1, 5)) for at in range(4))]
    assert within_budget(work, 0.0) == (work[:1], work[1:])
    assert within_budget(work, 1e9) == (work, [])
    assert within_budget([], 1.0) == ([], [])


def test_hour_of_many_groups_is_shared_by_several_pieces() -> None:
    """One hour that becomes eight full files is eight pieces where each fills a task; no group is left out or
    doubled."""
    groups = tuple(
        tuple(DataFile(f"file:///{at}/{part}", 1, 1, 64 * MIB) for part in range(2)) for at in range(8)
    )
    plan = table("a", "logs", Merge(1, Engine.ARROW, groups))
    pieces = split_work(plan, cost_s(2, 128 * MIB) * 1.5)
    assert [len(piece.merges) for piece in pieces] == [1] * 8
    assert sorted(
        group[0].uri for piece in pieces for merge in piece.merges for group in merge.groups
    ) == sorted(group[0].uri for group in groups)


def test_rewrites_by_spark_go_into_calls_of_a_limited_cost() -> None:
    """Hours for Spark go into one CALL up to its limit, each into one; they count against the budget like
    everything else."""
    rewrites = tuple(
        Merge(hour, Engine.SPARK, ((DataFile(f"file:///{hour}", hour, 1, MIB),),)) for hour in range(400)
    )
    pieces = split_work(table("large", "logs", *rewrites), 10.0)
    assert len(pieces) > 1
    assert {merge.partition for piece in pieces for merge in piece.merges} == set(range(400))
    assert sum(len(piece.merges) for piece in pieces) == 400
    assert all(piece.cost_s <= REWRITE_COST_MAX_S for piece in pieces)
    now, later = within_budget(pieces, REWRITE_COST_MAX_S)
    assert len(now) == 1
    assert [*now, *later] == pieces
