"""What a worker knows of its tables, whatever engine it belongs to: one entry of each."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from ingest.model.link import TableView
from lake.log_schema import LogSchema
from lake.tenant import TableId


@dataclass(slots=True)
class WorkerTable:
    """The entry of a table.

    `view`: how to write for it; None while that is not known, and while it is parked. `is_asked`: the main
    process was asked for it. `is_postponed`: it is new, and may not be created yet. `parking`: the id under
    which its records go to the parking topic, empty where they do not. `is_held`: they wait until it is known
    whether it is live again. `schema`: the one that it was written by last, which is shared only while
    somebody has it.
    """

    view: TableView | None = None
    is_asked: bool = False
    is_postponed: bool = False
    parking: str = ""
    is_held: bool = False
    schema: LogSchema | None = None

    @property
    def is_parking(self) -> bool:
        """Whether what comes now is parked."""
        return bool(self.parking) and not self.is_held

    @property
    def is_unknown(self) -> bool:
        """Whether nobody has said yet what there is of it."""
        return self.view is None and not self.parking

    @property
    def is_idle(self) -> bool:
        """Whether nobody waits to hear of it, and no record of it goes another way."""
        return not (self.is_asked or self.is_postponed or self.parking or self.is_held)

    @property
    def takes_rows(self) -> bool:
        """Whether what waits may be written."""
        return self.view is not None and not self.is_held


E = TypeVar("E", bound=WorkerTable)


class WorkerTables(dict[TableId, E]):
    """All tables that a worker has met; an entry begins when it is first looked up by `[]`."""

    def __init__(self, make: Callable[[], E]) -> None:
        """`make`: how an entry begins."""
        super().__init__()
        self._make = make

    def __missing__(self, table: TableId) -> E:
        entry = self[table] = self._make()
        return entry

    @property
    def any_parked(self) -> bool:
        """Whether any table is parked, held ones among them."""
        return any(entry.parking for entry in self.values())

    def ask(self, tables: Iterable[TableId]) -> list[TableId]:
        """Notes that these are asked for; returns those that were not yet, and are neither known nor
        parked."""
        new = []
        for table in tables:
            entry = self[table]
            if entry.is_unknown and not entry.is_asked:
                entry.is_asked = True
                new.append(table)
        return new

    def opened(self, views: Mapping[TableId, TableView], postponed: Sequence[TableId]) -> None:
        """Takes note of tables that were asked for; a parked one stays without a view."""
        for table in postponed:
            self[table].is_postponed = True
        for table, view in views.items():
            entry = self[table]
            entry.is_asked = entry.is_postponed = False
            if not entry.parking:
                entry.view = view

    def views_of(self, tables: Iterable[TableId]) -> dict[TableId, TableView]:
        """How to write for tables that are known, which is done next."""
        found = {}
        for table in tables:
            entry = self[table]
            if entry.view is not None:
                found[table], entry.schema = entry.view, entry.view.log_schema
        return found

    def park(self, table: TableId, parking: str) -> None:
        """The table's records are parked from here on."""
        entry = self[table]
        entry.view, entry.schema, entry.parking = None, None, parking
        entry.is_asked = entry.is_postponed = entry.is_held = False

    def release(self, views: Mapping[TableId, TableView]) -> None:
        """The tables take rows again."""
        for table, view in views.items():
            entry = self[table]
            entry.view, entry.parking, entry.is_held = view, "", False
