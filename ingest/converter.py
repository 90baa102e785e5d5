"""Raw messages of one table to Arrow, some thousand at a time, so that only a slice of a large flush is ever held as Python objects.

Most records fit the table's learned shape and are decoded column by column (`columnar`); the others go one by one through the exact path
(`decoder`, `row`), and teach the shape.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import pyarrow as pa

from ingest.buffer import TableBuffer
from ingest.columnar import decode_lines, decode_objects
from ingest.decoder import Pairs, decode
from ingest.row import Columns, Row, TimeLimits, entries, lay_out
from ingest.shape import Shapes
from lake.errors import Reason, Rejected
from lake.log_schema import ERRORS, INDEX, OBSERVED_TIMESTAMP, OFFSET, OVERFLOW, TIMESTAMP, TOPIC, TOPIC_ID, TOPIC_PARTITION, LogSchema, arrow_type

CHUNK_ROWS = 4_096
# So many records teach a shape at first, and so many odd ones are worth another lesson.
SAMPLE_ROWS = 8
LESSON_ROWS = 32
LESSONS_MAX = 4
_UTC = pa.timestamp("us", "UTC")
_ERRORS_TYPE = pa.list_(pa.struct([("field", pa.string()), ("value", pa.string()), ("reason", pa.string())]))
_BRACE = ord("{")


class Source(NamedTuple):
    """A topic-partition as messages are numbered by: where a row came from."""

    topic: str
    topic_id: str
    partition: int
    form: Literal["auto", "json", "text"]


@dataclass(frozen=True, slots=True)
class Converted:
    """The rows of a flush. `columns` are those of the file by name; `new` are names the table does not have yet, with their original paths."""

    rows: pa.Table
    new: Mapping[str, str]
    rejected: Sequence[tuple[int, Rejected]]  # position in the buffer and reason
    absorbed: int  # messages below the table's marks
    rows_with_errors: int


@dataclass(frozen=True, slots=True)
class ConverterLimits:
    """Bounds on one record and one table."""

    depth_max: int
    columns_max: int
    time: TimeLimits


@dataclass(slots=True)
class _Work:
    """One flush on its way to Arrow."""

    buffer: TableBuffer
    sources: Sequence[Source]
    columns: Columns
    limits: ConverterLimits
    shapes: Shapes
    timestamps_ms: pa.Array
    chunks: list[pa.Table] = field(default_factory=list)
    rejected: list[tuple[int, Rejected]] = field(default_factory=list)
    rows_with_errors: int = 0


def convert(buffer: TableBuffer, sources: Sequence[Source], schema: LogSchema, marks: Sequence[int], limits: ConverterLimits, shapes: Shapes) -> Converted:
    """Converts a table's waiting messages. `marks`: per source the next offset the table has not absorbed; what is below is left out."""
    work = _Work(buffer, sources, Columns(schema, limits.columns_max), limits, shapes, _int64(buffer.timestamps_ms))
    absorbed = 0
    for first in range(0, len(buffer), CHUNK_ROWS):
        chunk = range(first, min(first + CHUNK_ROWS, len(buffer)))
        places = [at for at in chunk if buffer.offsets[at] >= marks[buffer.sources[at]]]
        absorbed += len(chunk) - len(places)
        _convert_chunk(work, places)
    rows = pa.concat_tables(work.chunks, promote_options="default") if work.chunks else pa.table({})
    return Converted(rows, work.columns.new, work.rejected, absorbed, work.rows_with_errors)


def _convert_chunk(work: _Work, places: Sequence[int]) -> None:
    buffer, objects, lines = work.buffer, list[int](), list[int]()
    forms = [source.form for source in work.sources]
    for at in places:
        form = forms[buffer.sources[at]]
        (objects if form == "json" or (form == "auto" and buffer.values[at][0] == _BRACE) else lines).append(at)
    odd = list[int]()
    if lines:
        decoded = decode_lines([buffer.values[at] for at in lines], lines, _taken(work.timestamps_ms, lines))
        _keep(work, decoded.columns, decoded.places)
        odd += decoded.odd
    if objects:
        odd += _convert_objects(work, objects)
    if odd:
        _convert_exactly(work, odd)


def _convert_objects(work: _Work, places: Sequence[int]) -> list[int]:
    """Converts what fits the table's shape, again while that teaches something; returns what is left."""
    table, left = work.buffer.table, list(places)
    shape = work.shapes.of(table, work.buffer.values[left[0]])
    if shape is None:
        shape = work.shapes.learn(table, _parsed(work, left[:: max(1, len(left) // SAMPLE_ROWS)]))
    for _ in range(LESSONS_MAX):
        values = [work.buffer.values[at] for at in left]
        decoded = decode_objects(shape, values, left, _taken(work.timestamps_ms, left), work.columns, work.limits.time, work.limits.depth_max)
        _keep(work, decoded.columns, decoded.places)
        left = decoded.odd
        if not left:
            break
        before, shape = shape, work.shapes.learn(table, _parsed(work, left[:: max(1, len(left) // LESSON_ROWS)]))
        if shape is before or len(left) <= LESSON_ROWS:
            break
    return left


def _parsed(work: _Work, places: Sequence[int]) -> list[Pairs]:
    fields = [decode(work.buffer.values[at], "json", work.limits.depth_max) for at in places]
    return [pairs for pairs in fields if isinstance(pairs, Pairs)]


def _convert_exactly(work: _Work, places: Sequence[int]) -> None:
    rows, kept, buffer = list[Row](), list[int](), work.buffer
    for at in places:
        row = _row(buffer.values[at], buffer.timestamps_ms[at], work.sources[buffer.sources[at]].form, work.columns, work.limits)
        if isinstance(row, Rejected):
            work.rejected.append((at, row))
        else:
            rows.append(row)
            kept.append(at)
    if not rows:
        return
    arrays: dict[str, Any] = {
        TIMESTAMP: pa.array([row.timestamp_us for row in rows], pa.int64()).cast(_UTC),
        ERRORS: pa.array([entries(row.errors) for row in rows], _ERRORS_TYPE),
        OVERFLOW: pa.array([row.overflow for row in rows], pa.string()),
    }
    for name in dict.fromkeys(name for row in rows for name in row.values):
        arrays[name] = pa.array([row.values.get(name) for row in rows], arrow_type(work.columns.kind(name)))
    work.rows_with_errors += sum(bool(row.errors) for row in rows)
    _keep(work, arrays, kept)


def _row(value: bytes, timestamp_ms: int, form: Literal["auto", "json", "text"], columns: Columns, limits: ConverterLimits) -> Row | Rejected:
    fields = decode(value, form, limits.depth_max)
    if isinstance(fields, Rejected):
        return fields
    try:
        return lay_out(fields, timestamp_ms, columns, limits.time)
    except RecursionError:
        return Rejected(Reason.TOO_DEEP, f"nested deeper than {limits.depth_max} levels")


def _keep(work: _Work, arrays: Mapping[str, pa.Array], places: Sequence[int]) -> None:
    """Adds the rows at these places of the buffer, with the columns that say where they came from."""
    if not places:
        return
    origins = _taken(_int32(work.buffer.sources), places)
    per_source = [
        (TOPIC, pa.string(), [source.topic for source in work.sources]),
        (TOPIC_ID, pa.string(), [source.topic_id for source in work.sources]),
        (TOPIC_PARTITION, pa.int32(), [source.partition for source in work.sources]),
    ]
    system = {name: pa.array(values, kind).take(origins) for name, kind, values in per_source}
    system[OBSERVED_TIMESTAMP] = pa.compute.multiply(_taken(work.timestamps_ms, places), 1000).cast(_UTC)
    system[OFFSET] = _taken(_int64(work.buffer.offsets), places)
    system[INDEX] = pa.repeat(pa.scalar(0, pa.int32()), len(places))
    work.chunks.append(pa.table({**arrays, **system}))


def _taken(array: pa.Array, places: Sequence[int]) -> pa.Array:
    if len(places) == places[-1] - places[0] + 1:
        return array.slice(places[0], len(places))
    return array.take(pa.array(places, pa.int64()))


def _int64(values: Any) -> pa.Array:
    return pa.Array.from_buffers(pa.int64(), len(values), [None, pa.py_buffer(values)])


def _int32(values: Any) -> pa.Array:
    return pa.Array.from_buffers(pa.int32(), len(values), [None, pa.py_buffer(values)])
