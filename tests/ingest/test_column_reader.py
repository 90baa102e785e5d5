"""Columns of data files that are read once, however often they are asked for."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from ingest.keys.column_reader import ENTRY_BYTES, ColumnReader
from lake.errors import NotFoundError, ProtocolError
from lake.storage import LocalStorage, local_path
from tests.ingest.support.keyed_files import KeyedFiles

GROUP_ROWS = 3  # of KeyedFiles
ID, NAME, ABSENT = 2, 1, 99


@pytest.fixture
def files(tmp_path: Path) -> KeyedFiles:
    """Three files of ten rows."""
    files = KeyedFiles(tmp_path)
    for first in (0, 100, 200):
        files.write([(first + at, f"name {first + at}") for at in range(10)])
    return files


class CountedStorage(LocalStorage):
    """Counts how often a file is opened."""

    opened = 0

    def open(self, uri: str) -> Any:
        self.opened += 1
        return super().open(uri)


def test_what_was_read_is_not_read_again(files: KeyedFiles) -> None:
    storage = CountedStorage()
    reader, uri = ColumnReader(storage), files.files[1].uri
    first = reader.of_group(uri, 1, [ID, NAME, ABSENT])
    told = [None if column is None else column.to_pylist() for column in first]
    assert told == [[103, 104, 105], ["name 103", "name 104", "name 105"], None]
    opened = storage.opened
    assert reader.of_group(uri, 1, [NAME, ID]) == [first[1], first[0]]
    assert reader.of_group(uri, 1, [ABSENT]) == [None]
    assert storage.opened == opened
    local_path(uri).unlink()
    assert reader.of_group(uri, 1, [ID]) == [first[0]]
    with pytest.raises(NotFoundError):
        reader.of_group(uri, 0, [ID])


def test_no_more_is_kept_than_there_is_room_for(files: KeyedFiles) -> None:
    """What was used last stays; what is larger than all room is read each time."""
    storage = CountedStorage()
    (one,) = ColumnReader(storage).of_group(files.files[0].uri, 0, [ID])
    assert one is not None
    each_bytes = ENTRY_BYTES + one.nbytes
    reader, chance = ColumnReader(storage, bytes_max=2 * each_bytes), random.Random(1)
    for _ in range(200):
        file, group = chance.randrange(3), chance.randrange(3)
        (found,) = reader.of_group(files.files[file].uri, group, [ID])
        assert found is not None
        first = 100 * file + GROUP_ROWS * group
        assert found.to_pylist() == list(range(first, first + GROUP_ROWS))
        assert reader.kept_bytes <= 2 * each_bytes
        opened = storage.opened
        reader.of_group(files.files[file].uri, group, [ID])
        assert storage.opened == opened
    small = ColumnReader(storage, bytes_max=each_bytes - 1)
    for _ in range(2):
        assert small.of_group(files.files[0].uri, 0, [ID]) == [one]
        assert small.kept_bytes == 0


def test_columns_that_files_lack_take_room_too(files: KeyedFiles) -> None:
    """Else whoever follows a table for years keeps that of every file."""
    storage = CountedStorage()
    reader = ColumnReader(storage, bytes_max=3 * ENTRY_BYTES)
    for field_id in range(ABSENT, ABSENT + 50):
        assert reader.of_group(files.files[0].uri, 0, [field_id]) == [None]
        assert reader.kept_bytes <= 3 * ENTRY_BYTES
    opened = storage.opened
    reader.of_group(files.files[0].uri, 0, [ABSENT + 49])
    assert storage.opened == opened
    reader.of_group(files.files[0].uri, 0, [ABSENT])
    assert storage.opened > opened


def test_rows_are_found_in_their_groups(files: KeyedFiles) -> None:
    reader, positions = ColumnReader(files.storage), np.array([9, 0, 4, 3, 9], np.int64)
    found = {
        group: (places.tolist(), at.to_pylist())
        for group, places, at in reader.groups(files.files[0].uri, positions)
    }
    assert found == {0: ([1], [0]), 1: ([2, 3], [1, 0]), 3: ([0, 4], [0, 0])}


def test_texts_that_stand_as_numbers_are_kept_so(tmp_path: Path) -> None:
    """One long text for all rows takes four bytes a row."""
    files, text = KeyedFiles(tmp_path), "x" * 500
    file = files.write([(at, text) for at in range(1_000)], group=1_000)
    reader = ColumnReader(files.storage)
    (column,) = reader.of_group(file.uri, 0, [NAME])
    assert column is not None
    assert pa.types.is_dictionary(column.type)
    assert column.cast(pa.string()).to_pylist() == [text] * 1_000
    assert reader.kept_bytes < 10_000


def test_what_is_no_parquet_is_named(tmp_path: Path) -> None:
    (tmp_path / "damaged.parquet").write_bytes(b"PAR1 no such thing PAR1")
    with pytest.raises(ProtocolError, match=r"damaged\.parquet cannot be read as Parquet"):
        ColumnReader(LocalStorage()).of_group(f"file://{tmp_path}/damaged.parquet", 0, [ID])
