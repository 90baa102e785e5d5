"""Cells of changes as the columns of their table: typed where the source names a type, placed where the table
has, or is to get, a column that holds them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa

from ingest.changes.change import Cells
from ingest.changes.column_type import ColumnType, from_iceberg, to_arrow, to_iceberg
from ingest.changes.schema_change import KnownColumn, Placement, place
from ingest.convert.values import to_column
from ingest.decode.column_name import BadValue
from ingest.decode.formats.json_object import Json, json_text
from lake.log_schema import SYSTEM_COLUMNS, LogSchema, TypedColumn, ValueReason, WantedColumn

# Where a cell stands among those that were given.
_AT = "\0at"


class _Move(NamedTuple):
    """A column of the source, and the one that takes its values."""

    column: str
    kind: ColumnType
    placed: Placement


@dataclass(slots=True)
class ChangeColumns:
    """What a flush knows of its table's columns: those of the schema, with the new and the wider ones that
    its changes have asked for so far.

    `new`: column name to column; `widened`: folded name to the Iceberg type that it needs.
    """

    schema: LogSchema
    new: dict[str, TypedColumn] = field(default_factory=dict)
    widened: dict[str, Any] = field(default_factory=dict)
    _known: dict[str, KnownColumn] = field(init=False)
    _moves: dict[int, tuple[Mapping[str, ColumnType], list[_Move]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._known = {
            name: KnownColumn(
                from_iceberg(column.kind), None if column.name in SYSTEM_COLUMNS else column.doc
            )
            for name, column in self.schema.by_name.items()
        }

    def kind(self, name: str) -> ColumnType:
        """The type that a column has by now."""
        return self._known[name].kind

    def place(self, column: str, path: str, kind: ColumnType | None, *, is_key: bool = False) -> Placement:
        """Finds or makes the column for a field's values."""
        placed = place(column, path, kind, self._known)
        if placed.is_new:
            self.new[placed.column] = TypedColumn(path, to_iceberg(placed.kind, lambda: 0), is_key)
        elif placed.is_widened:
            self._widen(placed)
        if placed.is_new or placed.is_widened:
            known = self._known.get(placed.column)
            self._known[placed.column] = KnownColumn(placed.kind, path if known is None else known.path)
            self._moves.clear()  # a column that is wider now takes what others placed into it
        return placed

    def _widen(self, placed: Placement) -> None:
        kind = to_iceberg(placed.kind, lambda: 0)
        if (column := self.new.get(placed.column)) is not None:
            self.new[placed.column] = TypedColumn(column.path, kind, column.is_key)
        else:
            self.widened[placed.column] = kind

    def wanted(self) -> dict[str, WantedColumn]:
        """What the table is to get: its new columns, and those that need a wider type, with that."""
        return {**self.new, **{name: TypedColumn("", kind) for name, kind in self.widened.items()}}

    def moves(self, cells: Cells) -> list[_Move]:
        """Where the typed values of a row go. The same for all rows that share their types."""
        found = self._moves.get(id(cells.types))
        if found is not None:
            return found[1]
        while True:
            moves = [
                _Move(column, kind, self.place(column, cells.paths.get(column, ""), kind))
                for column, kind in cells.types.items()
            ]
            if not any(move.placed.is_new or move.placed.is_widened for move in moves):
                break
        self._moves[id(cells.types)] = cells.types, moves
        return moves


@dataclass(slots=True)
class LaidOut:
    """`rows`: a column for each placed one, in the order of the cells. `errors`: by the cells' place, values
    that their columns cannot hold."""

    rows: pa.Table
    errors: dict[int, list[BadValue]] = field(default_factory=dict)


def lay_out_cells(cells: Sequence[Cells], columns: ChangeColumns) -> LaidOut:
    """Makes columns of rows, those of one schema together."""
    groups: dict[int, list[int]] = {}
    for at, each in enumerate(cells):
        groups.setdefault(id(each.types) if each.types else 0, []).append(at)
    errors: dict[int, list[BadValue]] = {}
    for key in groups:
        if key:
            columns.moves(cells[groups[key][0]])  # first of all groups: one may widen what another fills
    parts = [
        _typed_group(cells, places, columns) if key else _untyped_group(cells, places, columns, errors)
        for key, places in groups.items()
    ]
    if len(parts) == 1:
        return LaidOut(parts[0].drop_columns([_AT]), errors)
    if not parts:
        return LaidOut(pa.table({}), errors)
    together = pa.concat_tables(parts, promote_options="permissive").sort_by(_AT)
    return LaidOut(together.drop_columns([_AT]), errors)


def _typed_group(cells: Sequence[Cells], places: Sequence[int], columns: ChangeColumns) -> pa.Table:
    rows = [cells[at].values for at in places]
    arrays: dict[str, pa.Array] = {_AT: pa.array(places, pa.int64())}
    first = cells[places[0]]
    for column, kind, placed in columns.moves(first):
        array = pa.array([row.get(column) for row in rows], to_arrow(kind))
        wanted = to_arrow(columns.kind(placed.column))
        arrays[placed.column] = array if array.type == wanted else array.cast(wanted)
    for column in _without_type(first, rows):
        texts = [None if (value := row.get(column)) is None else _text(value) for row in rows]
        placed = columns.place(column, first.paths.get(column, ""), "string")
        arrays[placed.column] = pa.array(texts, pa.string())
    return pa.table(arrays)


def _without_type(first: Cells, rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Columns that rows have beside their types: cells that were added to them."""
    return list(dict.fromkeys(name for row in rows for name in row if name not in first.types))


def _untyped_group(
    cells: Sequence[Cells],
    places: Sequence[int],
    columns: ChangeColumns,
    errors: dict[int, list[BadValue]],
) -> pa.Table:
    found: dict[str, list[Any]] = {}
    for number, at in enumerate(places):
        for column, value in cells[at].values.items():
            path = cells[at].paths.get(column, "")
            placed = columns.place(column, path, None)
            stored = None if value is None else _stored(placed.kind, value)
            if isinstance(stored, ValueReason):
                errors.setdefault(at, []).append(BadValue(path, _text(value), stored))
                stored = None
            found.setdefault(placed.column, [None] * len(places))[number] = stored
    arrays = {name: pa.array(values, to_arrow(columns.kind(name))) for name, values in found.items()}
    return pa.table({_AT: pa.array(places, pa.int64()), **arrays})


def _stored(kind: ColumnType, value: Any) -> Any | ValueReason:
    if not isinstance(kind, str):
        return ValueReason.WRONG_TYPE
    return to_column(kind, value)


def _text(value: Any) -> str:
    return str(value) if isinstance(value, (str, Json)) else json_text(value)
