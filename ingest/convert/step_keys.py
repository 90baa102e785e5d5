"""The keys of steps as the columns of their table hold them, and what orders steps of one key."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from ingest.changes.change import Cells
from ingest.changes.column_type import to_arrow
from ingest.changes.source_position import position_text
from ingest.convert.change_columns import ChangeColumns
from ingest.convert.read_changes import Step
from ingest.convert.values import to_column
from lake.errors import Reason, Rejected
from lake.log_schema import ValueReason
from lake.settings import ChangeMode, ChangeOrder, ChangeSettings

# Iceberg lets no column of these types be part of a key (specification, "Identifier Field IDs").
_NO_KEY = frozenset(("float", "double", "boolean"))


@dataclass(frozen=True, slots=True)
class StepKeys:
    """`steps` whose keys the table can hold, with a column for each of the key's; and the ordinals of the
    messages that have others, of which no step is left."""

    steps: list[Step]
    keys: list[pa.Array]
    rejected: Sequence[tuple[int, Rejected]]


def find_step_keys(steps: Sequence[Step], columns: ChangeColumns, key: tuple[str, ...]) -> StepKeys:
    """Makes the columns of the key. `key`: the table's, by folded names, in order."""
    rejected, names = dict[int, Rejected](), set(key)
    named = []
    for step in steps:
        if step.key.values.keys() == names:
            named.append(step)
        else:
            _refuse_names(step, key, rejected)
    bad: dict[int, str] = {}
    found = [_key_values(named, columns, name, bad) for name in key]
    for at, why in bad.items():
        rejected.setdefault(named[at].ordinal, Rejected(Reason.KEY_UNUSABLE, why))
    # A message is a dead letter as a whole: the other of its two steps is none of the table's either.
    good = [at for at, step in enumerate(named) if step.ordinal not in rejected]
    arrays = [
        pa.array([values[at] for at in good], to_arrow(columns.kind(name)))
        for name, values in zip(key, found, strict=True)
        if good
    ]
    none = [pa.array([], pa.string()) for _ in key]
    return StepKeys([named[at] for at in good], arrays or none, list(rejected.items()))


def _refuse_names(step: Step, key: tuple[str, ...], rejected: dict[int, Rejected]) -> None:
    """Rejects the message of a step whose key is another than the table's."""
    detail = f"its key is {', '.join(step.key.values)}, that of the table is {', '.join(key)}"
    rejected[step.ordinal] = Rejected(Reason.KEY_UNUSABLE, detail)


def _key_values(steps: Sequence[Step], columns: ChangeColumns, name: str, bad: dict[int, str]) -> list[Any]:
    """The values of one column of the key as that stores them."""
    refusals: dict[Any, str | None] = {}
    values = []
    for at, step in enumerate(steps):
        value, kind = step.key.values[name], step.key.types.get(name)
        if kind not in refusals:
            refusals[kind] = _refusal(columns, name, steps[at].key, kind)
        if why := refusals[kind]:
            bad[at] = why
        elif kind is None:
            value = to_column(columns.kind(name), value)
            if isinstance(value, ValueReason):
                bad[at] = f"{name} of the key is no {columns.kind(name)}"
        values.append(value)
    return values


def _refusal(columns: ChangeColumns, name: str, key: Cells, kind: Any) -> str | None:
    """Why values of a type can be no part of the key in this column."""
    if kind is not None and (not isinstance(kind, str) or kind in _NO_KEY):
        return f"{name} of the key is a {kind}, which no key of a table can be"
    placed = columns.place(name, key.paths.get(name, ""), kind, is_key=True)
    if placed.column != name:
        return f"{name} of the key is a {kind}, that of the table a {columns.kind(name)}"
    return None


def deletes_alone(table: ChangeMode, settings: ChangeSettings | None) -> bool:
    """Whether of the changes of a topic only deletes are applied to a keyed table. Deletes may come from one
    topic and rows from another, or from batches, whichever of both has made the table."""
    own = None if settings is None else settings.mode
    return own == "delete_only" or (own is None and table == "delete_only")


def by_mode(steps: Sequence[Step], table: ChangeMode, only_deletes: Sequence[bool]) -> tuple[list[int], int]:
    """Places of the steps that are applied to a table of this mode, and how many are passed over.
    `only_deletes`: of each step, as its topic says."""
    if table != "first_wins" and not any(only_deletes):
        return list(range(len(steps))), 0
    kept = [
        at
        for at, (step, deletes) in enumerate(zip(steps, only_deletes, strict=True))
        if not (table == "first_wins" if step.row is None else deletes)
    ]
    return kept, len(steps) - len(kept)


def order_of(steps: Sequence[Step], order_by: ChangeOrder) -> pa.Array:
    """By what changes are ordered where offsets do not: int64 by time, text by position, else NULL."""
    if order_by == "time":
        return pa.array([step.change.time_us for step in steps], pa.int64())
    if order_by == "position":
        return pa.array([_position(step) for step in steps], pa.string())
    return pa.nulls(len(steps), pa.string())


def _position(step: Step) -> str | None:
    position = step.change.position
    return None if position is None else position_text(position)
