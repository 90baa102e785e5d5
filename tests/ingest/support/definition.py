"""What the converter stores, compared with the definition: each record alone, one value after the other."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

from ingest.convert.terms import Columns
from ingest.convert.work import Converted, ConverterLimits
from ingest.decode.decoder import decode, take_apart
from ingest.decode.event_time import zone
from ingest.decode.formats.json_object import Pairs, parse_object
from ingest.decode.formats.registry import BATCH_RECORD
from ingest.decode.formats.rejected_record import RejectedRecord
from lake.errors import Reason, Rejected
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
    new_log_schema,
)
from lake.settings import FormatName
from tests.ingest.support.conversion import ANY_TIME, KAFKA_MS, converted, rows_of
from tests.ingest.support.row_definition import Row, lay_out

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SYSTEM = (TOPIC, TOPIC_ID, TOPIC_PARTITION, OFFSET, INDEX, OBSERVED_TIMESTAMP)
Place = tuple[int, int]  # offset, and index in the message (-1: all of it)
# Of one flush: whoever looks at it in two ways does not have to decode it twice.
decoded = lru_cache(1 << 13)(decode)


def check(
    bodies: Sequence[bytes],
    form: FormatName = "auto",
    *,
    times_ms: Sequence[int] | None = None,
    time_zone: str = "UTC",
    limits: ConverterLimits | None = None,
    schema: LogSchema | None = None,
) -> Converted:
    """Converts messages with offsets 0, 1, ... and fails where something else comes of them than the
    definition says: rows, errors, rejections."""
    limits, schema = limits or ConverterLimits(100, 1_000, ANY_TIME), schema or new_log_schema()
    result = converted(bodies, form, times_ms=times_ms, time_zone=time_zone, limits=limits, schema=schema)
    stored = {place: plain(row) for place, row in rows_of(result).items()}
    rows_with_errors = sum(ERRORS in row for row in stored.values())
    kinds = {name: column.kind for name, column in schema.by_name.items()}
    rejected = _by_place(result.rejected)
    columns = Columns(schema, limits.columns_max, dict(result.new))
    seen = set[Place]()
    for offset, body in enumerate(bodies):
        timestamp_ms = KAFKA_MS if times_ms is None else times_ms[offset]
        for index, record in _records(body, form, limits.depth_max):
            place = (offset, index)
            seen.add(place)
            expected = (
                record
                if isinstance(record, Rejected)
                else _row(*record, timestamp_ms, columns, limits, time_zone)
            )
            if isinstance(expected, Rejected):
                assert place not in stored, body
                found = rejected[place]
                assert (found.reason, found.detail) == (expected.reason, expected.detail), body
            else:
                own = (offset, max(index, 0))
                assert own in stored, (body, rejected.get(place))
                assert stored.pop(own) == _expected(expected, kinds), body
    assert not stored
    assert rejected.keys() <= seen
    assert result.rows_with_errors == rows_with_errors
    return result


def _records(
    body: bytes, form: FormatName, depth_max: int
) -> Iterator[tuple[int, Rejected | tuple[bytes, FormatName]]]:
    batch = take_apart(body, form, depth_max)
    if isinstance(batch, Rejected):
        yield -1, batch
    elif batch is None:
        yield -1, (body, form)
    else:
        for index, record in enumerate(batch):
            yield index, record if isinstance(record, RejectedRecord) else (record, BATCH_RECORD)


def _row(
    value: bytes,
    form: FormatName,
    timestamp_ms: int,
    columns: Columns,
    limits: ConverterLimits,
    time_zone: str,
) -> Row | Rejected:
    fields = decoded(value, form, limits.depth_max)
    if isinstance(fields, Rejected):
        return fields
    try:
        return lay_out(fields, timestamp_ms, columns, limits.time, zone(time_zone))
    except RecursionError:
        return Rejected(Reason.TOO_DEEP, f"nested deeper than {limits.depth_max} levels")


def _by_place(rejected: Sequence[tuple[int, Rejected]]) -> Mapping[Place, Rejected]:
    found: dict[Place, Rejected] = {}
    for offset, one in rejected:
        place = (offset, one.index if isinstance(one, RejectedRecord) else -1)
        assert place not in found, "rejected twice"
        found[place] = one
    return found


def plain(row: Mapping[str, Any]) -> dict[str, Any]:
    """A stored row as it is compared: errors and what is beyond the columns in no order."""
    found = {name: value for name, value in row.items() if name not in _SYSTEM}
    found[TIMESTAMP] = (row[TIMESTAMP] - _EPOCH) // timedelta(microseconds=1)
    if ERRORS in found:
        found[ERRORS] = sorted(found[ERRORS], key=str)
    if OVERFLOW in found:
        found[OVERFLOW] = _members(found[OVERFLOW])
    return found


def _expected(row: Row, kinds: Mapping[str, Any]) -> dict[str, Any]:
    values = {
        name: _EPOCH + timedelta(microseconds=value) if kinds.get(name) == "timestamptz" else value
        for name, value in row.values.items()
    }
    errors = sorted(((bad.field, bad.value, bad.reason.value) for bad in row.errors), key=str)
    return (
        values
        | {TIMESTAMP: row.timestamp_us}
        | ({ERRORS: errors} if errors else {})
        | ({OVERFLOW: _members(row.overflow)} if row.overflow else {})
    )


def _members(text: str) -> list[tuple[str, Any]]:
    members = parse_object(text, 1_000)
    assert isinstance(members, Pairs)
    return sorted(members, key=str)
