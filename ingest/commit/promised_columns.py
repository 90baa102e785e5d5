"""Columns that the committer has promised to workers, and that no commit has brought into the table yet."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

from ingest.changes.column_type import from_iceberg, to_iceberg
from ingest.changes.schema_change import Fit, compare, promotes
from ingest.model.link import NewColumn
from lake.commit import TableState
from lake.log_schema import Column, LogSchema, TypedColumn, WantedColumn, leaf_ids, with_ids, with_ids_of


@dataclass(slots=True)
class PromisedColumns:
    """Of one table: name -> (id, column), and the wider types of columns that it has. Void as soon as
    somebody else takes an id.

    Files are written by a promise before it is kept, so that its type only ever becomes one from which these
    can still be read.
    """

    columns: dict[str, tuple[int, TypedColumn]] = field(default_factory=dict)
    widened: dict[str, Any] = field(default_factory=dict)

    def promise(self, state: TableState, names: Mapping[str, WantedColumn]) -> None:
        """Hands out ids for columns that neither the table nor this has, and wider types for others. One that
        cannot become what is asked for stays as it is: who asked looks at the answer."""
        last = max([state.last_column_id, *(max(_ids(*column)) for column in self.columns.values())])
        ids = count(last + 1)
        for name, wanted in names.items():
            column = TypedColumn(wanted, "string") if isinstance(wanted, str) else wanted
            if name in state.schema.by_name:
                self._widen(name, state.schema.by_name[name].kind, column.kind)
            elif name not in self.columns:
                self.columns[name] = next(ids), replace(column, kind=with_ids(column.kind, ids.__next__))
            else:
                column_id, before = self.columns[name]
                self.columns[name] = column_id, replace(before, kind=_wider(before.kind, column.kind))

    def _widen(self, name: str, kind: Any, wanted: Any) -> None:
        wider = _wider(self.widened.get(name, kind), wanted)
        if wider != kind:
            self.widened[name] = wider

    def schema(self, state: TableState) -> LogSchema:
        """The table's schema with all columns that were promised."""
        new, widened = self._new(state), self._widened(state)
        if not new and not widened:
            return state.schema
        return state.schema.with_columns(new, widened, state.schema_id_max + 1)

    def stand(self, state: TableState, new: Mapping[str, NewColumn], widened: Mapping[str, Any]) -> bool:
        """Whether the columns of a file still have, or may still get, the ids it was written with, and types
        as which it can be read. Another node may have made the same column of the same id, with another
        type."""
        if not new and not widened:
            return True
        columns = self.schema(state).by_name
        return all(
            name in columns and columns[name].id == column.id and _is_readable(column.kind, columns[name])
            for name, column in new.items()
        ) and all(name in columns and _is_readable(kind, columns[name]) for name, kind in widened.items())

    def committed(self, state: TableState) -> None:
        """A commit of one's own has made the state: what is in it is no promise any more."""
        self.columns, self.widened = self._new(state), self._widened(state)

    def loaded(self, state: TableState) -> None:
        """The table was loaded: somebody else may have taken an id that was handed out."""
        if any(
            column_id <= state.last_column_id and name not in state.schema.by_name
            for name, (column_id, _) in self.columns.items()
        ):
            self.columns.clear()
            self.widened.clear()

    def _new(self, state: TableState) -> dict[str, tuple[int, TypedColumn]]:
        return {name: promise for name, promise in self.columns.items() if name not in state.schema.by_name}

    def _widened(self, state: TableState) -> dict[str, Any]:
        known = state.schema.by_name
        wider = {name: _wider(known[name].kind, kind) for name, kind in self.widened.items() if name in known}
        return {name: kind for name, kind in wider.items() if kind != known[name].kind}


def _wider(kind: Any, wanted: Any) -> Any:
    """A type, or the wider one that holds values of another, too, where there is such a one."""
    fit, wider = compare(from_iceberg(kind), from_iceberg(wanted))
    return with_ids_of(kind, to_iceberg(wider, lambda: 0)) if fit is Fit.WIDEN else kind


def _is_readable(kind: Any, column: Column) -> bool:
    """Whether what a file has with this type can be read as a column of the table."""
    if kind == column.kind:
        return True
    of_file, of_table = ([{"id": column.id, "type": each}] for each in (kind, column.kind))
    return leaf_ids(of_file) == leaf_ids(of_table) and promotes(from_iceberg(kind), from_iceberg(column.kind))


def _ids(column_id: int, column: TypedColumn) -> tuple[int, ...]:
    return column_id, *leaf_ids([{"id": column_id, "type": column.kind}])
