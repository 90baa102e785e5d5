"""The planner on buckets of keyed tables, which never close: what is merged now, later, never."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from lake.catalog_client import TableName
from lake.data_file import DataFile
from lake.settings import OptimizeSettings
from optimize.merge_job import InputFacts
from optimize.merged_file import merged_file_uri
from optimize.planner import LIKE_SIZE, PartitionPlan, Standing, TableFacts, of_like_size, plan_table
from optimize.table_view import Partition

MIB = 1024 * 1024
NOW_MS = 1_800_000_000_000
SETTINGS = OptimizeSettings.load(merge__late_cooldown_s=3_600)


def file(at: int, size: int = MIB, rows: int = 100, merged_s_ago: int | None = None) -> DataFile:
    uri = f"file:///t/data/0/{at}.parquet"
    if merged_s_ago is not None:
        uri = merged_file_uri("file:///t", 0, NOW_MS - merged_s_ago * 1_000)
    return DataFile(uri, None, rows, size, bucket=0)


def plan(*files: DataFile, deletes: dict[DataFile, list[int]] | None = None, **facts: Any) -> PartitionPlan:
    """`deletes`: by file, the rows of each of its delete files."""
    known = {
        one.uri: InputFacts(tuple(DataFile(f"{one.uri}-{n}", None, n, 1, 1, bucket=0) for n in rows), 1)
        for one, rows in (deletes or {}).items()
    }
    table = TableFacts(TableName("a", "b"), "a", 1, 1, (), has_been_replaced=False, **facts)
    (only,) = plan_table(table, [Partition(0, files, facts=known)], SETTINGS, NOW_MS).partitions
    return only


def groups(planned: PartitionPlan) -> list[set[str]]:
    assert planned.merge is not None
    return [{each.uri for each in group} for group in planned.merge.groups]


def uris(*files: DataFile) -> set[str]:
    return {each.uri for each in files}


def test_small_files_are_merged_when_they_are_some_or_after_a_rest() -> None:
    few = file(1), file(2), file(3, merged_s_ago=600)
    resting = plan(*few)
    assert (resting.standing, resting.merge) == (Standing.GATHERING, None)
    assert resting.due_at_ms == NOW_MS + 3_000_000
    assert groups(plan(*few, resumes=True)) == [uris(*few)]
    rested = file(1), file(2), file(3, merged_s_ago=3_600)
    assert groups(plan(*rested)) == [uris(*rested)]
    many = *few, file(4)
    assert groups(plan(*many)) == [uris(*many)]
    assert plan(file(1)).standing is Standing.UP_TO_DATE


def test_a_large_file_is_not_written_again_for_a_few_small_ones() -> None:
    large, small = file(0, 50 * MIB), [file(at) for at in range(1, 6)]
    assert groups(plan(large, *small)) == [uris(*small)]
    assert groups(plan(large, *small, file(9, 8 * MIB))) == [uris(large, *small, file(9))]


def test_a_file_is_written_anew_for_its_deleted_rows() -> None:
    """When their share is beyond a setting; whatever its size is, up to what a task holds in memory. Many
    delete files become one without that."""
    large, merged = file(0, 120 * MIB), file(1, merged_s_ago=1)
    assert plan(large, merged, deletes={large: [15], merged: [15]}).standing is Standing.UP_TO_DATE
    assert groups(plan(large, merged, deletes={large: [16]})) == [uris(large)]
    assert groups(plan(large, merged, deletes={merged: [10, 6]})) == [uris(merged)]
    few, many = plan(large, deletes={large: [1] * 10}), plan(large, deletes={large: [1] * 11})
    assert (few.standing, few.gather) == (Standing.UP_TO_DATE, ())
    assert (many.standing, many.gather) == (Standing.UP_TO_DATE, (large.uri,))
    assert plan(large, deletes={large: [2] * 11}).gather == ()
    huge = file(0, 600 * MIB)
    assert plan(huge, deletes={huge: [90]}).standing is Standing.TOO_LARGE


def test_what_ingestion_wrote_is_written_anew_once_also_where_it_stays_alone() -> None:
    """With a better compression, and without its deleted rows; not while small files wait to go with it."""
    ingested = DataFile(f"file:///t/data/0/{'a' * 32}.parquet", None, 100, 50 * MIB, bucket=0)
    assert groups(plan(ingested)) == [uris(ingested)]
    small = [file(at) for at in range(1, 5)]
    assert groups(plan(ingested, *small)) == [uris(*small), uris(ingested)]
    assert plan(ingested, file(1), file(2, merged_s_ago=600)).standing is Standing.GATHERING
    assert plan(file(0, 50 * MIB, merged_s_ago=10**6)).standing is Standing.UP_TO_DATE


@given(st.lists(st.integers(1, 1_000_000), max_size=40))
def test_no_file_that_is_merged_is_many_times_as_large_as_the_rest(sizes: list[int]) -> None:
    """Beyond the smallest; and what is left out is larger than all that is merged."""
    files = [file(at, size) for at, size in enumerate(sizes)]
    alike = of_like_size(files)
    total = 0
    for each in alike:
        assert not total or each.size_bytes <= LIKE_SIZE * total
        total += each.size_bytes
    left = [each for each in files if each not in alike]
    assert all(each.size_bytes > LIKE_SIZE * total for each in left)
