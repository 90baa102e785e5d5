"""One commit of data files and row deletes: its manifests, its summary, ids of rows, and what is refused."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap64

from lake.catalog_client import TableName
from lake.commit import Prepared, RowDelta, TableState, new_table_state, prepare_append, prepare_row_delta
from lake.data_file import DATA, DataFile
from lake.deletes.dead_rows import DeleteFiles, load_dead_rows
from lake.deletes.row_delta import RowDeletes, delete_rows
from lake.errors import RefusedError
from lake.manifest import ManifestEntry, Status
from lake.storage import open_storage
from lake.table_files import load_manifest

ROWS = 20


class _Table:
    """A table of files that nobody reads, without a catalog: each commit is taken for acknowledged."""

    def __init__(self, folder: Path, version: int) -> None:
        self.storage = open_storage()
        made = new_table_state(TableName("t", "logs"), "t", "logs", f"file://{folder}")
        manifests = replace(made.manifests, version=version)
        self.state: TableState = replace(made, exists=True, version=version, manifests=manifests)
        self.last: Prepared | None = None

    def file(self, name: str) -> DataFile:
        return DataFile(f"{self.state.location}/data/7/{name}.parquet", 7, ROWS, 1_000)

    def append(self, names: Iterable[str]) -> None:
        files = [self.file(name) for name in names]
        self._commit(prepare_append(self.state, files, self.state.schema, self.state.marks, 1))

    def change(self, added: Iterable[str], deleted: Mapping[str, Iterable[int]]) -> RowDeletes:
        pairs = [(self.file(name), BitMap64(rows)) for name, rows in deleted.items()]
        made = delete_rows(self.storage, self.state, pairs)
        self.storage.write_all(made.written)
        files, state = [self.file(name) for name in added], self.state
        self._commit(
            prepare_row_delta(state, RowDelta(files, made.entries, made.kept), state.schema, state.marks, 1)
        )
        return made

    def _commit(self, prepared: Prepared) -> None:
        self.storage.write_all(prepared.files)
        self.last, self.state = prepared, prepared.after

    def snapshot(self) -> Mapping[str, Any]:
        assert self.last is not None
        (added,) = [each for each in self.last.request["updates"] if each["action"] == "add-snapshot"]
        return dict(added["snapshot"])

    def live(self, *, deletes: bool) -> list[ManifestEntry]:
        return [
            entry
            for manifest in self.state.manifests
            if (manifest.content != DATA) is deletes
            for entry in load_manifest(self.storage, manifest, self.state.table_location)
            if entry.status is not Status.DELETED
        ]

    def dead(self) -> dict[str, set[int]]:
        data = [(entry.file.uri, entry.sequence_number) for entry in self.live(deletes=False)]
        index = DeleteFiles.of(self.live(deletes=True))
        found = load_dead_rows(self.storage, index, data, self.state.table_location)
        return {uri.split("/")[-1].removesuffix(".parquet"): set(rows) for uri, rows in found.items()}


@pytest.mark.parametrize("version", [2, 3])
def test_files_and_deletes_in_one_commit(tmp_path: Path, version: int) -> None:
    """Rows of older files and of the commit's own; the summary counts both; ids go to data files alone."""
    table = _Table(tmp_path, version)
    table.append(["a", "b"])
    table.change(["c"], {"a": [1, 2], "c": [0]})
    assert table.dead() == {"a": {1, 2}, "c": {0}}
    summary = table.snapshot()["summary"]
    form = "added-position-delete-files" if version == 2 else "added-dvs"
    told = {
        "operation": "overwrite",
        "added-data-files": "1",
        "added-records": "20",
        "added-delete-files": "2",
    }
    told |= {form: "2", "added-position-deletes": "3", "total-delete-files": "2", "total-records": "60"}
    assert {key: summary.get(key) for key in told} == told
    assert [(entry.sequence_number, entry.file.hour) for entry in table.live(deletes=True)] == [(2, 7)] * 2
    if version == 3:
        assert (table.snapshot()["first-row-id"], table.snapshot()["added-rows"]) == (40, 20)
        assert sorted(entry.file.first_row_id or 0 for entry in table.live(deletes=False)) == [0, 20, 40]
        assert all(entry.file.first_row_id is None for entry in table.live(deletes=True))


def test_deletes_alone_are_a_delete_and_give_no_ids(tmp_path: Path) -> None:
    table = _Table(tmp_path, 3)
    table.append(["a"])
    table.change([], {"a": [5]})
    snapshot = table.snapshot()
    assert (snapshot["summary"]["operation"], snapshot["first-row-id"], snapshot["added-rows"]) == (
        "delete",
        20,
        0,
    )


def test_a_data_file_has_one_vector(tmp_path: Path) -> None:
    """The second delete of a file takes the first one's positions over; vectors of other files in the same
    manifest stay, with the sequence number that they had."""
    table = _Table(tmp_path, 3)
    table.append(["a", "b"])
    table.change([], {"a": [1], "b": [2]})
    table.change([], {"a": [3]})
    assert table.dead() == {"a": {1, 3}, "b": {2}}
    sequences = {entry.file.referenced_data_file: entry.sequence_number for entry in table.live(deletes=True)}
    assert sequences == {table.file("a").uri: 3, table.file("b").uri: 2}
    summary = table.snapshot()["summary"]
    told = {
        "added-dvs": "1",
        "removed-dvs": "1",
        "added-position-deletes": "2",
        "removed-position-deletes": "1",
    }
    told |= {"total-delete-files": "2", "total-position-deletes": "3"}
    assert {key: summary.get(key) for key in told} == told


def test_a_vector_stands_for_older_position_delete_files(tmp_path: Path) -> None:
    """In a table that was upgraded since."""
    table = _Table(tmp_path, 2)
    table.append(["a", "b"])
    table.change([], {"a": [1], "b": [2]})
    manifests = replace(table.state.manifests, version=3)
    lines = manifests.of(list(table.state.manifests), 3)
    table.state = replace(table.state, version=3, manifests=lines)
    table.change([], {"a": [3]})
    assert table.dead() == {"a": {1, 3}, "b": {2}}
    assert [entry.file.is_deletion_vector for entry in table.live(deletes=True)] == [True, False]


def test_deletes_of_another_form_are_refused(tmp_path: Path) -> None:
    two, three = _Table(tmp_path, 2), _Table(tmp_path, 3)
    for table, other in ((two, three), (three, two)):
        made = delete_rows(other.storage, other.state, [(other.file("a"), BitMap64([1]))])
        with pytest.raises(RefusedError, match="is something else"):
            _row_delta(table.state, made.entries)


def _row_delta(state: TableState, deletes: Sequence[ManifestEntry]) -> Prepared:
    return prepare_row_delta(state, RowDelta([], deletes), state.schema, state.marks, 1)


def test_two_vectors_of_one_file_are_refused(tmp_path: Path) -> None:
    table = _Table(tmp_path, 3)
    made = delete_rows(table.storage, table.state, [(table.file("a"), BitMap64([1]))])
    with pytest.raises(RefusedError, match="two deletion vectors"):
        _row_delta(table.state, [*made.entries] * 2)


_NAMES = ("a", "b", "c")
_CHANGES = st.lists(
    st.dictionaries(st.sampled_from(_NAMES), st.sets(st.integers(0, ROWS - 1), min_size=1), min_size=1),
    min_size=1,
    max_size=5,
)


@given(_CHANGES, st.sampled_from([2, 3]))
def test_any_order_of_deletes_adds_up(
    tmp_path_factory: pytest.TempPathFactory, changes: Sequence[Mapping[str, set[int]]], version: int
) -> None:
    table, truth = _Table(tmp_path_factory.mktemp("t"), version), dict[str, set[int]]()
    table.append(_NAMES)
    for deleted in changes:
        table.change([], deleted)
        for name, rows in deleted.items():
            truth[name] = truth.get(name, set()) | rows
    assert table.dead() == truth
    totals = table.state.totals
    assert totals.delete_files == len(table.live(deletes=True))
    if version == 3:
        assert totals.position_deletes == sum(map(len, truth.values()))
        assert totals.delete_files == len(truth)
