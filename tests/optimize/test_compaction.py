"""Merging and its proof, on local files."""

from collections.abc import Callable, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from lake.catalog_client import TableName
from lake.data_file import DataFile, describe_parquet
from lake.log_schema import LogSchema, leaf_ids, new_log_schema
from lake.settings import StorageSettings
from lake.storage import AnyStorage, local_path, open_storage
from optimize.compaction import merge_bin, write_file
from optimize.merge_job import Bin, FileLayout, JobResult, MergeGroup, MergeJob
from optimize.merged_file import merged_at_ms
from tests.optimize.support.damage import (
    removed,
    truncated,
    with_a_changed_value,
    with_a_flipped_byte,
    with_a_row_twice,
    without_a_row,
)
from tests.optimize.support.small_files import rows_of

HOUR = 490_000
NOW_MS = 1_800_000_000_000


def schema_with(*columns: tuple[str, int, str]) -> LogSchema:
    """The system columns and some more: name, field id, type."""
    base = new_log_schema()
    more = [
        {"id": field_id, "name": name, "required": False, "type": kind} for name, field_id, kind in columns
    ]
    return LogSchema({**base.json, "fields": [*base.json["fields"], *more]})


def small_file(
    folder: Path, at: int, schema: LogSchema, columns: dict[str, Any], names: Sequence[str] = ()
) -> DataFile:
    storage = open_storage()
    fields = [f for f in schema.json["fields"] if f["name"] in columns]
    arrow = LogSchema({"fields": fields}).arrow
    table = pa.table([columns[name].cast(arrow.field(name).type) for name in arrow.names], schema=arrow)
    return write_file(storage, f"file://{folder}/data/{HOUR}/{at}.parquet", HOUR, table, fields, FileLayout())


def merge(
    folder: Path,
    schema: LogSchema,
    files: Sequence[DataFile],
    storage: AnyStorage | None = None,
    layout: FileLayout | None = None,
) -> JobResult:
    job = MergeJob(
        TableName("a", "logs"),
        f"file://{folder}",
        schema.json,
        (MergeGroup(HOUR, tuple(files)),),
        layout or FileLayout(),
    )
    (result,) = merge_bin(Bin([job], StorageSettings(), NOW_MS), storage or open_storage())
    return result


def read(file: DataFile) -> pa.Table:
    return pq.read_table(local_path(file.uri))


def test_merged_file_holds_every_row_once_in_order_of_time(tmp_path: Path) -> None:
    """Ten files become one: every row once, ordered by time, described as its footer says, with the time of
    the merge in its name."""
    schema = new_log_schema()
    files = [small_file(tmp_path, at, schema, rows_of(HOUR, at * 20, 20)) for at in range(10)]
    result = merge(tmp_path, schema, files)
    assert result.failure == ""
    (merged,) = result.merged
    table = read(merged.outputs[0])
    assert sorted(table.column("_offset").to_pylist()) == list(range(200))
    times = table.column("timestamp").to_pylist()
    assert times == sorted(times)
    before = pa.concat_tables([read(f) for f in files]).sort_by("_offset")
    assert table.sort_by("_offset").to_pylist() == before.to_pylist()
    leaves = leaf_ids(schema.json["fields"])
    size = local_path(merged.outputs[0].uri).stat().st_size
    assert merged.outputs[0] == describe_parquet(
        merged.outputs[0].uri, HOUR, size, pq.read_metadata(local_path(merged.outputs[0].uri)), leaves
    )
    assert merged_at_ms(merged.outputs[0].uri) == NOW_MS


def test_column_missing_in_some_files_is_null_in_their_rows(tmp_path: Path) -> None:
    """Files from before a column existed give NULL; a column that no file has stays out of the merged one."""
    old, new = new_log_schema(), schema_with(("status", 16, "string"), ("path", 17, "string"))
    files = [
        small_file(tmp_path, 1, old, rows_of(HOUR, 0, 3)),
        small_file(tmp_path, 2, new, rows_of(HOUR, 3, 2, {"status": ["200", None]})),
    ]
    (merged,) = merge(tmp_path, new, files).merged
    table = read(merged.outputs[0]).sort_by("_offset")
    assert table.column("status").to_pylist() == [None, None, None, "200", None]
    assert "path" not in table.column_names


def test_renamed_column_does_not_mix_with_its_successor(tmp_path: Path) -> None:
    """After a declared type renamed `status` to `status__string` and added a new `status`, old text and new
    numbers stay in their own columns."""
    before, after = (
        schema_with(("status", 16, "string")),
        schema_with(("status__string", 16, "string"), ("status", 17, "long")),
    )
    rows = {**rows_of(HOUR, 2, 2), "status": pa.array([7, 8], pa.int64())}
    files = [
        small_file(tmp_path, 1, before, rows_of(HOUR, 0, 2, {"status": ["200", "x"]})),
        small_file(tmp_path, 2, after, rows),
    ]
    (merged,) = merge(tmp_path, after, files).merged
    table = read(merged.outputs[0]).sort_by("_offset")
    assert table.column("status__string").to_pylist() == ["200", "x", None, None]
    assert table.column("status").to_pylist() == [None, None, 7, 8]


def test_widened_and_dropped_columns(tmp_path: Path) -> None:
    """An int that became long is widened; a column dropped from the table is left behind."""
    before, after = (
        schema_with(("size", 16, "int"), ("gone", 17, "string")),
        schema_with(("size", 16, "long")),
    )
    rows = {**rows_of(HOUR, 0, 2, {"gone": ["a", "b"]}), "size": pa.array([1, -2], pa.int32())}
    wide = {**rows_of(HOUR, 2, 1), "size": pa.array([2**40], pa.int64())}
    (merged,) = merge(
        tmp_path, after, [small_file(tmp_path, 1, before, rows), small_file(tmp_path, 2, after, wide)]
    ).merged
    table = read(merged.outputs[0]).sort_by("_offset")
    assert table.column("size").to_pylist() == [1, -2, 2**40]
    assert "gone" not in table.column_names


def test_sort_keys_go_before_time_and_bloom_filters_are_written(tmp_path: Path) -> None:
    """Rows are ordered by the table's sort keys, then by time; a column with a Bloom filter has one in every
    row group."""
    schema = schema_with(("host", 16, "string"))
    files = [
        small_file(tmp_path, at, schema, rows_of(HOUR, at * 4, 4, {"host": ["b", "a", "b", "a"]}))
        for at in range(3)
    ]
    (merged,) = merge(
        tmp_path, schema, files, layout=FileLayout(sort_by=("host", "timestamp"), bloom=("host",))
    ).merged
    table = read(merged.outputs[0])
    keys = list(zip(table.column("host").to_pylist(), table.column("timestamp").to_pylist(), strict=True))
    assert keys == sorted(keys)
    filters = duckdb.sql(
        "SELECT path_in_schema, bloom_filter_offset IS NOT NULL FROM "
        f"parquet_metadata('{local_path(merged.outputs[0].uri)}')"
    ).fetchall()
    assert [name for name, has in filters if has] == ["host"]


def test_columns_get_the_level_and_the_encoding_that_the_table_chose(tmp_path: Path) -> None:
    """A column without a dictionary has none, the others keep theirs; a column with a higher zstd level is
    smaller for it, and no other changes."""
    schema = schema_with(("host", 16, "string"), ("body", 17, "string"))
    words = [f"{at % 100} took {at % 10} ms, then {at % 20} more of {at % 50}" for at in range(4_000)]
    columns = {"host": [f"host-{at % 5}" for at in range(4_000)], "body": words}
    files = [small_file(tmp_path, at, schema, rows_of(HOUR, at * 4_000, 4_000, columns)) for at in range(2)]

    def sizes(layout: FileLayout) -> dict[str, tuple[int, bool]]:
        (merged,) = merge(tmp_path, schema, files, layout=layout).merged
        group = pq.read_metadata(local_path(merged.outputs[0].uri)).row_group(0)
        chunks = [group.column(at) for at in range(group.num_columns)]
        return {
            chunk.path_in_schema: (chunk.total_compressed_size, "RLE_DICTIONARY" in chunk.encodings)
            for chunk in chunks
        }

    usual = sizes(FileLayout(zstd_level=1))
    chosen = sizes(FileLayout(zstd_level=1, plain=("body",), zstd_levels=(("message", 19),)))
    assert (usual["body"][1], chosen["body"][1], chosen["host"][1]) == (True, False, True)
    assert chosen["message"][0] < usual["message"][0]
    assert chosen["host"] == usual["host"]


class FaultyStorage(AnyStorage):
    """Damages every file after it was written."""

    def __init__(self, damage: Callable[[Path], None]) -> None:
        super().__init__(StorageSettings())
        self._damage = damage

    def create(self, uri: str) -> Any:
        @contextmanager
        def damaged() -> Any:
            with AnyStorage.create(self, uri) as file:
                yield file
            self._damage(local_path(uri))

        return damaged()


@pytest.mark.parametrize(
    "damage", [without_a_row, with_a_changed_value, with_a_row_twice, with_a_flipped_byte, truncated, removed]
)
def test_damaged_output_is_refused_and_deleted(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    """A row dropped, changed or doubled, a byte flipped, a file cut or gone after it was written: refused
    each time, and nothing is left."""
    schema = new_log_schema()
    files = [small_file(tmp_path, at, schema, rows_of(HOUR, at * 20, 20)) for at in range(5)]
    result = merge(tmp_path, schema, files, FaultyStorage(damage))
    assert result.failure
    assert result.merged == ()
    assert sorted(p.name for p in (tmp_path / f"data/{HOUR}").iterdir()) == [
        f"{at}.parquet" for at in range(5)
    ]


def test_input_that_is_not_what_its_manifest_says_is_refused(tmp_path: Path) -> None:
    """Where an old file holds fewer rows than its manifest promises, merging would make the loss final:
    refused."""
    schema = new_log_schema()
    files = [small_file(tmp_path, at, schema, rows_of(HOUR, at * 20, 20)) for at in range(2)]
    without_a_row(local_path(files[0].uri))
    assert "its manifest says 20" in merge(tmp_path, schema, files).failure


def test_file_without_field_ids_is_refused(tmp_path: Path) -> None:
    """A file that somebody added without field ids cannot be read by id and is left to Spark."""
    schema = new_log_schema()
    files = [small_file(tmp_path, at, schema, rows_of(HOUR, at * 20, 20)) for at in range(2)]
    table = read(files[0])
    bare = pa.table(table.columns, names=table.column_names)
    pq.write_table(bare, local_path(files[0].uri), store_schema=False)
    files[0] = replace(files[0], size_bytes=local_path(files[0].uri).stat().st_size)
    assert "field ids" in merge(tmp_path, schema, files).failure


def test_one_bad_job_does_not_stop_the_others(tmp_path: Path) -> None:
    """In a bin, the table whose input is gone fails alone."""
    schema = new_log_schema()
    good = [small_file(tmp_path, at, schema, rows_of(HOUR, at * 5, 5)) for at in range(2)]
    gone = [DataFile(f"file://{tmp_path}/gone-{at}", HOUR, 1, 1) for at in range(2)]
    jobs = [
        MergeJob(
            TableName("a", name),
            f"file://{tmp_path}",
            schema.json,
            (MergeGroup(HOUR, tuple(files)),),
            FileLayout(),
        )
        for name, files in (("x", gone), ("y", good))
    ]
    bad, fine = merge_bin(Bin(jobs, StorageSettings(), NOW_MS), open_storage())
    assert "does not exist" in bad.failure
    assert fine.failure == ""
    assert pc.sum(read(fine.merged[0].outputs[0]).column("_offset")).as_py() == sum(range(10))
