"""Which rows equality deletes are about, compared with the plainest reading of the specification."""

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lake.catalog_client import TableName
from lake.data_file import EQUALITY_DELETES, DataFile
from lake.errors import RefusedError
from lake.log_schema import LogSchema
from lake.storage import open_storage
from lake.table_location import TableLocation
from optimize.equality_deletes import EqualityJob, Numbered, turn

SCHEMA = {
    "type": "struct",
    "schema-id": 0,
    "fields": [
        {"id": 1, "name": "a", "required": False, "type": "long"},
        {"id": 2, "name": "b", "required": False, "type": "string"},
        {"id": 3, "name": "c", "required": False, "type": "double"},
    ],
}
IDS = {"a": 1, "b": 2, "c": 3}
VALUES = {
    "a": st.none() | st.integers(0, 3),
    "b": st.none() | st.sampled_from(["", "x", "y"]),
    "c": st.none() | st.sampled_from([0.5, 1.5]),
}
Row = dict[str, Any]
ROWS = st.lists(st.fixed_dictionaries(VALUES), max_size=8)
NUMBERS = st.integers(1, 5)
# The columns that a delete file names, in whatever order, and rows of which it has those.
DELETES = st.tuples(st.permutations("abc").flatmap(lambda p: st.sampled_from([p[:1], p[:2], p])), ROWS)


class World:
    """Data files and delete files in a folder, each with a sequence number."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.storage = folder, open_storage()
        self.files: list[Numbered] = []
        self.deletes: list[Numbered] = []

    def write(self, number: int, rows: Sequence[Row], names: Sequence[str], *, content: int = 0) -> None:
        listed = self.deletes if content else self.files
        uri = f"file://{self.folder}/{content}-{len(listed)}.parquet"
        fields = [next(each for each in SCHEMA["fields"] if each["name"] == name) for name in names]  # type: ignore[attr-defined]
        arrow = LogSchema({"fields": fields}).arrow
        table = pa.Table.from_pylist([{name: row[name] for name in names} for row in rows], arrow)
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink, row_group_size=3)
        data = sink.getvalue().to_pybytes()
        self.storage.write(uri, data)
        ids = [IDS[name] for name in names] if content else None
        listed.append((DataFile(uri, 1, len(rows), len(data), content, equality_ids=ids), number))

    def job(self) -> EqualityJob:
        location = TableLocation.at(f"file://{self.folder}")
        return EqualityJob(TableName("a", "b"), 1, tuple(self.deletes), tuple(self.files), SCHEMA, location)


@given(
    st.lists(st.tuples(NUMBERS, ROWS), min_size=1, max_size=3),
    st.lists(st.tuples(NUMBERS, DELETES), min_size=1, max_size=4),
)
def test_rows_with_the_values_of_a_younger_delete_are_found(
    files: list[tuple[int, list[Row]]], deletes: list[tuple[int, tuple[Sequence[str], list[Row]]]]
) -> None:
    """NULL equals NULL; a delete is about files with smaller sequence numbers alone, whatever others say."""
    with TemporaryDirectory() as folder:
        world = World(Path(folder))
        for number, rows in files:
            world.write(number, rows, "abc")
        for number, (names, rows) in deletes:
            world.write(number, rows, names, content=EQUALITY_DELETES)
        found = turn(world.job(), world.storage)
    for (file, _), (number, rows) in zip(world.files, files, strict=True):
        wanted = {
            at
            for at, row in enumerate(rows)
            for younger, (names, gone) in deletes
            if younger > number and any(all(row[n] == each[n] for n in names) for each in gone)
        }
        assert set(found.rows.get(file.uri, ())) == wanted


def test_a_column_that_a_file_does_not_have_is_null_in_it(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.write(1, [{"a": 1}, {"a": 2}], "a")
    world.write(2, [{"a": 1, "b": None}, {"a": 2, "b": "x"}], "ab", content=EQUALITY_DELETES)
    assert {uri: set(rows) for uri, rows in turn(world.job(), world.storage).rows.items()} == {
        world.files[0][0].uri: {0}
    }


def test_a_delete_by_no_column_of_the_table_is_refused(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.write(1, [{"a": 1}], "a")
    world.deletes.append((DataFile("file:///x", 1, 1, 1, EQUALITY_DELETES, equality_ids=[1, 99]), 2))
    with pytest.raises(RefusedError, match=r"by \[99\], which is no column"):
        turn(world.job(), world.storage)
