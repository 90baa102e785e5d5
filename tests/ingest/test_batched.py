"""Tables converted together get what each would get by itself."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.convert.batched import Waiting, convert_batched
from ingest.convert.converter import convert
from ingest.convert.terms import TimeLimits
from ingest.convert.work import Converted, ConverterLimits, Part
from ingest.model.raw_rows import PieceValues
from ingest.model.source import Source
from ingest.route.buffer import RawRecord, TableBuffer
from lake.errors import Reason
from lake.log_schema import LogSchema, new_log_schema
from lake.tenant import TableId, TenantId
from tests.ingest.support.conversion import ANY_TIME, KAFKA_MS, rows_of
from tests.ingest.support.definition import plain
from tests.ingest.test_layout import DECLARED, PLAIN, RECORDS

SOURCES = [Source("topic", "id", partition, "auto") for partition in range(2)]
LIMITS = ConverterLimits(100, 1_000, ANY_TIME)
# Of the records with times, some are too late and some too far ahead.
NARROW = ConverterLimits(100, 1_000, TimeLimits(3_600_000_000, 3_600_000_000))
LINE = '{{"ts":"2025-11-13T02:13:20Z","level":"INFO","message":"m{0}","{1}":"v{0}"}}'


pytestmark = pytest.mark.core


def _buffers(tables: Sequence[Sequence[str]]) -> list[TableBuffer]:
    """The messages of each table, at offsets of their own."""
    buffers, offset = [], 0
    for number, bodies in enumerate(tables):
        buffer = TableBuffer(TableId(TenantId(f"t{number}"), "logs"), 0.0)
        for body in bodies:
            buffer.add(
                *RawRecord(
                    offset % len(SOURCES),
                    offset,
                    KAFKA_MS + offset,
                    None,
                    (),
                    body.encode("utf-8", "surrogatepass"),
                )
            )
            offset += 1
        buffers.append(buffer)
    return buffers


def _together(
    buffers: Sequence[TableBuffer], schema: LogSchema, limits: ConverterLimits = LIMITS
) -> Mapping[TableId, Sequence[Part]]:
    return convert_batched([Waiting(buffer, schema) for buffer in buffers], SOURCES, limits)


def _converted(
    buffer: TableBuffer, schema: LogSchema, parts: Sequence[Part] = (), limits: ConverterLimits = LIMITS
) -> Converted:
    return convert(buffer, SOURCES, schema, [0] * len(SOURCES), limits, parts)


def _plain(converted: Converted) -> Mapping[tuple[int, int], Any]:
    return {place: plain(row) for place, row in rows_of(converted).items()}


@pytest.mark.long
@given(
    st.lists(RECORDS, min_size=2, max_size=3),
    st.sampled_from([PLAIN, DECLARED]),
    st.sampled_from([LIMITS, NARROW]),
)
def test_each_table_gets_what_it_would_get_by_itself(
    tables: list[list[str]], schema: LogSchema, limits: ConverterLimits
) -> None:
    """The same rows at the same coordinates, the same new columns, the same rejections, whatever the records
    are."""
    buffers = _buffers(tables)
    parts = _together(buffers, schema, limits)
    for buffer in buffers:
        alone = _converted(buffer, schema, limits=limits)
        shared = _converted(buffer, schema, parts.get(buffer.table, ()), limits)
        assert _plain(shared) == _plain(alone)
        assert shared.new.keys() == alone.new.keys()
        assert sorted(shared.rejected, key=lambda one: one[0]) == sorted(
            alone.rejected, key=lambda one: one[0]
        )
        assert shared.rows_with_errors == alone.rows_with_errors
        if (among := shared.shared) is not None:
            own = among.rows.slice(among.first, among.end - among.first)
            assert own.select(shared.rows.column_names).equals(shared.rows)
            others = own.drop_columns(shared.rows.column_names)
            assert all(column.null_count == len(own) for column in others.columns)


def _lines(field: str, count: int = 5) -> list[str]:
    return [LINE.format(at, field) for at in range(count)]


def test_tables_alike_leave_nothing_to_be_converted_alone() -> None:
    """Records of one template are all in the parts, also where the tables have different numbers of them."""
    buffers = _buffers([_lines("a", 3), _lines("a", 7), _lines("a", 1)])
    parts = _together(buffers, new_log_schema())
    converted = [_converted(buffer, new_log_schema(), parts[buffer.table]) for buffer in buffers]
    assert [each.shared and each.shared[1:] for each in converted] == [(0, 3), (3, 10), (10, 11)]
    assert [[len(part.ordinals) for part in parts[buffer.table]] for buffer in buffers] == [[3], [7], [1]]
    assert all(dict(part.new) == {"a": "/a"} for buffer in buffers for part in parts[buffer.table])


def test_messages_of_many_tables_are_put_together_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """To take each out of its buffer costs as much as to read it."""

    def one_by_one(self: PieceValues) -> Iterator[bytes]:
        raise AssertionError("one by one")

    buffers = _buffers([_lines("a"), _lines("a"), _lines("a")])
    monkeypatch.setattr(PieceValues, "__iter__", one_by_one)
    assert len(_together(buffers, new_log_schema())) == len(buffers)


def test_records_without_a_time_are_converted_together_too() -> None:
    """They have the time that Kafka gave them, and an error each that says so."""
    buffers = _buffers([['{"message":"m1","n":1}', '{"message":"m2","n":2}'], ['{"message":"m3","n":3}']])
    parts = _together(buffers, new_log_schema())
    for buffer in buffers:
        converted = _converted(buffer, new_log_schema(), parts[buffer.table])
        assert (
            sum(len(part.ordinals) for part in parts[buffer.table])
            == len(buffer)
            == converted.rows_with_errors
        )
        assert rows_of(converted) == rows_of(_converted(buffer, new_log_schema()))
        assert converted.rows.column("_errors").to_pylist() == [
            [{"field": "timestamp", "value": None, "reason": "missing_timestamp"}]
        ] * len(buffer)


@pytest.mark.parametrize("wild", [{1}, {0, 1, 2}, {0, 1}])
def test_a_time_in_no_calendar_leaves_its_table_to_itself(wild: set[int]) -> None:
    """Its message is told as it would be told alone, and the tables beside it are converted together."""
    buffers = _buffers([_lines("a"), _lines("a"), _lines("a")])
    for at in wild:
        buffers[at].add(0, 100 + at, 1 << 60, None, (), _lines("a")[0].encode())
    parts = _together(buffers, new_log_schema())
    dated = [buffer for at, buffer in enumerate(buffers) if at not in wild]
    assert parts.keys() == ({buffer.table for buffer in dated} if len(dated) > 1 else set())
    for at, buffer in enumerate(buffers):
        converted = _converted(buffer, new_log_schema(), parts.get(buffer.table, ()))
        assert converted.rows.num_rows == 5
        assert [why.reason for _, why in converted.rejected] == [Reason.UNDECODABLE] * (at in wild)


def test_new_column_has_the_spelling_of_its_table() -> None:
    """Two tables that spell a field differently get the same column name, each with its own path."""
    schema = new_log_schema()
    buffers = _buffers([_lines("Zone"), _lines("zone")])
    parts = _together(buffers, schema)
    assert [dict(_converted(buffer, schema, parts[buffer.table]).new) for buffer in buffers] == [
        {"zone": "/Zone"},
        {"zone": "/zone"},
    ]


def test_column_that_is_empty_in_one_table_is_not_made_there() -> None:
    """`null` in all records of a table is no column for it."""
    schema = new_log_schema()
    buffers = _buffers([['{"ts":1763000000000,"a":1,"b":2}'], ['{"ts":1763000000000,"a":null,"b":3}']])
    parts = _together(buffers, schema)
    assert [sorted(_converted(buffer, schema, parts[buffer.table]).new) for buffer in buffers] == [
        ["a", "b"],
        ["b"],
    ]


def test_limit_of_columns_is_each_tables_own() -> None:
    """Tables that together have more fields than a table may have keep all of them; within one, the rest goes
    to `_overflow`."""
    schema = new_log_schema()
    limits = ConverterLimits(100, len(schema.columns) + 2, ANY_TIME)
    buffers = _buffers([_lines("a"), _lines("b"), _lines("c"), [*_lines("d"), *_lines("e"), *_lines("f")]])
    parts = _together(buffers, schema, limits)
    results = [_converted(buffer, schema, parts.get(buffer.table, ()), limits) for buffer in buffers]
    assert [sorted(result.new) for result in results[:3]] == [["a"], ["b"], ["c"]]
    assert len(results[3].new) == 2
    rows: list[dict[str, Any]] = list(rows_of(results[3]).values())
    assert len(rows) == 15
    assert sum("_overflow" in row for row in rows) == 5


def test_messages_read_in_different_ways_are_not_joined() -> None:
    """A buffer with messages of two formats, or of text, is left to its table."""
    sources = [Source("topic", "id", 0, "json"), Source("other", "id2", 0, "text")]
    buffers = _buffers([_lines("a"), _lines("a")])
    assert not convert_batched([Waiting(buffer, PLAIN) for buffer in buffers], sources, LIMITS)
