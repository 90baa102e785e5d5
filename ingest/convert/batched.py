"""Small flushes of many tables, decoded and laid out together.

A flush by itself costs as much as some hundred records do, and that is what most tables of a node have in
one. Here the records of many buffers whose tables have the same columns go together, and each table gets its
slice. What the core leaves is left to the table, and so is a table that would get too many columns.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from ingest.convert.json_records import read_objects
from ingest.convert.kept_times import KeptTimes
from ingest.convert.layout import LaidOut, lay_out
from ingest.convert.text_columns import Decoded
from ingest.convert.work import (
    CHUNK_ROWS,
    ConverterLimits,
    Part,
    Reading,
    Records,
    RowSlice,
    Work,
    located,
    the_reading,
    work_on,
)
from ingest.decode.formats.registry import TOPIC_FORMATS
from ingest.model.source import Source
from ingest.route.buffer import NOBODY, TableBuffer
from lake.log_schema import TIMESTAMP, LogSchema
from lake.tenant import TableId

_ALL = TableId(NOBODY, "")
_NO_LIMIT = 1 << 30  # of columns: how many a table may have is asked of its slice


class Waiting(NamedTuple):
    """A buffer of which its table has nothing yet, the table's schema, and the times it keeps; tables with
    equal columns share one schema."""

    buffer: TableBuffer
    schema: LogSchema
    kept: KeptTimes | None = None


def convert_batched(
    waiting: Iterable[Waiting], sources: Sequence[Source], limits: ConverterLimits
) -> dict[TableId, list[Part]]:
    """What can be converted together, by table."""
    parts = defaultdict[TableId, list[Part]](list)
    waiting = list(waiting)
    kept = {each.buffer.table: each.kept for each in waiting if each.kept is not None}
    for schema, reading, buffers in _groups(waiting, sources):
        joined = _joined(buffers)
        if joined.undated:  # whose these are, only each buffer by itself can tell
            buffers = [buffer for buffer in buffers if not buffer.undated]
            joined = _joined(buffers)
        if len(buffers) > 1:
            together = replace(limits, columns_max=_NO_LIMIT)
            work = work_on(joined, sources, schema, together)
            for decoded in read_objects(work.buffer.values[:], work.depth_max)[0]:
                _convert_group(buffers, work, decoded, reading, kept, parts)
    return parts


def _groups(
    waiting: Iterable[Waiting], sources: Sequence[Source]
) -> Iterator[tuple[LogSchema, Reading, list[TableBuffer]]]:
    """Buffers by schema and by how their messages are read, some thousand records at a time."""
    gathered = dict[Any, tuple[LogSchema, Reading, list[TableBuffer]]]()
    rows = Counter[Any]()
    for buffer, schema, _ in waiting:
        reading = the_reading(sources[number] for number in buffer.first_offsets)
        if reading is None or not TOPIC_FORMATS[reading.form].takes_objects or len(buffer) >= CHUNK_ROWS:
            continue
        key = id(schema), reading
        gathered.setdefault(key, (schema, reading, []))[2].append(buffer)
        rows[key] += len(buffer)
        if rows[key] >= CHUNK_ROWS:
            del rows[key]
            yield gathered.pop(key)
    yield from gathered.values()


def _joined(buffers: Sequence[TableBuffer]) -> TableBuffer:
    """One buffer with the messages of all."""
    joined = TableBuffer(_ALL, 0.0)
    for buffer in buffers:
        joined.join(buffer)
    return joined


def _convert_group(
    buffers: Sequence[TableBuffer],
    work: Work,
    decoded: Decoded,
    reading: Reading,
    kept: Mapping[TableId, KeptTimes],
    parts: dict[TableId, list[Part]],
) -> None:
    positions = np.asarray(decoded.positions)
    laid = lay_out(decoded.records, work.kafka_us[positions], replace(work.terms, local=reading.local))
    stored = positions[laid.kept]
    rows = located(work, laid.columns, Records((), stored.tolist())) if len(stored) else pa.table({})
    rejected = {int(positions[row]): why for row, why in laid.rejected}
    starts = np.cumsum([0, *map(len, buffers)])
    settled = np.sort(np.concatenate((stored, np.fromiter(rejected, np.int64, len(rejected)))))
    decided, bounds = (np.searchsorted(places, starts).tolist() for places in (settled, stored))
    times = laid.columns[TIMESTAMP].view(pa.int64()).to_numpy() if kept else np.empty(0)
    gaps = [name for name in rows.column_names if rows.column(name).null_count]
    for number, (buffer, start) in enumerate(zip(buffers, starts.tolist(), strict=False)):
        taken = settled[decided[number] : decided[number + 1]] - start
        if not len(taken):
            continue
        first, end = bounds[number], bounds[number + 1]
        keeps = kept.get(buffer.table)
        if keeps is not None and keeps.late(times[first:end]) is not None:
            continue  # which of them, the table will tell by itself
        own = rows.slice(first, end - first) if end > first else pa.table({})
        if own.num_rows and (empty := [name for name in gaps if own.column(name).null_count == own.num_rows]):
            own = own.drop_columns(empty)
        ordinals = range(len(buffer)) if len(taken) == len(buffer) else taken.tolist()
        dead = [(at, rejected[start + at]) for at in ordinals if start + at in rejected] if rejected else []
        new = _new_columns(laid, work.terms.columns.new, own, first)
        shared = RowSlice(rows, first, end)
        parts[buffer.table].append(Part(own, ordinals, new, dead, shared))


def _new_columns(laid: LaidOut, new: Collection[str], own: pa.Table, first: int) -> dict[str, str]:
    """The columns that a table's rows, which begin at `first`, bring, by its own spelling."""
    found = {}
    for name in [name for name in own.column_names if name in new]:
        column = laid.found[name]
        first_of = (
            0 if own.column(name).null_count == 0 else int(own.column(name).is_valid().to_numpy().argmax())
        )
        found[name] = column.path(int(laid.kept[first + first_of]))
    return found
