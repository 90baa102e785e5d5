"""What a node does with changes of keyed tables: a worker writes them as files and steps, and the main
process finds out which rows go.

Steps, their joining, who wins, and which resolution answers which question are the product's own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
import pyarrow as pa

from ingest.commit.key_resolution import Resolution
from ingest.commit.resolutions import Resolutions, Running
from ingest.keys.chosen_steps import ChosenSteps, choose_steps
from ingest.keys.joined_flushes import join_flushes
from ingest.keys.key_hash import KeyHashes
from ingest.keys.keyed_steps import NO_FILE, KeyedSteps, StepSpool
from ingest.keys.last_change import last_changes
from ingest.model.link import KeyedRows, TableKey, WrittenFlush
from lake.commit import TableState
from lake.errors import NotFoundError
from lake.log_schema import LogSchema
from tests.faults.model.protocol_table import PLACES, Delta, Files, Record, Rows
from tests.faults.model.protocol_world import World

if TYPE_CHECKING:
    from lake.clock import Clock
    from lake.storage import Storage


class Step(NamedTuple):
    """What a change does to one key. `row`: whether the key has one afterwards."""

    key: int
    record: Record
    row: bool


@dataclass(frozen=True)
class WrittenKeys:
    """What a worker has written of a flush: its files, and what they mean; None: nothing is to be done."""

    files: tuple[tuple[int, Rows], ...] = ()
    keyed: KeyedRows | None = None


# ---- a worker


def write_keyed(w: World, key: TableKey, records: Sequence[Record]) -> WrittenKeys:
    """Writes the changes of a flush, part by part: a file for each that leaves rows."""
    spool, files = StepSpool(), list[tuple[int, Rows]]()
    truncated_at = dict[int, int]()
    good = [record for record in records if not record.bad]
    for at in range(0, len(good), w.part):
        part = good[at : at + w.part]
        ends = [number for number, record in enumerate(part) if record.op == "truncate"]
        truncated_at |= {part[number].partition: part[number].offset for number in ends}
        if ends:
            spool.truncate()
        steps = [step for record in part[ends[-1] + 1 if ends else 0 :] for step in steps_of(record, key)]
        rows = tuple(step.record for step in winners_of(steps, key) if step.row)
        spool.add(packable(winners_of(steps, key), len(files)))
        if rows:
            files.append((w.next_id(), rows))
    if not (truncated_at or any(map(len, spool.parts))):
        return WrittenKeys()
    ended = {PLACES[partition]: offset for partition, offset in truncated_at.items()}
    keyed = KeyedRows(key, tuple(PLACES), spool.packed(), ended, 1, {})
    return WrittenKeys(tuple(files), keyed)


def steps_of(record: Record, key: TableKey) -> list[Step]:
    """What a record does to keys, as far as the table's mode looks at it."""
    steps = [Step(record.key, record, record.op != "delete")]
    if record.op == "move":
        steps.insert(0, Step(record.old, record, row=False))
    return [step for step in steps if step.row or key.mode != "first_wins"]


def winners_of(steps: Sequence[Step], key: TableKey) -> list[Step]:
    """Of the steps of one part those that win, in their order."""
    if not steps:
        return []
    partitions = np.array([step.record.partition for step in steps])
    offsets = np.array([step.record.offset for step in steps])
    sign = -1 if key.mode == "first_wins" else 1
    order = positions_of(steps) if key.order_by == "position" else None
    return [steps[at] for at in last_changes(hashes(steps), sign * partitions, sign * offsets, order).last]


def hashes(steps: Sequence[Step]) -> KeyHashes:
    """A key's number does for its hash."""
    keys = np.array([step.key for step in steps], np.uint64)
    return KeyHashes(keys, keys)


def positions_of(steps: Sequence[Step]) -> pa.Array:
    return pa.array([step.record.position for step in steps], pa.int64())


def packable(steps: Sequence[Step], file: int) -> KeyedSteps:
    """The steps as they go to the main process; their rows are in one file, in their order."""
    leaves = np.array([step.row for step in steps], np.bool_)
    return KeyedSteps(
        hashes(steps),
        np.array([step.record.partition for step in steps], np.int32),
        np.array([step.record.offset for step in steps], np.int64),
        positions_of(steps),
        np.where(leaves, file, NO_FILE).astype(np.int32),
        np.where(leaves, np.cumsum(leaves) - 1, NO_FILE).astype(np.int64),
        np.zeros(len(steps), np.bool_),
        [pa.array([step.key for step in steps], pa.int64())],
    )


# ---- the main process


class Pool(Executor):
    """Runs what it is given when the scheduler says so."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Future[Any], Any, tuple[Any, ...]]] = []

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Keeps a call."""
        future: Future[Any] = Future()
        self.waiting.append((future, fn, args))
        return future

    def run(self, at: int) -> None:
        """Runs one that waits."""
        future, fn, args = self.waiting.pop(at)
        try:
            future.set_result(fn(*args))
        except NotFoundError as error:
            future.set_exception(error)


@dataclass
class _Clock:
    w: World

    def monotonic_s(self) -> float:
        return self.w.now_s


@dataclass
class ModelResolutions(Resolutions):
    """The product's, but that it resolves on the files of the model, and that rules can be left out."""

    w: World = field(kw_only=True)

    @classmethod
    def of(cls, w: World) -> ModelResolutions:
        """Those of a node that starts."""
        nothing: Any = None
        return cls(cast("Storage", nothing), nothing, Pool(), cast("Clock", _Clock(w)), w=w)

    @property
    def waiting(self) -> Pool:
        """What is to be resolved."""
        assert isinstance(self.pool, Pool)
        return self.pool

    def is_busy(self, table: str) -> bool:
        """Whether rows of a table are looked for at this moment."""
        return any(
            running.flushes[0].table.tenant.name == table and not running.future.done()
            for running in self._running.values()
        )

    def _answers(self, running: Running, state: TableState, flushes: Sequence[WrittenFlush]) -> bool:
        same_head = running.head == state.head or not self.w.rules.resolve_on_the_head
        return same_head and self._is_of(running, flushes)

    def _is_of(self, running: Running, flushes: Sequence[WrittenFlush]) -> bool:
        return super()._is_of(running, flushes) or not self.w.rules.resolve_for_the_flushes

    def _resolve(self, state: TableState, schema: LogSchema, flushes: Sequence[WrittenFlush]) -> Resolution:
        if state.head is not None and state.head not in self.w.stored:
            raise NotFoundError(f"the files of snapshot {state.head} are gone; load the table again")
        files = Files() if state.head is None else self.w.stored[state.head]
        return cast("Resolution", resolve(self.w, files, flushes))


def files_of(flush: WrittenFlush) -> Sequence[tuple[int, Rows]]:
    """The files of a flush of a keyed table: the model's stand where the product's would."""
    return cast("Sequence[tuple[int, Rows]]", flush.files)


def resolve(w: World, files: Files, flushes: Sequence[WrittenFlush]) -> Delta:
    """What flushes do to a keyed table with these files."""
    keyed = [flush.keyed for flush in flushes if flush.keyed is not None]
    key, own = keyed[0].key, [file for flush in flushes for file in files_of(flush)]
    steps, _ = join_flushes(flushes)
    if not w.rules.truncation_ends_steps:
        steps = replace(steps, truncated=np.zeros(len(steps), np.bool_))
    removed: tuple[int, ...] = ()
    if any(each.truncated_at for each in keyed) and w.rules.truncation_empties:
        removed, files = tuple(files.data), Files()
    chosen = _chosen(w, steps, key)
    gone: dict[int, set[int]] = defaultdict(set)
    for at in [at for at in chosen.losers if steps.file[at] >= 0 and w.rules.own_rows_go]:
        gone[own[steps.file[at]][0]].add(int(steps.row[at]))
    there: dict[int, list[tuple[int, int, Record]]] = defaultdict(list)
    for file, position, row in files.live():
        there[row.key].append((file, position, row))
    for at in chosen.winners:
        for file, position, row in there.get(int(steps.hashes.low[at]), []):
            if _stays(w, key, row, steps.order[at].as_py()):
                gone[own[steps.file[at]][0]].add(int(steps.row[at]))
            elif w.rules.earlier_rows_go:
                gone[file].add(position)
    return Delta(tuple(own), _deletes(w, files, gone), removed)


def _stays(w: World, key: TableKey, row: Record, coming: int) -> bool:
    """Whether a row that the table has stays, and what comes is passed over."""
    if key.mode == "first_wins":
        return w.rules.first_row_stays
    return key.order_by == "position" and row.position > coming and w.rules.older_changes_pass


def _chosen(w: World, steps: KeyedSteps, key: TableKey) -> ChosenSteps:
    if w.rules.last_change_wins:
        return choose_steps(steps, key)
    none = np.empty(0, np.int64)
    return ChosenSteps(np.arange(len(steps)), none, none, none, none)


def _deletes(w: World, files: Files, gone: dict[int, set[int]]) -> tuple[tuple[int, frozenset[int]], ...]:
    """A vector stands for all that is deleted in its file, a delete file for what it says."""
    before = files.deleted if w.vectors and w.rules.vectors_keep_what_was else {}
    return tuple((file, frozenset(rows) | before.get(file, frozenset())) for file, rows in gone.items())
