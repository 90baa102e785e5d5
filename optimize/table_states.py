"""What maintenance remembers of tables between rounds, in the catalog: failures in a row, pauses, turns not
yet had.

Only tables with something to remember have an entry. Beside a catalog without task states everything is
forgotten at the end of a process.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

import structlog

from lake.catalog_client import CatalogClient, TableName
from lake.errors import FirnError, NotFoundError
from lake.extras_client import ExtrasClient, Task

KIND = "optimize.table"
SAVE_TASKS = 500
log = structlog.get_logger()


class State(StrEnum):
    """Why a table is remembered: it was left for later, or is being worked on in several commits."""

    RUNNING = "running"
    FAILING = "failing"
    PAUSED = "paused"
    WAITING = "waiting its turn"
    LAG = "ingestion lags"


@dataclass(frozen=True, slots=True)
class Memory:
    """The entry of one table. `until_ms`: end of a pause."""

    state: State
    failures: int = 0
    reason: str = ""
    until_ms: int = 0
    version: int = 0


@dataclass(slots=True)
class TableStates:
    """Entries of all tables that have one. `load` at the start of a round, `save` at its end."""

    catalog: CatalogClient
    failures_max: int
    pause_ms: int
    lease: str | None = None
    _known: dict[str, Memory] = field(default_factory=dict)

    def load(self) -> None:
        """Reads all entries again."""
        if not self.catalog.has_extras:
            return
        try:
            self._known = {
                task.id.removeprefix(f"{KIND}:"): _memory(task)
                for task in ExtrasClient(self.catalog).tasks(KIND)
            }
        except NotFoundError:
            return

    def of(self, table: TableName) -> Memory | None:
        return self._known.get(str(table))

    def all(self) -> Mapping[str, Memory]:
        """Every entry by table."""
        return self._known

    def paused(self, table: TableName, now_ms: int) -> bool:
        memory = self.of(table)
        return memory is not None and memory.state is State.PAUSED and now_ms < memory.until_ms

    def unfinished(self, table: TableName) -> bool:
        """Whether a round, also that of a leader who is gone, left work on the table undone."""
        memory = self.of(table)
        return memory is not None and memory.state in (State.RUNNING, State.FAILING)

    def note_running(self, tables: Iterable[str]) -> None:
        """Remembers tables whose work takes several commits: should this process end in between, the next
        leader goes on with them."""
        running = {}
        for name in tables:
            before = self._known.get(name)
            running[name] = Memory(
                State.RUNNING, before.failures if before else 0, before.reason if before else ""
            )
        self._save(running)

    def note_round(
        self,
        failures: Mapping[str, str],
        refused: Collection[str],
        waiting: Iterable[str],
        lagging: Iterable[str],
        done: Iterable[str],
        now_ms: int,
    ) -> None:
        """Writes what a round has learned: who failed (again), who waits and why, who is fine and is
        forgotten.

        `refused`: those of the failures where a proof failed; such a table pauses at once.
        """
        new: dict[str, Memory | None] = {
            **dict.fromkeys(done),
            **{name: Memory(State.WAITING) for name in waiting},
        }
        new |= {name: Memory(State.LAG) for name in lagging}
        for name, reason in failures.items():
            before = self._known.get(name)
            count = (before.failures if before else 0) + 1
            paused = count >= self.failures_max or name in refused
            new[name] = Memory(
                State.PAUSED if paused else State.FAILING,
                count,
                reason[:1_000],
                now_ms + self.pause_ms if paused else 0,
            )
        self._save(new)

    def forget(self, table: TableName) -> None:
        """Ends a table's pause."""
        self._save({str(table): None})

    def _save(self, new: Mapping[str, Memory | None]) -> None:
        tasks: list[Task] = []
        for name, memory in new.items():
            before = self._known.get(name)
            if memory is None:
                if before is not None:
                    self._remove(name)
                continue
            record = {"failures": memory.failures, "reason": memory.reason, "until-ms": memory.until_ms}
            version = before.version if before else 0
            tasks.append(Task(f"{KIND}:{name}", KIND, memory.state.value, version, record))
            self._known[name] = Memory(
                memory.state, memory.failures, memory.reason, memory.until_ms, version + 1
            )
        if not self.catalog.has_extras:
            return
        try:
            for at in range(0, len(tasks), SAVE_TASKS):
                ExtrasClient(self.catalog).save_tasks(tasks[at : at + SAVE_TASKS], lease=self.lease)
        except FirnError as error:
            log.warning("optimize.states_not_saved", tables=len(tasks), error=str(error))

    def _remove(self, name: str) -> None:
        self._known.pop(name, None)
        if self.catalog.has_extras:
            try:
                ExtrasClient(self.catalog).remove_task(f"{KIND}:{name}")
            except FirnError as error:
                log.warning("optimize.states_not_saved", tables=1, error=str(error))


def _memory(task: Task) -> Memory:
    return Memory(
        State(task.state),
        int(task.record.get("failures", 0)),
        str(task.record.get("reason", "")),
        int(task.record.get("until-ms", 0)),
        task.version,
    )
