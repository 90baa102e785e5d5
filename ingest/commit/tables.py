"""All tables that a node has met: one life each, and who carries out what it asks for."""

from collections.abc import Callable
from typing import Any

from ingest.commit.schedule import Schedule
from ingest.commit.table_events import Command, Event
from ingest.commit.table_lifecycle import TableLifecycle
from ingest.commit.table_work import LoadStep
from ingest.model.parked_record import ParkedRecord
from ingest.model.turns import Turns
from lake.tenant import TableId


class Tables(dict[TableId, TableLifecycle]):
    """The lives of tables by their names, each begun when the table is met.

    `run`: who carries a command out. The others are the tables of which something is under way, so that
    nobody looks at all of them. `loading`: they are to be known; `to_load` is when, `loaded`
    and `postponed` are as far as that. `committing`: they have flushes; `gathering` have not begun to commit
    them, `to_commit` is when others may try.
    """

    def __init__(self) -> None:
        self.run: dict[type[Command], Callable[[TableLifecycle, Any], None]] = {}
        self.loading: dict[TableLifecycle, None] = {}
        self.to_load: Schedule[TableLifecycle] = Schedule()
        self.loaded: dict[TableLifecycle, None] = {}
        self.postponed: Turns[TableLifecycle] = Turns(lambda life: life.table.tenant)
        self.committing: dict[TableLifecycle, None] = {}
        self.gathering: dict[TableLifecycle, None] = {}
        self.to_commit: Schedule[TableLifecycle] = Schedule()
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

    def forget(self, table: TableId) -> None:
        """Forgets a table of which nothing is under way."""
        life = self.pop(table, None)
        if life is not None:
            life.asked_by.clear()
            self._note(life)

    def resume(self, record: ParkedRecord, now_s: float) -> None:
        """Begins with a table that is parked, as all workers do."""
        life = self[record.table]
        life.resume(record, now_s)
        self._note(life)

    def _note(self, life: TableLifecycle) -> None:
        _keep(self.loading, life, life.loading is not None)
        _keep(self.loaded, life, life.is_at(LoadStep.LOADED))
        (self.postponed.add if life.is_at(LoadStep.POSTPONED) else self.postponed.discard)(life)
        _plan(self.to_load, life, life.loads_from_s)
        _keep(self.committing, life, life.has_flushes)
        _keep(self.gathering, life, life.job is None and bool(life.waiting))
        _plan(self.to_commit, life, life.compares_from_s)
        _keep(self.parked, life, life.is_parked)


def _plan(schedule: Schedule[TableLifecycle], life: TableLifecycle, moment_s: float | None) -> None:
    if moment_s is None:
        schedule.discard(life)
    else:
        schedule.put(life, moment_s)


def _keep(index: dict[TableLifecycle, None], life: TableLifecycle, belongs: bool) -> None:
    if belongs != (life in index):
        if belongs:
            index[life] = None
        else:
            del index[life]
