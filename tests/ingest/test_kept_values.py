"""Values that a change did not send, from earlier changes of the same part of a flush."""

from collections.abc import Sequence
from typing import Any

from ingest.changes.change import NO_CELLS, Cells, Change, Op
from ingest.convert.kept_values import with_kept_values
from ingest.convert.read_changes import OfMessage, Step, steps_of
from lake.settings import ChangeOrder

KEY = ("id",)


def cells(**values: Any) -> Cells:
    return Cells(values, {}, {})


def put(key: int, position: int, body: str | None, *, was: int | None = None) -> Change:
    """A row, without its body where None is given; `was`: its key before."""
    row = cells(id=key) if body is None else cells(id=key, body=body)
    unsent = frozenset({"body"}) if body is None else frozenset[str]()
    old = None if was is None else cells(id=was)
    return Change(
        Op.UPDATE if was is None else Op.INSERT, cells(id=key), row, unsent, old, position=(position,)
    )


def delete(key: int, position: int) -> Change:
    return Change(Op.DELETE, cells(id=key), NO_CELLS, position=(position,))


def bodies(changes: Sequence[Change], *, by_position: bool = True) -> list[tuple[int, str | None]]:
    """The key of each row that is left by a change, with its body."""
    order: ChangeOrder = "position" if by_position else "offset"
    steps = steps_of([OfMessage(at, change) for at, change in enumerate(changes)], order).steps
    kept = with_kept_values(steps, KEY, order)
    return [(_key(step), step.row.values.get("body")) for step in kept if step.row is not None]


def _key(step: Step) -> int:
    return int(step.key.values["id"])


def test_a_change_keeps_what_the_last_one_of_its_key_has() -> None:
    changes = [put(1, 10, "a"), put(1, 20, None), put(2, 30, None), put(1, 40, "b"), put(1, 50, None)]
    for by_position in (True, False):
        found = bodies(changes, by_position=by_position)
        assert found == [(1, "a"), (1, "a"), (2, None), (1, "b"), (1, "b")]


def test_a_row_that_moves_to_another_key_keeps_its_values() -> None:
    changes = [put(1, 10, "a"), delete(1, 20), put(2, 20, None, was=1), put(2, 30, None)]
    for by_position in (True, False):
        assert bodies(changes, by_position=by_position) == [(1, "a"), (2, "a"), (2, "a")]


def test_a_change_that_is_sent_again_takes_nothing_from_newer_rows() -> None:
    """Key 1 has another row by then, and 2 has the row that moved."""
    again = [delete(1, 20), put(2, 20, None, was=1)]
    changes = [put(1, 10, "a"), *again, put(1, 30, "newer"), *again]
    assert bodies(changes) == [(1, "a"), (2, "a"), (1, "newer"), (2, "a")]
    # Without the first sending in the same part it is left to the commit.
    assert bodies([put(1, 30, "newer"), *again]) == [(1, "newer"), (2, None)]
    assert bodies([put(1, 30, "newer"), put(1, 20, None)]) == [(1, "newer"), (1, None)]
