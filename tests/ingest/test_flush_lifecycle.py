"""The life of a flush, as whoever cuts it lives it: its state from event to event, and what a runner has
under way.

Whether that loses or doubles anything is tried by the protocol's model
(`tests/faults/model/protocol_model.py`).
"""

from collections.abc import Callable
from math import inf

import pytest

from ingest.commit.flush_lifecycle import WRITE_RETRIES, Flushes, FlushLifecycle, FlushState
from ingest.model.link import Outcome, WrittenFlush
from ingest.model.source import Source
from ingest.model.trouble import Cause, Trouble
from ingest.route.buffer import TableBuffer
from ingest.write.flush_writer import GROUP_TABLES, Flush, Written, cut_flush, grouped
from lake.marks import Range, TopicPartition
from lake.tenant import TableId, TenantId

TABLES = [TableId(TenantId(name), "logs") for name in "abc"]
A, B, C = TABLES
TROUBLE = Trouble(Cause.STORAGE, "no room")
SOURCES = [Source("t", "id", 0, "json", "UTC"), Source("t", "id", 1, "json", "UTC")]


def cut(table: TableId = A, first: int = 0, size: int = 10) -> Flush:
    """A flush of one record, of the second partition."""
    buffer = TableBuffer(table, 0.0)
    buffer.add(1, first, 0, None, (), b"x" * size)
    return cut_flush(buffer, SOURCES, lambda number: 100 + number)


def with_rows(flush: Flush, rows: int = 1) -> WrittenFlush:
    return WrittenFlush(flush.table, "u", {TopicPartition("id", 1): Range(0, 101)}, [], rows, {})


def begun(*flushes: Flush) -> Flushes[Flush]:
    """All of them are being written."""
    under_way: Flushes[Flush] = Flushes()
    for flush in flushes:
        under_way.begin(flush, flush.buffer.size_bytes)
    return under_way


def submitted(*flushes: Flush) -> Flushes[Flush]:
    """The committer has all of them."""
    under_way = begun(*flushes)
    under_way.written(Written([with_rows(flush, 7) for flush in flushes]), 0.0)
    return under_way


# ---- one flush


def test_a_flush_is_written_submitted_and_settled() -> None:
    """Once each, in this order."""
    life = FlushLifecycle("part")
    assert life.state is FlushState.WRITING
    life.submitted(3)
    assert (life.state, life.rows) == (FlushState.SUBMITTED, 3)
    life.settled(Outcome.DONE)
    assert (life.state, life.cut) == (FlushState.ENDED, "part")


def test_a_flush_to_be_redone_is_written_again_at_once() -> None:
    """And then goes to the committer like any other."""
    life = FlushLifecycle("part")
    life.submitted(3)
    life.settled(Outcome.REDO)
    assert life.state is FlushState.WRITING
    life.submitted(2)
    life.settled(Outcome.DEAD_LETTER)
    assert (life.state, life.rows) == (FlushState.ENDED, 2)


def test_pauses_grow_while_a_flush_cannot_be_written() -> None:
    """Up to a bound."""
    life, pauses = FlushLifecycle("part"), []
    for _ in range(8):
        life.delayed(0.0)
        pauses.append(life.not_before_s)
        life.begun_again()
    assert pauses[:3] == [WRITE_RETRIES.first_s, 2 * WRITE_RETRIES.first_s, 4 * WRITE_RETRIES.first_s]
    assert pauses[-1] == WRITE_RETRIES.max_s


EVENTS: dict[str, Callable[[FlushLifecycle[str]], None]] = {
    "submitted": lambda life: life.submitted(1),
    "delayed": lambda life: life.delayed(0.0),
    "begun again": lambda life: life.begun_again(),
    "settled": lambda life: life.settled(Outcome.DONE),
    "ended": lambda life: life.ended(),
}
ALLOWED = {
    FlushState.WRITING: {"submitted", "delayed", "ended"},
    FlushState.DELAYED: {"begun again", "ended"},
    FlushState.SUBMITTED: {"settled", "ended"},
    FlushState.ENDED: set[str](),
}


@pytest.mark.parametrize("state", FlushState)
@pytest.mark.parametrize("event", EVENTS)
def test_nothing_happens_out_of_turn(state: FlushState, event: str) -> None:
    """Nothing is settled that was not submitted, or submitted that was not written, and what has ended stays
    so."""
    life = FlushLifecycle("part", state=state)
    if event in ALLOWED[state]:
        EVENTS[event](life)
        assert life.state is not state
        return
    with pytest.raises(AssertionError):
        EVENTS[event](life)
    assert life.state is state


# ---- those of one runner


def test_a_table_has_one_flush_under_way() -> None:
    """The next one begins where it ends, so it waits for its end."""
    flushes = submitted(cut(A))
    with pytest.raises(AssertionError):
        flushes.begin(cut(A, 5))
    flushes.begin(cut(B))
    flushes.settled(A, Outcome.DONE)
    flushes.begin(cut(A, 5))
    assert (A in flushes, B in flushes, C in flushes, len(flushes)) == (True, True, False, 2)


def test_written_flushes_part_ways() -> None:
    """One has rows and is submitted, one has none and has ended, one is stuck and delayed."""
    full, empty, stuck = cut(A), cut(B), cut(C)
    flushes = begun(full, empty, stuck)
    flushes.written(Written([with_rows(full)], [empty], [(stuck, TROUBLE)]), 10.0)
    assert list(flushes) == [full, stuck]
    assert flushes.size_bytes == full.buffer.size_bytes + stuck.buffer.size_bytes
    assert flushes.due(10.0) == []
    assert flushes.settled(A, Outcome.DONE).cut is full
    assert flushes.due(10.0 + WRITE_RETRIES.first_s) == [stuck]


def test_what_is_due_is_due_once() -> None:
    """It is being written then, until it is told how that went."""
    flush = cut()
    flushes = begun(flush)
    flushes.delay(A, 0.0)
    assert flushes.due(inf) == [flush]
    assert flushes.due(inf) == []
    flushes.delay(A, 10.0)
    assert flushes.due(10.0 + WRITE_RETRIES.first_s) == []
    assert flushes.due(10.0 + 2 * WRITE_RETRIES.first_s) == [flush]


def test_a_flush_to_be_redone_stays_under_way() -> None:
    """Its records still hold back the group's offsets, and take memory."""
    flush = cut(first=4)
    flushes = submitted(flush)
    life = flushes.settled(A, Outcome.REDO)
    assert (life.cut, life.state) == (flush, FlushState.WRITING)
    assert [each.first_offsets for each in flushes] == [{1: 4}]
    assert flushes.size_bytes == flush.buffer.size_bytes


@pytest.mark.parametrize("outcome", [Outcome.DONE, Outcome.DEAD_LETTER])
def test_a_settled_flush_is_under_way_no_more(outcome: Outcome) -> None:
    """It tells with how many rows it was submitted."""
    flushes = submitted(cut())
    life = flushes.settled(A, outcome)
    assert (life.state, life.rows) == (FlushState.ENDED, 7)
    assert (list(flushes), flushes.size_bytes) == ([], 0)


def test_a_flush_is_given_up_wherever_it_is() -> None:
    """Its table is parked: whoever gives it up gets its records, and nobody writes it again."""
    writing, delayed, with_committer = cut(A), cut(B), cut(C)
    flushes = begun(writing, delayed, with_committer)
    flushes.delay(B, 0.0)
    flushes.submitted(C, 1)
    assert [flushes.give_up(table) for table in TABLES] == [writing, delayed, with_committer]
    assert (len(flushes), flushes.size_bytes, flushes.due(inf)) == (0, 0, [])
    assert flushes.give_up(A) is None


def test_nobody_settles_what_is_not_under_way() -> None:
    """The main process answers in order, so an answer to what was given up never comes."""
    with pytest.raises(KeyError):
        begun().settled(A, Outcome.DONE)


# ---- cutting


def test_a_flush_ends_where_its_partitions_were_routed_to() -> None:
    """Of those that it has records of; the others are none of its business."""
    flush = cut(first=4)
    assert flush.ends == {TopicPartition("id", 1): 101}
    assert (flush.table, flush.first_offsets, flush.drain) == (A, {1: 4}, 0)


def test_flushes_are_grouped_by_number_and_size() -> None:
    """A buffer is not cut before the group before it was dealt with."""
    taken: list[int] = []

    def take(number: int) -> Flush:
        taken.append(number)
        return cut(size=1_000)

    groups = grouped(map(take, range(5)), bytes_max=2_000)
    assert (len(next(groups)), taken) == (2, [0, 1])
    assert [len(group) for group in groups] == [2, 1]
    assert [len(group) for group in grouped(cut() for _ in range(GROUP_TABLES + 1))] == [GROUP_TABLES, 1]
    assert list(grouped([])) == []
