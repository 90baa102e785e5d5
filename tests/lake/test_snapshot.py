"""Snapshot summaries: what changed, by partition, and what the table holds after it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lake.data_file import EQUALITY_DELETES, POSITION_DELETES, DataFile
from lake.snapshot import SUMMARY_PARTITIONS_MAX, Totals, new_snapshot_id, snapshot_json, summarise, totals_of

FILES = st.lists(
    st.builds(DataFile, st.just("file:///f"), st.integers(-3, 3), st.integers(0, 100), st.integers(1, 1000)),
    max_size=6,
)


def _file(hour: int, rows: int, size: int) -> DataFile:
    return DataFile("file:///f", hour, rows, size)


@given(FILES, FILES)
def test_totals_follow_from_what_came_and_went(added: list[DataFile], removed: list[DataFile]) -> None:
    """Totals in the summary are those before plus what came minus what went, and can be read back."""
    before = Totals(rows=1_000, files=10, size_bytes=10_000)
    summary, after = summarise("overwrite", added, removed, before, {})
    assert after.rows == 1_000 + sum(f.rows for f in added) - sum(f.rows for f in removed)
    assert after.files == 10 + len(added) - len(removed)
    assert after.size_bytes == 10_000 + sum(f.size_bytes for f in added) - sum(f.size_bytes for f in removed)
    assert totals_of(summary) == after
    assert int(summary["changed-partition-count"]) == len({f.hour for f in (*added, *removed)})
    assert all(isinstance(value, str) for value in summary.values())


@pytest.mark.parametrize("content", [POSITION_DELETES, 3, -1])
def test_a_kind_of_file_that_nobody_knows_counts_as_deletes_by_position(content: int) -> None:
    """Whoever may write to a table may write its manifests, and maintenance goes on."""
    file = DataFile("file:///f", 0, 5, 50, content=content)
    before = Totals(7, 1, 70)
    _, after = summarise("overwrite", [file], [], before, {})
    assert after == Totals(7, 1, 120, 1, 5, 0)
    assert summarise("overwrite", [], [file], after, {})[1] == before


def test_deletes_by_equality_count_by_themselves() -> None:
    file = DataFile("file:///f", 0, 5, 50, content=EQUALITY_DELETES)
    _, after = summarise("overwrite", [file], [], Totals(7, 1, 70), {})
    assert after == Totals(7, 1, 120, 1, 0, 5)


def test_summary_lists_each_partition() -> None:
    """The keys are those of Iceberg's own summaries, so that any reader knows what changed where."""
    summary, _ = summarise(
        "replace", [_file(0, 5, 50), _file(0, 2, 20)], [_file(1, 7, 70)], Totals(7, 1, 70), {"extra": "wins"}
    )
    assert summary["operation"] == "replace"
    assert (summary["added-data-files"], summary["added-records"], summary["added-files-size"]) == (
        "2",
        "7",
        "70",
    )
    assert (summary["deleted-data-files"], summary["deleted-records"], summary["removed-files-size"]) == (
        "1",
        "7",
        "70",
    )
    assert (
        summary["partitions.timestamp_hour=1970-01-01-00"]
        == "added-data-files=2,added-records=7,added-files-size=70"
    )
    assert (
        summary["partitions.timestamp_hour=1970-01-01-01"]
        == "deleted-data-files=1,deleted-records=7,removed-files-size=70"
    )
    assert (summary["partition-summaries-included"], summary["extra"]) == ("true", "wins")


def test_too_many_partitions_are_only_counted() -> None:
    """Beyond the limit the summary stays short."""
    summary, _ = summarise(
        "append", [_file(hour, 1, 1) for hour in range(SUMMARY_PARTITIONS_MAX + 1)], [], Totals(), {}
    )
    assert summary["changed-partition-count"] == str(SUMMARY_PARTITIONS_MAX + 1)
    assert not any(key.startswith("partition") for key in summary)


def test_first_snapshot_has_no_parent() -> None:
    """`parent-snapshot-id` is absent, not null, as engines expect."""
    common = {
        "snapshot_id": 5,
        "sequence_number": 1,
        "timestamp_ms": 9,
        "manifest_list": "file:///l",
        "summary": {},
        "schema_id": 0,
    }
    assert "parent-snapshot-id" not in snapshot_json(parent_id=None, **common)  # type: ignore[arg-type]
    assert snapshot_json(parent_id=4, **common)["parent-snapshot-id"] == 4  # type: ignore[arg-type]


def test_snapshot_ids_are_positive_and_differ() -> None:
    """63 random bits."""
    ids = {new_snapshot_id() for _ in range(1_000)}
    assert len(ids) == 1_000
    assert all(0 < i < 2**63 for i in ids)
