"""Retention, purge and orphan files: only what should go goes."""

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lake.catalog_client import CatalogClient, TableName
from lake.commit import creation_request, new_table_state
from lake.data_file import DataFile
from lake.errors import FatalError
from lake.storage import local_path, open_storage
from optimize.deletions import Throttle
from optimize.duties import Duties
from optimize.orphan_files import _unreferenced, comparable, delete_orphans, find_orphans
from optimize.planner import MS_PER_HOUR
from optimize.purge import own_prefix
from optimize.retention import expired_files, first_hour_kept, parse_retention
from optimize.table_view import Partition
from tests.optimize.live_files import live_files, missing_files
from tests.optimize.maintained import maintenance, utc
from tests.optimize.small_files import SmallFiles, hour_of, this_hour
from tests.stack.waiting import fresh

UUID = "11111111-2222-3333-4444-555555555555"


def ms(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)


@pytest.mark.parametrize(("value", "hours"), [("30d", 720), ("1 day", 24), ("720h", 720), ("5 Hours", 5), (None, None), ("", None)])
def test_retention_is_days_or_hours(value: str | None, hours: int | None) -> None:
    """30d, 720h and their long forms; nothing means for ever."""
    assert parse_retention(value) == hours


@pytest.mark.parametrize("value", ["0d", "-1d", "30", "1y", "1.5d", "30d;", "P30D"])
def test_unclear_retention_deletes_nothing(value: str) -> None:
    """What is no plain number of days or hours is an error that names the property, never a guess."""
    with pytest.raises(ValueError, match=r"firn\.retention"):
        parse_retention(value)


def test_hours_go_only_when_their_last_second_is_past_the_retention() -> None:
    """At 12:59 a retention of 24 h keeps yesterday's 12 o'clock hour, at 13:00 it goes; month ends and zones play no part."""
    for now, kept in (
        (utc(2024, 3, 1, 12, 59), utc(2024, 2, 29, 12)),
        (utc(2024, 3, 1, 13, 0), utc(2024, 2, 29, 13)),
        (utc(2023, 3, 1, 0, 0), utc(2023, 2, 28, 0)),
        (datetime.fromisoformat("2024-03-31T03:00:00+02:00"), utc(2024, 3, 30, 1)),
    ):
        assert first_hour_kept(24, ms(now)) == hour_of(kept)


@given(st.lists(st.integers(0, 2_000), unique=True, max_size=40), st.integers(1, 1_000), st.integers(0, MS_PER_HOUR - 1))
def test_no_row_younger_than_the_retention_goes(hours: list[int], retention_h: int, past_ms: int) -> None:
    """Whatever the hours: what goes is older than the retention to its last millisecond, and nothing older stays."""
    now_ms = 1_500 * MS_PER_HOUR + past_ms
    partitions = [Partition(hour, (DataFile(f"file:///{hour}", hour, 1, 1),)) for hour in hours]
    gone = {file.hour for file in expired_files(TableName("a", "b"), partitions, retention_h, now_ms).files}
    for hour in hours:
        is_past = (hour + 1) * MS_PER_HOUR <= now_ms - retention_h * MS_PER_HOUR
        assert (hour in gone) == is_past


@pytest.mark.parametrize(
    ("location", "root"),
    [
        (f"file:///w/11/{UUID}", "file:///w2"),
        (f"file:///w2/11/{UUID}", "file:///w"),
        ("file:///w", "file:///w"),
        ("file:///w/11", "file:///w"),
        (f"file:///w/{UUID}-b", "file:///w"),
        (f"file:///w/../x/{UUID}", "file:///w"),
        (f"file:///w/%2e%2e/{UUID}", "file:///w"),
        (f"s3://b/{UUID}", "file:///"),
        (f"file:///{UUID}", "file:///"),
        (f"file:///w//{UUID}", "file:///w"),
    ],
)
def test_purge_refuses_locations_that_may_be_shared(location: str, root: str) -> None:
    """Outside the warehouse, the warehouse itself, another name, a path with dots or escapes: no prefix is given."""
    with pytest.raises(ValueError, match=r"file|s3"):
        own_prefix(location, UUID, root)


def test_purge_prefix_ends_with_a_slash() -> None:
    """The prefix of `a` never reaches `ab`; spellings of one place give one prefix."""
    assert own_prefix(f"file:/w/11/{UUID}/", UUID, "file:///w/") == f"file:///w/11/{UUID}/"
    assert own_prefix(f"s3a://b/w/{UUID}", UUID, "s3://b/w") == f"s3://b/w/{UUID}/"


SPELLINGS = (
    lambda path: f"file://{path}",
    lambda path: f"file:{path}",
    lambda path: f"file://localhost{path}",
    lambda path: "file://" + path.replace("=", "%3D").replace(" ", "%20"),
    lambda path: path,
)


def test_ten_thousand_files_in_all_spellings_no_live_one_is_taken_and_all_orphans_are_found() -> None:
    """However the metadata spells its files, exactly those that nobody names are orphans."""
    paths = [f"/w/t/data/hour={at % 24}/part {at}.parquet" for at in range(10_000)]
    live = {comparable(SPELLINGS[at % len(SPELLINGS)](path)) for at, path in enumerate(paths) if at % 3}
    listed = [f"file://{path}" for path in paths]
    assert _unreferenced(listed, live, TableName("a", "b")) == sorted(uri for at, uri in enumerate(listed) if not at % 3)


def test_s3_spellings_are_one_and_another_bucket_aborts() -> None:
    """s3a:// and s3:// are the same object; the same paths in another bucket or scheme mean a moved warehouse, and nothing may go."""
    assert _unreferenced(["s3://b/w/x"], {comparable("s3a://b/w/x")}, TableName("a", "b")) == []
    for live in ("s3://other/w/x", "file:///w/x"):
        with pytest.raises(FatalError, match="moved"):
            _unreferenced(["s3://b/w/x"], {comparable(live)}, TableName("a", "b"))


@pytest.mark.stack
def test_retention_takes_whole_hours_and_a_dry_run_takes_nothing(catalog: CatalogClient) -> None:
    """Hours past the table's retention go with all their rows, younger ones stay; the dry run says the same numbers and changes nothing."""
    table = SmallFiles(catalog, open_storage(), fresh("t"), properties={"firn.retention": "24h"})
    for hours_ago in (2, 23, 26, 50):
        table.append(this_hour() - hours_ago, 10, times=2)
    duties = Duties(maintenance(catalog, [table.name]))
    ((would, _),) = duties.retention(dry_run=True)
    assert (would.rows, len(would.files), would.oldest_hour) == (40, 4, this_hour() - 50)
    assert len(live_files(catalog, table.storage, table.name)) == 4
    ((went, reason),) = duties.retention()
    assert (went.files, reason) == (would.files, "")
    assert live_files(catalog, table.storage, table.name) == {this_hour() - 2: 2, this_hour() - 23: 2}
    state = table.reload()
    assert state.totals.rows == 40
    assert missing_files(catalog, table.storage, table.name) == []
    assert list(duties.retention()) == []


@pytest.mark.stack
def test_unclear_retention_of_one_table_is_told_and_deletes_nothing(catalog: CatalogClient) -> None:
    """A retention nobody understands leaves the table alone and says so."""
    table = SmallFiles(catalog, open_storage(), fresh("t"), properties={"firn.retention": "one month"})
    table.append(this_hour() - 5_000, 10)
    ((expired, reason),) = Duties(maintenance(catalog, [table.name])).retention()
    assert "write days or hours" in reason
    assert expired.files == ()


@pytest.mark.stack
def test_purge_leaves_a_table_created_again_under_the_same_name(catalog: CatalogClient) -> None:
    """The dry run deletes nothing; then the files of the dropped table go, to the last, and those of its successor with the same name stay."""
    storage = open_storage()
    first = SmallFiles(catalog, storage, fresh("t"))
    first.append(this_hour(), 10)
    catalog.drop_table(first.name, purge=True)
    assert catalog.warehouse is not None
    catalog.create_table(first.name, creation_request(new_table_state(first.name, "t", "logs", catalog.warehouse)))
    second = SmallFiles(catalog, storage, first.name.namespace)
    second.append(this_hour(), 10)
    duties = Duties(maintenance(catalog))
    would = {dropped.uuid: dropped for dropped, _ in duties.purge(dry_run=True)}
    assert would[first.state.uuid].refusal == ""
    assert second.state.uuid not in would
    assert local_path(first.state.location).exists()
    went = {dropped.uuid: files for dropped, files in duties.purge()}
    assert went[first.state.uuid] >= 4
    assert list(storage.list(first.state.location)) == []
    assert missing_files(catalog, storage, second.name) == []
    assert first.state.uuid not in {dropped.uuid for dropped, _ in duties.purge(dry_run=True)}


@pytest.mark.stack
def test_orphans_are_found_by_age_and_live_files_stay(catalog: CatalogClient) -> None:
    """An old file that nobody refers to goes; a young one, one with another table, and every live file stay, however old it is."""
    table = SmallFiles(catalog, open_storage(), fresh("t"))
    table.append(this_hour() - 3, 10, times=3)
    folder = local_path(table.state.location)
    old, young = folder / "data" / "left behind.parquet", folder / "data/young.parquet"
    for path in (old, young):
        path.write_bytes(b"x")
    long_ago = (datetime.now(UTC) - timedelta(days=30)).timestamp()
    everything: list[Path] = [p for p in folder.rglob("*") if p.is_file() and p != young]
    for path in everything:
        os.utime(path, (long_ago, long_ago))
    found = find_orphans(catalog, table.storage, table.name, age_min_s=7 * 86_400, now=datetime.now(UTC))
    assert found is not None
    assert found.files == (f"file://{old}",)
    assert delete_orphans(catalog, table.storage, found, Throttle(1_000)) == 1
    assert not old.exists()
    assert young.exists()
    assert missing_files(catalog, table.storage, table.name) == []
