"""Turns of tenants: one with very much to do holds up none of the others."""

from ingest.model.turns import Turns, in_turns
from lake.tenant import TableId, TenantId


def tables(text: str) -> list[TableId]:
    """Tables by their tenants and streams: `a1 a2 b1`."""
    return [TableId(TenantId(each[0]), each[1:]) for each in text.split()]


def tenant(table: TableId) -> TenantId:
    return table.tenant


def test_each_tenants_first_comes_before_any_second() -> None:
    """Those of a tenant come in their order."""
    assert list(in_turns(tables("a1 a2 a3 b1 a4 c1 b2"), tenant)) == tables("a1 b1 c1 a2 b2 a3 a4")
    assert list(in_turns([], tenant)) == []


def test_a_tenant_whose_turn_it_was_is_behind_the_others() -> None:
    """Also behind one that came later; who goes meanwhile has no turn."""
    turns = Turns(tenant)
    for each in tables("a1 a2 a3 a4 b1 b2"):
        turns.add(each)
    assert [turns.take() for _ in range(2)] == tables("a1 b1")
    (late, gone) = tables("c1 a2")
    turns.add(late)
    turns.add(late)
    turns.discard(gone)
    turns.discard(gone)
    assert (len(turns), gone in turns, late in turns) == (4, False, True)
    assert [turns.take() for _ in range(4)] == tables("a3 b2 c1 a4")
    assert len(turns) == 0


def test_who_is_next_goes_on_waiting_until_it_is_taken() -> None:
    """The turn after it is another tenant's all the same."""
    turns = Turns(tenant)
    for each in tables("a1 a2 b1"):
        turns.add(each)
    assert [turns.next() for _ in range(3)] == tables("a1 b1 a1")
