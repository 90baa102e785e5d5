"""Raw messages of one table to Arrow, some thousand at a time, so that only a slice of a large flush is ever
held as Python objects.

Most records fit the table's learned shape, or a format of lines, and are decoded column by column
(`columnar`, `line_columns`). Of the others, messages that carry several records are taken apart, and these go
the same way; what is left goes one by one through the exact path (`decoder`, `row`), and teaches the shape.
"""

from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, tzinfo
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import structlog

from ingest.convert.columnar import ERRORS_TYPE, Terms, decode_objects
from ingest.convert.culprits import find_culprits
from ingest.convert.line_columns import decode_lines
from ingest.convert.record_template import decode_by_template
from ingest.convert.row import Columns, Row, TimeLimits, entries, lay_out
from ingest.convert.shape import Shapes
from ingest.decode.decoder import Pairs, decode, look_closer, take_apart
from ingest.decode.event_time import zone
from ingest.decode.formats.registry import (
    AUTO,
    BATCH_RECORD,
    JSON,
    OBJECT_BEGINS,
    REPLAY,
    TOPIC_FORMATS,
    MessageKind,
)
from ingest.decode.formats.rejected_record import RejectedRecord
from ingest.decode.replay import Origin, origin_of
from ingest.model.source import Source
from ingest.route.buffer import TableBuffer
from lake.errors import FirnError, Reason, Rejected
from lake.log_schema import (
    ERRORS,
    INDEX,
    OBSERVED_TIMESTAMP,
    OFFSET,
    OVERFLOW,
    TIMESTAMP,
    TOPIC,
    TOPIC_ID,
    TOPIC_PARTITION,
    LogSchema,
    arrow_type,
)
from lake.settings import FormatName

CHUNK_ROWS = 4_096
# So many records teach a shape at first, and so many odd ones are worth another lesson.
SAMPLE_ROWS = 8
LESSON_ROWS = 32
LESSONS_MAX = 4
_UTC = pa.timestamp("us", "UTC")
log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Converted:
    """The rows of a flush. `columns` are those of the file by name; `new` are names the table does not have
    yet, with their original paths."""

    rows: pa.Table
    new: Mapping[str, str]
    rejected: Sequence[
        tuple[int, Rejected]
    ]  # position in the buffer and reason; a `RejectedRecord` is one of several in that message
    absorbed: int  # messages below the table's marks
    rows_with_errors: int


@dataclass(frozen=True, slots=True)
class Part:
    """Rows of a buffer that are converted already (batched.py): their places in it, and the original paths of
    columns that the table does not have."""

    rows: pa.Table
    places: Sequence[int]
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
class Pieces:
    """Records to convert: their bytes, the places of their messages in the buffer, and their positions in
    these (None: each is its message's only one)."""

    values: Sequence[bytes]
    places: Sequence[int]
    indexes: Sequence[int] | None = None


@dataclass(slots=True)
class Work:
    """One flush on its way to Arrow."""

    buffer: TableBuffer
    sources: Sequence[Source]
    terms: Terms
    shapes: Shapes
    timestamps_ms: pa.Array
    origins: dict[int, Origin] = field(default_factory=dict)  # by place, of messages from the replay topic
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


def convert(
    buffer: TableBuffer,
    sources: Sequence[Source],
    schema: LogSchema,
    marks: Sequence[int],
    limits: ConverterLimits,
    shapes: Shapes,
    parts: Sequence[Part] = (),
) -> Converted:
    """Converts a table's waiting messages. `marks`: per source the next offset the table has not absorbed;
    what is below is left out.

    `parts`: what is converted already; it has no row below the marks.
    """
    work = work_on(buffer, sources, schema, limits, shapes)
    done = _take_parts(work, parts)
    undated = buffer.undated
    absorbed = 0
    some_absorbed = is_absorbed(buffer, marks)
    for first in range(0, len(buffer), CHUNK_ROWS):
        places: Sequence[int] = range(first, min(first + CHUNK_ROWS, len(buffer)))
        if done:
            places = [at for at in places if at not in done]
        if some_absorbed:
            fresh = [at for at in places if buffer.offsets[at] >= marks[buffer.sources[at]]]
            absorbed += len(places) - len(fresh)
            places = fresh
        if undated:
            work.rejected += [(at, _undated(buffer.timestamps_ms[at])) for at in places if at in undated]
            places = [at for at in places if at not in undated]
        if places:
            _convert_chunk(work, places)
    rows = (
        work.chunks[0]
        if len(work.chunks) == 1
        else pa.concat_tables(work.chunks, promote_options="default")
        if work.chunks
        else pa.table({})
    )
    return Converted(rows, work.terms.columns.new, work.rejected, absorbed, work.rows_with_errors)


def is_absorbed(buffer: TableBuffer, marks: Sequence[int]) -> bool:
    """Whether the table has some of the messages already."""
    return any(first < marks[source] for source, first in buffer.first_offsets.items())


def _undated(timestamp_ms: int) -> Rejected:
    return Rejected(Reason.UNDECODABLE, f"its Kafka timestamp is {timestamp_ms} ms, a time in no calendar")


def _take_parts(work: Work, parts: Sequence[Part]) -> Container[int]:
    """Takes over what the table can have; returns the places of that."""
    done = list[Sequence[int]]()
    for part in parts:
        if all(work.terms.columns.admits(name, path) for name, path in part.new.items()):
            _add(work, part.rows)
            done.append(part.places)
    if sum(map(len, done)) == len(work.buffer):
        return range(len(work.buffer))
    return {at for places in done for at in places}


def _convert_chunk(work: Work, places: Sequence[int]) -> None:
    """Converts messages; the few that bring about an error nobody foresaw become dead letters. One that most
    of them meet is the table's, and is raised."""
    try:
        _convert_or_nothing(work, places)
    except (FirnError, MemoryError):
        raise
    except Exception as error:
        for place, each in find_culprits(places, partial(_convert_or_nothing, work), error).items():
            log.exception(
                "record.not_converted",
                table=str(work.buffer.table),
                offset=work.buffer.offsets[place],
                exc_info=each,
            )
            work.rejected.append(
                (
                    place,
                    Rejected(Reason.UNSTORABLE, f"an error that nobody foresaw, please report it: {each!r}"),
                )
            )


def _convert_or_nothing(work: Work, places: Sequence[int]) -> None:
    """Converts messages, or raises and leaves all as it was."""
    chunks, rejected, rows_with_errors = len(work.chunks), len(work.rejected), work.rows_with_errors
    try:
        _convert_together(work, places)
    except BaseException:
        del work.chunks[chunks:], work.rejected[rejected:]
        work.rows_with_errors = rows_with_errors
        raise


def _convert_together(work: Work, places: Sequence[int]) -> None:
    """Converts messages: first by columns what can be, then what is left over."""
    if any(source.form == REPLAY for source in work.present):
        places = _convert_replayed(work, places)
    values = work.buffer.values
    for reading, objects, lines, others in _sorted(work, places):
        terms = replace(work.terms, local=reading.local)
        if lines:
            pieces = Pieces(_at(values, lines), lines)
            others += [lines[at] for at in _convert_lines(work, pieces, terms)]
        if objects:
            pieces = Pieces(_at(values, objects), objects)
            others += [objects[at] for at in _convert_objects(work, pieces, terms)]
        if others:
            _convert_others(work, sorted(others), reading, terms)


def _at(values: Sequence[bytes], places: Sequence[int]) -> Sequence[bytes]:
    """The values at these places, which ascend."""
    return (
        values[places[0] : places[-1] + 1]
        if places and len(places) == places[-1] - places[0] + 1
        else [values[at] for at in places]
    )


def _sorted(
    work: Work, places: Sequence[int]
) -> Iterator[tuple[Reading, Sequence[int], list[int], list[int]]]:
    """Messages by how they are read: those that look like one object, those that look like a line, all
    others."""
    alike = the_reading(work.present)
    if (
        alike is not None
        and TOPIC_FORMATS[alike.form].takes_objects
        and {value[:1] for value in _at(work.buffer.values, places)} == {OBJECT_BEGINS}
    ):
        return iter([(alike, places, [], [])])
    readings = [Reading(source.form, zone(source.time_zone)) for source in work.sources]
    bins = {reading: (list[int](), list[int](), list[int]()) for reading in readings}
    of_source = [(TOPIC_FORMATS[reading.form], *bins[reading]) for reading in readings]
    values, numbers = work.buffer.values, work.buffer.sources
    an_object, a_line, still_open = MessageKind.OBJECT, MessageKind.LINE, MessageKind.OPEN
    for at in places:
        topic_format, objects, lines, others = of_source[numbers[at]]
        value = values[at]
        kind = topic_format.by_first_byte.get(value[:1], topic_format.otherwise)
        if kind is still_open:
            kind = look_closer(value, topic_format)
        if kind is an_object:
            objects.append(at)
        elif kind is a_line:
            lines.append(at)
        else:
            others.append(at)
    return ((reading, *lists) for reading, lists in bins.items())


def the_reading(sources: Iterable[Source]) -> Reading | None:
    """How messages of all these sources are read; None where that differs."""
    readings = {(source.form, source.time_zone) for source in sources}
    if len(readings) != 1:
        return None
    ((form, time_zone),) = readings
    return Reading(form, zone(time_zone))


def _convert_replayed(work: Work, places: Sequence[int]) -> list[int]:
    """Converts what came from the replay topic, each message as its headers say; returns the places of all
    others."""
    rest = list[int]()
    whole, single = defaultdict[Reading, list[int]](list), defaultdict[Reading, list[int]](list)
    for at in places:
        if work.sources[work.buffer.sources[at]].form != REPLAY:
            rest.append(at)
            continue
        found = origin_of(work.buffer.record(at).headers)
        if found is None:  # not from the tool that replays: a message like any other
            whole[Reading(AUTO, UTC)].append(at)
            continue
        origin = work.origins[at] = found[0]
        (whole if origin.index is None else single)[Reading(origin.form, zone(origin.time_zone))].append(at)
    for reading, listed in whole.items():
        _convert_others(work, listed, reading, replace(work.terms, local=reading.local))
    for reading, listed in single.items():
        pieces = Pieces(
            [work.buffer.values[at] for at in listed], listed, [work.origins[at].index or 0 for at in listed]
        )
        _convert_exactly(
            work, pieces, range(len(listed)), reading.form, replace(work.terms, local=reading.local)
        )
    return rest


def _convert_lines(work: Work, pieces: Pieces, terms: Terms) -> list[int]:
    """Converts lines by their formats; returns the positions of those left."""
    left = list[int]()
    for decoded in decode_lines(pieces.values, _taken(work.timestamps_ms, pieces.places), terms):
        keep(work, decoded.columns, pieces, decoded.places)
        left += decoded.fallback
    return left


def _convert_objects(work: Work, pieces: Pieces, terms: Terms) -> list[int]:
    """Converts what fits the table's shape, again while that teaches something; returns the positions of what
    is left."""
    table, left = work.buffer.table, list[int]()
    kafka_ms = _taken(work.timestamps_ms, pieces.places, distinct=pieces.indexes is None)
    for decoded in decode_by_template(pieces.values, kafka_ms, terms):
        keep(work, decoded.columns, pieces, decoded.places)
        left += decoded.fallback
    if not left:
        return []
    shape = work.shapes.of(table, pieces.values[left[0]])
    if shape is None:
        shape = work.shapes.learn(table, _parsed(pieces, left[:: max(1, len(left) // SAMPLE_ROWS)], terms))
    fallback: Sequence[int] = left
    for _ in range(LESSONS_MAX):
        values = (
            pieces.values if len(fallback) == len(pieces.values) else [pieces.values[at] for at in fallback]
        )
        decoded = decode_objects(shape, values, _taken(kafka_ms, fallback), terms)
        keep(work, decoded.columns, pieces, [fallback[at] for at in decoded.places])
        fallback = [fallback[at] for at in decoded.fallback]
        if not fallback:
            break
        before, shape = (
            shape,
            work.shapes.learn(
                table, _parsed(pieces, fallback[:: max(1, len(fallback) // LESSON_ROWS)], terms)
            ),
        )
        if shape is before or len(fallback) <= LESSON_ROWS:
            break
    return list(fallback)


def _parsed(pieces: Pieces, places: Sequence[int], terms: Terms) -> list[Pairs]:
    """Objects to learn from; a message that carries several is none."""
    whole = pieces.indexes is None
    samples = [pieces.values[at] for at in places]
    fields = [
        decode(value, JSON, terms.depth_max)
        for value in samples
        if not (whole and take_apart(value, JSON, terms.depth_max) is not None)
    ]
    return [pairs for pairs in fields if isinstance(pairs, Pairs)]


def _convert_others(work: Work, places: Sequence[int], reading: Reading, terms: Terms) -> None:
    """Messages that no fast path took: those that carry several records are taken apart, the rest go the
    exact way."""
    single, several = list[int](), _Several()
    for place in places:
        records = take_apart(work.buffer.values[place], reading.form, terms.depth_max)
        if records is None:
            single.append(place)
        elif isinstance(records, Rejected):
            work.rejected.append((place, records))
        else:
            for index, record in enumerate(records):
                if isinstance(record, RejectedRecord):
                    work.rejected.append((place, record))
                else:
                    several.add(record, place, index)
            if len(several.values) >= CHUNK_ROWS:
                _convert_several(work, several, terms)
                several = _Several()
    _convert_several(work, several, terms)
    _convert_exactly(
        work,
        Pieces([work.buffer.values[at] for at in single], single),
        range(len(single)),
        reading.form,
        terms,
    )


@dataclass(slots=True)
class _Several:
    """Records of messages that carry several."""

    values: list[bytes] = field(default_factory=list)
    places: list[int] = field(default_factory=list)
    indexes: list[int] = field(default_factory=list)

    def add(self, value: bytes, place: int, index: int) -> None:
        self.values.append(value)
        self.places.append(place)
        self.indexes.append(index)


def _convert_several(work: Work, several: _Several, terms: Terms) -> None:
    for first in range(0, len(several.values), CHUNK_ROWS):
        part = slice(first, first + CHUNK_ROWS)
        pieces = Pieces(several.values[part], several.places[part], several.indexes[part])
        _convert_exactly(work, pieces, _convert_objects(work, pieces, terms), BATCH_RECORD, terms)


def _convert_exactly(
    work: Work, pieces: Pieces, positions: Sequence[int], form: FormatName, terms: Terms
) -> None:
    rows, kept = list[Row](), list[int]()
    for at in positions:
        row = _row(pieces.values[at], work.buffer.timestamps_ms[pieces.places[at]], form, terms)
        if not isinstance(row, Rejected):
            rows.append(row)
            kept.append(at)
        elif pieces.indexes is None:
            work.rejected.append((pieces.places[at], row))
        else:
            work.rejected.append(
                (
                    pieces.places[at],
                    RejectedRecord(row.reason, row.detail, pieces.indexes[at], pieces.values[at]),
                )
            )
    if not rows:
        return
    arrays: dict[str, Any] = {
        TIMESTAMP: pa.array([row.timestamp_us for row in rows], pa.int64()).cast(_UTC),
        ERRORS: pa.array([entries(row.errors) for row in rows], ERRORS_TYPE),
        OVERFLOW: pa.array([row.overflow for row in rows], pa.string()),
    }
    for name in dict.fromkeys(name for row in rows for name in row.values):
        arrays[name] = pa.array([row.values.get(name) for row in rows], arrow_type(terms.columns.kind(name)))
    keep(work, arrays, pieces, kept)


def _row(value: bytes, timestamp_ms: int, form: FormatName, terms: Terms) -> Row | Rejected:
    fields = decode(value, form, terms.depth_max)
    if isinstance(fields, Rejected):
        return fields
    try:
        return lay_out(fields, timestamp_ms, terms.columns, terms.time, terms.local)
    except RecursionError:
        return Rejected(Reason.TOO_DEEP, f"nested deeper than {terms.depth_max} levels")


def keep(work: Work, arrays: Mapping[str, pa.Array], pieces: Pieces, positions: Sequence[int]) -> None:
    """Adds the rows at these positions, with the columns that say where they came from."""
    if not positions:
        return
    places = (
        pieces.places if len(positions) == len(pieces.places) else [pieces.places[at] for at in positions]
    )
    distinct = pieces.indexes is None
    origins = _taken(_int32(work.buffer.sources), places, distinct=distinct)
    per_source = [
        (TOPIC, pa.string(), [source.topic for source in work.sources]),
        (TOPIC_ID, pa.string(), [source.topic_id for source in work.sources]),
        (TOPIC_PARTITION, pa.int32(), [source.partition for source in work.sources]),
    ]
    system = {name: pa.array(values, kind).take(origins) for name, kind, values in per_source}
    system[OBSERVED_TIMESTAMP] = pa.compute.multiply(
        _taken(work.timestamps_ms, places, distinct=distinct), 1000
    ).cast(_UTC)
    system[OFFSET] = _taken(_int64(work.buffer.offsets), places, distinct=distinct)
    indexes = (
        np.zeros(len(positions), np.int32)
        if pieces.indexes is None
        else [pieces.indexes[at] for at in positions]
    )
    system[INDEX] = pa.array(indexes, pa.int32())
    if work.origins:
        _restore(system, [work.origins.get(at) for at in places])
    _add(work, pa.table({**arrays, **system}))


def _add(work: Work, rows: pa.Table) -> None:
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


def _taken(array: pa.Array, places: Sequence[int], *, distinct: bool = True) -> pa.Array:
    """The values at these places, which ascend."""
    if distinct and len(places) == places[-1] - places[0] + 1:
        return array.slice(places[0], len(places))
    return array.take(pa.array(places, pa.int64()))


def _int64(values: Any) -> pa.Array:
    return pa.Array.from_buffers(pa.int64(), len(values), [None, pa.py_buffer(values)])


def _int32(values: Any) -> pa.Array:
    return pa.Array.from_buffers(pa.int32(), len(values), [None, pa.py_buffer(values)])
