"""Row deletes by position: what is written is read back, here and by PyIceberg; broken files are named."""

import struct
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from zlib import crc32

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.table.deletion_vector import deletion_vectors_from_puffin_file
from pyiceberg.table.puffin import PuffinFile
from pyroaring import BitMap64

from lake.data_file import EQUALITY_DELETES, DataFile
from lake.deletes.dead_rows import DeleteFiles, load_dead_rows
from lake.deletes.deletion_vector import decode_deletion_vector, encode_deletion_vector
from lake.deletes.position_delete_file import (
    FILE_PATH_ID,
    POSITION_ID,
    decode_position_deletes,
    encode_position_deletes,
)
from lake.deletes.row_deletes import encode_row_deletes, load_row_deletes
from lake.errors import ForeignFileError, ProtocolError, TooLargeError
from lake.manifest import ManifestEntry, Status
from lake.storage import open_storage
from lake.table_location import TableLocation

ROWS = 2**40
Pairs = Sequence[tuple[str | None, int | None]]
# Near each other, far from each other, and in runs: the three kinds of containers in a Roaring bitmap.
POSITIONS = st.one_of(
    st.sets(st.integers(0, 200), min_size=1),
    st.sets(st.integers(0, ROWS - 1), min_size=1),
    st.builds(
        lambda first, rows: set(range(first, first + rows)), st.integers(0, 2**33), st.integers(1, 9_000)
    ),
)


def _data_file(location: str, name: str = "a", rows: int = ROWS) -> DataFile:
    return DataFile(f"{location}/data/7/{name}.parquet", 7, rows, 1_000)


@given(POSITIONS)
def test_a_vector_comes_back(positions: set[int]) -> None:
    blob = encode_deletion_vector(BitMap64(positions))
    assert set(decode_deletion_vector(blob, "it")) == positions


@given(POSITIONS, st.data())
def test_a_broken_vector_is_named(positions: set[int], data: st.DataObject) -> None:
    """A byte that changed, wherever it is, and a blob that is cut."""
    blob = bytearray(encode_deletion_vector(BitMap64(positions)))
    at = data.draw(st.integers(0, len(blob) - 1))
    cut = bytes(blob[:at])
    blob[at] ^= data.draw(st.integers(1, 255))
    for broken in (bytes(blob), cut):
        with pytest.raises(ProtocolError, match="that one is no deletion vector"):
            decode_deletion_vector(broken, "that one")


def test_a_vector_whose_checksum_is_right_and_whose_bitmap_is_not_is_named() -> None:
    body = b"\xd1\xd3\x39\x64" + struct.pack("<QI", 2**60, 0) + b"\xff" * 12
    blob = struct.pack(">I", len(body)) + body + struct.pack(">I", crc32(body))
    with pytest.raises(ProtocolError, match="no deletion vector"):
        decode_deletion_vector(blob, "it")


@given(POSITIONS)
def test_a_position_delete_file_comes_back(positions: set[int]) -> None:
    """Its bounds name the one data file as a whole, and the first and last position."""
    data_file = _data_file("file:///t")
    data, file = encode_position_deletes("file:///t/d.parquet", data_file, BitMap64(positions))
    found = decode_position_deletes(data, file)
    assert {uri: set(rows) for uri, rows in found.items()} == {data_file.uri: positions}
    assert (file.rows, file.size_bytes, file.hour) == (len(positions), len(data), 7)
    assert file.lower_bounds == {
        FILE_PATH_ID: data_file.uri.encode(),
        POSITION_ID: struct.pack("<q", min(positions)),
    }
    assert file.upper_bounds == {
        FILE_PATH_ID: data_file.uri.encode(),
        POSITION_ID: struct.pack("<q", max(positions)),
    }


def test_a_file_of_another_engine_may_name_several_data_files() -> None:
    """Its columns are found by their ids, whatever else it has."""
    pairs = [("file:///t/a", 5), ("file:///t/a", 70_000), ("file:///t/b", 0)]
    data = _foreign_file(pairs)
    file = DataFile("file:///t/d.parquet", 7, 3, len(data), content=1)
    found = decode_position_deletes(data, file)
    assert {uri: set(rows) for uri, rows in found.items()} == {"file:///t/a": {5, 70_000}, "file:///t/b": {0}}


@pytest.mark.parametrize(
    ("pairs", "rows"),
    [([("file:///t/a", -1)], 1), ([("file:///t/a", None)], 1), ([(None, 1)], 1), ([("file:///t/a", 1)], 2)],
)
def test_a_broken_position_delete_file_is_named(
    pairs: list[tuple[str | None, int | None]], rows: int
) -> None:
    """Negative and missing positions, a missing path, another number of rows than the manifest says."""
    data = _foreign_file(pairs)
    with pytest.raises(ProtocolError, match=r"file:///t/d\.parquet"):
        decode_position_deletes(data, DataFile("file:///t/d.parquet", 7, rows, len(data), content=1))


def test_what_is_no_parquet_or_has_other_columns_is_named() -> None:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"file_path": ["a"], "pos": [1]}), sink)
    for data in (b"PAR1", sink.getvalue().to_pybytes()):
        with pytest.raises(ProtocolError, match=r"file:///t/d\.parquet"):
            decode_position_deletes(data, DataFile("file:///t/d.parquet", 7, 1, len(data), content=1))


def _foreign_file(pairs: Pairs) -> bytes:
    def field(name: str, kind: pa.DataType, field_id: int) -> pa.Field:
        return pa.field(name, kind, metadata={b"PARQUET:field_id": str(field_id)})

    schema = pa.schema(
        [
            field("pos_", pa.int64(), POSITION_ID),
            field("path_", pa.string(), FILE_PATH_ID),
            ("row", pa.int32()),
        ]
    )
    columns = [[position for _, position in pairs], [path for path, _ in pairs], [1] * len(pairs)]
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(columns, schema=schema), sink)
    return bytes(sink.getvalue())


@pytest.mark.parametrize("version", [2, 3])
def test_several_data_files_in_one_commit(tmp_path: Path, version: int) -> None:
    """Version 2: a file for each; version 3: one file of all vectors, which PyIceberg reads too."""
    location, storage = f"file://{tmp_path}", open_storage()
    deleted = {"a": {0, 3, 99_999}, "b": set(range(1_000, 3_000)), "c": {5}}
    pairs = [(_data_file(location, name, 100_000), BitMap64(rows)) for name, rows in deleted.items()]
    written, files = encode_row_deletes(location, version, pairs)
    storage.write_all(written)
    assert len(written) == (3 if version == 2 else 1)
    assert [file.referenced_data_file for file in files] == [file.uri for file, _ in pairs]
    table_location = TableLocation.at(location)
    expected = {file.uri: set(rows) for file, rows in pairs}
    found: dict[str, set[int]] = {}
    for file in files:
        found |= {uri: set(rows) for uri, rows in load_row_deletes(storage, file, table_location).items()}
    assert found == expected
    if version == 3:
        vectors = deletion_vectors_from_puffin_file(PuffinFile(written[0][1]))
        theirs = {each.referenced_data_file: set(each.to_vector().to_pylist()) for each in vectors}
        assert theirs == expected
        assert sum(file.content_bytes for file in files) < len(written[0][1])


def test_positions_that_a_file_does_not_have_are_refused() -> None:
    for positions in (BitMap64(), BitMap64([10])):
        with pytest.raises(ValueError, match="no such positions"):
            encode_row_deletes("file:///t", 2, [(_data_file("file:///t", rows=10), positions)])


def test_manifests_that_lie_about_a_vector_are_refused(tmp_path: Path) -> None:
    """No place, a place of another's file, another number of positions, and more bytes than are read."""
    location, storage = f"file://{tmp_path}", open_storage()
    written, (file,) = encode_row_deletes(location, 3, [(_data_file(location), BitMap64([1, 2]))])
    storage.write_all(written)
    cases = [
        (replace(file, content_offset=None), ProtocolError),
        (replace(file, content_offset=-4), ProtocolError),
        (replace(file, rows=3), ProtocolError),
        (replace(file, content_offset=5), ProtocolError),
        (replace(file, content=EQUALITY_DELETES), ProtocolError),
        (replace(file, content_size_in_bytes=2**40), TooLargeError),
        (replace(file, uri="file:///elsewhere/x.puffin"), ForeignFileError),
        (replace(file, referenced_data_file="file:///elsewhere/x.parquet"), ForeignFileError),
    ]
    for lying, error in cases:
        with pytest.raises(error):
            load_row_deletes(storage, lying, TableLocation.at(location))


def test_dead_rows_are_those_of_all_deletes_that_apply(tmp_path: Path) -> None:
    """Deletes of several commits add up; one that is older than the data file does not count; a vector stands
    for all."""
    location, storage = f"file://{tmp_path}", open_storage()
    one, other = _data_file(location, "one", 100), _data_file(location, "other", 100)

    def deleted(version: int, sequence: int, file: DataFile, rows: set[int]) -> ManifestEntry:
        written, (made,) = encode_row_deletes(location, version, [(file, BitMap64(rows))])
        storage.write_all(written)
        return ManifestEntry(Status.EXISTING, made, 1, sequence, sequence)

    many = _foreign_file([(one.uri, 8), (other.uri, 9)])
    storage.write(f"{location}/data/7/many.parquet", many)
    of_many = DataFile(f"{location}/data/7/many.parquet", 7, 2, len(many), content=1)
    entries = [
        deleted(2, 2, one, {1, 2}),
        deleted(2, 5, one, {2, 3}),
        ManifestEntry(Status.EXISTING, of_many, 1, 4, 4),
    ]

    def dead(sequence: int | None) -> dict[str, set[int]]:
        asked = [(one.uri, sequence), (other.uri, sequence), (f"{location}/x.parquet", None)]
        found = load_dead_rows(storage, DeleteFiles.of(entries), asked, TableLocation.at(location))
        return {uri: set(rows) for uri, rows in found.items()}

    assert dead(None) == dead(1) == {one.uri: {1, 2, 3, 8}, other.uri: {9}}
    assert dead(3) == {one.uri: {2, 3, 8}, other.uri: {9}}
    assert dead(6) == {}
    entries.append(deleted(3, 6, one, {1, 2, 3, 8, 50}))
    assert dead(1) == {one.uri: {1, 2, 3, 8, 50}, other.uri: {9}}
    entries.append(entries[-1])
    with pytest.raises(ProtocolError, match="two deletion vectors"):
        dead(1)
