"""What a table's manifests say without being read, and which of them are read."""

from dataclasses import replace
from pathlib import Path

import pytest

from lake.catalog_client import TableName
from lake.commit import new_table_state, prepare_append
from lake.data_file import DataFile
from lake.errors import ForeignFileError
from lake.manifest import ManifestEntry, Status
from lake.manifest_list import DATA_MANIFEST, ManifestFile, ManifestList
from lake.marks import NO_MARKS
from lake.storage import open_storage
from optimize.table_view import TableView

HOUR = 500_000


def _view(folder: Path, *commits: tuple[int, ...]) -> TableView:
    """A table whose commits brought files of these hours, and of which no manifest was ever written."""
    state = new_table_state(TableName("a", "logs"), "a", "logs", f"file://{folder}")
    for hours in commits:
        files = [DataFile(f"{state.location}/data/{hour}.parquet", hour, 1, 1_000) for hour in hours]
        state = prepare_append(state, files, state.schema, NO_MARKS, 1).after
    return TableView(state, {}, open_storage())


def test_manifests_tell_whether_anything_begins_before_an_hour(tmp_path: Path) -> None:
    """By the bounds of their partitions; a table without files has nothing."""
    view = _view(tmp_path, (HOUR + 5, HOUR + 9), (HOUR + 3,), (HOUR + 7,))
    assert [view.begins_before(HOUR + at) for at in (0, 3, 4, 6, 100)] == [False, False, True, True, True]
    assert not _view(tmp_path).begins_before(HOUR)


def _manifest(uri: str, low: int | None, high: int) -> ManifestFile:
    bounds = {} if low is None else {"lower_bound": _int(low), "upper_bound": _int(high)}
    summary = {"contains_null": False, **bounds}
    return ManifestFile(uri, 1, 0, DATA_MANIFEST, 1, 1, 1, 1, 0, 0, 1, 0, 0, [summary])


def _int(number: int) -> bytes:
    return number.to_bytes(4, "little", signed=True)


def test_manifests_of_later_hours_are_not_read() -> None:
    """The files of hours 10 and 30 are known; the manifest of hour 50 cannot be read."""
    state = new_table_state(TableName("a", "logs"), "a", "logs", "file:///nowhere")
    manifests = [_manifest("older", 10, 30), _manifest("newer", 30, 30), _manifest("newest", 50, 50)]
    hours = {"older": (10,), "newer": (30,)}
    view = TableView(
        replace(state, head=1, manifests=ManifestList.of(manifests)),
        {"snapshots": []},
        open_storage(),
        known={
            uri: tuple(ManifestEntry(Status.ADDED, DataFile(f"{uri}-{hour}", hour, 1, 1)) for hour in found)
            for uri, found in hours.items()
        },
    )
    assert not view.partitions(before_hour=5)
    assert 10 in view.partitions(before_hour=11)
    assert set(view.partitions(before_hour=31)) == {10, 30}
    with pytest.raises(ForeignFileError):
        view.partitions()


def test_a_manifest_without_bounds_is_read() -> None:
    """Nobody knows what it holds."""
    state = new_table_state(TableName("a", "logs"), "a", "logs", "file:///nowhere")
    entry = ManifestEntry(Status.ADDED, DataFile("file", 3, 1, 1))
    manifests = ManifestList.of([_manifest("old", None, 0)])
    view = TableView(
        replace(state, head=1, manifests=manifests),
        {"snapshots": []},
        open_storage(),
        known={"old": (entry,)},
    )
    assert set(view.partitions(before_hour=2)) == {3}
