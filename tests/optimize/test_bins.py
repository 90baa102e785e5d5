"""Bins and turns: every tenant gets its share, every piece of work goes into exactly one bin."""

from hypothesis import given
from hypothesis import strategies as st

from lake.catalog_client import TableName
from lake.data_file import DataFile
from lake.settings import OptimizeSettings
from optimize.bins import Work, cost_s, layout_of, pack, split_work, take_turns, within_budget
from optimize.planner import Engine, Merge, PartitionPlan, Standing, TablePlan

MIB = 1024 * 1024


def merge(hour: int, files: int, size: int = MIB) -> Merge:
    return Merge(hour, Engine.ARROW, (tuple(DataFile(f"file:///{hour}/{at}", hour, 1, size) for at in range(files)),))


def table(tenant: str, name: str, *merges: Merge) -> TablePlan:
    partitions = tuple(PartitionPlan(m.hour, Standing.DUE, len(m.files), m.size_bytes, m) for m in merges)
    return TablePlan(TableName(tenant, name), tenant, partitions)


def test_small_tenant_does_not_wait_for_a_large_one() -> None:
    """A tenant with one small table comes right after the first table of a tenant with a hundred."""
    large = [Work(plan, plan.merges) for plan in (table("large", f"t{at}", merge(1, 20)) for at in range(100))]
    small = table("small", "logs", merge(1, 2))
    order = take_turns([*large, Work(small, small.merges)])
    assert [work.plan.tenant for work in order].index("small") <= 1


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(2, 50)), min_size=1, max_size=60))
def test_shares_of_waiting_tenants_differ_by_at_most_one_piece(load: list[tuple[int, int]]) -> None:
    """Wherever the order is cut, tenants that still wait have cost nearly the same so far."""
    work = [Work(plan, plan.merges) for plan in (table(f"tenant{t}", f"t{at}", merge(1, files)) for at, (t, files) in enumerate(load))]
    order, spent = take_turns(work), dict[str, float]()
    largest = max(one.cost_s for one in work)
    assert sorted(map(id, order)) == sorted(map(id, work))
    for at, one in enumerate(order):
        waiting = {w.plan.tenant for w in order[at:]}
        costs = [spent.get(tenant, 0.0) for tenant in waiting]
        assert max(costs) - min(costs) <= largest + 1e-9
        spent[one.plan.tenant] = spent.get(one.plan.tenant, 0.0) + one.cost_s


@given(st.lists(st.integers(2, 400), min_size=1, max_size=80), st.integers(1, 8))
def test_every_piece_goes_into_one_bin(files: list[int], slots: int) -> None:
    """Packing loses nothing, doubles nothing, and no bin costs more than its limit unless a single piece does."""
    work = [Work(plan, plan.merges) for plan in (table("a", f"t{at}", merge(1, count)) for at, count in enumerate(files))]
    bins = pack(work, slots, 2.0)
    assert [one for group in bins for one in group] == work
    assert all(len(group) == 1 or sum(one.cost_s for one in group) <= 2.0 + 1e-9 for group in bins)


def test_pieces_of_one_table_go_into_different_bins() -> None:
    """Two pieces of a table never meet in one bin, where they would be two commits to it in one request."""
    plan = table("a", "logs", *(merge(hour, 10) for hour in range(6)))
    pieces = split_work(plan, Engine.ARROW, cost_s(10, 10 * MIB) * 2.5)
    assert [len(piece.merges) for piece in pieces] == [2, 2, 2]
    assert all(len(group) == 1 for group in pack(pieces, 1, 1_000.0))


def test_budget_takes_at_least_one_piece() -> None:
    """However small the budget, something is done, in order; the rest waits."""
    work = [Work(plan, plan.merges) for plan in (table("a", f"t{at}", merge(1, 5)) for at in range(4))]
    assert within_budget(work, 0.0) == (work[:1], work[1:])
    assert within_budget(work, 1e9) == (work, [])
    assert within_budget([], 1.0) == ([], [])


def test_layout_comes_from_table_properties_and_ignores_unknown_columns() -> None:
    """`firn.sort` and `firn.bloom` name columns; the event time always orders last; a column that is gone is left out."""
    layout = layout_of({"firn.sort": "host, gone", "firn.bloom": "trace_id"}, ["timestamp", "host", "trace_id"], OptimizeSettings())
    assert layout.sort_by == ("host", "timestamp")
    assert layout.bloom == ("trace_id",)
