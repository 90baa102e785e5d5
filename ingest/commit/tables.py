"""All tables that a node has met: one life each, and who carries out what it asks for."""

from collections.abc import Callable
from typing import Any

from ingest.commit.table_events import Command, Event
from ingest.commit.table_lifecycle import TableLifecycle
from ingest.model.parked_record import ParkedRecord
from lake.tenant import TableId


class Tables(dict[TableId, TableLifecycle]):
    """The lives of tables by their names, each begun when the table is met.

    `run`: who carries a command out. `loading`, `committing`, `parked`: the tables of which something is
    under way, so that nobody looks at all of them.
    """

    def __init__(self) -> None:
        self.run: dict[type[Command], Callable[[TableLifecycle, Any], None]] = {}
        self.loading: dict[TableLifecycle, None] = {}
        self.committing: dict[TableLifecycle, None] = {}
        self.parked: dict[TableLifecycle, None] = {}

    def __missing__(self, table: TableId) -> TableLifecycle:
        life = self[table] = TableLifecycle(table)
        return life

    def on(self, life: TableLifecycle, event: Event, now_s: float) -> bool:
        """Tells a table of an event, and has carried out what follows; whether anything did."""
        _, commands = life.on(event, now_s)
        self._note(life)
        for command in commands:
            self.run[type(command)](life, command)
        return bool(commands)

    def resume(self, record: ParkedRecord, now_s: float) -> None:
        """Begins with a table that is parked, as all workers do."""
        life = self[record.table]
        life.resume(record, now_s)
        self._note(life)

    def _note(self, life: TableLifecycle) -> None:
        _keep(self.loading, life, life.loading is not None)
        _keep(self.committing, life, life.has_flushes)
        _keep(self.parked, life, life.is_parked)


def _keep(index: dict[TableLifecycle, None], life: TableLifecycle, belongs: bool) -> None:
    if belongs != (life in index):
        if belongs:
            index[life] = None
        else:
            del index[life]
