"""One flush on its way to Arrow: its messages, how they are read, the rows that are done, what was rejected.

Rows are kept with the columns that say where they came from: topic, partition, offset, and the number of the
record in its message.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import tzinfo
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from ingest.convert.kept_times import KeptTimes
from ingest.convert.layout import LaidOut
from ingest.convert.terms import Columns, Terms, TimeLimits
from ingest.decode.event_time import zone
from ingest.decode.formats.rejected_record import RejectedRecord
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


class RowSlice(NamedTuple):
    """Rows of a flush among those of others that were converted together, from the row `first` until before
    `end`. In columns of which it has no value the others may have some."""

    rows: pa.Table
    first: int
    end: int


@dataclass(frozen=True, slots=True)
class Converted:
    """The rows of a flush. `new`: columns that the table does not have yet, with their original paths.

    `rejected`: positions in the buffer, and reasons; a `RejectedRecord` is one of several in that message.
    `shared`: the same rows among those of other flushes, where all of them are.
    """

    rows: pa.Table
    new: Mapping[str, str]
    rejected: Sequence[tuple[int, Rejected]]
    committed: int  # messages below the table's marks
    rows_with_errors: int
    shared: RowSlice | None = None


@dataclass(frozen=True, slots=True)
class Part:
    """What is converted of a buffer already (batched.py): ordinals of its messages, which are positions in
    it, their rows, the original paths of columns that the table does not have, and what was rejected.
    `shared`: the rows among those of other flushes."""

    rows: pa.Table
    ordinals: Sequence[int]
    new: Mapping[str, str]
    rejected: Sequence[tuple[int, Rejected]] = ()
    shared: RowSlice | None = None


@dataclass(frozen=True, slots=True)
class ConverterLimits:
    """Bounds on one record and one table."""

    depth_max: int
    columns_max: int
    time: TimeLimits

    def with_columns(self, columns_max: int) -> "ConverterLimits":
        """The same of a table that may have so many columns."""
        return ConverterLimits(self.depth_max, columns_max, self.time)

    def keeping(self, kept: KeptTimes) -> "ConverterLimits":
        """The same of a table that keeps these times; `replace` would take ten times as long."""
        time = TimeLimits(self.time.late_us, self.time.ahead_us, kept)
        return ConverterLimits(self.depth_max, self.columns_max, time)


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

    def at(self, positions: Sequence[int]) -> "Records":
        """The records at these positions, which ascend."""
        indexes = None if self.indexes is None else at_positions(self.indexes, positions)
        return Records(at_positions(self.values, positions), at_positions(self.ordinals, positions), indexes)


@dataclass
class Work:
    """One flush on its way to Arrow."""

    buffer: TableBuffer
    sources: Sequence[Source]
    terms: Terms
    depth_max: int
    origins: dict[int, Origin] = field(default_factory=dict)  # by ordinal, of messages from the replay topic
    chunks: list[pa.Table] = field(default_factory=list)
    rejected: list[tuple[int, Rejected]] = field(default_factory=list)
    rows_with_errors: int = 0

    @cached_property
    def kafka_us(self) -> Any:
        """The Kafka timestamps of the messages in microseconds (int64 array). Most tables of a node that has
        many are laid out together with others, and never asked."""
        return np.frombuffer(self.buffer.timestamps_ms, np.int64) * 1_000

    @property
    def present(self) -> Sequence[Source]:
        """The sources that messages of the buffer came from."""
        return [self.sources[number] for number in self.buffer.first_offsets]


def work_on(
    buffer: TableBuffer, sources: Sequence[Source], schema: LogSchema, limits: ConverterLimits
) -> Work:
    """The beginning of a conversion for a table with this schema."""
    terms = Terms(Columns(schema, limits.columns_max), limits.time)
    return Work(buffer, sources, terms, limits.depth_max)


def the_reading(sources: Iterable[Source]) -> Reading | None:
    """How messages of all these sources are read; None where that differs."""
    readings = {(source.form, source.time_zone) for source in sources}
    if len(readings) != 1:
        return None
    ((form, time_zone),) = readings
    return Reading(form, zone(time_zone))


def kafka_us(work: Work, ordinals: Sequence[int]) -> Any:
    """The Kafka timestamps of these messages, in microseconds."""
    if isinstance(ordinals, range):
        return work.kafka_us[ordinals.start : ordinals.stop]
    return work.kafka_us[ordinals]


def keep(work: Work, laid: LaidOut, records: Records, positions: Sequence[int]) -> None:
    """Adds what was laid out of the records at these positions, and notes what was rejected."""
    for row, rejected in laid.rejected:
        reject(work, records, positions[row], rejected)
    if len(laid.kept) < len(positions):
        positions = [positions[row] for row in laid.kept.tolist()]
    if positions:
        # Their bytes are not taken: each would become an object where they do not follow each other.
        indexes = None if records.indexes is None else at_positions(records.indexes, positions)
        add_rows(
            work,
            located(work, laid.columns, Records((), at_positions(records.ordinals, positions), indexes)),
        )


def located(work: Work, columns: Mapping[str, pa.Array], records: Records) -> pa.Table:
    """Rows with the columns that say where their records came from."""
    distinct = records.indexes is None
    system = coordinates(work.buffer, work.sources, records.ordinals, distinct=distinct, origins=work.origins)
    indexes = np.zeros(len(records.ordinals), np.int32) if records.indexes is None else records.indexes
    return pa.table({**columns, **system, INDEX: pa.array(indexes, pa.int32())})


def reject(work: Work, records: Records, at: int, rejected: Rejected) -> None:
    """Notes that the record at a position, or the message that it is, cannot be stored."""
    if records.indexes is not None:
        rejected = RejectedRecord(rejected.reason, rejected.detail, records.indexes[at], records.values[at])
    work.rejected.append((records.ordinals[at], rejected))


def at_positions(values: Sequence[Any], positions: Sequence[int]) -> Sequence[Any]:
    """The values at these positions, which ascend."""
    if positions and positions[-1] - positions[0] + 1 == len(positions):
        return values[positions[0] : positions[-1] + 1]
    return [values[at] for at in positions]


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
    system[OBSERVED_TIMESTAMP] = kafka_us.view(_UTC)
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
