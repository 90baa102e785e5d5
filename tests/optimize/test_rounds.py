"""Rounds of maintenance against a real catalog, other writers in between."""

import random
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from lake.catalog_client import CatalogClient
from lake.settings import StorageSettings
from lake.span import Partition
from lake.storage import AnyStorage, local_path, open_storage
from optimize import replacement
from optimize.explain import explain_table
from optimize.history import TABLE
from optimize.table_view import load_view
from tests.optimize.support.damage import (
    removed,
    truncated,
    with_a_changed_value,
    with_a_flipped_byte,
    with_a_row_twice,
    without_a_row,
)
from tests.optimize.support.delete_files import add_delete_file
from tests.optimize.support.live_files import live_files, missing_files, offsets_of
from tests.optimize.support.maintained import FixedClock, maintenance
from tests.optimize.support.small_files import SmallFiles, hour_of, rows_of, this_hour
from tests.stack.support.waiting import fresh, wait_for

pytestmark = pytest.mark.stack


def new_table(catalog: CatalogClient, files: int = 6, hours_ago: int = 3, **properties: str) -> SmallFiles:
    table = SmallFiles(catalog, open_storage(), fresh("t"), properties=properties)
    table.append(this_hour() - hours_ago, 10, times=files)
    return table


def test_round_merges_closed_hours_and_keeps_marks_and_properties(catalog: CatalogClient) -> None:
    """Six files of a closed hour become one, the open hour stays, rows, marks and properties are the same,
    snapshots are at most ten."""
    table = new_table(catalog, files=12)
    table.append(this_hour(), 10, times=2)
    before = table.reload()
    report = maintenance(catalog, [table.name]).run()
    after = table.reload()
    assert report.failures == {}
    assert live_files(catalog, table.storage, table.name) == {this_hour() - 3: 1, this_hour(): 2}
    assert (after.marks, after.properties, after.totals.rows) == (
        before.marks,
        before.properties,
        before.totals.rows,
    )
    assert offsets_of(table) == list(range(140))
    assert len(catalog.load_table(table.name)["metadata"]["snapshots"]) <= 10
    assert missing_files(catalog, table.storage, table.name) == []
    assert maintenance(catalog, [table.name]).run().merged_tables == 0


def test_index_of_changed_partitions_finds_the_table(catalog: CatalogClient) -> None:
    """Without being named, a table with two files in a closed hour is found through the catalog's index, and
    leaves it when merged."""
    table = new_table(catalog, files=2)
    found = {c.table: c.partitions for c in maintenance(catalog).inventory.candidates()}
    assert found[table.name] == frozenset({this_hour() - 3})
    maintenance(catalog, [table.name]).run()
    assert table.name not in {c.table for c in maintenance(catalog).inventory.candidates()}


def test_commit_survives_appends_to_the_same_hour_in_between(catalog: CatalogClient) -> None:
    """Ingestion commits to the table between merge and commit: the merged file still goes in, the new one
    stays beside it, nothing is lost."""
    table = new_table(catalog)
    report = maintenance(
        catalog, [table.name], between=lambda: table.append(this_hour() - 3, 10, times=3)
    ).run()
    assert report.merged_tables == 1
    assert live_files(catalog, table.storage, table.name) == {this_hour() - 3: 4}
    assert offsets_of(table) == list(range(90))
    assert table.reload().marks == table.state.marks


def test_table_with_many_snapshots_that_is_written_all_the_time_is_merged(catalog: CatalogClient) -> None:
    """However many snapshots a table has got, an attempt after a conflict reads only what is new, so it fits
    between two commits of a fast writer."""
    table, stop = new_table(catalog, files=120), threading.Event()

    def append_on() -> None:
        while not stop.wait(0.3):
            table.append(this_hour() - 3, 1)

    writer = threading.Thread(target=append_on)
    writer.start()
    try:
        report = maintenance(catalog, [table.name], between=lambda: table.append(this_hour() - 3, 1)).run()
    finally:
        stop.set()
        writer.join()
    assert (report.merged_tables, report.failures) == (1, {})
    assert len(snapshot_ids(table)) < 60
    assert offsets_of(table) == list(range(table.offset))
    assert missing_files(catalog, table.storage, table.name) == []


def test_second_optimizer_in_between_makes_the_first_give_way(catalog: CatalogClient) -> None:
    """When another optimizer merges the same files first, the later one commits nothing of its own and
    deletes what it wrote."""
    table = new_table(catalog)
    report = maintenance(
        catalog,
        [table.name],
        between=lambda: maintenance(catalog, [table.name]).run(),
        merge__late_cooldown_s=0,
    ).run()
    assert report.merged_tables == 0
    assert report.failures == {}
    assert offsets_of(table) == list(range(60))
    folder = local_path(f"{table.state.location}/data/{this_hour() - 3}")
    assert len([p for p in folder.iterdir() if p.name.startswith("merged-")]) == 1


def test_deletes_that_come_in_between_stop_the_merge(catalog: CatalogClient) -> None:
    """A delete file that reaches the hour between merge and commit would be lost with the old files: nothing
    of the merge is committed."""
    table = new_table(catalog)
    report = maintenance(catalog, [table.name], between=lambda: add_delete_file(table, this_hour() - 3)).run()
    assert report.merged_tables == 0
    assert live_files(catalog, table.storage, table.name) == {this_hour() - 3: 6}
    assert missing_files(catalog, table.storage, table.name) == []


def test_table_dropped_in_between_is_no_failure(catalog: CatalogClient) -> None:
    """A table that is dropped while its files are merged is simply gone."""
    table = new_table(catalog)
    report = maintenance(catalog, [table.name], between=lambda: catalog.drop_table(table.name)).run()
    assert (report.merged_tables, report.failures) == (0, {})


def test_manifests_are_gathered_when_there_are_many(catalog: CatalogClient) -> None:
    """A table of full hours with many manifests gets few, by a commit that changes no file."""
    table = SmallFiles(catalog, open_storage(), fresh("t"))
    for hours_ago in range(3, 12):
        table.append(this_hour() - hours_ago, 10)
    maintenance(catalog, [table.name], merge__manifests_max=4).run()
    state = table.reload()
    assert len(state.manifests) == 1
    assert state.manifests[0].existing_files == 9
    assert offsets_of(table) == list(range(90))


class Damaging(AnyStorage):
    """Damages every merged file after the executor has proven it, before the driver commits; without `damage`
    it cuts it."""

    def __init__(self, damage: Callable[[Path], None] | None = None) -> None:
        super().__init__(StorageSettings())
        self._damage = damage or truncated

    def sync(self, uris: Any) -> None:
        super().sync(uris)
        for uri in uris:
            if "/merged-" in uri:
                self._damage(local_path(uri))


@pytest.mark.parametrize(
    "damage", [without_a_row, with_a_changed_value, with_a_row_twice, with_a_flipped_byte, truncated, removed]
)
def test_output_damaged_between_proof_and_commit_is_refused(
    catalog: CatalogClient, damage: Callable[[Path], None]
) -> None:
    """A row dropped, changed or doubled, a byte flipped, a file cut or gone after its proof: nothing is
    committed, and nothing is left of it."""
    table = new_table(catalog)
    report = maintenance(catalog, [table.name], storage=Damaging(damage)).run()
    assert (report.merged_tables, str(table.name) in report.failures) == (0, True)
    assert live_files(catalog, table.storage, table.name) == {this_hour() - 3: 6}
    assert offsets_of(table) == list(range(60))
    assert [
        p
        for p in local_path(f"{table.state.location}/data/{this_hour() - 3}").iterdir()
        if p.name.startswith("merged-")
    ] == []


def test_file_damaged_after_its_proof_is_not_committed_and_the_table_pauses_alone(
    catalog: CatalogClient,
) -> None:
    """A file cut between proof and commit is refused; the table pauses at once with its reason, while another
    goes on."""
    bad, good = new_table(catalog), new_table(catalog)
    report = maintenance(catalog, [bad.name], storage=Damaging()).run()
    assert "bytes" in report.failures[str(bad.name)]
    assert live_files(catalog, bad.storage, bad.name) == {this_hour() - 3: 6}
    report = maintenance(catalog, [bad.name, good.name]).run()
    assert (report.paused, report.merged_tables) == (1, 1)
    view = load_view(catalog, bad.storage, bad.name)
    assert view is not None
    assert "paused after 1 failure until" in explain_table(maintenance(catalog, [bad.name]), view)[0]


def test_late_data_over_three_days_reopens_exactly_its_hours_once_per_cool_down(
    catalog: CatalogClient,
) -> None:
    """Records up to three days late over twenty hours: exactly those hours are merged again, when their
    cool-down is over, and once in each."""
    table, start = SmallFiles(catalog, open_storage(), fresh("t")), datetime.now(UTC) - timedelta(hours=13)
    hours = [hour_of(start) - ago for ago in range(2, 74)]
    table.commit({hour: rows_of(hour, at * 4, 4) for at, hour in enumerate(hours)}, 4 * len(hours))
    table.commit({hour: rows_of(hour, 4 * len(hours) + at, 1) for at, hour in enumerate(hours)}, len(hours))

    def run(hours_later: float) -> dict[Partition, str]:
        """A round so much later; the hours it merged, each with its file."""
        before = {hour: uris for hour, uris in files_of(table).items() if len(uris) == 1}
        maintenance(catalog, [table.name], clock=FixedClock(start + timedelta(hours=hours_later))).run()
        return {
            hour: uris[0]
            for hour, uris in files_of(table).items()
            if len(uris) == 1 and before.get(hour) != uris
        }

    assert set(run(0)) == set(hours)
    late = random.Random(7).sample(hours, 20)
    for hours_later, merged in ((1, []), (5.9, []), (6.1, late), (7, []), (12, []), (12.2, late)):
        table.commit({hour: rows_of(hour, table.offset + at, 1) for at, hour in enumerate(late)}, len(late))
        assert set(run(hours_later)) == set(merged), f"{hours_later} h later"
    assert offsets_of(table) == list(range(table.offset))
    assert missing_files(catalog, table.storage, table.name) == []


def files_of(table: SmallFiles) -> dict[Partition, list[str]]:
    """URIs of the live data files by hour."""
    view = load_view(table.catalog, table.storage, table.name)
    assert view is not None
    return {
        hour: sorted(file.uri for file in partition.files) for hour, partition in view.partitions().items()
    }


def test_files_of_expired_snapshots_go_after_the_grace(catalog: CatalogClient) -> None:
    """Nothing is deleted before the readers' grace is over; then what only expired snapshots reach is gone,
    and nothing else."""
    kept, gone = new_table(catalog, files=12), new_table(catalog, files=12)
    maintenance(catalog, [kept.name], snapshots__count_max=1, retention__reader_grace_s=3_600).run()
    maintenance(catalog, [gone.name], snapshots__count_max=1, retention__reader_grace_s=0).run()
    for table in (kept, gone):  # the merge itself keeps its parent; the next round lets it go
        maintenance(
            catalog,
            [table.name],
            snapshots__count_max=1,
            retention__reader_grace_s=3_600 if table is kept else 0,
        ).run()
    counts = [
        len(list(local_path(f"{table.state.location}/data").rglob("*.parquet"))) for table in (kept, gone)
    ]
    assert counts == [13, 1]
    for table in (kept, gone):
        assert missing_files(catalog, table.storage, table.name) == []
        assert offsets_of(table) == list(range(120))


def set_ref(table: SmallFiles, name: str, snapshot_id: int, kind: str = "tag") -> None:
    """Sets a tag or branch, as an engine does in `ALTER TABLE ... CREATE TAG`."""
    update = {"action": "set-snapshot-ref", "ref-name": name, "type": kind, "snapshot-id": snapshot_id}
    (result,) = table.catalog.commit_all(
        [{"identifier": table.name.to_json(), "requirements": [], "updates": [update]}]
    )
    assert result.status.value == "committed", result


def snapshot_ids(table: SmallFiles) -> list[int]:
    """The table's snapshots, the oldest first."""
    return [s["snapshot-id"] for s in table.catalog.load_table(table.name)["metadata"]["snapshots"]]


def test_tag_made_between_planning_and_expiry_keeps_its_snapshot(catalog: CatalogClient) -> None:
    """A tag and a branch set on snapshots that the plan lets go, after it was made: they stay, with every
    file, and others go in their place."""
    table = new_table(catalog, files=14)
    first, second = snapshot_ids(table)[:2]

    def name_them() -> None:
        set_ref(table, "audit", first)
        set_ref(table, "investigation", second, "branch")

    maintenance(catalog, [table.name], between=name_them, retention__reader_grace_s=0).run()
    maintenance(catalog, [table.name], retention__reader_grace_s=0).run()
    metadata = catalog.load_table(table.name)["metadata"]
    assert {name: ref["snapshot-id"] for name, ref in metadata["refs"].items() if name != "main"} == {
        "audit": first,
        "investigation": second,
    }
    assert {first, second} <= set(snapshot_ids(table))
    assert len(snapshot_ids(table)) <= 10
    assert missing_files(catalog, table.storage, table.name) == []


def test_tag_that_moves_between_look_and_commit_makes_the_expiry_look_again(catalog: CatalogClient) -> None:
    """A known tag set to an expiring snapshot at the last moment makes the commit fail and the expiry decide
    anew."""
    table = new_table(catalog, files=14)
    ids = snapshot_ids(table)
    set_ref(table, "audit", ids[-1])
    moved: list[str] = []

    class MovesTag(AnyStorage):
        """Moves the tag when the manifests of the commit are written: after the last look, before the
        request."""

        def write_all(self, files: Any) -> None:
            super().write_all(files)
            if not moved and any(str(table.state.location) in uri for uri, _ in files):
                moved.append("audit")
                set_ref(table, "audit", ids[0])

    report = maintenance(catalog, [table.name], storage=MovesTag(StorageSettings())).run()
    assert (report.merged_tables, moved) == (1, ["audit"])
    assert catalog.load_table(table.name)["metadata"]["refs"]["audit"]["snapshot-id"] == ids[0]
    assert ids[0] in snapshot_ids(table)
    assert missing_files(catalog, table.storage, table.name) == []


def test_metadata_files_are_bounded(catalog: CatalogClient) -> None:
    """However many commits a table gets, it keeps its last metadata files only: the current one and ten
    before it."""
    table = new_table(catalog, files=20)
    maintenance(catalog, [table.name]).run()
    folder = local_path(f"{table.state.location}/metadata")
    wait_for(lambda: len(list(folder.glob("*.metadata.json"))) <= 11, 20, "old metadata files gone")
    assert missing_files(catalog, table.storage, table.name) == []


@pytest.mark.parametrize("small", [True, False])
def test_small_manifests_are_gathered_by_a_merge_that_is_made_anyhow(
    catalog: CatalogClient, monkeypatch: pytest.MonkeyPatch, small: bool
) -> None:
    """Of a table with a file an hour each has a manifest of its own, which is larger than what it tells;
    where all together are large they wait for `merge.manifests_max`."""
    if not small:
        monkeypatch.setattr(replacement, "STREWN_BYTES_MAX", 1_000)
    table = new_table(catalog, files=2, hours_ago=3)
    for hours_ago in range(4, 14):
        table.append(this_hour() - hours_ago, 10)
    assert maintenance(catalog, [table.name]).run().failures == {}
    state = table.reload()
    assert len(state.manifests) == (1 if small else 11)
    assert live_files(catalog, table.storage, table.name) == {this_hour() - at: 1 for at in range(3, 14)}
    assert offsets_of(table) == list(range(120))
    assert missing_files(catalog, table.storage, table.name) == []


def test_schemas_go_with_the_snapshots_that_named_them(catalog: CatalogClient) -> None:
    """Each new column leaves a schema behind, with all columns in it: after a round there are as many as
    snapshots need, the columns and their values are all there, and ingestion goes on."""
    table = new_table(catalog, files=1)
    for at in range(12):
        table.append(this_hour() - 3, 10, {f"field_{at:02}": [f"value {at}"] * 10})
    table.reload()
    assert len(catalog.load_table(table.name)["metadata"]["schemas"]) == 13
    maintenance(catalog, [table.name]).run()
    metadata = catalog.load_table(table.name)["metadata"]
    needed = {snapshot["schema-id"] for snapshot in metadata["snapshots"]} | {metadata["current-schema-id"]}
    assert {schema["schema-id"] for schema in metadata["schemas"]} == needed
    assert len(needed) <= 5
    table.reload()
    table.append(this_hour() - 3, 10, {"field_12": ["value 12"] * 10})
    assert table.reload().schema.by_name.keys() >= {f"field_{at:02}" for at in range(13)}
    assert offsets_of(table) == list(range(140))
    view = load_view(catalog, table.storage, table.name)
    assert view is not None
    rows = [
        row
        for partition in view.partitions().values()
        for file in partition.files
        for row in pq.read_table(local_path(file.uri)).to_pylist()
    ]
    assert {row["field_03"] for row in rows if row.get("field_03")} == {"value 3"}


def test_history_is_a_table(catalog: CatalogClient) -> None:
    """What a round did stands in firn_system.maintenance, one row an action."""
    table = new_table(catalog)
    maintenance(catalog, [table.name]).run()
    view = load_view(catalog, table.storage, TABLE)
    assert view is not None
    rows = [
        row
        for p in view.partitions().values()
        for file in p.files
        for row in pq.read_table(local_path(file.uri)).to_pylist()
    ]
    own = [row for row in rows if row["tenant_table"] == str(table.name)]
    assert [(row["action"], row["files_before"], row["files_after"], row["row_count"]) for row in own] == [
        ("merge", 6, 1, 60)
    ]
