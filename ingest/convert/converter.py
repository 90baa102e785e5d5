"""Raw messages of one table to Arrow, some thousand at a time, so that only a slice of a large flush is ever
held as Python objects.

    messages of a table: what it has already is left out, what has no date is rejected
       |
       +-- like one line ----> line_columns -----------------------+
       |                           | left over                     |
       +-- like one object --> record_template, columnar ----------+--> rows
       |                           | left over                     |
       +-- any other ------------> take_apart                      |
                                   +-- several: each is one object |
                                   +-- one: decode, row -----------+

What a message is like says the registry of formats. All ways store the same. Objects that are left teach the
table's shape, by which `columnar` decodes.
"""

from collections import defaultdict
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC
from functools import partial
from typing import Any

import pyarrow as pa
import structlog

from ingest.convert.columnar import ERRORS_TYPE, Terms, decode_objects
from ingest.convert.culprits import find_culprits
from ingest.convert.line_columns import decode_lines
from ingest.convert.record_template import decode_by_template
from ingest.convert.row import Row, entries, lay_out
from ingest.convert.shape import Shapes
from ingest.convert.work import (
    CHUNK_ROWS,
    Converted,
    ConverterLimits,
    Part,
    Reading,
    Records,
    Work,
    add_rows,
    keep,
    taken,
    the_reading,
    work_on,
)
from ingest.decode.decoder import Batch, Pairs, decode, look_closer, take_apart
from ingest.decode.event_time import zone
from ingest.decode.formats.registry import (
    AUTO,
    BATCH_RECORD,
    JSON,
    LOOKS_LINE,
    LOOKS_OBJECT,
    LOOKS_OPEN,
    OBJECT_BEGINS,
    REPLAY,
    TOPIC_FORMATS,
)
from ingest.decode.formats.rejected_record import RejectedRecord
from ingest.decode.replay import origin_of
from ingest.model.source import Source
from ingest.route.buffer import TableBuffer, no_date
from lake.errors import FirnError, Reason, Rejected
from lake.log_schema import ERRORS, OVERFLOW, TIMESTAMP, LogSchema, arrow_type
from lake.settings import FormatName

LEARN_ROWS = 8  # teach a new shape
# Of what does not fit so many teach the shape again, if there are more, and at most so often for a chunk.
RELEARN_ROWS = 32
RELEARN_MAX = 4
_UTC = pa.timestamp("us", "UTC")
log = structlog.get_logger()


def convert(
    buffer: TableBuffer,
    sources: Sequence[Source],
    schema: LogSchema,
    marks: Sequence[int],
    limits: ConverterLimits,
    shapes: Shapes,
    parts: Sequence[Part] = (),
) -> Converted:
    """Converts a table's waiting messages. `marks`: per source the next offset the table has not committed;
    what is below is left out.

    `parts`: what is converted already; it has no row below the marks.
    """
    work = work_on(buffer, sources, schema, limits, shapes)
    done = _take_parts(work, parts)
    undated = buffer.undated
    committed = 0
    some_committed = is_committed(buffer, marks)
    for first in range(0, len(buffer), CHUNK_ROWS):
        ordinals: Sequence[int] = range(first, min(first + CHUNK_ROWS, len(buffer)))
        if done:
            ordinals = [at for at in ordinals if at not in done]
        if some_committed:
            fresh = [at for at in ordinals if buffer.offsets[at] >= marks[buffer.sources[at]]]
            committed += len(ordinals) - len(fresh)
            ordinals = fresh
        if undated:
            work.rejected += [(at, no_date(buffer.timestamps_ms[at])) for at in ordinals if at in undated]
            ordinals = [at for at in ordinals if at not in undated]
        if ordinals:
            _convert_chunk(work, ordinals)
    rows = _one_table(work.chunks)
    return Converted(rows, work.terms.columns.new, work.rejected, committed, work.rows_with_errors)


def _one_table(chunks: Sequence[pa.Table]) -> pa.Table:
    if not chunks:
        return pa.table({})
    return chunks[0] if len(chunks) == 1 else pa.concat_tables(chunks, promote_options="default")


def is_committed(buffer: TableBuffer, marks: Sequence[int]) -> bool:
    """Whether the table has some of the messages already."""
    return any(first < marks[source] for source, first in buffer.first_offsets.items())


def _take_parts(work: Work, parts: Sequence[Part]) -> Container[int]:
    """Takes over what the table can have; returns the ordinals of that."""
    admitted = list[Part]()
    for part in parts:
        if all(work.terms.columns.admits(name, path) for name, path in part.new.items()):
            add_rows(work, part.rows)
            admitted.append(part)
    if sum(len(part.ordinals) for part in admitted) == len(work.buffer):
        return range(len(work.buffer))
    return set[int]().union(*(part.ordinals for part in admitted))


def _convert_chunk(work: Work, ordinals: Sequence[int]) -> None:
    """Converts messages; the few that bring about an error nobody foresaw become dead letters. One that most
    of them meet is the table's, and is raised."""
    try:
        _convert_or_nothing(work, ordinals)
    except (FirnError, MemoryError):
        raise
    except Exception as error:
        for ordinal, each in find_culprits(ordinals, partial(_convert_or_nothing, work), error).items():
            log.exception(
                "record.not_converted",
                table=str(work.buffer.table),
                offset=work.buffer.offsets[ordinal],
                exc_info=each,
            )
            work.rejected.append(
                (
                    ordinal,
                    Rejected(Reason.UNSTORABLE, f"an error that nobody foresaw, please report it: {each!r}"),
                )
            )


def _convert_or_nothing(work: Work, ordinals: Sequence[int]) -> None:
    """Converts messages, or raises and leaves all as it was."""
    chunks, rejected, rows_with_errors = len(work.chunks), len(work.rejected), work.rows_with_errors
    try:
        _convert_together(work, ordinals)
    except BaseException:
        del work.chunks[chunks:], work.rejected[rejected:]
        work.rows_with_errors = rows_with_errors
        raise


def _convert_together(work: Work, ordinals: Sequence[int]) -> None:
    """Converts messages: first by columns what can be, then what is left over (see the module's drawing)."""
    if any(source.form == REPLAY for source in work.present):
        ordinals = _convert_replayed(work, ordinals)
    values = work.buffer.values
    for reading, objects, lines, others in _sorted(work, ordinals):
        terms = replace(work.terms, local=reading.local)
        if lines:
            records = Records(_at(values, lines), lines)
            others += [lines[at] for at in _convert_lines(work, records, terms)]
        if objects:
            records = Records(_at(values, objects), objects)
            others += [objects[at] for at in _convert_objects(work, records, terms)]
        if others:
            _convert_others(work, sorted(others), reading, terms)


def _at(values: Sequence[bytes], ordinals: Sequence[int]) -> Sequence[bytes]:
    """The values at these ordinals, which ascend."""
    return (
        values[ordinals[0] : ordinals[-1] + 1]
        if ordinals and len(ordinals) == ordinals[-1] - ordinals[0] + 1
        else [values[at] for at in ordinals]
    )


def _sorted(
    work: Work, ordinals: Sequence[int]
) -> Iterator[tuple[Reading, Sequence[int], list[int], list[int]]]:
    """Messages by how they are read: those like one object, those like one line, all others."""
    common = the_reading(work.present)
    if (
        common is not None
        and TOPIC_FORMATS[common.form].takes_objects
        and {value[:1] for value in _at(work.buffer.values, ordinals)} == {OBJECT_BEGINS}
    ):
        return iter([(common, ordinals, [], [])])
    readings = [Reading(source.form, zone(source.time_zone)) for source in work.sources]
    bins = {reading: (list[int](), list[int](), list[int]()) for reading in readings}
    of_source = [(TOPIC_FORMATS[reading.form], *bins[reading]) for reading in readings]
    values, numbers = work.buffer.values, work.buffer.sources
    for at in ordinals:
        topic_format, objects, lines, others = of_source[numbers[at]]
        value = values[at]
        kind = topic_format.by_first_byte.get(value[:1], topic_format.otherwise)
        if kind is LOOKS_OPEN:
            kind = look_closer(value, topic_format)
        if kind is LOOKS_OBJECT:
            objects.append(at)
        elif kind is LOOKS_LINE:
            lines.append(at)
        else:
            others.append(at)
    return ((reading, *lists) for reading, lists in bins.items())


def _convert_replayed(work: Work, ordinals: Sequence[int]) -> list[int]:
    """Converts what came from the replay topic, each message as its headers say; returns the ordinals of all
    others."""
    rest = list[int]()
    whole, single = defaultdict[Reading, list[int]](list), defaultdict[Reading, list[int]](list)
    for at in ordinals:
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
        records = Records(
            [work.buffer.values[at] for at in listed], listed, [work.origins[at].index or 0 for at in listed]
        )
        _convert_exactly(
            work, records, range(len(listed)), reading.form, replace(work.terms, local=reading.local)
        )
    return rest


def _convert_lines(work: Work, records: Records, terms: Terms) -> list[int]:
    """Converts lines by their formats; returns the positions of those left."""
    left = list[int]()
    for decoded in decode_lines(records.values, taken(work.timestamps_ms, records.ordinals), terms):
        keep(work, decoded.columns, records, decoded.ordinals)
        left += decoded.fallback
    return left


def _convert_objects(work: Work, records: Records, terms: Terms) -> list[int]:
    """Converts what fits the table's shape, again while that teaches something; returns the positions of what
    is left."""
    table, left = work.buffer.table, list[int]()
    kafka_ms = taken(work.timestamps_ms, records.ordinals, distinct=records.indexes is None)
    for decoded in decode_by_template(records.values, kafka_ms, terms):
        keep(work, decoded.columns, records, decoded.ordinals)
        left += decoded.fallback
    if not left:
        return []
    shape = work.shapes.of(table, records.values[left[0]])
    if shape is None:
        shape = work.shapes.learn(table, _sample(records, left, LEARN_ROWS, terms))
    fallback: Sequence[int] = left
    for _ in range(RELEARN_MAX):
        values = _at(records.values, fallback)
        decoded = decode_objects(shape, values, taken(kafka_ms, fallback), terms)
        keep(work, decoded.columns, records, [fallback[at] for at in decoded.ordinals])
        fallback = [fallback[at] for at in decoded.fallback]
        if not fallback:
            break
        before, shape = shape, work.shapes.learn(table, _sample(records, fallback, RELEARN_ROWS, terms))
        if shape is before or len(fallback) <= RELEARN_ROWS:
            break
    return list(fallback)


def _sample(records: Records, positions: Sequence[int], count: int, terms: Terms) -> list[Pairs]:
    """Some of the records at these positions, to learn from; a message that carries several is none."""
    sample = list[Pairs]()
    for at in positions[:: max(1, len(positions) // count)]:
        value = records.values[at]
        if records.indexes is None and take_apart(value, JSON, terms.depth_max) is not None:
            continue
        fields = decode(value, JSON, terms.depth_max)
        if isinstance(fields, Pairs):
            sample.append(fields)
    return sample


def _convert_others(work: Work, ordinals: Sequence[int], reading: Reading, terms: Terms) -> None:
    """Messages that no fast path took: those that carry several records are taken apart, the rest go the
    exact way."""
    single, batched = list[int](), _BatchRecords()
    for ordinal in ordinals:
        batch = take_apart(work.buffer.values[ordinal], reading.form, terms.depth_max)
        if batch is None:
            single.append(ordinal)
        elif isinstance(batch, Rejected):
            work.rejected.append((ordinal, batch))
        else:
            work.rejected += [(ordinal, record) for record in batch if isinstance(record, RejectedRecord)]
            batched.add(ordinal, batch)
            if len(batched.values) >= CHUNK_ROWS:
                _convert_batched(work, batched, terms)
                batched = _BatchRecords()
    _convert_batched(work, batched, terms)
    records = Records(_at(work.buffer.values, single), single)
    _convert_exactly(work, records, range(len(single)), reading.form, terms)


@dataclass(slots=True)
class _BatchRecords:
    """Records of messages that carry several: their bytes, ordinals of their messages, positions in these."""

    values: list[bytes] = field(default_factory=list)
    ordinals: list[int] = field(default_factory=list)
    indexes: list[int] = field(default_factory=list)

    def add(self, ordinal: int, batch: Batch) -> None:
        for index, record in enumerate(batch):
            if not isinstance(record, RejectedRecord):
                self.values.append(record)
                self.ordinals.append(ordinal)
                self.indexes.append(index)


def _convert_batched(work: Work, batched: _BatchRecords, terms: Terms) -> None:
    for first in range(0, len(batched.values), CHUNK_ROWS):
        part = slice(first, first + CHUNK_ROWS)
        records = Records(batched.values[part], batched.ordinals[part], batched.indexes[part])
        _convert_exactly(work, records, _convert_objects(work, records, terms), BATCH_RECORD, terms)


def _convert_exactly(
    work: Work, records: Records, positions: Sequence[int], form: FormatName, terms: Terms
) -> None:
    rows, kept = list[Row](), list[int]()
    for at in positions:
        row = _row(records.values[at], work.buffer.timestamps_ms[records.ordinals[at]], form, terms)
        if not isinstance(row, Rejected):
            rows.append(row)
            kept.append(at)
        elif records.indexes is None:
            work.rejected.append((records.ordinals[at], row))
        else:
            work.rejected.append(
                (
                    records.ordinals[at],
                    RejectedRecord(row.reason, row.detail, records.indexes[at], records.values[at]),
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
    keep(work, arrays, records, kept)


def _row(value: bytes, timestamp_ms: int, form: FormatName, terms: Terms) -> Row | Rejected:
    fields = decode(value, form, terms.depth_max)
    if isinstance(fields, Rejected):
        return fields
    try:
        return lay_out(fields, timestamp_ms, terms.columns, terms.time, terms.local)
    except RecursionError:
        return Rejected(Reason.TOO_DEEP, f"nested deeper than {terms.depth_max} levels")
