"""Where keys are: the live rows of many data files that hold them."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap64

from ingest.keys.column_reader import ColumnReader
from ingest.keys.key_hash import hash_keys
from ingest.keys.key_index_store import KeyIndexStore
from ingest.keys.key_lookup import KeyRows, find_live_rows, verified_rows
from tests.ingest.support.keyed_files import Key, KeyedFiles, key_columns

BUDGET = 1_000_000
ONE_KEY = st.tuples(st.integers(0, 4), st.sampled_from([None, "", "a"]))
# Each row with whether it is deleted.
FILES = st.lists(st.lists(st.tuples(ONE_KEY, st.booleans()), max_size=8), max_size=4)


@pytest.fixture
def table(tmp_path: Path) -> KeyedFiles:
    return KeyedFiles(tmp_path)


def store_of(table: KeyedFiles) -> KeyIndexStore:
    return KeyIndexStore(table.storage, table.folder / "indexes", BUDGET)


def rows_of(found: KeyRows) -> list[tuple[int, int, int]]:
    columns = (found.key.tolist(), found.file.tolist(), found.position.tolist())
    return sorted(zip(*columns, strict=True))


@pytest.mark.long
@given(contents=FILES, sought=st.lists(ONE_KEY, max_size=8))
def test_exactly_the_live_rows_of_each_key_are_found_and_verified(
    tmp_path_factory: pytest.TempPathFactory, contents: list[list[tuple[Key, bool]]], sought: list[Key]
) -> None:
    table = KeyedFiles(tmp_path_factory.mktemp("table"))
    for content in contents:
        table.write([key for key, _ in content])
    deleted = {
        file.uri: BitMap64(row for row, (_, gone) in enumerate(content) if gone)
        for file, content in zip(table.files, contents, strict=True)
    }
    expected = _live_rows(contents, sought)
    columns = key_columns(sought)
    columns[1] = columns[1].cast(pa.string())
    found = find_live_rows(store_of(table), hash_keys(columns), table.files, deleted)
    assert rows_of(found) == expected
    assert rows_of(verified_rows(ColumnReader(table.storage), found, columns, table.files)) == expected


def _live_rows(contents: list[list[tuple[Key, bool]]], sought: list[Key]) -> list[tuple[int, int, int]]:
    live = list[tuple[int, int, int]]()
    for file, content in enumerate(contents):
        for row, (held, gone) in enumerate(content):
            live.extend((at, file, row) for at, key in enumerate(sought) if key == held and not gone)
    return sorted(live)


def test_deletes_count_however_their_file_is_spelled(table: KeyedFiles) -> None:
    file = table.write([(at, "x") for at in range(4)])
    keys = hash_keys(key_columns([(at, "x") for at in range(4)]))
    deleted = {
        file.uri: BitMap64([3, 0]),
        file.uri.replace("file:///", "file:/"): BitMap64([2]),
    }
    assert rows_of(find_live_rows(store_of(table), keys, table.files, deleted)) == [(1, 0, 1)]


def test_a_row_that_only_has_an_equal_hash_is_not_of_the_key(table: KeyedFiles) -> None:
    table.write([(1, "a"), (2, "b"), (3, "c"), (4, "d")])
    claimed = KeyRows(np.array([0, 1, 1]), np.array([0, 0, 0]), np.array([0, 2, 3]))
    kept = verified_rows(ColumnReader(table.storage), claimed, key_columns([(1, "a"), (4, "d")]), table.files)
    assert rows_of(kept) == [(0, 0, 0), (1, 0, 3)]


@pytest.mark.parametrize(("in_file", "asked"), [(pa.int32(), pa.int64()), (pa.int64(), pa.int32())])
def test_keys_are_verified_across_a_widening(
    table: KeyedFiles, in_file: pa.DataType, asked: pa.DataType
) -> None:
    keys: list[Key] = [(at, "x") for at in range(10)]
    table.write(keys, in_file)
    columns = [pa.chunked_array([column]) for column in key_columns(keys, asked)]
    found = find_live_rows(store_of(table), hash_keys(columns), table.files, {})
    assert rows_of(verified_rows(ColumnReader(table.storage), found, columns, table.files)) == [
        (at, 0, at) for at in range(10)
    ]


def test_the_same_rows_are_found_once_all_indexes_are_lost(table: KeyedFiles) -> None:
    for start in (0, 5, 10):
        table.write([(at, "x") for at in range(start, start + 7)])
    keys = hash_keys(key_columns([(at, "x") for at in range(20)]))
    store = store_of(table)
    before = rows_of(find_live_rows(store, keys, table.files, {}))
    for path in (table.folder / "indexes").iterdir():
        path.unlink()
    assert rows_of(find_live_rows(store_of(table), keys, table.files, {})) == before
    assert len(before) == 21


def test_no_keys_and_no_files_are_no_rows(table: KeyedFiles) -> None:
    none = hash_keys(key_columns([]))
    assert rows_of(find_live_rows(store_of(table), none, [], {})) == []
    table.write([(1, "a")])
    assert rows_of(find_live_rows(store_of(table), none, table.files, {})) == []
