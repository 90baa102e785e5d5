"""One flush on its way to Arrow: its messages, how they are read, the rows that are done, what was rejected.

Rows are kept with the columns that say where they came from: topic, partition, offset, and the number of the
record in its message.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import tzinfo
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from ingest.convert.columnar import Terms
from ingest.convert.row import Columns, TimeLimits
from ingest.convert.shape import Shapes
from ingest.decode.event_time import zone
from ingest.decode.replay import Origin
from ingest.model.source import Source
from ingest.route.buffer import TableBuffer
from lake.errors import Rejected
from lake.log_schema import (
    ERRORS,
    INDEX,
    OBSERVED_TIMESTAMP,
    OFFSET,
    TOPIC,
    TOPIC_ID,
    TOPIC_PARTITION,
    LogSchema,
)
from lake.settings import FormatName

# A slice of so many messages is held as Python objects at once.
CHUNK_ROWS = 4_096
_UTC = pa.timestamp("us", "UTC")


@dataclass(frozen=True, slots=True)
class Converted:
    """The rows of a flush. `new`: columns that the table does not have yet, with their original paths.

    `rejected`: positions in the buffer, and reasons; a `RejectedRecord` is one of several in that message.
    """

    rows: pa.Table
    new: Mapping[str, str]
    rejected: Sequence[tuple[int, Rejected]]
    committed: int  # messages below the table's marks
    rows_with_errors: int


@dataclass(frozen=True, slots=True)
class Part:
    """Rows of a buffer that are converted already (batched.py): their ordinals, which are positions in it,
    and the original paths of columns that the table does not have."""

    rows: pa.Table
    ordinals: Sequence[int]
    new: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ConverterLimits:
    """Bounds on one record and one table."""

    depth_max: int
    columns_max: int
    time: TimeLimits


class Reading(NamedTuple):
    """How a message is read."""

    form: FormatName
    local: tzinfo


@dataclass(slots=True)
class Records:
    """Records to convert: their bytes, the ordinals of their messages in the buffer, and their numbers in
    these (None: each is its message's only one)."""

    values: Sequence[bytes]
    ordinals: Sequence[int]
    indexes: Sequence[int] | None = None


@dataclass(slots=True)
class Work:
    """One flush on its way to Arrow."""

    buffer: TableBuffer
    sources: Sequence[Source]
    terms: Terms
    shapes: Shapes
    timestamps_ms: pa.Array
    origins: dict[int, Origin] = field(default_factory=dict)  # by ordinal, of messages from the replay topic
    chunks: list[pa.Table] = field(default_factory=list)
    rejected: list[tuple[int, Rejected]] = field(default_factory=list)
    rows_with_errors: int = 0

    @property
    def present(self) -> Sequence[Source]:
        """The sources that messages of the buffer came from."""
        return [self.sources[number] for number in self.buffer.first_offsets]


def work_on(
    buffer: TableBuffer, sources: Sequence[Source], schema: LogSchema, limits: ConverterLimits, shapes: Shapes
) -> Work:
    """The beginning of a conversion for a table with this schema."""
    return Work(
        buffer,
        sources,
        Terms(Columns(schema, limits.columns_max), limits.time, limits.depth_max),
        shapes,
        _int64(buffer.timestamps_ms),
    )


def the_reading(sources: Iterable[Source]) -> Reading | None:
    """How messages of all these sources are read; None where that differs."""
    readings = {(source.form, source.time_zone) for source in sources}
    if len(readings) != 1:
        return None
    ((form, time_zone),) = readings
    return Reading(form, zone(time_zone))


def keep(work: Work, arrays: Mapping[str, pa.Array], records: Records, positions: Sequence[int]) -> None:
    """Adds the rows at these positions, with the columns that say where they came from."""
    if not positions:
        return
    ordinals = (
        records.ordinals
        if len(positions) == len(records.ordinals)
        else [records.ordinals[at] for at in positions]
    )
    distinct = records.indexes is None
    system = coordinates(work.buffer, work.sources, ordinals, distinct=distinct, origins=work.origins)
    indexes = (
        np.zeros(len(positions), np.int32)
        if records.indexes is None
        else [records.indexes[at] for at in positions]
    )
    system[INDEX] = pa.array(indexes, pa.int32())
    add_rows(work, pa.table({**arrays, **system}))


def coordinates(
    buffer: TableBuffer,
    sources: Sequence[Source],
    ordinals: Sequence[int],
    *,
    distinct: bool = True,
    origins: Mapping[int, Origin] | None = None,
) -> dict[str, pa.Array]:
    """The columns that say which messages rows came from, by the ordinals of these; `distinct`: they
    ascend. `origins`: by ordinal, where messages of the replay topic were first read."""
    numbers = taken(_int32(buffer.sources), ordinals, distinct=distinct)
    per_source = [
        (TOPIC, pa.string(), [source.topic for source in sources]),
        (TOPIC_ID, pa.string(), [source.topic_id for source in sources]),
        (TOPIC_PARTITION, pa.int32(), [source.partition for source in sources]),
    ]
    system = {name: pa.array(values, kind).take(numbers) for name, kind, values in per_source}
    kafka_us = pa.compute.multiply(taken(_int64(buffer.timestamps_ms), ordinals, distinct=distinct), 1000)
    system[OBSERVED_TIMESTAMP] = kafka_us.cast(_UTC)
    system[OFFSET] = taken(_int64(buffer.offsets), ordinals, distinct=distinct)
    if origins:
        _restore(system, [origins.get(at) for at in ordinals])
    return system


def add_rows(work: Work, rows: pa.Table) -> None:
    """Adds rows that have all their columns."""
    work.chunks.append(rows)
    if ERRORS in rows.column_names:
        work.rows_with_errors += rows.num_rows - rows.column(ERRORS).null_count


def _restore(system: dict[str, Any], origins: Sequence[Origin | None]) -> None:
    """Gives replayed rows the coordinates under which their messages were first read."""
    if not any(origins):
        return
    for name, attribute in (
        (TOPIC, "topic"),
        (TOPIC_ID, "topic_id"),
        (TOPIC_PARTITION, "partition"),
        (OFFSET, "offset"),
    ):
        own = system[name]
        first = [
            value if origin is None else getattr(origin, attribute)
            for origin, value in zip(origins, own.to_pylist(), strict=True)
        ]
        system[name] = pa.array(first, own.type)


def taken(array: pa.Array, ordinals: Sequence[int], *, distinct: bool = True) -> pa.Array:
    """The values at these ordinals, which ascend."""
    if distinct and len(ordinals) == ordinals[-1] - ordinals[0] + 1:
        return array.slice(ordinals[0], len(ordinals))
    return array.take(pa.array(ordinals, pa.int64()))


def _int64(values: Any) -> pa.Array:
    return pa.Array.from_buffers(pa.int64(), len(values), [None, pa.py_buffer(values)])


def _int32(values: Any) -> pa.Array:
    return pa.Array.from_buffers(pa.int32(), len(values), [None, pa.py_buffer(values)])
