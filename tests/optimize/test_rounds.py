"""Rounds of maintenance against a real catalog, other writers in between."""

from typing import Any

import pyarrow.parquet as pq
import pytest

from lake.catalog_client import CatalogClient
from lake.commit import load_state, prepare_append
from lake.data_file import POSITION_DELETES, DataFile
from lake.manifest import ManifestEntry, Status, write_manifest, write_manifest_list
from lake.settings import StorageSettings
from lake.storage import AnyStorage, local_path, open_storage
from lake.table_layout import metadata_uri
from optimize.explain import explain_table
from optimize.history import TABLE
from optimize.table_view import load_view
from tests.optimize.live_files import live_files, missing_files
from tests.optimize.maintained import maintenance
from tests.optimize.small_files import SmallFiles, this_hour
from tests.stack.waiting import fresh

pytestmark = pytest.mark.stack


def offsets_of(table: SmallFiles) -> list[int]:
    """The offsets of all live rows, read file by file."""
    view = load_view(table.catalog, table.storage, table.name)
    assert view is not None
    uris = [file.uri for partition in view.partitions().values() for file in partition.files]
    return sorted(offset for uri in uris for offset in pq.read_table(local_path(uri), columns=["_offset"]).column("_offset").to_pylist())


def new_table(catalog: CatalogClient, files: int = 6, hours_ago: int = 3, **properties: str) -> SmallFiles:
    table = SmallFiles(catalog, open_storage(), fresh("t"), properties=properties)
    table.append(this_hour() - hours_ago, 10, times=files)
    return table


def test_round_merges_closed_hours_and_keeps_marks_and_properties(catalog: CatalogClient) -> None:
    """Six files of a closed hour become one, the open hour stays, rows, marks and properties are the same, snapshots are at most ten."""
    table = new_table(catalog, files=12)
    table.append(this_hour(), 10, times=2)
    before = table.reload()
    report = maintenance(catalog, [table.name]).run()
    after = table.reload()
    assert report.failures == {}
    assert live_files(catalog, table.storage, table.name) == {this_hour() - 3: 1, this_hour(): 2}
    assert (after.marks, after.properties, after.totals.rows) == (before.marks, before.properties, before.totals.rows)
    assert offsets_of(table) == list(range(140))
    assert len(catalog.load_table(table.name)["metadata"]["snapshots"]) == 10
    assert missing_files(catalog, table.storage, table.name) == []
    assert maintenance(catalog, [table.name]).run().merged_tables == 0


def test_index_of_changed_partitions_finds_the_table(catalog: CatalogClient) -> None:
    """Without being named, a table with two files in a closed hour is found through the catalog's index, and leaves it when merged."""
    table = new_table(catalog, files=2)
    found = {c.table: c.hours for c in maintenance(catalog).inventory.candidates()}
    assert found[table.name] == frozenset({this_hour() - 3})
    maintenance(catalog, [table.name]).run()
    assert table.name not in {c.table for c in maintenance(catalog).inventory.candidates()}


def test_commit_survives_appends_to_the_same_hour_in_between(catalog: CatalogClient) -> None:
    """Ingestion commits to the table between merge and commit: the merged file still goes in, the new one stays beside it, nothing is lost."""
    table = new_table(catalog)
    report = maintenance(catalog, [table.name], between=lambda: table.append(this_hour() - 3, 10, times=3)).run()
    assert report.merged_tables == 1
    assert live_files(catalog, table.storage, table.name) == {this_hour() - 3: 4}
    assert offsets_of(table) == list(range(90))
    assert table.reload().marks == table.state.marks


def test_second_optimizer_in_between_makes_the_first_give_way(catalog: CatalogClient) -> None:
    """When another optimizer merges the same files first, the later one commits nothing of its own and deletes what it wrote."""
    table = new_table(catalog)
    report = maintenance(catalog, [table.name], between=lambda: maintenance(catalog, [table.name]).run(), late_cooldown_s=0).run()
    assert report.merged_tables == 0
    assert report.failures == {}
    assert offsets_of(table) == list(range(60))
    folder = local_path(f"{table.state.location}/data/{this_hour() - 3}")
    assert len([p for p in folder.iterdir() if p.name.startswith("merged-")]) == 1


def add_position_deletes(table: SmallFiles) -> None:
    """Commits a position delete file to the hour, as Trino's DELETE does (its content does not matter: it must only be seen)."""
    state = load_state(table.catalog, table.storage, table.name)
    assert state is not None
    hour = this_hour() - 3
    uri = f"{state.location}/data/{hour}/deletes-{fresh('')}.parquet"
    table.storage.write(uri, b"")
    prepared = prepare_append(state, [], state.schema, state.marks, state.updated_ms)
    manifest_uri = metadata_uri(state.location, f"{fresh('d')}.avro")
    entry = ManifestEntry(Status.ADDED, DataFile(uri, hour, 1, 4, content=POSITION_DELETES))
    sequence = state.sequence_number + 1
    data, line = write_manifest(manifest_uri, [entry], schema=state.schema.json, spec=state.spec, snapshot_id=prepared.snapshot_id, sequence_number=sequence)
    listed = write_manifest_list([line, *state.manifests], snapshot_id=prepared.snapshot_id, parent_id=state.head, sequence_number=sequence)
    table.storage.write_all([(manifest_uri, data), (prepared.files[-1][0], listed)])
    (result,) = table.catalog.commit_all([prepared.request])
    assert result.status.value == "committed", result


def test_deletes_that_come_in_between_stop_the_merge(catalog: CatalogClient) -> None:
    """A delete file that reaches the hour between merge and commit would be lost with the old files: nothing of the merge is committed."""
    table = new_table(catalog)
    report = maintenance(catalog, [table.name], between=lambda: add_position_deletes(table)).run()
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
    maintenance(catalog, [table.name], manifests_max=4).run()
    state = table.reload()
    assert len(state.manifests) == 1
    assert state.manifests[0].existing_files == 9
    assert offsets_of(table) == list(range(90))


class Damaging(AnyStorage):
    """Cuts every merged file after the executor has proven it, before the driver commits."""

    def __init__(self) -> None:
        super().__init__(StorageSettings())

    def sync(self, uris: Any) -> None:
        super().sync(uris)
        for uri in uris:
            if "/merged-" in uri:
                path = local_path(uri)
                path.write_bytes(path.read_bytes()[:-50])


def test_file_damaged_after_its_proof_is_not_committed_and_the_table_pauses_alone(catalog: CatalogClient) -> None:
    """A file cut between proof and commit is refused; after three rounds the table pauses with its reason, while another goes on."""
    bad, good = new_table(catalog), new_table(catalog)
    for _ in range(3):
        report = maintenance(catalog, [bad.name], storage=Damaging()).run()
        assert "bytes" in report.failures[str(bad.name)]
    assert live_files(catalog, bad.storage, bad.name) == {this_hour() - 3: 6}
    report = maintenance(catalog, [bad.name, good.name]).run()
    assert (report.paused, report.merged_tables) == (1, 1)
    view = load_view(catalog, bad.storage, bad.name)
    assert view is not None
    assert "paused after 3 failures" in explain_table(maintenance(catalog, [bad.name]), view)[0]


def test_late_data_reopens_only_its_hours_once_per_cool_down(catalog: CatalogClient) -> None:
    """Late files make exactly the hours they touch merge again, and not before the cool-down is over."""
    table = SmallFiles(catalog, open_storage(), fresh("t"))
    for hours_ago in range(3, 9):
        table.append(this_hour() - hours_ago, 10, times=2)
    maintenance(catalog, [table.name]).run()
    for hours_ago in (4, 6):
        table.append(this_hour() - hours_ago, 1)
    assert maintenance(catalog, [table.name], late_cooldown_s=3_600).run().merged_tables == 0
    report = maintenance(catalog, [table.name], late_cooldown_s=0).run()
    assert (report.files_before, report.files_after) == (4, 2)
    assert set(live_files(catalog, table.storage, table.name).values()) == {1}


def test_files_of_expired_snapshots_go_after_the_grace(catalog: CatalogClient) -> None:
    """Nothing is deleted before the readers' grace is over; then what only expired snapshots reach is gone, and nothing else."""
    kept, gone = new_table(catalog, files=12), new_table(catalog, files=12)
    maintenance(catalog, [kept.name], snapshots_max=1, reader_grace_s=3_600).run()
    maintenance(catalog, [gone.name], snapshots_max=1, reader_grace_s=0).run()
    for table in (kept, gone):  # the merge itself keeps its parent; the next round lets it go
        maintenance(catalog, [table.name], snapshots_max=1, reader_grace_s=3_600 if table is kept else 0).run()
    counts = [len(list(local_path(f"{table.state.location}/data").rglob("*.parquet"))) for table in (kept, gone)]
    assert counts == [13, 1]
    for table in (kept, gone):
        assert missing_files(catalog, table.storage, table.name) == []
        assert offsets_of(table) == list(range(120))


def test_history_is_a_table(catalog: CatalogClient) -> None:
    """What a round did stands in firn_system.maintenance, one row an action."""
    table = new_table(catalog)
    maintenance(catalog, [table.name]).run()
    view = load_view(catalog, table.storage, TABLE)
    assert view is not None
    rows = [row for p in view.partitions().values() for file in p.files for row in pq.read_table(local_path(file.uri)).to_pylist()]
    own = [row for row in rows if row["tenant_table"] == str(table.name)]
    assert [(row["action"], row["files_before"], row["files_after"], row["row_count"]) for row in own] == [("merge", 6, 1, 60)]
