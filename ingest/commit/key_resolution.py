"""From the steps of all flushes of a keyed table to the rows that go, at one state of the table.

    steps of the flushes -> of each key the one that wins -> where the table has the key -> rows that go

A row of the flushes whose step does not win is deleted where it was just written; a row of the table whose
key has a newer step is deleted, too. All of it is one commit, beside the new files.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyroaring import BitMap64

from ingest.commit.completed_rows import complete_rows
from ingest.commit.keyed_table import KeyedTable, as_keyed, keyed_files
from ingest.commit.late_changes import Coming, came_later
from ingest.commit.live_rows import LiveRows
from ingest.commit.split_keys import names_of, rows_of_other_partitions
from ingest.keys.chosen_steps import choose_steps
from ingest.keys.joined_flushes import join_flushes
from ingest.keys.key_index_store import KeyedFile
from ingest.keys.key_lookup import KeyRows, find_live_rows, verified_rows
from ingest.keys.keyed_steps import KeyedSteps
from ingest.keys.row_values import values_at
from ingest.model.link import NAMED_MAX, KeyedRows, TableKey, WrittenFlush
from lake.commit import RowDelta, TableState
from lake.data_file import DataFile
from lake.deletes.row_deletes import Place, encode_row_deletes, positions_of
from lake.deletes.row_delta import RowDeletes, delete_rows
from lake.errors import FatalError
from lake.log_schema import POSITION, TIMESTAMP
from lake.manifest import ManifestEntry, Status
from lake.marks import TopicPartition
from lake.storage import Storage, canonical


@dataclass(frozen=True, slots=True)
class Resolution:
    """What a commit does beside adding its files: the delete files to be written first, and what it changes.
    `positions`: what each of those says, by its place. `counts`: changes by what became of them.
    `in_several`: some of the keys that stand in more than one partition."""

    delta: RowDelta
    written: Sequence[tuple[str, bytes]]
    positions: Mapping[Place, Mapping[str, BitMap64]]
    counts: Mapping[str, int]
    in_several: Sequence[str] = ()


def resolve(table: KeyedTable, flushes: Sequence[WrittenFlush]) -> Resolution:
    """Finds out which rows the flushes make go. Raises FatalError where the flushes do not agree on the key,
    and what reading the table's files raises."""
    state, live = table.state, table.live
    files = [file for flush in flushes for file in flush.files]
    keyed = [flush.keyed for flush in flushes if flush.keyed is not None]
    key = _the_key(state, keyed)
    steps, partitions = join_flushes(flushes)
    counts = Counter[str]()
    for each in keyed:
        counts.update(each.changes)
    removed: list[ManifestEntry] = []
    if any(each.truncated_at for each in keyed):
        removed = live.all
        live = LiveRows((), {})
        table = replace(table, live=live)
    chosen = choose_steps(steps, key)
    counts.update(chosen.counts(key))
    completed = complete_rows(table, steps, chosen.winners, key, files)
    steps = completed.steps
    gone = _Gone(table.storage, [*files, *completed.files], live)
    gone.add_own(steps, chosen.losers)
    gone.add_rows(completed.replaced)
    found = _look_up(table, steps, chosen.winners, key)
    replayed = partitions if any(each.has_replayed for each in keyed) else None
    _decide(table, steps, chosen.winners, key, found, gone, counts, replayed)
    split = rows_of_other_partitions(table, steps, chosen.winners, found, keyed_files(table, key), partitions)
    split = np.union1d(split, chosen.in_partitions)
    counts["in_several_partitions"] += len(split)
    named = [*(name for each in keyed for name in each.in_several), *names_of(steps, split, key)]
    _keep_indexes(table, steps, files, key)
    delta, deletes = gone.to_delta(state, removed)
    return Resolution(delta, deletes.written, deletes.positions, counts, named[:NAMED_MAX])


def _the_key(state: TableState, keyed: Sequence[KeyedRows]) -> TableKey:
    keys = {each.key for each in keyed}
    if len(keys) != 1:
        named = "; ".join(sorted(", ".join(key.columns) for key in keys))
        raise FatalError(
            f"table {state.name} gets changes with different keys ({named}); give its topics one key by "
            "`changes.key`"
        )
    return next(iter(keys))


class _Gone:
    """The positions that a commit deletes, in the table's files and in its own."""

    def __init__(self, storage: Storage, own: Sequence[DataFile], live: LiveRows) -> None:
        self._storage, self._own = storage, own
        self._positions: dict[str, BitMap64] = defaultdict(BitMap64)
        self._files = {canonical(file.uri): file for file in own}
        self._files |= {canonical(entry.file.uri): entry.file for entry in live.data}

    def add_own(self, steps: KeyedSteps, places: NDArray[np.int64]) -> None:
        """The rows that these steps have left in the flushes' own files."""
        files = steps.file[places]
        for number in np.unique(files[files >= 0]).tolist():
            rows = steps.row[places[files == number]]
            self._positions[canonical(self._own[number].uri)] |= BitMap64(rows.tolist())

    def add_rows(self, places: Sequence[tuple[int, int]]) -> None:
        """Rows of the flushes' own files, by the number of the file and their own."""
        for file, row in places:
            self._positions[canonical(self._own[file].uri)].add(row)

    def add(self, files: Sequence[KeyedFile], found: KeyRows) -> None:
        """Rows of the table."""
        for number in np.unique(found.file).tolist():
            positions = found.position[found.file == number]
            self._positions[canonical(files[number].uri)] |= BitMap64(positions.tolist())

    def to_delta(self, state: TableState, removed: Sequence[ManifestEntry]) -> tuple[RowDelta, RowDeletes]:
        """The change of the table, with its delete files."""
        pairs = [(self._files[uri], positions) for uri, positions in sorted(self._positions.items())]
        if not removed:
            deletes = delete_rows(self._storage, state, pairs)
            return RowDelta(self._own, deletes.entries, deletes.kept), deletes
        # Nothing is left that earlier deletes are about.
        written, files = encode_row_deletes(state.location, state.version, pairs)
        entries = [ManifestEntry(Status.ADDED, file) for file in files]
        deletes = RowDeletes(written, entries, positions_of(files, pairs))
        return RowDelta(self._own, entries, [], removed), deletes


def _keep_indexes(table: KeyedTable, steps: KeyedSteps, files: Sequence[DataFile], key: TableKey) -> None:
    """Keeps the indexes of the flushes' files: their keys are hashed already. A file that has other rows too
    gets its index from what stands in it, when it is first looked at."""
    if any(name not in table.state.schema.by_name for name in key.columns):
        return  # the table gets them with this commit
    for number, file in enumerate(as_keyed(table, key, files)):
        of_file = np.flatnonzero(steps.file == number)
        in_order = of_file[np.argsort(steps.row[of_file], kind="stable")]
        if np.array_equal(steps.row[in_order], np.arange(files[number].rows)):
            table.store.put(file, steps.hashes.taken(in_order))


def _look_up(table: KeyedTable, steps: KeyedSteps, winners: NDArray[np.int64], key: TableKey) -> KeyRows:
    """Finds the rows that the table has of the winners' keys."""
    files = keyed_files(table, key)
    found = find_live_rows(table.store, steps.hashes.taken(winners), files, table.live.deleted)
    keys = [column.take(pa.array(winners)) for column in steps.keys]
    return verified_rows(table.reader, found, keys, files)


def _decide(
    table: KeyedTable,
    steps: KeyedSteps,
    winners: NDArray[np.int64],
    key: TableKey,
    found: KeyRows,
    gone: _Gone,
    counts: Counter[str],
    replayed: Sequence[TopicPartition] | None,
) -> None:
    """Of the winners and the rows that the table has of their keys, decides which go. `replayed`: what the
    steps count by, where some of them are of dead letters."""
    files = keyed_files(table, key)
    stays = _table_wins(table, steps, winners, key, found, files)
    if replayed is not None and key.order_by == "offset":
        of = winners[found.key]
        coming = Coming([replayed[number] for number in steps.source[of].tolist()], steps.offset[of])
        stays |= came_later(table.reader, table.state.schema, found, [file.uri for file in files], coming)
    gone.add_own(steps, winners[np.unique(found.key[stays])])
    gone.add(files, found.taken(~stays))
    replaced = np.unique(found.key[~stays])
    updated = int(np.count_nonzero(steps.file[winners[replaced]] >= 0))
    counts["updated"] += updated
    counts["deleted"] += len(replaced) - updated
    counts["passed_over" if key.mode == "first_wins" else "older"] += len(np.unique(found.key[stays]))
    missing = np.setdiff1d(np.arange(len(winners)), found.key)
    inserted = int(np.count_nonzero(steps.file[winners[missing]] >= 0))
    counts["inserted"] += inserted
    counts["absent"] += len(missing) - inserted


def _table_wins(
    table: KeyedTable,
    steps: KeyedSteps,
    winners: NDArray[np.int64],
    key: TableKey,
    found: KeyRows,
    files: Sequence[KeyedFile],
) -> NDArray[np.bool_]:
    """For each found row, whether it stays and the step of its key is passed over."""
    if key.mode == "first_wins":
        return np.ones(len(found), np.bool_)
    if key.order_by == "offset" or not len(found):
        return np.zeros(len(found), np.bool_)
    column = table.state.schema.by_name.get(POSITION if key.order_by == "position" else TIMESTAMP)
    if column is None:
        return np.zeros(len(found), np.bool_)
    kind = steps.order.type
    (there,) = values_at(table.reader, found, [file.uri for file in files], {column.id: kind})
    coming = steps.order.take(pa.array(winners[found.key]))
    newer = pc.fill_null(pc.greater(there, coming), pc.and_(there.is_valid(), coming.is_null()))
    return np.asarray(newer)
