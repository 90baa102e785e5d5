"""Rows of data files by their numbers, read from the row groups that hold them."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.keys.column_reader import ColumnReader
from ingest.keys.key_lookup import KeyRows
from ingest.keys.row_values import rows_at, values_at
from lake.errors import ProtocolError
from tests.ingest.support.keyed_files import KeyedFiles

ROWS = 11


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> KeyedFiles:
    """Two files in row groups of three rows."""
    files = KeyedFiles(tmp_path_factory.mktemp("rows"))
    for first in (0, 100):
        files.write([(first + at, f"name {first + at}") for at in range(ROWS)])
    return files


@given(positions=st.lists(st.integers(0, ROWS - 1), min_size=1, max_size=20))
def test_rows_come_in_the_order_that_was_asked_for(table: KeyedFiles, positions: list[int]) -> None:
    """Also one row several times, and columns under the names that the table has for them now."""
    asked = np.array(positions, np.int64)
    rows = rows_at(table.storage, table.files[1].uri, asked, {2: "number", 1: "called", 99: "later"})
    expected = [{"called": f"name {100 + at}", "number": 100 + at} for at in positions]
    assert rows.to_pylist() == expected


def test_values_of_several_files_are_null_where_a_file_has_no_such_column(table: KeyedFiles) -> None:
    found = KeyRows(np.array([0, 1, 2]), np.array([0, 0, 1]), np.array([10, 2, 4]))
    uris = [file.uri for file in table.files]
    asked = {99: pa.string(), 2: pa.int64()}
    nothing, numbers = values_at(ColumnReader(table.storage), found, uris, asked)
    assert (nothing.type, nothing.to_pylist()) == (pa.string(), [None, None, None])
    assert (numbers.type, numbers.to_pylist()) == (pa.int64(), [10, 2, 104])


def test_what_is_no_parquet_is_named(table: KeyedFiles, tmp_path: Path) -> None:
    (tmp_path / "damaged.parquet").write_bytes(b"PAR1 no such thing PAR1")
    with pytest.raises(ProtocolError, match=r"damaged\.parquet cannot be read as Parquet"):
        rows_at(table.storage, f"file://{tmp_path}/damaged.parquet", np.array([0]), {2: "id"})
