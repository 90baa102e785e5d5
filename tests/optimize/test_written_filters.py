"""The token filters of files that maintenance writes: of exactly the rows that are in them, and in nobody's
way."""

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyroaring import BitMap64

from lake.data_file import DataFile
from lake.log_schema import LogSchema
from lake.manifest import ManifestEntry, Status
from lake.severity import LEVELS, level_of
from lake.storage import local_path, open_storage
from lake.token_filter.block import PARQUET_MAGIC_BYTES, TokenFilter, block_bytes, decode
from lake.token_filter.bloom import may_have
from lake.token_filter.builder import FilterBuilder, file_block
from lake.token_filter.tokens import demanded_hashes
from optimize import compaction, parquet_options, rewritten_file
from optimize.compaction import write_file
from optimize.merge_job import FileLayout, JobResult
from optimize.rewritten_file import write_without
from tests.optimize.support.small_files import rows_of
from tests.optimize.test_compaction import HOUR, merge, read, schema_with, small_file

WORDS = ["refused", "Straße", "東京都", "Жук", "order_42", "10.0.0.1", "naïve", "K2"]


def filter_of(file: DataFile) -> TokenFilter | None:
    length = block_bytes(file.split_offsets)
    raw = local_path(file.uri).read_bytes()
    return decode(raw[PARQUET_MAGIC_BYTES : PARQUET_MAGIC_BYTES + length]) if length else None


def groups_with(file: DataFile, text: str) -> list[int]:
    """The row groups that may have a text."""
    found = filter_of(file)
    assert found is not None
    hashes = demanded_hashes(text)
    return [at for at, group in enumerate(found.groups) if may_have(group.blocks, hashes).all()]


def messages(count: int, draw: random.Random) -> list[str]:
    return [" ".join(draw.choices(WORDS, k=2)) + f" user{at}" for at in range(count)]


def merge_of_four(folder: Path, layout: FileLayout | None = None) -> JobResult:
    draw, schema = random.Random(1), schema_with(("host", 16, "string"))
    files = []
    for at in range(4):
        columns = rows_of(HOUR, at * 30, 30, {"host": [f"host-{row % 5}" for row in range(30)]})
        columns["message"] = pa.array(messages(30, draw))
        files.append(small_file(folder, at, schema, columns))
    return merge(folder, schema, files, layout=layout or FileLayout(row_group_rows=50))


def merged(folder: Path, layout: FileLayout | None = None) -> DataFile:
    (result,) = merge_of_four(folder, layout).merged
    return result.outputs[0]


def test_a_merged_file_has_a_filter_for_each_row_group(tmp_path: Path) -> None:
    """With the words of its rows and no others; rows by minute and level are those that are counted."""
    file = merged(tmp_path)
    found = filter_of(file)
    assert found is not None
    parts = [read(file).slice(at, 50) for at in (0, 50, 100)]
    assert [group.rows for group in found.groups] == [50, 50, 20]
    for at, part in enumerate(parts):
        times = part.column("timestamp").cast(pa.int64()).to_pylist()
        assert (found.groups[at].first_us, found.groups[at].last_us) == (min(times), max(times))
        for message in part.column("message").to_pylist():
            assert at in groups_with(file, message)
    assert groups_with(file, "absent_word") == []
    expected: dict[tuple[int, int], int] = {}
    for row in read(file).select(["timestamp", "severity"]).to_pylist():
        key = (int(row["timestamp"].timestamp()) // 60, LEVELS.index(level_of(row["severity"])))
        expected[key] = expected.get(key, 0) + 1
    assert found.counts is not None
    assert {(minute, level): rows for minute, level, rows in found.counts.tolist()} == expected


def test_no_reader_sees_the_filter(tmp_path: Path) -> None:
    """The rows are those of a file without it, for PyArrow and for DuckDB, by whole files and by words."""
    one = merged(tmp_path / "with")
    other = merged(tmp_path / "without", FileLayout(row_group_rows=50, token_filter=False))
    assert filter_of(other) is None
    assert other.split_offsets is not None
    assert other.split_offsets[0] == PARQUET_MAGIC_BYTES
    longer_offsets = one.size_bytes - other.size_bytes - block_bytes(one.split_offsets)
    assert 0 <= longer_offsets < 100
    assert read(one).equals(read(other))
    for select in ("*", "count(*)", "_offset"):
        where = " WHERE message LIKE '%order_42%'" if select == "_offset" else ""
        found = [
            duckdb.sql(f"SELECT {select} FROM '{local_path(file.uri)}'{where} ORDER BY ALL").fetchall()
            for file in (one, other)
        ]
        assert found[0] == found[1]


def test_a_filter_of_other_row_groups_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The proof of a merge looks at it, as at all that is written."""
    monkeypatch.setattr(compaction, "file_block", lambda rows, _: file_block(rows, 49))
    assert "token filter" in merge_of_four(tmp_path).failure


def test_a_damaged_filter_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that readers could not rely on would cost every search the time to find that out."""
    monkeypatch.setattr(compaction, "file_block", lambda rows, size: file_block(rows, size)[:-1] + b"\0")
    assert "token filter" in merge_of_four(tmp_path).failure


def without(folder: Path, file: DataFile, gone: Sequence[int], **options: Any) -> tuple[DataFile, pa.Table]:
    with local_path(file.uri).open("rb") as old:
        written = write_without(
            open_storage(),
            old,
            f"file://{folder}/erased.parquet",
            ManifestEntry(Status.EXISTING, file),
            BitMap64(gone),
            keeps_row_ids=False,
            **options,
        )
    return written, read(written)


def test_an_erased_value_is_gone_from_the_filter(tmp_path: Path) -> None:
    """The file that is written anew has a filter of what is left: row groups of which nothing is left are
    gone, the others have their own words and no other."""
    file = merged(tmp_path)
    rows = read(file)
    assert groups_with(file, "user7")
    gone = [at for at, message in enumerate(rows.column("message").to_pylist()) if message.endswith("user7")]
    written, left = without(tmp_path, file, [*gone, *range(100, 120)])
    assert left.equals(rows.filter(pa.array([at not in gone and at < 100 for at in range(120)])))
    assert groups_with(written, "user7") == []
    found = filter_of(written)
    assert found is not None
    assert [group.rows for group in found.groups] == [
        50 - sum(at < 50 for at in gone),
        50 - sum(50 <= at < 100 for at in gone),
    ]
    for at in range(left.num_rows):
        assert groups_with(written, left.column("message")[at].as_py())
    assert found.counts is not None
    assert found.counts[:, 2].sum() == left.num_rows
    raw = local_path(written.uri).read_bytes()
    length = block_bytes(written.split_offsets)
    assert raw[PARQUET_MAGIC_BYTES : PARQUET_MAGIC_BYTES + length] == _block_of(left, found)


def _block_of(left: pa.Table, found: TokenFilter) -> bytes:
    """What a file has that never had another row."""
    builder = FilterBuilder()
    at = 0
    for group in found.groups:
        builder.add(left.slice(at, group.rows))
        at += group.rows
    return builder.block()


def test_an_erasure_leaves_the_filter_out_where_it_is_switched_off(tmp_path: Path) -> None:
    """As the setting merge.token_filter says."""
    file = merged(tmp_path)
    written, left = without(tmp_path, file, [0], token_filter=False)
    assert left.equals(read(file).slice(1))
    assert filter_of(written) is None


def test_large_row_groups_of_other_writers_come_in_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Arrow's writer would cut them, and filters have to be of what is written."""
    monkeypatch.setattr(rewritten_file, "GROUP_ROWS_MAX", 40)
    file = merged(tmp_path, FileLayout(row_group_rows=100))
    written, left = without(tmp_path, file, [0, 39, 41])
    assert left.equals(read(file).take([at for at in range(120) if at not in (0, 39, 41)]))
    found = filter_of(written)
    assert found is not None
    metadata = pq.read_metadata(local_path(written.uri))
    rows = [metadata.row_group(at).num_rows for at in range(metadata.num_row_groups)]
    assert [group.rows for group in found.groups] == rows == [38, 39, 20, 20]


def test_row_groups_beyond_what_arrow_writes_are_cut_with_their_filters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever merge.row_group_rows says."""
    monkeypatch.setattr(parquet_options, "GROUP_ROWS_MAX", 25)
    draw, schema = random.Random(3), schema_with()
    columns = rows_of(HOUR, 0, 60) | {"message": pa.array(messages(60, draw))}
    fields = [f for f in schema.json["fields"] if f["name"] in columns]
    arrow = LogSchema({"fields": fields}).arrow
    table = pa.table([columns[name].cast(arrow.field(name).type) for name in arrow.names], schema=arrow)
    file = write_file(open_storage(), f"file://{tmp_path}/a.parquet", HOUR, table, fields, FileLayout())
    found = filter_of(file)
    assert found is not None
    metadata = pq.read_metadata(local_path(file.uri))
    assert [group.rows for group in found.groups] == [25, 25, 10]
    assert [metadata.row_group(at).num_rows for at in range(metadata.num_row_groups)] == [25, 25, 10]
