"""Raw messages of one table to Arrow, some thousand at a time, so that only a slice of a large flush is ever held as Python objects."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import pyarrow as pa

from ingest.buffer import TableBuffer
from ingest.decoder import decode
from ingest.row import Columns, Row, TimeLimits, entries, lay_out
from lake.errors import Reason, Rejected
from lake.log_schema import ERRORS, INDEX, OBSERVED_TIMESTAMP, OFFSET, OVERFLOW, TIMESTAMP, TOPIC, TOPIC_ID, TOPIC_PARTITION, LogSchema, arrow_type

CHUNK_ROWS = 4_096
_UTC = pa.timestamp("us", "UTC")
_ERRORS_TYPE = pa.list_(pa.struct([("field", pa.string()), ("value", pa.string()), ("reason", pa.string())]))


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


def convert(buffer: TableBuffer, sources: Sequence[Source], schema: LogSchema, is_absorbed: Callable[[int, int], bool], limits: ConverterLimits) -> Converted:
    """Converts a table's waiting messages. `is_absorbed(source, offset)`: the table's marks have passed it."""
    columns = Columns(schema, limits.columns_max)
    chunks, rejected = list[pa.Table](), list[tuple[int, Rejected]]()
    absorbed = with_errors = 0
    for first in range(0, len(buffer), CHUNK_ROWS):
        rows, places = list[Row](), list[int]()
        for at in range(first, min(first + CHUNK_ROWS, len(buffer))):
            source = buffer.sources[at]
            if is_absorbed(source, buffer.offsets[at]):
                absorbed += 1
                continue
            row = _row(buffer.values[at], buffer.timestamps_ms[at], sources[source].form, columns, limits)
            if isinstance(row, Rejected):
                rejected.append((at, row))
            else:
                rows.append(row)
                places.append(at)
                with_errors += bool(row.errors)
        if rows:
            chunks.append(_to_arrow(rows, places, buffer, sources, columns))
    table = pa.concat_tables(chunks, promote_options="default") if chunks else pa.table({})
    return Converted(table, columns.new, rejected, absorbed, with_errors)


def _row(value: bytes, timestamp_ms: int, form: Literal["auto", "json", "text"], columns: Columns, limits: ConverterLimits) -> Row | Rejected:
    fields = decode(value, form, limits.depth_max)
    if isinstance(fields, Rejected):
        return fields
    try:
        return lay_out(fields, timestamp_ms, columns, limits.time)
    except RecursionError:
        return Rejected(Reason.TOO_DEEP, f"nested deeper than {limits.depth_max} levels")


def _to_arrow(rows: Sequence[Row], places: Sequence[int], buffer: TableBuffer, sources: Sequence[Source], columns: Columns) -> pa.Table:
    origins = [sources[buffer.sources[at]] for at in places]
    arrays: dict[str, Any] = {
        TIMESTAMP: pa.array([row.timestamp_us for row in rows], pa.int64()).cast(_UTC),
        OBSERVED_TIMESTAMP: pa.array([buffer.timestamps_ms[at] * 1000 for at in places], pa.int64()).cast(_UTC),
        TOPIC: pa.array([origin.topic for origin in origins], pa.string()),
        TOPIC_ID: pa.array([origin.topic_id for origin in origins], pa.string()),
        TOPIC_PARTITION: pa.array([origin.partition for origin in origins], pa.int32()),
        OFFSET: pa.array([buffer.offsets[at] for at in places], pa.int64()),
        INDEX: pa.array([0] * len(rows), pa.int32()),
        ERRORS: pa.array([entries(row.errors) for row in rows], _ERRORS_TYPE),
        OVERFLOW: pa.array([row.overflow for row in rows], pa.string()),
    }
    names = dict.fromkeys(name for row in rows for name in row.values)
    for name in names:
        arrays[name] = pa.array([row.values.get(name) for row in rows], arrow_type(columns.kind(name)))
    return pa.table(arrays)
