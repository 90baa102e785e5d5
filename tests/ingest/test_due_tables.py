"""Tables that are due, taken some at a time."""

import pytest

from ingest.route.buffers import LIMIT, Buffers
from ingest.route.due_tables import LOOK_S, LOOKS_SHARE, DueTables
from lake.tenant import TableId, TenantId

NOW_S = 100.0
LARGE = [TableId(TenantId("large"), f"s{number}") for number in range(4)]
SMALL = TableId(TenantId("small"), "s")


@pytest.fixture
def buffers() -> Buffers:
    """All have waited for a while."""
    buffers = Buffers()
    for table in (*LARGE, SMALL):
        _add(buffers, table, NOW_S - 10)
    return buffers


def _add(buffers: Buffers, table: TableId, now_s: float) -> None:
    buffers.add(table, now_s, 0, 1, 0, None, (), b"x")


def test_each_is_taken_once_and_tenants_have_their_turns(buffers: Buffers) -> None:
    """With why it is due; then it is time to look again."""
    due = DueTables(buffers)
    assert due.is_outdated(NOW_S)
    due.look({**dict.fromkeys(LARGE, ""), SMALL: LIMIT}, NOW_S, NOW_S)
    assert due.take(2) == {LARGE[0]: "", SMALL: LIMIT}
    assert (len(due), due.is_outdated(NOW_S)) == (3, False)
    assert list(due.take(9)) == LARGE[1:]
    assert (due.take(9), due.is_outdated(NOW_S)) == ({}, True)


def test_after_a_second_all_that_wait_are_looked_at_again(buffers: Buffers) -> None:
    """Others are due meanwhile, perhaps for want of memory."""
    due = DueTables(buffers)
    due.look(dict.fromkeys(LARGE, ""), NOW_S, NOW_S)
    due.take(1)
    assert not due.is_outdated(NOW_S + LOOK_S / 2)
    assert due.is_outdated(NOW_S + LOOK_S)


def test_what_was_flushed_for_another_reason_is_passed_over(buffers: Buffers) -> None:
    """Also where something has come for it since."""
    due = DueTables(buffers)
    due.look(dict.fromkeys(LARGE, ""), NOW_S, NOW_S)
    for table in LARGE[:2]:
        buffers.take(table)
    _add(buffers, LARGE[0], NOW_S + 0.1)
    assert list(due.take(9)) == LARGE[2:]


def test_looks_that_take_long_are_seldom(buffers: Buffers) -> None:
    """A tenth of the time is theirs."""
    due = DueTables(buffers)
    due.look(dict.fromkeys(LARGE, ""), NOW_S, NOW_S + 1)
    assert not due.is_outdated(NOW_S + 1 + 0.9 / LOOKS_SHARE)
    assert due.is_outdated(NOW_S + 1 + 1 / LOOKS_SHARE)
