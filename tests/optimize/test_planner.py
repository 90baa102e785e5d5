"""The planner: pure decisions about partitions."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lake.catalog_client import TableName
from lake.data_file import DataFile
from lake.retention import MS_PER_HOUR
from lake.settings import OptimizeSettings
from optimize.merge_job import InputFacts
from optimize.merged_file import merged_at_ms, merged_file_uri
from optimize.planner import Engine, Standing, TableFacts, TablePlan, group_files, plan_table
from optimize.table_view import Partition

MIB = 1024 * 1024
NOW_HOUR = 500_000
NOW_MS = NOW_HOUR * MS_PER_HOUR + 30 * 60_000
SETTINGS = OptimizeSettings.load(
    merge__closed_after_s=600, merge__late_cooldown_s=3_600, merge__rewrite_bytes_min=512 * MIB
)
TIME_ID = 1


def file(at: int, size: int = MIB, hour: int = NOW_HOUR - 2, uri: str | None = None) -> DataFile:
    return DataFile(
        uri or f"file:///t/data/{hour}/{at}.parquet",
        hour,
        10,
        size,
        lower_bounds={TIME_ID: at.to_bytes(8, "little", signed=True)},
    )


def plan(*partitions: Partition, **facts: Any) -> TablePlan:
    known = {
        "table": TableName("acme", "logs"),
        "tenant": "acme",
        "timestamp_id": TIME_ID,
        "manifests": 1,
        "expirable": (),
        "has_been_replaced": False,
    }
    return plan_table(TableFacts(**{**known, **facts}), partitions, SETTINGS, NOW_MS)


def standing(partition: Partition, **facts: Any) -> Standing:
    return plan(partition, **facts).partitions[0].standing


def test_small_files_of_a_closed_hour_become_one_group() -> None:
    """Two small files of a closed hour are due, in one group, by PyArrow."""
    (merge,) = plan(Partition(NOW_HOUR - 2, (file(1), file(2)))).merges
    assert merge.engine is Engine.ARROW
    assert [len(group) for group in merge.groups] == [2]
    assert merge.saved_files == 1


@pytest.mark.parametrize(("minutes_after_end", "wanted"), [(9, Standing.OPEN_HOUR), (10, Standing.DUE)])
def test_hour_is_open_until_some_minutes_after_its_end(minutes_after_end: int, wanted: Standing) -> None:
    """An hour closes `merge.closed_after_s` after its end, not at it."""
    hour = 400_000
    now_ms = (hour + 1) * MS_PER_HOUR + minutes_after_end * 60_000
    facts = TableFacts(TableName("a", "b"), "a", TIME_ID, 1, (), has_been_replaced=False)
    (only,) = plan_table(
        facts, [Partition(hour, (file(1, hour=hour), file(2, hour=hour)))], SETTINGS, now_ms
    ).partitions
    assert only.standing is wanted
    assert wanted is Standing.DUE or only.due_at_ms == (hour + 1) * MS_PER_HOUR + 600_000


def test_single_file_and_full_files_are_up_to_date() -> None:
    """One file, or files near the target size, are left alone."""
    assert standing(Partition(NOW_HOUR - 2, (file(1),))) is Standing.UP_TO_DATE
    assert standing(Partition(NOW_HOUR - 2, (file(1, 100 * MIB), file(2, 120 * MIB)))) is Standing.UP_TO_DATE


def test_late_file_reopens_a_merged_hour_only_after_the_cool_down() -> None:
    """A merged hour with one late file is due again when its last merge is `merge.late_cooldown_s` ago,
    whatever process merged it."""
    for age_s, wanted in ((3_599, Standing.COOLING_DOWN), (3_600, Standing.DUE)):
        merged = file(1, uri=merged_file_uri("file:///t", NOW_HOUR - 2, NOW_MS - age_s * 1000))
        assert standing(Partition(NOW_HOUR - 2, (merged, file(2)))) is wanted


def deleted(one: DataFile, *rows: int) -> InputFacts:
    """A file with a delete file for each number of rows."""
    files = (DataFile(f"{one.uri}-{at}", one.hour, n, 1, content=1) for at, n in enumerate(rows))
    return InputFacts(tuple(files), 7)


def test_deleted_rows_make_a_file_due_and_equality_deletes_leave_a_partition_alone() -> None:
    """A file with position deletes is written anew, also alone; one that is too large for a task by Spark,
    with its whole hour, and not at all where rows keep their ids. Equality deletes stop all merging."""
    one, large, other = file(1), file(2, 600 * MIB), file(3, 120 * MIB)
    (merge,) = plan(Partition(NOW_HOUR - 2, (one, other), facts={one.uri: deleted(one, 1)})).merges
    assert (merge.engine, merge.groups) == (Engine.ARROW, ((one,),))
    partition = Partition(NOW_HOUR - 2, (large, other), facts={large.uri: deleted(large, 1)})
    (merge,) = plan(partition).merges
    assert (merge.engine, merge.groups) == (Engine.SPARK, ((large, other),))
    assert standing(partition, keeps_row_ids=True) is Standing.TOO_LARGE
    assert (
        standing(Partition(NOW_HOUR - 2, (file(1), file(2)), equality_delete_files=1))
        is Standing.EQUALITY_DELETES
    )


def test_only_what_would_become_one_very_large_file_goes_to_spark() -> None:
    """From `merge.rewrite_bytes_min` bytes in one file on, Spark's rewrite_data_files merges; a large hour of
    ordinary files is PyArrow's, in groups."""
    files = tuple(file(at, 64 * MIB) for at in range(8))
    (merge,) = plan(Partition(NOW_HOUR - 2, files)).merges
    assert (merge.engine, [len(group) for group in merge.groups]) == (Engine.ARROW, [2, 2, 2, 2])
    (merge,) = plan(
        Partition(NOW_HOUR - 2, files), properties={"write.target-file-size-bytes": str(1024 * MIB)}
    ).merges
    assert merge.engine is Engine.SPARK


def test_work_left_undone_does_not_rest() -> None:
    """A merged hour whose other files a killed round left behind is due at once, cool-down or not."""
    merged = file(1, uri=merged_file_uri("file:///t", NOW_HOUR - 2, NOW_MS - 1_000))
    (only,) = plan(Partition(NOW_HOUR - 2, (merged, file(2))), resumes=True).partitions
    assert only.standing is Standing.DUE


def test_table_property_sets_the_target_size() -> None:
    """write.target-file-size-bytes goes before the setting; nonsense in it does not."""
    files = tuple(file(at, 10 * MIB) for at in range(4))
    for value, groups in (("20971520", [2, 2]), ("x", [4]), ("0", [4])):
        (merge,) = plan(
            Partition(NOW_HOUR - 2, files), properties={"write.target-file-size-bytes": value}
        ).merges
        assert [len(group) for group in merge.groups] == groups


def test_many_manifests_and_snapshots_make_a_table_due_without_merges() -> None:
    """Manifests beyond the limit and expirable snapshots are work too."""
    assert not plan().is_due
    assert plan(manifests=51).merge_manifests
    assert plan(expirable=(1, 2)).is_due


def test_names_of_merged_files_tell_when_they_were_merged() -> None:
    """The time comes back from the name; names of other files carry none."""
    assert merged_at_ms(merged_file_uri("s3://b/t", 7, 1_700_000_000_123)) == 1_700_000_000_123
    assert merged_at_ms("s3://b/t/data/7/0123.parquet") is None
    assert merged_at_ms("s3://b/merged-5-x/data/7/a.parquet") is None


@given(st.lists(st.integers(1, 130 * MIB), max_size=40), st.integers(MIB, 128 * MIB))
def test_groups_hold_at_least_two_files_and_stay_below_the_target(sizes: list[int], target: int) -> None:
    """Whatever the sizes: no group of one, none above the target, no file twice, neighbours in time
    together."""
    files = [file(at, size) for at, size in enumerate(sizes)]
    groups = group_files(files[::-1], target, TIME_ID)
    assert all(len(group) > 1 and sum(f.size_bytes for f in group) <= target for group in groups)
    flat = [f.uri for group in groups for f in group]
    assert len(flat) == len(set(flat))
    order = [files.index(f) for group in groups for f in group]
    assert order == sorted(order)


def _ingested(at: int, size: int) -> DataFile:
    return file(at, size, uri=f"file:///t/data/{NOW_HOUR - 2}/{at:032x}.parquet")


def test_a_lone_file_of_ingestion_is_written_anew_once() -> None:
    """From one MiB on; what maintenance or somebody else wrote stays, and so does what would not fit into a
    task."""
    (merge,) = plan(Partition(NOW_HOUR - 2, (_ingested(1, 140 * MIB),))).merges
    assert (merge.engine, [len(group) for group in merge.groups], merge.saved_files) == (Engine.ARROW, [1], 0)
    assert (
        standing(
            Partition(NOW_HOUR - 2, (file(1, 140 * MIB, uri=merged_file_uri("file:///t", NOW_HOUR - 2, 1)),))
        )
        is Standing.UP_TO_DATE
    )
    for other in (file(1, 140 * MIB), _ingested(1, MIB - 1), _ingested(1, 512 * MIB)):
        assert standing(Partition(NOW_HOUR - 2, (other,))) is Standing.UP_TO_DATE


def test_full_files_of_ingestion_are_written_anew_beside_the_small_ones_that_are_merged() -> None:
    """Each by itself, since two of them would be more than the target."""
    (merge,) = plan(
        Partition(NOW_HOUR - 2, (_ingested(1, 120 * MIB), _ingested(2, 120 * MIB), file(3), file(4)))
    ).merges
    assert sorted(len(group) for group in merge.groups) == [1, 1, 2]


def test_a_lone_late_file_waits_for_the_cool_down_of_its_hour() -> None:
    """It is one of two files of the hour; the merged one is full."""
    for age_s, wanted in ((3_599, Standing.COOLING_DOWN), (3_600, Standing.DUE)):
        merged = file(1, 120 * MIB, uri=merged_file_uri("file:///t", NOW_HOUR - 2, NOW_MS - age_s * 1000))
        assert standing(Partition(NOW_HOUR - 2, (merged, _ingested(2, 5 * MIB)))) is wanted
