"""What a table's manifests say without being read."""

from pathlib import Path

from lake.catalog_client import TableName
from lake.commit import new_table_state, prepare_append
from lake.data_file import DataFile
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
