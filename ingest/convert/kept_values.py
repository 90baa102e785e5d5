"""Values that the source of a change did not send, because the change has not touched them: taken from an
earlier change of the same part of a flush, where there is one.

What is not found here is found where the flush is committed.
"""

from collections.abc import Sequence
from typing import Any

from ingest.changes.change import Cells
from ingest.changes.column_type import ColumnType
from ingest.convert.read_changes import Step

_Key = tuple[Any, ...]


def with_kept_values(steps: Sequence[Step], key: tuple[str, ...]) -> list[Step]:
    """The steps in order, their rows with what earlier ones tell of them. A deleted row still tells: a change
    of its key deletes it first."""
    if not any(step.unavailable for step in steps):
        return list(steps)
    known: dict[_Key, Step] = {}
    filled = []
    for step in steps:
        if step.row is not None:
            if step.unavailable and step.values_of is not None:
                step = _filled(step, known.get(_key_of(step.values_of, key)))
            known[_key_of(step.key, key)] = step
        filled.append(step)
    return filled


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
    left = step.unavailable - told
    # What the earlier one lacks, too, is to be found where that one's values are.
    return step._replace(row=together, unavailable=left, values_of=before.values_of if left else None)


def _types_of(cells: Cells, columns: frozenset[str]) -> dict[str, ColumnType]:
    return {name: cells.types[name] for name in columns if name in cells.types}
