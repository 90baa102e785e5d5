"""Retention, purge and orphan files: only what should go goes."""

from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lake.catalog_client import TableName
from lake.data_file import POSITION_DELETES, DataFile
from lake.errors import FatalError
from lake.retention import MS_PER_HOUR, first_hour_kept
from lake.table_layout import US_PER_HOUR
from optimize.orphan_files import _unreferenced, comparable
from optimize.purge import own_prefix
from optimize.retention import expired_files
from optimize.table_view import Partition
from tests.optimize.support.maintained import utc
from tests.optimize.support.small_files import hour_of

UUID = "11111111-2222-3333-4444-555555555555"


def ms(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)


def test_hours_go_only_when_their_last_second_is_past_the_retention() -> None:
    """At 12:59 a retention of 24 h keeps yesterday's 12 o'clock hour, at 13:00 it goes; month ends and zones
    play no part."""
    for now, kept in (
        (utc(2024, 3, 1, 12, 59), utc(2024, 2, 29, 12)),
        (utc(2024, 3, 1, 13, 0), utc(2024, 2, 29, 13)),
        (utc(2023, 3, 1, 0, 0), utc(2023, 2, 28, 0)),
        (datetime.fromisoformat("2024-03-31T03:00:00+02:00"), utc(2024, 3, 30, 1)),
    ):
        assert first_hour_kept(24, ms(now)) == hour_of(kept)


@given(
    st.lists(st.integers(0, 2_000), unique=True, max_size=40),
    st.integers(1, 1_000),
    st.integers(0, MS_PER_HOUR - 1),
)
def test_no_row_younger_than_the_retention_goes(hours: list[int], retention_h: int, past_ms: int) -> None:
    """Whatever the hours: what goes is older than the retention to its last millisecond, and nothing older
    stays."""
    now_ms = 1_500 * MS_PER_HOUR + past_ms
    partitions = [Partition(hour, (DataFile(f"file:///{hour}", hour, 1, 1),)) for hour in hours]
    deletes = [DataFile(f"file:///{hour}-deletes", hour, 1, 1, content=POSITION_DELETES) for hour in hours]
    expired = expired_files(TableName("a", "b"), partitions, deletes, retention_h, now_ms, time_id=1)
    gone = {file.hour for file in expired.data_files}
    assert {file.hour for file in expired.files if file.content == POSITION_DELETES} == gone
    assert expired.oldest_us == (
        min(hour for hour in gone if hour is not None) * US_PER_HOUR if gone else None
    )
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
    """Outside the warehouse, the warehouse itself, another name, a path with dots or escapes: no prefix is
    given."""
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
    assert _unreferenced(listed, live, TableName("a", "b")) == sorted(
        uri for at, uri in enumerate(listed) if not at % 3
    )


def test_s3_spellings_are_one_and_another_bucket_aborts() -> None:
    """s3a:// and s3:// are the same object; the same paths in another bucket or scheme mean a moved
    warehouse, and nothing may go."""
    assert _unreferenced(["s3://b/w/x"], {comparable("s3a://b/w/x")}, TableName("a", "b")) == []
    for live in ("s3://other/w/x", "file:///w/x"):
        with pytest.raises(FatalError, match="moved"):
            _unreferenced(["s3://b/w/x"], {comparable(live)}, TableName("a", "b"))
