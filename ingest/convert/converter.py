"""Raw messages of one table to Arrow, some thousand at a time, so that only a slice of a large flush is ever
held as Python objects.

    messages of a table: what it has already is left out, what has no date is rejected
       |
       +-- like one line ----> line_records ---------------+
       +-- like one object --> json_records, by the core --+--> layout --> rows
       |                           | left over             |
       +-- any other ------------> take_apart              |
                                   +-- several: objects ---+
                                   +-- one: exactly -------+

What a message is like says the registry of formats. Every way gives columns of text, and `layout` alone says
what becomes of them.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC
from functools import partial
from typing import Any

import pyarrow as pa
import structlog

from ingest.convert.culprits import find_culprits
from ingest.convert.json_records import read_exactly, read_objects
from ingest.convert.layout import lay_out
from ingest.convert.line_records import read_lines
from ingest.convert.terms import Terms
from ingest.convert.text_columns import Decoded
from ingest.convert.work import (
    CHUNK_ROWS,
    Converted,
    ConverterLimits,
    Part,
    Reading,
    Records,
    Work,
    add_rows,
    at_positions,
    kafka_us,
    keep,
    reject,
    the_reading,
    work_on,
)
from ingest.decode.decoder import look_closer, take_apart
from ingest.decode.event_time import zone
from ingest.decode.formats.registry import (
    AUTO,
    BATCH_RECORD,
    LOOKS_LINE,
    LOOKS_OBJECT,
    LOOKS_OPEN,
    OBJECT_BEGINS,
    REPLAY,
    TOPIC_FORMATS,
)
from ingest.decode.formats.rejected_record import RejectedRecord
from ingest.decode.replay import origin_of
from ingest.model.raw_rows import ByteValues
from ingest.model.source import Source
from ingest.route.buffer import TableBuffer, no_date
from lake.errors import FirnError, Reason, Rejected
from lake.log_schema import LogSchema
from lake.settings import FormatName

log = structlog.get_logger()


def convert(
    buffer: TableBuffer,
    sources: Sequence[Source],
    schema: LogSchema,
    marks: Sequence[int],
    limits: ConverterLimits,
    parts: Sequence[Part] = (),
    over: Any = None,
) -> Converted:
    """Converts a table's waiting messages. `marks`: per source the next offset the table has not committed;
    what is below is left out, and so is what is `over` its tenant's limit (numpy array of bool; None: nothing
    is).

    `parts`: what is converted already; it has no row below the marks.
    """
    work = work_on(buffer, sources, schema, limits)
    done = _take_parts(work, parts)
    left = len(buffer) if len(done) < len(buffer) else 0
    undated = buffer.undated if left else frozenset()
    committed = 0
    some_committed = is_committed(buffer, marks)
    for first in range(0, left, CHUNK_ROWS):
        ordinals: Sequence[int] = range(first, min(first + CHUNK_ROWS, len(buffer)))
        if done:
            ordinals = [at for at in ordinals if at not in done]
        if some_committed:
            fresh = [at for at in ordinals if buffer.offsets[at] >= marks[buffer.sources[at]]]
            committed += len(ordinals) - len(fresh)
            ordinals = fresh
        if over is not None:
            ordinals = [at for at in ordinals if not over[at]]
        if undated:
            work.rejected += [(at, no_date(buffer.timestamps_ms[at])) for at in ordinals if at in undated]
            ordinals = [at for at in ordinals if at not in undated]
        if ordinals:
            _convert_chunk(work, ordinals)
    rows = _one_table(work.chunks)
    shared = next((part.shared for part in parts if part.rows is rows), None)
    return Converted(rows, work.terms.columns.new, work.rejected, committed, work.rows_with_errors, shared)


def _one_table(chunks: Sequence[pa.Table]) -> pa.Table:
    if not chunks:
        return pa.table({})
    return chunks[0] if len(chunks) == 1 else pa.concat_tables(chunks, promote_options="default")


def is_committed(buffer: TableBuffer, marks: Sequence[int]) -> bool:
    """Whether the table has some of the messages already."""
    return any(first < marks[source] for source, first in buffer.first_offsets.items())


def _take_parts(work: Work, parts: Sequence[Part]) -> Collection[int]:
    """Takes over what the table can have; returns the ordinals of that."""
    admitted = [part for part in parts if work.terms.columns.admits_all(part.new)]
    for part in admitted:
        work.rejected += part.rejected
        if part.rows.num_rows:
            add_rows(work, part.rows)
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
    values = at_positions(work.buffer.values, ordinals)
    for reading, objects, lines, others in _sorted(work, ordinals, values):
        terms = replace(work.terms, local=reading.local)
        if lines:
            left = _convert_lines(work, Records(at_positions(work.buffer.values, lines), lines), terms)
            others += [lines[at] for at in left]
        if objects:
            some = values if objects is ordinals else at_positions(work.buffer.values, objects)
            left = _convert_objects(work, Records(some, objects), terms)
            others += [objects[at] for at in left]
        if others:
            _convert_others(work, sorted(others), reading, terms)


def _sorted(
    work: Work, ordinals: Sequence[int], values: Sequence[bytes]
) -> Iterator[tuple[Reading, Sequence[int], list[int], list[int]]]:
    """Messages by how they are read: those like one object, those like one line, all others."""
    common = the_reading(work.present)
    if common is not None and TOPIC_FORMATS[common.form].takes_objects and _are_objects(values):
        return iter([(common, ordinals, [], [])])
    readings = [Reading(source.form, zone(source.time_zone)) for source in work.sources]
    bins = {reading: (list[int](), list[int](), list[int]()) for reading in readings}
    of_source = [(TOPIC_FORMATS[reading.form], *bins[reading]) for reading in readings]
    numbers = work.buffer.sources
    for at, value in zip(ordinals, values, strict=True):
        topic_format, objects, lines, others = of_source[numbers[at]]
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


def _are_objects(values: Sequence[bytes]) -> bool:
    if isinstance(values, ByteValues):
        return values.begins == {ord(OBJECT_BEGINS)}
    return {value[:1] for value in values} == {OBJECT_BEGINS}


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


def _convert_lines(work: Work, records: Records, terms: Terms) -> Sequence[int]:
    """Converts lines by their formats; returns the positions of those left."""
    decoded, left = read_lines(records.values, kafka_us(work, records.ordinals), terms.local)
    _keep_all(work, decoded, records, terms)
    return left


def _convert_objects(work: Work, records: Records, terms: Terms) -> Sequence[int]:
    """Converts what is surely one object each; returns the positions of those left."""
    decoded, left = read_objects(records.values, work.depth_max)
    _keep_all(work, decoded, records, terms)
    return left


def _keep_all(work: Work, decoded: Iterable[Decoded], records: Records, terms: Terms) -> None:
    for some in decoded:
        if not some.positions:
            continue
        times = kafka_us(work, at_positions(records.ordinals, some.positions))
        keep(work, lay_out(some.records, times, terms), records, some.positions)


def _convert_others(work: Work, ordinals: Sequence[int], reading: Reading, terms: Terms) -> None:
    """Messages that are left: those that carry several records are taken apart, the rest are read
    exactly."""
    single, several = list[int](), list[tuple[bytes, int, int]]()
    for ordinal in ordinals:
        batch = take_apart(work.buffer.values[ordinal], reading.form, work.depth_max)
        if batch is None:
            single.append(ordinal)
        elif isinstance(batch, Rejected):
            work.rejected.append((ordinal, batch))
        else:
            for index, record in enumerate(batch):
                if isinstance(record, RejectedRecord):
                    work.rejected.append((ordinal, record))
                else:
                    several.append((record, ordinal, index))
            if len(several) >= CHUNK_ROWS:
                _convert_several(work, several, terms)
                several = []
    _convert_several(work, several, terms)
    records = Records(at_positions(work.buffer.values, single), single)
    _convert_exactly(work, records, range(len(single)), reading.form, terms)


def _convert_several(work: Work, several: Sequence[tuple[bytes, int, int]], terms: Terms) -> None:
    """Converts records that came with others in a message; each with the ordinal of that, and its number
    there."""
    for first in range(0, len(several), CHUNK_ROWS):
        records = Records(*map(list, zip(*several[first : first + CHUNK_ROWS], strict=True)))
        _convert_exactly(work, records, _convert_objects(work, records, terms), BATCH_RECORD, terms)


def _convert_exactly(
    work: Work, records: Records, positions: Sequence[int], form: FormatName, terms: Terms
) -> None:
    for first in range(0, len(positions), CHUNK_ROWS):
        chunk = positions[first : first + CHUNK_ROWS]
        objects, lines, rejected = read_exactly(records.values, chunk, form, work.depth_max)
        for at, why in rejected:
            reject(work, records, at, why)
        _keep_all(work, [objects], records, terms)
        if lines:
            _convert_lines(work, records.at(lines), terms)
