"""Rows whose source did not send all values: completed from the rows that have them, and written once more.

The values are in an earlier row of the same flushes, or in a row of the table. Where changes say their own
order, earlier is what was earlier at the source: a change that is sent again takes nothing from rows that are
newer than it is, and where the same change is there already, it takes what that one has. What nobody has
stays NULL and is noted in `_errors`.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ingest.commit.keyed_table import KeyedTable, keyed_files
from ingest.keys.key_hash import KeyHashes
from ingest.keys.key_index_store import KeyedFile
from ingest.keys.key_lookup import find_live_rows
from ingest.keys.keyed_steps import KeyedSteps
from ingest.keys.row_values import rows_at
from ingest.model.link import TableKey
from ingest.write.hot_table import OpenFile
from ingest.write.writer import fields_of, laid_out, layout_of
from lake.clock import epoch_us
from lake.data_file import DataFile
from lake.log_schema import ERRORS, POSITION, TIMESTAMP, ValueReason
from lake.table_layout import data_file_uri

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Completed:
    """`steps` name the rows where they are now; `files`: what was written, numbered after the flushes' own.
    `replaced`: places of steps, with the file and row where each was before."""

    steps: KeyedSteps
    files: Sequence[DataFile]
    replaced: Sequence[tuple[int, int]]


def complete_rows(
    table: KeyedTable, steps: KeyedSteps, winners: NDArray[np.int64], key: TableKey, own: Sequence[DataFile]
) -> Completed:
    """Completes the rows of the winning steps that lack values. Raises what reading and writing files
    raises."""
    if steps.unavailable is None or steps.values_of is None:
        return Completed(steps, (), ())
    has_names = np.asarray(steps.unavailable.is_valid())
    lacking = winners[has_names[winners]].tolist()
    if not lacking:
        return Completed(steps, (), ())
    earlier = _earlier_steps(steps, lacking, is_ordered=key.order_by != "offset")
    rows = _Rows(table, steps, earlier, key, own)
    completed = {at: rows.complete(at) for at in lacking}
    return _written(table, steps, own, completed)


class _Rows:
    """The rows that are completed, and those that have their values; each file is read once."""

    def __init__(
        self,
        table: KeyedTable,
        steps: KeyedSteps,
        earlier: Mapping[int, int | None],
        key: TableKey,
        own: Sequence[DataFile],
    ) -> None:
        self._steps, self._earlier, self._key = steps, earlier, key
        self._names = {column.id: column.name for column in table.schema.columns}
        self._own = self._read_own(table, own)
        self._of_table = self._read_table(table, keyed_files(table, key))
        self._done: dict[int, Row] = {}

    def complete(self, at: int) -> Row:
        """The row of a step with the values that it keeps."""
        chain = [at]
        while chain[-1] not in self._done and (before := self._earlier[chain[-1]]) is not None:
            chain.append(before)
        row: Row | None = None
        for each in reversed(chain):  # the earliest first: the later ones take from it
            if each not in self._done:
                self._done[each] = self._completed(each, self._last_of(each, row))
            row = self._done[each]
        return self._done[at]

    def _last_of(self, at: int, earlier: Row | None) -> Row | None:
        """The row that a step takes values from: of the earlier step's, completed, and the table's."""
        there = self._of_table.get(at)
        before = self._earlier[at]
        if earlier is None or before is None:
            return there
        return there if there is not None and self._compared(before, there) >= 0 else earlier

    def _completed(self, at: int, there: Row | None) -> Row:
        row = dict(self._own[at])
        names = _unavailable(self._steps, at)
        row |= {name: None if there is None else there.get(name) for name in names}
        if there is None and names:
            row[ERRORS] = [*(row.get(ERRORS) or ()), *map(_missing, names)]
        return row

    def _read_own(self, table: KeyedTable, own: Sequence[DataFile]) -> dict[int, Row]:
        """The rows of steps, as the flushes wrote them."""
        places = np.fromiter(self._earlier, np.int64)
        found: dict[int, Row] = {}
        for number in np.unique(self._steps.file[places]).tolist():
            of_file = places[self._steps.file[places] == number]
            rows = rows_at(table.storage, own[number].uri, self._steps.row[of_file], self._names)
            found |= zip(of_file.tolist(), rows.to_pylist(), strict=True)
        return found

    def _read_table(self, table: KeyedTable, files: Sequence[KeyedFile]) -> dict[int, Row]:
        """Rows of the table by the steps that take values from them; steps that find none are left out."""
        values_of = self._steps.values_of
        is_ordered = self._key.order_by != "offset"
        asking = [
            at
            for at, before in self._earlier.items()
            if (before is None or is_ordered) and _lacks(self._steps, at)
        ]
        if values_of is None or not asking or not files:
            return {}
        places = np.asarray(asking, np.int64)
        found = self._live_rows(table, files, values_of.taken(places), places)
        if not is_ordered:
            return found
        same = self._live_rows(table, files, self._steps.hashes.taken(places), places)
        found = {at: row for at, row in found.items() if self._compared(at, row) <= 0}
        return found | {at: row for at, row in same.items() if self._compared(at, row) == 0}

    def _live_rows(
        self, table: KeyedTable, files: Sequence[KeyedFile], hashes: KeyHashes, places: NDArray[np.int64]
    ) -> dict[int, Row]:
        """The table's row of each hash, by the place that stands beside it."""
        rows = find_live_rows(table.store, hashes, files, table.live.deleted)
        found: dict[int, Row] = {}
        for number in np.unique(rows.file).tolist():
            of_file = rows.taken(rows.file == number)
            read = rows_at(table.storage, files[number].uri, of_file.position, self._names)
            found |= zip(places[of_file.key].tolist(), read.to_pylist(), strict=True)
        return found

    def _compared(self, at: int, row: Row) -> int:
        """-1, 0 or 1: whether a row of the table is older than a step, of the same change, or newer. One that
        does not say is older."""
        coming = self._steps.order[at].as_py()
        there = row.get(POSITION)
        if self._key.order_by == "time":
            moment = row.get(TIMESTAMP)
            there = None if moment is None else epoch_us(moment)
        if there is None or coming is None:
            return -1
        return int(there > coming) - int(there < coming)


def _lacks(steps: KeyedSteps, at: int) -> bool:
    return steps.unavailable is not None and bool(steps.unavailable[at].is_valid)


def _unavailable(steps: KeyedSteps, at: int) -> list[str]:
    """The columns whose values the step keeps."""
    names = None if steps.unavailable is None else steps.unavailable[at].as_py()
    return names or []


def _earlier_steps(steps: KeyedSteps, lacking: Sequence[int], *, is_ordered: bool) -> dict[int, int | None]:
    """For each of the steps, and for all that it takes values from, the earlier step of the flushes that has
    the row it takes them from; None where that is a row of the table, and where it takes none.

    By the order of the changes where they have one, else by their offsets, in one partition.
    """
    find = _EarlierByOrder(steps).find if is_ordered else _EarlierByOffset(steps).find
    found: dict[int, int | None] = {}
    wanted = list(lacking)
    while wanted:
        at = wanted.pop()
        if at in found:
            continue
        if not _lacks(steps, at):
            found[at] = None
            continue
        found[at] = before = find(at)
        if before is not None:
            wanted.append(before)
    return found


class _EarlierByOffset:
    """Steps that leave a row, by partition and key, as they came."""

    def __init__(self, steps: KeyedSteps) -> None:
        self._steps = steps
        self._places: dict[tuple[int, int, int], list[int]] = defaultdict(list)
        with_row = _asked_for(steps)
        for at in with_row[np.argsort(steps.offset[with_row], kind="stable")].tolist():
            self._places[int(steps.source[at]), *_hash(steps.hashes, at)].append(at)

    def find(self, at: int) -> int | None:
        steps = self._steps
        assert steps.values_of is not None
        same = self._places.get((int(steps.source[at]), *_hash(steps.values_of, at)), [])
        before = bisect_left(same, int(steps.offset[at]), key=lambda other: int(steps.offset[other]))
        return same[before - 1] if before else None


class _EarlierByOrder:
    """Steps that leave a row, by key, as their source made them; those of one change as they came."""

    def __init__(self, steps: KeyedSteps) -> None:
        self._steps = steps
        ranks = np.asarray(pc.rank(steps.order, tiebreaker="dense")).astype(np.int64)
        ranks[np.asarray(steps.order.is_null())] = 0
        self._ranks = ranks
        self._places: dict[tuple[int, int], list[int]] = defaultdict(list)
        for at in sorted(_asked_for(steps).tolist(), key=self._turn):
            self._places[_hash(steps.hashes, at)].append(at)

    def find(self, at: int) -> int | None:
        assert self._steps.values_of is not None
        same = self._before(_hash(self._steps.hashes, at), at)
        if same is not None and self._ranks[same] == self._ranks[at]:
            return same
        return self._before(_hash(self._steps.values_of, at), at)

    def _turn(self, at: int) -> tuple[int, int, int]:
        return int(self._ranks[at]), int(self._steps.source[at]), int(self._steps.offset[at])

    def _before(self, key: tuple[int, int], at: int) -> int | None:
        places = self._places.get(key, [])
        before = bisect_left(places, self._turn(at), key=self._turn)
        return places[before - 1] if before else None


def _asked_for(steps: KeyedSteps) -> NDArray[np.int64]:
    """Places of the steps that leave a row from which another one may take values."""
    assert steps.values_of is not None
    assert steps.unavailable is not None
    lacking = np.asarray(steps.unavailable.is_valid())
    wanted = np.concatenate([steps.values_of.high[lacking], steps.hashes.high[lacking]])
    there = (steps.file >= 0) & ~steps.truncated & np.isin(steps.hashes.high, wanted)
    return np.flatnonzero(there)


def _hash(hashes: KeyHashes, at: int) -> tuple[int, int]:
    return int(hashes.high[at]), int(hashes.low[at])


def _missing(column: str) -> Mapping[str, str | None]:
    return {"field": column, "value": None, "reason": ValueReason.UNAVAILABLE.value}


def _written(
    table: KeyedTable, steps: KeyedSteps, own: Sequence[DataFile], completed: Mapping[int, Row]
) -> Completed:
    """Writes the rows, a file for each bucket."""
    by_bucket: dict[int | None, list[int]] = defaultdict(list)
    for at in completed:
        by_bucket[own[int(steps.file[at])].bucket].append(at)
    file, row = steps.file.copy(), steps.row.copy()
    files = []
    for number, (bucket, places) in enumerate(by_bucket.items(), len(own)):
        files.append(_write(table, bucket, [completed[at] for at in places]))
        file[places], row[places] = number, np.arange(len(places))
    table.storage.sync([each.uri for each in files])
    replaced = [(int(steps.file[at]), int(steps.row[at])) for at in completed]
    return Completed(replace(steps, file=file, row=row), files, replaced)


def _write(table: KeyedTable, bucket: int | None, rows: Sequence[Row]) -> DataFile:
    names = {name for row in rows for name, value in row.items() if value is not None}
    layout = layout_of(fields_of(table.schema, names))
    given = pa.Table.from_pylist(
        [{name: row.get(name) for name in layout.arrow.names} for row in rows],
        pa.schema([field.with_nullable(True) for field in layout.arrow]),
    )
    uri = data_file_uri(table.state.location, bucket or 0)
    opened = OpenFile(table.storage, uri, None, layout, bucket)
    opened.write(laid_out(given, layout))
    return opened.close()
