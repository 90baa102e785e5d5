"""Manifests and manifest lists: written here, read here and by PyIceberg."""

import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import DataFileContent, ManifestContent
from pyiceberg.manifest import read_manifest_list as theirs
from pyiceberg.typedef import Record

from lake.data_file import POSITION_DELETES, DataFile
from lake.errors import ProtocolError
from lake.log_schema import new_log_schema
from lake.manifest import ManifestEntry, Status, read_manifest, write_manifest
from lake.manifest_list import ManifestFile, ManifestList, read_manifest_list, write_manifest_list
from lake.table_layout import PARTITION_SPEC

SCHEMA = new_log_schema().with_strings({"a": (16, "/a")}, 1)
SNAPSHOT, SEQUENCE = 2**62 + 1, 9


def _file(name: str, hour: int | None, rows: int = 3, content: int = 0) -> DataFile:
    bounds = {1: b"\x00" * 8, 16: "é".encode()}
    counts = {1: rows, 16: rows}
    return DataFile(
        f"file:///t/{name}.parquet",
        hour,
        rows,
        1000,
        content,
        counts,
        counts,
        {1: 0, 16: 1},
        lower_bounds=bounds,
        upper_bounds=bounds,
        split_offsets=[4],
    )


def _written(entries: list[ManifestEntry], folder: Path) -> tuple[bytes, ManifestFile]:
    uri = f"file://{folder}/m.avro"
    data, line = write_manifest(
        uri, entries, schema=SCHEMA.json, spec=PARTITION_SPEC, snapshot_id=SNAPSHOT, sequence_number=SEQUENCE
    )
    (folder / "m.avro").write_bytes(data)
    return data, line


ENTRIES = [
    ManifestEntry(Status.ADDED, _file("new", 494_000)),
    ManifestEntry(Status.EXISTING, _file("old", -5, 7), 11, 4, 3),
    ManifestEntry(Status.DELETED, _file("gone", 2, 5), SNAPSHOT, 5, 5),
]


def test_entries_come_back_with_what_they_inherit(tmp_path: Path) -> None:
    """Added files inherit snapshot and sequence number from the manifest list, existing and deleted ones keep
    theirs."""
    data, line = _written(ENTRIES, tmp_path)
    (listed,) = read_manifest_list(
        write_manifest_list(
            ManifestList.of([line]), snapshot_id=SNAPSHOT, parent_id=None, sequence_number=SEQUENCE
        )
    )
    assert listed == line
    added, existing, deleted = read_manifest(data, listed)
    assert added == ManifestEntry(Status.ADDED, ENTRIES[0].file, SNAPSHOT, SEQUENCE, SEQUENCE)
    assert existing == ENTRIES[1]
    assert deleted == ENTRIES[2]


def test_manifest_line_counts_files_rows_and_bounds(tmp_path: Path) -> None:
    """The line in the list says how many files and rows of each status, the lowest carried sequence number,
    the range of hours."""
    _, line = _written(ENTRIES, tmp_path)
    assert (line.added_files, line.existing_files, line.deleted_files, line.live_files) == (1, 1, 1, 2)
    assert (line.added_rows, line.existing_rows, line.deleted_rows) == (3, 7, 5)
    assert (line.sequence_number, line.min_sequence_number) == (SEQUENCE, 4)
    assert line.partitions == [
        {
            "contains_null": False,
            "contains_nan": False,
            "lower_bound": (-5).to_bytes(4, "little", signed=True),
            "upper_bound": (494_000).to_bytes(4, "little"),
        }
    ]


def test_pyiceberg_reads_the_same_files(tmp_path: Path) -> None:
    """PyIceberg's own reader finds the same files, counts, bounds, partitions and sequence numbers."""
    _, line = _written(ENTRIES, tmp_path)
    path = tmp_path / "list.avro"
    path.write_bytes(
        write_manifest_list(
            ManifestList.of([line]), snapshot_id=SNAPSHOT, parent_id=3, sequence_number=SEQUENCE
        )
    )
    io = PyArrowFileIO()
    (listed,) = theirs(io.new_input(f"file://{path}"))
    assert (listed.content, listed.sequence_number, listed.min_sequence_number) == (
        ManifestContent.DATA,
        SEQUENCE,
        4,
    )
    assert (listed.added_files_count, listed.existing_rows_count, listed.deleted_rows_count) == (1, 7, 5)
    found = listed.fetch_manifest_entry(io, discard_deleted=False)
    assert [(int(e.status), e.snapshot_id, e.sequence_number) for e in found] == [
        (1, SNAPSHOT, SEQUENCE),
        (0, 11, 4),
        (2, SNAPSHOT, 5),
    ]
    for entry, ours in zip(found, ENTRIES, strict=True):
        file: Any = entry.data_file
        assert (file.file_path, file.record_count, file.file_size_in_bytes) == (
            ours.file.uri,
            ours.file.rows,
            1000,
        )
        assert file.partition == Record(ours.file.hour)
        assert (file.lower_bounds, file.upper_bounds, file.null_value_counts) == (
            ours.file.lower_bounds,
            ours.file.upper_bounds,
            ours.file.null_counts,
        )
        assert (file.column_sizes, file.value_counts, file.split_offsets) == (
            ours.file.column_sizes,
            ours.file.value_counts,
            [4],
        )


def test_delete_files_get_a_manifest_of_their_own_kind(tmp_path: Path) -> None:
    """Position deletes are told apart from data in entry, manifest and list, here and by PyIceberg."""
    _, line = _written([ManifestEntry(Status.ADDED, _file("deletes", 1, content=POSITION_DELETES))], tmp_path)
    assert line.content == 1
    path = tmp_path / "list.avro"
    path.write_bytes(
        write_manifest_list(
            ManifestList.of([line]), snapshot_id=SNAPSHOT, parent_id=None, sequence_number=SEQUENCE
        )
    )
    io = PyArrowFileIO()
    (listed,) = theirs(io.new_input(f"file://{path}"))
    (entry,) = listed.fetch_manifest_entry(io)
    assert (listed.content, entry.data_file.content) == (
        ManifestContent.DELETES,
        DataFileContent.POSITION_DELETES,
    )


def test_file_without_partition_value_is_seen_in_the_summary(tmp_path: Path) -> None:
    """A file of the partition NULL makes the summary say so, and does not break the bounds."""
    _, line = _written(
        [ManifestEntry(Status.ADDED, _file("null", None)), ManifestEntry(Status.ADDED, _file("one", 1))],
        tmp_path,
    )
    assert line.partitions is not None
    assert line.partitions[0]["contains_null"] is True
    assert line.partitions[0]["lower_bound"] == line.partitions[0]["upper_bound"] == b"\x01\x00\x00\x00"


@pytest.mark.parametrize("data", [b"", b"not avro", b"Obj\x01"])
def test_damaged_manifest_list_is_an_error_that_says_so(data: bytes) -> None:
    """Bytes that are no manifest list never read as an empty table."""
    with pytest.raises(ProtocolError, match="damaged"):
        read_manifest_list(data)


def test_manifest_list_cut_short_is_an_error(tmp_path: Path) -> None:
    """Half a file is no shorter list."""
    _, line = _written(ENTRIES, tmp_path)
    data = write_manifest_list(
        ManifestList.of([line] * 50), snapshot_id=SNAPSHOT, parent_id=None, sequence_number=SEQUENCE
    )
    for length in (len(data) - 1, len(data) - 20, len(data) // 2):
        with pytest.raises(ProtocolError, match="damaged"):
            read_manifest_list(data[:length])


@pytest.mark.parametrize("content", [0, POSITION_DELETES])
@pytest.mark.parametrize("version", [2, 3])
def test_a_packed_file_is_listed_as_it_would_be(content: int, version: int) -> None:
    """Whoever describes a file may encode what the manifest says of it, before the format version of the
    table is known."""
    file = replace(_file("new", 494_000, content=content), first_row_id=7, referenced_data_file="file:///t/d")
    packed = pickle.loads(pickle.dumps(file.packed()))
    assert packed.lower_bounds is None
    assert packed.to_avro(version) == file.to_avro(version)
    assert (packed.partition, packed.rows, packed.content_bytes) == (494_000, file.rows, file.content_bytes)
