"""Files of a flush: one per hour, every row in one of them, whichever way they are written."""

import gc
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from weakref import ref

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ingest.convert.work import RowSlice
from ingest.write import writer
from ingest.write.writer import SharedLayouts, write_files, write_many_hours
from lake.data_file import DataFile
from lake.log_schema import SYSTEM_COLUMNS, LogSchema, new_log_schema
from lake.storage import local_path, open_storage
from lake.token_filter.block import PARQUET_MAGIC_BYTES, block_bytes, decode
from lake.token_filter.bloom import may_have
from lake.token_filter.tokens import demanded_hashes
from tests.ingest.support.written_rows import rows_at

SCHEMA = new_log_schema().with_strings({"even": (1_001, "even"), "odd": (1_002, "odd")}, 1)
FIRST = datetime(2024, 3, 1, 10, 59, 59, 900_000, UTC)


def _rows(count: int) -> pa.Table:
    """Rows whose times go to and fro over many hours; each hour has one of two columns."""
    times = [FIRST + timedelta(hours=at * 7 % 50, milliseconds=at) for at in range(count)]
    hours = [int(moment.timestamp()) // 3_600 for moment in times]
    return rows_at(
        times,
        even=pa.array([str(at) if hours[at] % 2 == 0 else None for at in range(count)], pa.string()),
        odd=pa.array([str(at) if hours[at] % 2 else None for at in range(count)], pa.string()),
    )


def _read(files: list[DataFile]) -> dict[int, tuple[int | None, datetime, str | None, str | None]]:
    """By offset: hour of the file, time, and what the two columns hold."""
    found = dict[int, tuple[int | None, datetime, str | None, str | None]]()
    for file in files:
        rows = pq.read_table(local_path(file.uri)).to_pylist()
        assert len(rows) == file.rows
        found |= {
            row["_offset"]: (file.hour, row["timestamp"], row.get("even"), row.get("odd")) for row in rows
        }
    assert len(found) == sum(file.rows for file in files)
    return found


@pytest.mark.parametrize("core_bytes_max", [0, 128 * 1024])
@pytest.mark.parametrize("count", [1, 2, 500])
def test_both_ways_write_the_same_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int, core_bytes_max: int
) -> None:
    """The way for many hours gives the same files, in the order of time within them, and leaves out columns
    that an hour does not have; also where the core finds none of them small enough."""
    monkeypatch.setattr(writer, "CORE_BYTES_MAX", core_bytes_max)
    one = write_files(open_storage(), f"file://{tmp_path}/a", _rows(count), SCHEMA)
    other = write_many_hours(open_storage(), f"file://{tmp_path}/b", _rows(count), SCHEMA)
    assert [(file.hour, file.rows) for file in other] == [(file.hour, file.rows) for file in one]
    assert len(other) > min(count, 2) - 1
    assert _read(other) == _read(one)
    for file in other:
        table = pq.read_table(local_path(file.uri))
        assert file.hour is not None
        assert set(table.column_names) == {*SYSTEM_COLUMNS, "even" if file.hour % 2 == 0 else "odd"}
        assert table.column("timestamp").to_pylist() == sorted(table.column("timestamp").to_pylist())


@pytest.mark.core
def test_layouts_go_with_their_schema(monkeypatch: pytest.MonkeyPatch) -> None:
    """And they never have more than a number of columns together, however many sets of its columns come; what
    is of a column is there once for all of them."""
    own, layouts = ("a", "b", "c", "d", "e", "f"), writer.Layouts()
    grown = new_log_schema().with_strings({name: (90 + at, f"/{name}") for at, name in enumerate(own)}, 1)
    schema = LogSchema({**grown.json})
    sets = [(*SYSTEM_COLUMNS, *own[:count]) for count in range(len(own) + 1)]
    monkeypatch.setattr(writer, "LAID_OUT_MAX", sum(map(len, sets[2:])))
    made = dict[tuple[str, ...], writer.FileLayout]()
    for names in sets:
        made[names] = layouts(schema, names)
        assert layouts(schema, names) is made[names]
        assert {field.name for field in made[names].arrow} == set(names)
        assert all(any(each is known for known in schema.arrow_types) for each in made[names].columns)
    kept = [names for names in sets[2:] if layouts(schema, names) is made[names]]
    assert kept == sets[2:]
    assert layouts(schema, sets[0]) is not made[sets[0]]
    seen = ref(made[sets[6]])
    del made, schema
    gc.collect()
    assert seen() is None


def test_a_column_that_somebody_else_spelled_with_capitals_has_its_values(tmp_path: Path) -> None:
    """Rows have its folded name; the file has the name of the schema."""
    fields = [
        *new_log_schema().json["fields"],
        {"id": 90, "name": "Größe", "type": "string", "required": False},
    ]
    schema = LogSchema({**new_log_schema().json, "fields": fields})
    rows = _rows(3)
    rows = rows.append_column("größe", pa.array(["a", None, "c"]))
    files = write_files(open_storage(), f"file://{tmp_path}/a", rows, schema)
    values = [pq.read_table(local_path(each.uri)).column("Größe").to_pylist() for each in files]
    assert sorted(value for part in values for value in part if value) == ["a", "c"]


def test_slices_of_shared_rows_are_the_files_of_these_rows(tmp_path: Path) -> None:
    """Byte by byte, without the columns of which a slice has no value; one that is of two hours, or too
    large, is left to the way of all others."""
    times = [FIRST + timedelta(hours=at // 30 % 2, microseconds=at) for at in range(2_000)]
    texts = [[str(at) if times[at].hour % 2 == odd else None for at in range(2_000)] for odd in (0, 1)]
    rows = rows_at(times, even=pa.array(texts[0], pa.string()), odd=pa.array(texts[1], pa.string()))
    with SharedLayouts(open_storage()) as layouts:

        def written(first: int, count: int) -> list[DataFile] | None:
            return layouts.write(f"file://{tmp_path}/a", RowSlice(rows, first, first + count), SCHEMA)

        for first, name in ((0, "even"), (30, "odd"), (60, "even")):
            (file,) = written(first, 30) or []
            own = rows.slice(first, 30).drop_columns(["odd" if name == "even" else "even"])
            (alone,) = write_files(open_storage(), f"file://{tmp_path}/b", own, SCHEMA)
            assert local_path(file.uri).read_bytes() == local_path(alone.uri).read_bytes()
            assert replace(file, uri=alone.uri) == alone
            assert set(pq.read_table(local_path(file.uri)).column_names) == {*SYSTEM_COLUMNS, name}
        assert written(20, 20) is None
        assert written(0, 0) is None
        assert written(0, 2_000) is None


@pytest.mark.parametrize("small_rows_max", [0, 999])
def test_rows_in_order_are_the_same_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small_rows_max: int
) -> None:
    """Those of an archive that is in order already, in several pieces, whoever writes the files."""
    monkeypatch.setattr(writer, "CORE_ROWS_MAX", small_rows_max)
    rows = _rows(500)
    in_order = rows.sort_by("timestamp")
    pieces = pa.concat_tables([in_order.slice(at, 100) for at in range(0, 500, 100)])
    one = write_many_hours(open_storage(), f"file://{tmp_path}/a", rows, SCHEMA)
    other = write_many_hours(open_storage(), f"file://{tmp_path}/b", pieces, SCHEMA)
    assert _read(other) == _read(one)


@pytest.mark.parametrize("in_memory_bytes", [0, 1 << 20])
@pytest.mark.long
def test_whole_hours_have_token_filters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_memory_bytes: int
) -> None:
    """Each file of a backfill that of its own rows, row group by row group; what a flush writes has none, and
    neither has a file of few rows, or a backfill where that is switched off."""
    monkeypatch.setattr(writer, "IN_MEMORY_BYTES", in_memory_bytes)
    monkeypatch.setattr(writer, "GROUP_ROWS", 4)
    storage = open_storage()
    for files in (
        write_files(storage, f"file://{tmp_path}/a", _rows(500), SCHEMA),
        write_many_hours(storage, f"file://{tmp_path}/b", _rows(500), SCHEMA, token_filter=False),
        write_many_hours(storage, f"file://{tmp_path}/d", _rows(500), SCHEMA),
    ):
        assert {block_bytes(file.split_offsets) for file in files} == {0}
    monkeypatch.setattr(writer, "FILTERED_ROWS_MIN", 1)
    monkeypatch.setattr(writer, "CORE_ROWS_MAX", 0)
    files = write_many_hours(storage, f"file://{tmp_path}/c", _rows(500), SCHEMA)
    assert len(_read(files)) == 500
    for file in files:
        path = local_path(file.uri)
        length = block_bytes(file.split_offsets)
        found = decode(path.read_bytes()[PARQUET_MAGIC_BYTES : PARQUET_MAGIC_BYTES + length])
        parquet = pq.ParquetFile(path)
        assert found is not None
        assert [group.rows for group in found.groups] == [
            parquet.metadata.row_group(at).num_rows for at in range(parquet.num_row_groups)
        ]
        for at, group in enumerate(found.groups):
            rows = parquet.read_row_group(at).to_pylist()
            for row in rows:
                word = row.get("even") or row.get("odd")
                assert may_have(group.blocks, demanded_hashes(word)).all()
            assert not may_have(group.blocks, demanded_hashes("absent")).all()


def test_no_rows_of_an_archive_are_no_files(tmp_path: Path) -> None:
    """All of its records may be rejected."""
    assert write_many_hours(open_storage(), f"file://{tmp_path}", _rows(0), SCHEMA) == []
