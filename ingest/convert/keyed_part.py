"""Changes that wait for a keyed table, to the rows that they leave and the steps that lead there.

    messages -> changes -> steps of keys -> of each key the one that wins -> its row, where it leaves one

Only what wins becomes columns.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ingest.changes.change import Cells
from ingest.changes.column_type import to_arrow
from ingest.convert.bad_values import ERRORS_TYPE, entries
from ingest.convert.change_columns import ChangeColumns, lay_out_cells
from ingest.convert.kept_values import with_kept_values, with_what_they_rest_on
from ingest.convert.key_text import key_text
from ingest.convert.parted_moves import parted_moves
from ingest.convert.read_changes import ReadChanges, Step, steps_of
from ingest.convert.step_keys import by_mode, deletes_alone, find_step_keys, order_of
from ingest.convert.values import to_column
from ingest.convert.work import coordinates
from ingest.keys.key_hash import KeyHashes, hash_keys
from ingest.keys.keyed_steps import NO_FILE, KeyedSteps
from ingest.keys.last_change import last_changes
from ingest.model.link import NAMED_MAX
from ingest.model.source import Source
from ingest.route.buffer import TableBuffer
from lake.errors import Rejected
from lake.log_schema import ERRORS, INDEX, OBSERVED_TIMESTAMP, POSITION, TIMESTAMP, ValueReason
from lake.marks import TopicPartition
from lake.settings import ChangeMode, ChangeOrder

_UTC = pa.timestamp("us", "UTC")


@dataclass(frozen=True, slots=True)
class KeyRules:
    """What changes do to the rows of a table. `key`: its columns, by their folded names, in order."""

    mode: ChangeMode
    key: tuple[str, ...]
    order_by: ChangeOrder


@dataclass(slots=True)
class KeyedPart:
    """What becomes of a part of a flush. `rows` are those of the steps whose `file` is to be said yet, in
    their order.

    """

    rows: pa.Table
    steps: KeyedSteps
    leaves_row: NDArray[np.bool_]
    truncated_at: Mapping[int, int]  # by source, the offset of the last message that emptied the table
    rows_with_errors: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    in_several: Sequence[str] = ()
    rejected: list[tuple[int, Rejected]] = field(default_factory=list)


@dataclass(slots=True)
class Numbering:
    """The numbers of topic-partitions in a flush: those of the sources, then those that replayed changes were
    first read from."""

    partitions: list[TopicPartition]

    def number(self, partition: TopicPartition) -> int:
        """The number of one; a new one gets the next."""
        if partition not in self.partitions:
            self.partitions.append(partition)
        return self.partitions.index(partition)


class _Places(NamedTuple):
    """Where the messages of a part stand, by ordinal: the number of a topic-partition, and an offset there. A
    change that was a dead letter stands where it was first read, before all that came after it."""

    partitions: NDArray[np.int32]
    offsets: NDArray[np.int64]

    def of(self, steps: Sequence[Step]) -> "_Places":
        """Those of steps."""
        ordinals = np.asarray([step.ordinal for step in steps], np.int64)
        return _Places(self.partitions[ordinals], self.offsets[ordinals])


def _places(read: ReadChanges, buffer: TableBuffer, numbering: Numbering) -> _Places:
    partitions, offsets = np.asarray(buffer.sources, np.int32), np.asarray(buffer.offsets, np.int64)
    for ordinal, origin in read.origins.items():
        partitions[ordinal] = numbering.number(TopicPartition(origin.topic_id, origin.partition))
        offsets[ordinal] = origin.offset
    return _Places(partitions, offsets)


def convert_changes(
    read: ReadChanges,
    buffer: TableBuffer,
    sources: Sequence[Source],
    columns: ChangeColumns,
    rules: KeyRules,
    numbering: Numbering,
) -> KeyedPart:
    """Finds the steps that win and makes their rows."""
    places = _places(read, buffer, numbering)
    parted = parted_moves(read.changes, buffer, sources, rules.order_by)
    apart = steps_of(read.changes, rules.order_by, parted)
    counts = Counter({"repeated_delete": apart.repeats, "moving": apart.moving})
    counts["replaced"] += apart.first
    steps = apart.steps[apart.first :]
    found = find_step_keys(steps, columns, rules.key)
    steps, arrays = with_kept_values(found.steps, rules.key, rules.order_by), found.keys
    hashes = hash_keys(arrays)
    only_deletes = _only_deletes(steps, read, buffer, sources, rules)
    kept, passed_over = by_mode(steps, rules.mode, only_deletes)
    counts["passed_over"] += passed_over
    winners = _winners([steps[at] for at in kept], hashes.taken(_indices(kept)), places, rules)
    chosen = with_what_they_rest_on([kept[at] for at in winners.places], steps)
    # Those that stay for others are counted where the flush is committed.
    replaced = winners.replaced - (len(chosen) - len(winners.places))
    counts["passed_over" if rules.mode == "first_wins" else "replaced"] += replaced
    counts["older"] += winners.older
    counts["in_several_partitions"] += len(winners.in_partitions)
    in_several = [str(key_text(steps[kept[at]].key)) for at in winners.in_partitions[:NAMED_MAX]]
    won = [steps[at] for at in chosen]
    keys = [_take(array, chosen) for array in arrays]
    leaves_row = np.asarray([step.row is not None for step in won], np.bool_)
    ordinals = [step.ordinal for step in won if step.row is not None]
    system = coordinates(buffer, sources, ordinals, distinct=False, origins=read.origins) if ordinals else {}
    rows = _rows(won, keys, leaves_row, system, columns, rules)
    return KeyedPart(
        rows,
        _with_unavailable(
            _steps(won, keys, hashes.taken(_indices(chosen)), places, rules), won, columns, rules.key
        ),
        leaves_row,
        {buffer.sources[at]: buffer.offsets[at] for at in apart.truncated_by},
        rows.num_rows - rows.column(ERRORS).null_count if ERRORS in rows.column_names else 0,
        counts,
        in_several,
        [*found.rejected, *read.rejected],
    )


# ---- who wins


@dataclass(frozen=True, slots=True)
class _Winners:
    """`places`: of the steps that win; `in_partitions`: of those whose keys stand in several; the rest are
    counts of steps."""

    places: list[int]
    replaced: int = 0
    older: int = 0
    in_partitions: Sequence[int] = ()


def _only_deletes(
    steps: Sequence[Step],
    read: ReadChanges,
    buffer: TableBuffer,
    sources: Sequence[Source],
    rules: KeyRules,
) -> list[bool]:
    """For each step whether its topic only deletes."""
    of_sources = [deletes_alone(rules.mode, source.changes) for source in sources]
    if not any(of_sources) and not read.origins:
        return [False] * len(steps)
    return [
        deletes_alone(rules.mode, read.origins[step.ordinal].changes)
        if step.ordinal in read.origins
        else of_sources[buffer.sources[step.ordinal]]
        for step in steps
    ]


def _winners(steps: Sequence[Step], hashes: KeyHashes, places: _Places, rules: KeyRules) -> _Winners:
    if not steps:
        return _Winners([])
    # Two steps of one message have different keys, so that their order does not matter.
    partitions, offsets = places.of(steps)
    if rules.mode == "first_wins":
        partitions, offsets = -partitions, -offsets
    order = None if rules.order_by == "offset" else order_of(steps, rules.order_by)
    last = last_changes(hashes, partitions, offsets, order)
    return _Winners(
        last.last.tolist(), len(last.replaced), len(last.passed_over), last.in_partitions.tolist()
    )


def _steps(
    steps: Sequence[Step],
    keys: Sequence[pa.Array],
    hashes: KeyHashes,
    places: _Places,
    rules: KeyRules,
) -> KeyedSteps:
    count = len(steps)
    return KeyedSteps(
        hashes,
        *places.of(steps),
        order_of(steps, rules.order_by),
        np.full(count, NO_FILE, np.int32),
        np.full(count, NO_FILE, np.int64),
        np.zeros(count, np.bool_),
        keys,
    )


def _with_unavailable(
    found: KeyedSteps, steps: Sequence[Step], columns: ChangeColumns, key: tuple[str, ...]
) -> KeyedSteps:
    """The steps with what is to be taken from rows that the table has."""
    lacking = [at for at, step in enumerate(steps) if step.unavailable and step.values_of is not None]
    if not lacking:
        return found
    names: list[list[str] | None] = [None] * len(steps)
    for at in lacking:
        names[at] = [_placed(name, steps[at].row, columns) for name in sorted(steps[at].unavailable)]
    arrays = []
    for name in key:
        kind = to_arrow(columns.kind(name))
        values = [_key_value(steps[at].values_of, name, columns) for at in lacking]
        arrays.append(pa.array(values, kind))
    of_others = hash_keys(arrays)
    high, low = found.hashes.high.copy(), found.hashes.low.copy()
    high[lacking], low[lacking] = of_others.high, of_others.low
    return replace(found, unavailable=pa.array(names, pa.list_(pa.string())), values_of=KeyHashes(high, low))


def _placed(column: str, row: Cells | None, columns: ChangeColumns) -> str:
    if row is None:
        return column
    return columns.place(column, row.paths.get(column, ""), row.types.get(column)).column


def _key_value(cells: Cells | None, name: str, columns: ChangeColumns) -> Any:
    """A key's value as its column stores it; None where it cannot: then there is no row of it."""
    value = None if cells is None else cells.values.get(name)
    if value is None or cells is None or name in cells.types:
        return value
    stored = to_column(columns.kind(name), value)
    return None if isinstance(stored, ValueReason) else stored


# ---- rows


def _rows(
    steps: Sequence[Step],
    keys: Sequence[pa.Array],
    leaves_row: NDArray[np.bool_],
    system: Mapping[str, pa.Array],
    columns: ChangeColumns,
    rules: KeyRules,
) -> pa.Table:
    """The rows of steps that leave one, with all their columns. `system`: those that say where they came
    from."""
    left = [step for step in steps if step.row is not None]
    if not left:
        return pa.table({})
    laid = lay_out_cells([step.row for step in left if step.row is not None], columns)
    arrays: dict[str, Any] = dict(zip(laid.rows.column_names, laid.rows.columns, strict=True))
    put = pa.array(np.flatnonzero(leaves_row))
    arrays |= {name: array.take(put) for name, array in zip(rules.key, keys, strict=True)}
    arrays |= system
    arrays[INDEX] = pa.array(np.zeros(len(left), np.int32))
    arrays[TIMESTAMP] = _times(left, arrays[OBSERVED_TIMESTAMP])
    if laid.errors or any(step.change.errors for step in left):
        bad = [entries([*step.change.errors, *laid.errors.get(at, ())]) for at, step in enumerate(left)]
        arrays[ERRORS] = pa.array(bad, ERRORS_TYPE)
    if rules.order_by == "position":
        columns.place(POSITION, "", "string")
        arrays[POSITION] = order_of(left, "position")
    return pa.table(arrays)


def _times(steps: Sequence[Step], kafka: pa.Array) -> pa.Array:
    """When changes happened: by their source, else by Kafka."""
    times = pa.array([step.change.time_us for step in steps], pa.int64()).cast(_UTC)
    return pa.compute.coalesce(times, kafka)


def _take(array: pa.Array, places: Sequence[int]) -> pa.Array:
    return array.take(pa.array(places, pa.int64()))


def _indices(places: Sequence[int]) -> NDArray[np.int64]:
    return np.asarray(places, np.int64)
