"""Small flushes of many tables, decoded together: most tenants run the same few shippers, so that their
records have the same templates.

A flush by itself costs as much as some hundred records do, and that is what most tables of a node have in
one. Here the records of many buffers whose tables have the same columns are cut out at once, and each table
gets its slice. What fits no frequent template is left to the table.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from ingest.convert.columnar import Decoded
from ingest.convert.record_template import ROWS_MIN, decode_by_template
from ingest.convert.shape import Shapes
from ingest.convert.work import (
    CHUNK_ROWS,
    ConverterLimits,
    Part,
    Records,
    Work,
    keep,
    the_reading,
    work_on,
)
from ingest.decode.formats.registry import TOPIC_FORMATS
from ingest.model.source import Source
from ingest.route.buffer import TableBuffer
from lake.log_schema import LogSchema
from lake.tenant import TableId


class Waiting(NamedTuple):
    """A buffer of which its table has nothing yet, and the table's schema; tables with equal columns share
    one object."""

    buffer: TableBuffer
    schema: LogSchema


def convert_batched(
    waiting: Iterable[Waiting], sources: Sequence[Source], limits: ConverterLimits, shapes: Shapes
) -> dict[TableId, list[Part]]:
    """What can be converted together, by table."""
    parts = defaultdict[TableId, list[Part]](list)
    for schema, buffers in _groups(waiting, sources):
        if len(buffers) > 1 and sum(map(len, buffers)) >= ROWS_MIN:
            _convert_group(buffers, work_on(_joined(buffers), sources, schema, limits, shapes), parts)
    return parts


def _groups(
    waiting: Iterable[Waiting], sources: Sequence[Source]
) -> Iterator[tuple[LogSchema, list[TableBuffer]]]:
    """Buffers by schema and by how their messages are read, some thousand records at a time."""
    gathered = dict[Any, tuple[LogSchema, list[TableBuffer]]]()
    rows = Counter[Any]()
    for buffer, schema in waiting:
        reading = the_reading(sources[number] for number in buffer.first_offsets)
        if (
            reading is None
            or not TOPIC_FORMATS[reading.form].takes_objects
            or len(buffer) >= CHUNK_ROWS
            or buffer.undated
        ):
            continue
        key = id(schema), reading
        gathered.setdefault(key, (schema, []))[1].append(buffer)
        rows[key] += len(buffer)
        if rows[key] >= CHUNK_ROWS:
            del rows[key]
            yield gathered.pop(key)
    yield from gathered.values()


def _joined(buffers: Sequence[TableBuffer]) -> TableBuffer:
    """One buffer with the messages of all, without what only a message by itself needs."""
    joined = TableBuffer(buffers[0].table, 0.0)
    for buffer in buffers:
        joined.sources += buffer.sources
        joined.offsets += buffer.offsets
        joined.timestamps_ms += buffer.timestamps_ms
        joined.values += buffer.values
        joined.first_offsets |= buffer.first_offsets
    return joined


def _convert_group(buffers: Sequence[TableBuffer], work: Work, parts: dict[TableId, list[Part]]) -> None:
    starts = np.cumsum([0, *map(len, buffers)])
    records = Records(work.buffer.values, range(len(work.buffer)))
    new = work.terms.columns.new
    for decoded in decode_by_template(work.buffer.values, work.timestamps_ms, work.terms):
        if decoded.ordinals:
            keep(work, decoded.columns, records, decoded.ordinals)
            _share(buffers, starts, decoded, work.chunks.pop(), dict(new), parts)
        new.clear()  # the next template may spell a new column otherwise


def _share(
    buffers: Sequence[TableBuffer],
    starts: Any,
    decoded: Decoded,
    rows: pa.Table,
    new: dict[str, str],
    parts: dict[TableId, list[Part]],
) -> None:
    """Gives each table its slice of the rows, without the columns that are empty in it."""
    bounds = np.searchsorted(decoded.ordinals, starts).tolist()
    gaps = [name for name in rows.column_names if rows.column(name).null_count]
    for buffer, start, first, end in zip(buffers, starts.tolist(), bounds, bounds[1:], strict=False):
        if first == end:
            continue
        own = rows.slice(first, end - first)
        if empty := [name for name in gaps if own.column(name).null_count == end - first]:
            own = own.drop_columns(empty)
        ordinals = (
            range(len(buffer))
            if end - first == len(buffer)
            else [at - start for at in decoded.ordinals[first:end]]
        )
        parts[buffer.table].append(
            Part(own, ordinals, {name: path for name, path in new.items() if name not in empty})
        )
