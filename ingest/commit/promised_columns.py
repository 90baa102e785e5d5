"""Columns that the committer has promised to workers, and that no commit has brought into the table yet."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from lake.commit import TableState
from lake.log_schema import LogSchema


@dataclass(slots=True)
class PromisedColumns:
    """Of one table: name -> (id, original path). Void as soon as somebody else takes an id."""

    columns: dict[str, tuple[int, str]] = field(default_factory=dict)

    def promise(self, state: TableState, names: Mapping[str, str]) -> None:
        """Hands out ids for names (name -> original path) that neither the table nor this has."""
        last = max([state.last_column_id, *(column_id for column_id, _ in self.columns.values())])
        for name in names:
            if name not in state.schema.by_name and name not in self.columns:
                last += 1
                self.columns[name] = (last, names[name])

    def schema(self, state: TableState) -> LogSchema:
        """The table's schema with all columns that were promised."""
        new = self._new(state)
        return state.schema.with_strings(new, state.schema_id_max + 1) if new else state.schema

    def stand(self, state: TableState, new: Mapping[str, int]) -> bool:
        """Whether the columns of a file still have, or may still get, the ids it was written with."""
        for name, column_id in new.items():
            column = state.schema.by_name.get(name)
            if (column.id if column is not None else self.columns.get(name, (None, ""))[0]) != column_id:
                return False
        return True

    def committed(self, state: TableState) -> None:
        """A commit of one's own has made the state: what is in it is no promise any more."""
        self.columns = self._new(state)

    def loaded(self, state: TableState) -> None:
        """The table was loaded: somebody else may have taken an id that was handed out."""
        if any(
            column_id <= state.last_column_id and name not in state.schema.by_name
            for name, (column_id, _) in self.columns.items()
        ):
            self.columns.clear()

    def _new(self, state: TableState) -> dict[str, tuple[int, str]]:
        return {name: promise for name, promise in self.columns.items() if name not in state.schema.by_name}
