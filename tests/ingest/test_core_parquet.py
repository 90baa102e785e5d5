"""Files that the native core writes: they hold what pyarrow's hold for the same rows, and a manifest says the
same of both."""

import io
import math
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.core import library
from ingest.core.parquet import ParquetRows, SmallFile, layout_for_core
from ingest.write import writer
from ingest.write.writer import write_files, write_many_hours
from lake.data_file import DataFile, describe_parquet, encodings_of
from lake.log_schema import SYSTEM_COLUMNS, LogSchema, leaf_ids, new_log_schema
from lake.native_core import Absent
from lake.storage import local_path, open_storage
from tests.ingest.support.written_rows import rows_at

pytestmark = pytest.mark.core

BYTES_MAX = 1 << 20
ERRORS = next(field for field in new_log_schema().json["fields"] if field["name"] == "_errors")
EDGES = "a\x00\x7f\x80\uffff\ud7ff\ue000\U00010000\U0010ffff\U0010fffe"
DAYS = st.integers(-(2**31), 2**31 - 1)
MICROSECONDS = st.integers(-(2**63), 2**63 - 1)
# Texts that are cut, the last character before the cut being one that cannot be followed by the next number.
CUT = [
    "",
    "GET /index.html " * 9,
    "a" * 300,
    "é" * 15 + "\ud7ff and more",
    "a" + "\U0010ffff" * 17,
    "\U0010ffff" * 17,
]
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "boolean": st.booleans(),
    "int": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1),
    "float": st.one_of(st.floats(width=32), st.sampled_from([0.0, -0.0, math.nan])),
    "double": st.one_of(st.floats(), st.sampled_from([0.0, -0.0, math.nan])),
    "date": DAYS,
    "time": st.integers(0, 86_399_999_999),
    "timestamp": MICROSECONDS,
    "timestamptz": MICROSECONDS,
    "string": st.one_of(
        st.text(max_size=40),
        st.text(EDGES, max_size=40),
        st.sampled_from(CUT),
    ),
}


def functions() -> Any:
    loaded = library.load()
    assert not isinstance(loaded, Absent), loaded
    return loaded


def fields_of(kinds: Sequence[tuple[str, bool]]) -> list[dict[str, Any]]:
    """A field for each (type, whether it is required)."""
    return [
        {"id": 100 + at, "name": f"é{at}", "type": kind, "required": required}
        for at, (kind, required) in enumerate(kinds)
    ]


def column(kind: pa.DataType, values: Sequence[Any]) -> pa.Array:
    """Times are given as their numbers, since Python's own have fewer."""
    if pa.types.is_temporal(kind):
        return pa.array(values, pa.int32() if kind.bit_width == 32 else pa.int64()).cast(kind)
    return pa.array(values, kind)


@st.composite
def batches(draw: st.DrawFn) -> tuple[list[dict[str, Any]], pa.RecordBatch]:
    kinds = draw(st.lists(st.tuples(st.sampled_from(list(VALUES)), st.booleans()), min_size=1, max_size=6))
    rows = draw(st.integers(1, 20))
    fields = [*fields_of(kinds), ERRORS]
    arrow = LogSchema({"fields": fields}).arrow
    columns = []
    for (kind, required), field in zip(kinds, arrow, strict=False):
        value = VALUES[kind] if required else st.one_of(st.none(), VALUES[kind])
        columns.append(column(field.type, draw(st.lists(value, min_size=rows, max_size=rows))))
    columns.append(pa.nulls(rows, arrow[-1].type))
    return fields, pa.RecordBatch.from_arrays(columns, schema=arrow)


def written(
    fields: Sequence[dict[str, Any]],
    rows: pa.RecordBatch,
    first: int = 0,
    count: int | None = None,
    order: Sequence[int] | None = None,
    **how: Any,
) -> SmallFile | None:
    layout = layout_for_core(fields, SYSTEM_COLUMNS)
    assert layout is not None
    numbers = None if order is None else np.array(order, np.uint32)
    with ParquetRows(functions(), layout, rows, numbers) as core:
        return core.file(first, rows.num_rows - first if count is None else count, BYTES_MAX, **how)


def by_arrow(rows: pa.RecordBatch) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table(rows), sink, store_schema=False, use_dictionary=False)
    return sink.getvalue()


def described(data: bytes, fields: Sequence[dict[str, Any]]) -> DataFile:
    return describe_parquet(
        "file:///f", 0, len(data), pq.ParquetFile(io.BytesIO(data)).metadata, leaf_ids(fields)
    )


@given(batches())
def test_a_file_is_as_pyarrow_writes_it(drawn: tuple[list[dict[str, Any]], pa.RecordBatch]) -> None:
    """Its rows are equal, to the bit of a NaN, and so are its schema with all field ids, its counts of values
    and nulls, and its bounds, which the core hands over as the file's footer has them."""
    fields, rows = drawn
    file = written(fields, rows)
    assert file is not None
    theirs = by_arrow(rows)
    ours, other = (pq.ParquetFile(io.BytesIO(data)) for data in (file.data, theirs))
    assert by_arrow(ours.read().combine_chunks().to_batches()[0]) == by_arrow(
        other.read().combine_chunks().to_batches()[0]
    )
    assert ours.schema.equals(other.schema)
    assert [leaf.logical_type.to_json() for leaf in ours.schema] == [
        leaf.logical_type.to_json() for leaf in other.schema
    ]
    one, two = described(file.data, fields), described(theirs, fields)
    assert (one.rows, one.value_counts, one.null_counts) == (two.rows, two.value_counts, two.null_counts)
    # Where nothing above a text can be written, Parquet has no bounds, and a manifest the lower one.
    missing = {field for field in two.lower_bounds or {} if field not in (two.upper_bounds or {})}
    lower = {key: bound for key, bound in (two.lower_bounds or {}).items() if key not in missing}
    assert (one.lower_bounds, one.upper_bounds) == (lower, two.upper_bounds)
    assert one.split_offsets == [4]
    assert missing or file.metrics == one._metrics()


@given(batches(), st.data())
def test_parts_of_rows_are_files_of_their_own(
    drawn: tuple[list[dict[str, Any]], pa.RecordBatch], data: st.DataObject
) -> None:
    """Also where the rows are a part of others themselves: a file has the columns that have a value in its
    rows, and those that it always has."""
    fields, rows = drawn
    begin = data.draw(st.integers(0, rows.num_rows - 1))
    rows = rows.slice(begin)
    first = data.draw(st.integers(0, rows.num_rows - 1))
    count = data.draw(st.integers(1, rows.num_rows - first))
    file = written(fields, rows, first, count, leave_out_nulls=True)
    assert file is not None
    part = rows.slice(first, count)
    kept = [
        field["name"]
        for field, values in zip(fields, part.columns, strict=True)
        if field["name"] in SYSTEM_COLUMNS or values.null_count < count
    ]
    read = pq.read_table(io.BytesIO(file.data)).combine_chunks().to_batches()[0]
    assert read.schema.names == kept
    assert by_arrow(read) == by_arrow(part.select(kept).cast(read.schema))


@given(batches(), st.data())
def test_rows_are_taken_out_in_any_order(
    drawn: tuple[list[dict[str, Any]], pa.RecordBatch], data: st.DataObject
) -> None:
    """Also a row several times, and where they are a part of others."""
    fields, rows = drawn
    rows = rows.slice(data.draw(st.integers(0, rows.num_rows - 1)))
    order = data.draw(st.lists(st.integers(0, rows.num_rows - 1), min_size=1, max_size=30))
    first = data.draw(st.integers(0, len(order) - 1))
    count = data.draw(st.integers(1, len(order) - first))
    file = written(fields, rows, first, count, order)
    part = written(fields, rows.take(pa.array(order[first : first + count])))
    assert file is not None
    assert part is not None
    assert (file.data, file.metrics) == (part.data, part.metrics)


def test_an_order_of_rows_that_are_not_there_is_refused() -> None:
    fields = fields_of([("string", False), ("long", False)])
    rows = pa.record_batch([["a", "b", "c"], [1, 2, 3]], schema=LogSchema({"fields": fields}).arrow)
    assert written(fields, rows, 0, 2, [2, 0]) is not None
    for first, count, order in [
        (0, 2, [0, 3]),
        (0, 1, [2**32 - 1]),
        (0, 3, [0, 1]),
        (2, 1, [0, 1]),
        (-1, 1, [0, 1]),
        (1, -1, [0, 1]),
    ]:
        assert written(fields, rows, first, count, order) is None
    assert written(fields, rows.slice(1), 0, 1, [2]) is None


def test_duckdb_reads_it_and_skips_by_bounds(tmp_path: Path) -> None:
    """By conditions at the cut bounds of texts, and its aggregates are of values, not of bounds."""
    texts = [f"{'x' * 30}{at:02}" for at in range(20)] + [None]
    fields = fields_of([("string", False), ("long", False), ("double", False)])
    arrow = LogSchema({"fields": fields}).arrow
    rows = pa.record_batch([texts, [*range(20), None], [None, *map(float, range(20))]], schema=arrow)
    file = written(fields, rows)
    assert file is not None
    path = tmp_path / "f.parquet"
    path.write_bytes(file.data)
    sql = f"SELECT é0, é1, é2 FROM '{path}'"
    assert duckdb.sql(sql).fetchall() == list(zip(*[c.to_pylist() for c in rows.columns], strict=True))
    for text in texts[:-1]:
        assert len(duckdb.execute(f"{sql} WHERE é0 = ?", [text]).fetchall()) == 1
    exact = duckdb.sql(f"SELECT min_is_exact, max_is_exact FROM parquet_metadata('{path}')").fetchall()
    assert exact[:3] == [(False, False), (True, True), (True, True)]
    told = duckdb.sql(
        f"SELECT min(é0), max(é0), min(é1), max(é1), count(é0), count(*) FROM '{path}'"
    ).fetchone()
    assert told == (texts[0], texts[19], 0, 19, 20, 21)


@given(st.lists(st.text("ab é", max_size=200), min_size=1, max_size=400))
def test_repetitions_are_compressed_and_come_back(texts: list[str]) -> None:
    """Pages that snappy makes smaller, near repetitions and far ones."""
    fields = fields_of([("string", True)])
    rows = pa.record_batch([texts * 3], schema=LogSchema({"fields": fields}).arrow)
    file = written(fields, rows)
    assert file is not None
    assert pq.read_table(io.BytesIO(file.data)).column(0).to_pylist() == texts * 3
    chunk = pq.ParquetFile(io.BytesIO(file.data)).metadata.row_group(0).column(0)
    assert chunk.total_compressed_size <= chunk.total_uncompressed_size
    assert (chunk.compression == "SNAPPY") == (chunk.total_compressed_size < chunk.total_uncompressed_size)
    if len(texts) > 100:
        assert chunk.compression == "SNAPPY"


def test_what_does_not_repeat_is_copied_in_lengths_of_one_two_or_three_bytes() -> None:
    """Snappy's lengths at their edges: what precedes a repetition has so many bytes."""
    letters = [chr(at) for at in range(32, 127)]
    draws = Random(1)
    fields = fields_of([("string", True)])
    for length in (*range(50, 66), *range(245, 262), 70_000):
        text = "".join(draws.choices(letters, k=length)) + "a" * 1_000
        rows = pa.record_batch([[text]], schema=LogSchema({"fields": fields}).arrow)
        file = written(fields, rows)
        assert file is not None
        parquet = pq.ParquetFile(io.BytesIO(file.data))
        assert parquet.metadata.row_group(0).column(0).compression == "SNAPPY"
        assert parquet.read().column(0).to_pylist() == [text]


def test_what_the_core_does_not_write_is_left_to_pyarrow() -> None:
    """Types, lists that are not NULL, bytes that are no text, NULL where a value is required, more bytes than
    asked for, rows that are not there, and layouts that are none or of other columns."""
    for kind in ("decimal(9,2)", "uuid", "binary", "fixed[3]", {**ERRORS["type"], "element": "string"}):
        assert layout_for_core([{"id": 1, "name": "a", "type": kind, "required": False}], ()) is None
    arrow = LogSchema({"fields": [ERRORS]}).arrow
    filled = pa.record_batch([pa.array([[{"field": "f"}]], arrow[0].type)], schema=arrow)
    assert written([ERRORS], filled) is None
    optional, required = fields_of([("string", False)]), fields_of([("string", True)])
    text = LogSchema({"fields": optional}).arrow
    broken = pa.array([b"\xff\xfe"]).view(pa.string())
    assert written(optional, pa.record_batch([broken], schema=text)) is None
    assert written(required, pa.record_batch([["a", None]], schema=text)) is None
    long = pa.record_batch([["x" * BYTES_MAX]], schema=text)
    assert written(optional, long) is None
    two = pa.record_batch([["a", "b"]], schema=text)
    part = pa.record_batch([["a", "b", "c", "d"]], schema=text).slice(1, 2)
    for first, count in [(0, 3), (2, 1), (-1, 1), (0, -1), (2**62, 2**62)]:
        assert written(optional, part, first, count) is None
    layout = layout_for_core(optional, ())
    assert layout is not None
    beyond = layout_for_core(fields_of([("string", False)] * 2), ())
    assert beyond is not None
    for wrong in (b"", beyond, layout[:-1], layout[:20] + b"\xff" * 4 + layout[24:], b"\x01" * 40):
        with ParquetRows(functions(), wrong, two) as core:
            assert core.file(0, 2, BYTES_MAX) is None
    assert written(optional, two) is not None


@given(st.binary(max_size=60))
def test_no_layout_crashes_the_core(told: bytes) -> None:
    """Whatever is said of no columns is refused."""
    none = pa.RecordBatch.from_arrays([], schema=pa.schema([]))
    with ParquetRows(functions(), told, none) as core:
        assert core.file(0, 1, BYTES_MAX) is None or not told


SCHEMA = new_log_schema().with_strings({"even": (1_001, "even"), "odd": (1_002, "odd")}, 1)


def _rows(count: int) -> pa.Table:
    times = [datetime(2024, 3, 1, 10, tzinfo=UTC) + timedelta(minutes=at * 37 % 300) for at in range(count)]
    even = [f"a value that is cut {at}" if at % 2 == 0 else None for at in range(count)]
    return rows_at(times, even=even)


@pytest.mark.parametrize("write", [write_files, write_many_hours])
def test_flushes_without_a_core_hold_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Any
) -> None:
    """The same rows in the same hours, and what a manifest says differs in sizes alone."""

    def flush(name: str) -> list[tuple[Any, ...]]:
        files = write(open_storage(), f"file://{tmp_path}/{name}", _rows(200), SCHEMA)
        told = []
        for file in files:
            parquet = pq.ParquetFile(local_path(file.uri))
            names = [field["name"] for field in SCHEMA.json["fields"]]
            leaves = leaf_ids(
                [SCHEMA.json["fields"][names.index(name)] for name in parquet.schema_arrow.names]
            )
            seen = describe_parquet(file.uri, file.hour, file.size_bytes, parquet.metadata, leaves)
            assert file.packed().encoded == seen.packed().encoded
            assert encodings_of(parquet.metadata)
            counts = (seen.rows, seen.value_counts, seen.null_counts, seen.lower_bounds, seen.upper_bounds)
            told.append((file.hour, parquet.metadata.created_by, counts, parquet.read().to_pylist()))
        return told

    ours = flush("a")
    monkeypatch.setattr(writer, "load", lambda: Absent("by the test"))
    theirs = flush("b")
    assert len(ours) == 5
    assert all(creator.startswith("firn-core version") for _, creator, _, _ in ours)
    assert all(creator.startswith("parquet-cpp-arrow") for _, creator, _, _ in theirs)
    assert [(hour, *rest) for hour, _, *rest in ours] == [(hour, *rest) for hour, _, *rest in theirs]


@pytest.mark.parametrize(("limit", "least"), [("CORE_ROWS_MAX", 60), ("CORE_BYTES_MAX", 2_000)])
def test_files_of_many_rows_or_bytes_are_pyarrows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, least: int
) -> None:
    """From where its codec and dictionaries pay; both limits count the file, not the flush."""
    creators = []
    for value in (least - 1, 1_000_000):
        monkeypatch.setattr(writer, limit, value)
        for write in (write_files, write_many_hours):
            files = write(open_storage(), f"file://{tmp_path}/{value}", _rows(300), SCHEMA)
            creators.append({pq.ParquetFile(local_path(file.uri)).metadata.created_by[:7] for file in files})
    assert creators == [{"parquet"}, {"parquet"}, {"firn-co"}, {"firn-co"}]


def test_how_bounds_are_read_is_known_of_each_type_by_itself() -> None:
    """As the footer of a file with all of them says."""
    layout = writer.layout_of([*fields_of([(kind, False) for kind in VALUES]), ERRORS])
    sink = pa.BufferOutputStream()
    pq.write_table(layout.arrow.empty_table(), sink, store_schema=False)
    footer = pq.ParquetFile(pa.BufferReader(sink.getvalue())).metadata
    assert list(layout.encodings) == encodings_of(footer)
    assert len(set(map(str, layout.encodings))) > 5
