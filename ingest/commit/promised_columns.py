"""Columns that the committer has promised to workers, and that no commit has brought into the table yet."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

from lake.commit import TableState
from lake.log_schema import LogSchema, TypedColumn, WantedColumn, leaf_ids, with_ids, with_ids_of


@dataclass(slots=True)
class PromisedColumns:
    """Of one table: name -> (id, column), and the wider types of columns that it has. Void as soon as
    somebody else takes an id."""

    columns: dict[str, tuple[int, TypedColumn]] = field(default_factory=dict)
    widened: dict[str, Any] = field(default_factory=dict)

    def promise(self, state: TableState, names: Mapping[str, WantedColumn]) -> None:
        """Hands out ids for columns that neither the table nor this has, and wider types for others."""
        last = max([state.last_column_id, *(max(_ids(*column)) for column in self.columns.values())])
        ids = count(last + 1)
        for name, wanted in names.items():
            column = TypedColumn(wanted, "string") if isinstance(wanted, str) else wanted
            if name in state.schema.by_name:
                if not isinstance(wanted, str):
                    self.widened[name] = with_ids_of(state.schema.by_name[name].kind, column.kind)
            elif name not in self.columns:
                self.columns[name] = next(ids), replace(column, kind=with_ids(column.kind, ids.__next__))
            elif not isinstance(wanted, str):
                column_id, before = self.columns[name]
                self.columns[name] = column_id, replace(before, kind=with_ids_of(before.kind, column.kind))

    def schema(self, state: TableState) -> LogSchema:
        """The table's schema with all columns that were promised."""
        new, widened = self._new(state), self._widened(state)
        if not new and not widened:
            return state.schema
        return state.schema.with_columns(new, widened, state.schema_id_max + 1)

    def stand(self, state: TableState, new: Mapping[str, int]) -> bool:
        """Whether the columns of a file still have, or may still get, the ids it was written with."""
        for name, column_id in new.items():
            column = state.schema.by_name.get(name)
            promised = self.columns.get(name)
            given = column.id if column is not None else promised[0] if promised is not None else 0
            if given != column_id:
                return False
        return True

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
        return {
            name: kind
            for name, kind in self.widened.items()
            if name in state.schema.by_name and state.schema.by_name[name].kind != kind
        }


def _ids(column_id: int, column: TypedColumn) -> tuple[int, ...]:
    return column_id, *leaf_ids([{"id": column_id, "type": column.kind}])
