"""Turns: every tenant gets the same share of a round, however many tables are loaded at a time."""

from hypothesis import given
from hypothesis import strategies as st

from lake.catalog_client import TableName
from lake.span import Partition
from optimize.bins import Work, cost_s, split_work
from optimize.inventory import Candidate
from optimize.planner import TablePlan
from optimize.turns import Turns
from tests.optimize.test_bins import merge, table


def candidate(plan: TablePlan) -> Candidate:
    files = [file for m in plan.merges for file in m.files]
    return Candidate(plan.table, None, len(files), sum(file.size_bytes for file in files))


def whole_order(plans: list[TablePlan], slice_tables: int, piece_s: float = 1e9) -> list[Work]:
    """All pieces as a round takes them, a slice of tables at a time."""
    by_name, turns, order = {plan.table: plan for plan in plans}, Turns(map(candidate, plans)), list[Work]()
    done: set[tuple[TableName, Partition]] = set()
    while turns:
        taken = [by_name[c.table] for c in turns.take(slice_tables)]
        pieces = [
            w
            for plan in taken
            for w in split_work(plan, piece_s)
            if (plan.table, w.merges[0].partition) not in done
        ]
        mine, rest = turns.in_order(pieces)
        order += mine
        done |= {(w.plan.table, w.merges[0].partition) for w in mine}
        turns.put_back(rest)
    return order


def test_small_tenant_does_not_wait_for_a_large_one() -> None:
    """A tenant with one small table comes right after the first table of a tenant with a hundred, also when
    only ten are loaded at a time."""
    plans = [
        *(table("large", f"t{at:03}", merge(1, 20)) for at in range(100)),
        table("small", "logs", merge(1, 2)),
    ]
    for slice_tables in (1, 10, 1_000):
        order = [work.plan.tenant for work in whole_order(plans, slice_tables)]
        assert order.index("small") <= 1
        assert len(order) == 101


def test_large_table_gives_way_after_each_piece() -> None:
    """One table of a hundred pieces does not use up the round before others had their turn: after its first
    piece come theirs."""
    large = table("large", "logs", *(merge(hour, 10) for hour in range(100)))
    plans = [large, *(table(f"small{at:02}", "logs", merge(1, 10)) for at in range(40))]
    order = whole_order(plans, 10, piece_s=cost_s(10, 10 * 1024 * 1024))
    assert len(order) == 140
    assert [work.plan.tenant for work in order[:42]].count("large") <= 2


@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(2, 50)), min_size=1, max_size=60), st.integers(1, 70)
)
def test_shares_of_waiting_tenants_differ_by_at_most_one_piece(
    load: list[tuple[int, int]], slice_tables: int
) -> None:
    """Wherever the order is cut, tenants that still wait have cost nearly the same so far; nothing is left
    out or doubled."""
    plans = [table(f"tenant{t}", f"t{at}", merge(1, files)) for at, (t, files) in enumerate(load)]
    order, spent = whole_order(plans, slice_tables), dict[str, float]()
    largest = max(one.cost_s for one in order)
    assert sorted(one.plan.table for one in order) == sorted(plan.table for plan in plans)
    for at, one in enumerate(order):
        waiting = {w.plan.tenant for w in order[at:]}
        costs = [spent.get(tenant, 0.0) for tenant in waiting]
        assert max(costs) - min(costs) <= largest + 1e-9
        spent[one.plan.tenant] = spent.get(one.plan.tenant, 0.0) + one.cost_s


def test_tables_without_turns_are_waiting() -> None:
    """What was not taken is known by name, so that explain can say that it waits."""
    plans = [table(f"tenant{at}", "logs", merge(1, 2)) for at in range(5)]
    turns = Turns(map(candidate, plans))
    taken = turns.take(2)
    assert sorted([*turns.waiting(), *(c.table for c in taken)]) == [plan.table for plan in plans]
