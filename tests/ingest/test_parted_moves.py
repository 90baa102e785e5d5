"""Rows whose key changes, where a part of a flush ends between the two messages."""

from collections.abc import Sequence

from ingest.changes.change import NO_CELLS, Cells, Change, Op
from ingest.convert.parted_moves import parted_moves
from ingest.convert.read_changes import OfMessage, steps_of
from ingest.model.source import Source
from ingest.route.buffer import TableBuffer
from lake.tenant import TableId, TenantId


def key(number: int) -> Cells:
    return Cells({"id": number}, {}, {})


def put(number: int, *, was: int | None = None, position: tuple[int, ...] | None = None) -> Change:
    op = Op.UPDATE if was is None else Op.INSERT
    old_key = None if was is None else key(was)
    return Change(op, key(number), key(number), old_key=old_key, position=position)


def away(number: int, to: int, *, position: tuple[int, ...] | None = None) -> Change:
    return Change(Op.DELETE, key(number), NO_CELLS, new_key=key(to), position=position)


def tombstone(number: int, to: int) -> Change:
    return Change(Op.DELETE, key(number), NO_CELLS, new_key=key(to), is_tombstone=True, repeats_delete=True)


def steps(changes: Sequence[Change | None], *, partitions: int = 1) -> list[tuple[int, bool]]:
    """What a part does to keys by their positions: which, and whether a row is left. None: a message that
    became a dead letter. With several partitions each message is of another one."""
    buffer = TableBuffer(TableId(TenantId("shop"), "orders"), 0.0)
    for at in range(len(changes)):
        buffer.add(at % partitions, at, 1, None, (), b"{}")
    sources = [Source("t", "id", at, "auto", is_alone=partitions == 1) for at in range(partitions)]
    read = [OfMessage(at, change) for at, change in enumerate(changes) if change is not None]
    found = steps_of(read, "position", parted_moves(read, buffer, sources, "position")).steps
    return [(step.key.values["id"], step.row is not None) for step in found]


def test_a_delete_whose_insert_comes_with_the_next_part_is_left_to_it() -> None:
    assert steps([put(1), away(1, 2), tombstone(1, 2)]) == [(1, True)]
    assert steps([put(1), away(1, 2)]) == [(1, True)]
    assert steps([tombstone(1, 2), put(2, was=1), put(3)]) == [(1, False), (2, True), (3, True)]
    assert steps([put(2, was=1), put(3)]) == [(1, False), (2, True), (3, True)]


def test_a_move_within_a_part_is_a_delete_and_an_insert() -> None:
    assert steps([put(1), away(1, 2), tombstone(1, 2), put(2, was=1)]) == [(1, True), (1, False), (2, True)]
    assert steps([put(3), put(2, was=1)]) == [(3, True), (2, True)]


def test_a_delete_behind_which_something_came_is_carried_out() -> None:
    """Also where that was no change that could be read: the insert may be a dead letter."""
    assert steps([away(1, 2), None]) == [(1, False)]
    assert steps([away(1, 2), put(7)]) == [(1, False), (7, True)]


def test_a_delete_behind_which_older_changes_are_sent_again_is_left_to_what_comes_again() -> None:
    """The connector ended between the two messages. What is newer behind a delete is no such thing."""
    again = [put(1, position=(5,)), away(1, 2, position=(6,)), put(2, was=1, position=(6,))]
    moved = [(1, True), (1, False), (2, True)]
    assert steps([away(1, 2, position=(6,)), *again]) == moved
    assert steps([away(1, 2, position=(6,)), tombstone(1, 2), *again]) == moved
    assert steps([away(1, 2, position=(6,)), *again[1:]]) == moved[1:]
    assert steps([away(1, 2, position=(6,)), put(7, position=(8,))]) == [(1, False), (7, True)]


def test_nothing_is_left_where_a_topic_has_several_partitions() -> None:
    assert steps([put(2, was=1), put(5), away(1, 2)], partitions=3) == [(2, True), (5, True), (1, False)]
