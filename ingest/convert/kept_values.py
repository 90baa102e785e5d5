"""Values that the source of a change did not send, because the change has not touched them: taken from an
earlier change of the same part of a flush, where there is one.

Where changes say their own order, earlier is what was earlier at the source: changes that are sent again come
after newer ones. What is not found here is found where the flush is committed.
"""

from bisect import bisect_right, insort
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from msgspec.structs import replace

from ingest.changes.change import Cells
from ingest.changes.column_type import ColumnType
from ingest.convert.read_changes import Step
from lake.settings import ChangeOrder

_Key = tuple[Any, ...]
_TurnOf = Callable[[Step], tuple[int, ...]]


def with_kept_values(steps: Sequence[Step], key: tuple[str, ...], order_by: ChangeOrder) -> list[Step]:
    """The steps in order, their rows with what earlier ones tell of them. A deleted row still tells: a change
    of its key deletes it first.

    What an earlier step lacks, too, the table has under its key. Where a row moved there in the same part, it
    has it under another one, as that was then: so the step of the move stays, too (`rests_on`).
    """
    if not any(step.unavailable for step in steps):
        return list(steps)
    turn_of = _TURNS[order_by]
    known: dict[_Key, list[Step]] = defaultdict(list)
    filled: list[Step] = []
    for step in steps:
        if step.row is not None:
            of_key = known[_key_of(step.key, key)]
            if step.unavailable and step.values_of is not None:
                before = _before(step, of_key, known[_key_of(step.values_of, key)], turn_of)
                step = _filled(step, before)
            insort(of_key, replace(step, place=len(filled)), key=turn_of)
        filled.append(step)
    return filled


def _before(step: Step, of_key: Sequence[Step], others: Sequence[Step], turn_of: _TurnOf) -> Step | None:
    """The step whose row has what this one lacks: of those of its own key the same change, sent before; else
    of `others` the last one before it. Both are in order."""
    turn = turn_of(step)
    at = bisect_right(of_key, turn, key=turn_of)
    if turn and at and turn_of(of_key[at - 1]) == turn:
        return of_key[at - 1]
    at = bisect_right(others, turn, key=turn_of)
    return others[at - 1] if at else None


def _by_position(step: Step) -> tuple[int, ...]:
    return step.change.position or ()


def _by_time(step: Step) -> tuple[int, ...]:
    return () if step.change.time_us is None else (step.change.time_us,)


def _as_they_come(_: Step) -> tuple[int, ...]:
    return ()


_TURNS: dict[ChangeOrder, _TurnOf] = {"offset": _as_they_come, "position": _by_position, "time": _by_time}


def _key_of(cells: Cells, key: tuple[str, ...]) -> _Key:
    return tuple(cells.values.get(name) for name in key)


def _filled(step: Step, before: Step | None) -> Step:
    if before is None or before.row is None or step.row is None:
        return step
    told = step.unavailable & before.row.values.keys()
    row, other = step.row, before.row
    together = Cells(
        {**row.values, **{name: other.values[name] for name in told}},
        row.types if row.types == other.types else {**_types_of(other, told), **row.types},
        {**other.paths, **row.paths},
    )
    filled = replace(step, row=together, unavailable=step.unavailable - told)
    if not filled.unavailable:
        return replace(filled, values_of=None)
    moved_there = before.values_of is not None and before.values_of.values != before.key.values
    return replace(filled, rests_on=before.place if moved_there else before.rests_on)


def with_what_they_rest_on(chosen: Sequence[int], steps: Sequence[Step]) -> list[int]:
    """Places of steps, with those that these rest on, in order."""
    found, wanted = set(chosen), list(chosen)
    while wanted:
        below = steps[wanted.pop()].rests_on
        if below is not None and below not in found:
            found.add(below)
            wanted.append(below)
    return sorted(found)


def _types_of(cells: Cells, columns: frozenset[str]) -> dict[str, ColumnType]:
    return {name: cells.types[name] for name in columns if name in cells.types}
