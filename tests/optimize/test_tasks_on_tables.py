"""Retention, purge and orphan files on real tables: only what should go goes."""

import gzip
import os
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from lake.catalog_client import CatalogClient, TableName
from lake.clock import epoch_ms
from lake.commit import creation_request, new_table_state, prepare_append
from lake.data_file import DataFile
from lake.errors import ConflictError
from lake.extras_client import ExtrasClient
from lake.purged_tables import KEPT_MS, forget_old, purged_tables
from lake.storage import local_path, open_storage
from lake.table_files import load_manifest
from lake.table_layout import US_PER_HOUR, parse_partition_path
from optimize import maintenance_tasks, table_view
from optimize.deletions import DeletionQueue, Throttle
from optimize.history import TABLE as HISTORY
from optimize.maintenance_tasks import MaintenanceTasks
from optimize.orphan_files import Orphans, delete_orphans, find_orphans
from optimize.purge import Dropped
from optimize.table_view import load_view
from tests.optimize.support.delete_files import add_delete_file
from tests.optimize.support.live_files import live_files, missing_files, offsets_of
from tests.optimize.support.maintained import FixedClock, maintenance, utc
from tests.optimize.support.small_files import SmallFiles, hour_of, rows_of, this_hour
from tests.optimize.test_maintenance_tasks import SPELLINGS
from tests.stack.support.waiting import fresh

pytestmark = pytest.mark.stack
LONG_AGO_S = (datetime.now(UTC) - timedelta(days=30)).timestamp()


def test_retention_takes_whole_hours_and_a_dry_run_takes_nothing(catalog: CatalogClient) -> None:
    """Hours past the table's retention go with all their rows, younger ones stay; the dry run says the same
    numbers and changes nothing."""
    table = SmallFiles(catalog, open_storage(), fresh("t"), properties={"firn.retention": "24h"})
    for hours_ago in (2, 23, 26, 50):
        table.append(this_hour() - hours_ago, 10, times=2)
    tasks = MaintenanceTasks(maintenance(catalog, [table.name]))
    (would,) = tasks.retention(dry_run=True)
    assert (would.rows, len(would.files)) == (40, 4)
    assert would.oldest_us is not None
    assert would.oldest_us // US_PER_HOUR == this_hour() - 50
    assert len(live_files(catalog, table.storage, table.name)) == 4
    (went,) = tasks.retention()
    assert (went.files, went.reason) == (would.files, "")
    assert live_files(catalog, table.storage, table.name) == {this_hour() - 2: 2, this_hour() - 23: 2}
    state = table.reload()
    assert state.totals.rows == 40
    assert missing_files(catalog, table.storage, table.name) == []
    assert list(tasks.retention()) == []


def _history(catalog: CatalogClient) -> tuple[int, list[str]]:
    """How many commits the history has had, and the tables in its rows."""
    view = load_view(catalog, open_storage(), HISTORY)
    if view is None:
        return 0, []
    files = [file for partition in view.partitions().values() for file in partition.files]
    rows = [row for file in files for row in pq.read_table(local_path(file.uri)).to_pylist()]
    return view.state.sequence_number, [row["tenant_table"] for row in rows]


def test_what_a_task_does_to_many_tables_is_one_commit_of_the_history(catalog: CatalogClient) -> None:
    """And a row for each, of the time at which it was done."""
    tables = [
        SmallFiles(catalog, open_storage(), fresh("t"), properties={"firn.retention": "24h"})
        for _ in range(3)
    ]
    for table in tables:
        table.append(this_hour() - 50, 10)
    commits, _ = _history(catalog)
    clock = FixedClock(datetime.now(UTC) + timedelta(seconds=30))
    names = [table.name for table in tables]
    assert len(list(MaintenanceTasks(maintenance(catalog, names, clock=clock)).retention())) == 3
    after, told = _history(catalog)
    assert after == commits + 1
    assert {str(name) for name in names} <= set(told)


@pytest.fixture(params=["Pacific/Kiritimati", "America/St_Johns"])
def far_away(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The process believes to be in another time zone: fourteen hours ahead of UTC, three and a half behind
    it."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", request.param)
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("far_away")
def test_a_table_that_keeps_all_its_rows_is_not_read(
    catalog: CatalogClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its manifests stay closed and nothing is committed: of very many tables that is so every day for nearly
    all."""
    table = SmallFiles(catalog, open_storage(), fresh("t"), properties={"firn.retention": "24h"})
    for hours_ago in (2, 20):
        table.append(this_hour() - hours_ago, 10)
    before = catalog.load_table(table.name)["metadata-location"]
    tasks, read = MaintenanceTasks(maintenance(catalog, [table.name])), list[str]()
    whole = load_manifest

    def noted(storage: Any, manifest: Any, place: Any) -> Any:
        read.append(manifest.uri)
        return whole(storage, manifest, place)

    monkeypatch.setattr(table_view, "load_manifest", noted)
    assert list(tasks.retention(expire=True)) == []
    assert (read, catalog.load_table(table.name)["metadata-location"]) == ([], before)
    table.append(this_hour() - 30, 10)
    (went,) = tasks.retention(expire=True)
    assert (went.rows, bool(read)) == (10, True)


def test_retention_counts_in_utc_wherever_it_runs_and_whatever_month_ends(catalog: CatalogClient) -> None:
    """On the first of March at 12:59 UTC a day's retention keeps the 29th of February from 12 o'clock on, and
    at 13:00 one hour less, in any zone."""
    table = SmallFiles(catalog, open_storage(), fresh("t"), properties={"firn.retention": "1d"})
    hours = [
        hour_of(utc(2024, 2, 28, 23)),
        *(hour_of(utc(2024, 2, 29, hour)) for hour in (0, 11, 12, 13, 23)),
        hour_of(utc(2024, 3, 1, 0)),
    ]
    table.commit({hour: rows_of(hour, at, 1) for at, hour in enumerate(hours)}, len(hours))
    for moment, first_kept in ((utc(2024, 3, 1, 12, 59), 3), (utc(2024, 3, 1, 13, 0), 4)):
        tasks = MaintenanceTasks(maintenance(catalog, [table.name], clock=FixedClock(moment)))
        (would,) = tasks.retention(dry_run=True)
        (went,) = tasks.retention()
        assert went == would
        assert sorted(live_files(catalog, table.storage, table.name)) == hours[first_kept:]
    assert offsets_of(table) == [4, 5, 6]


def test_unclear_retention_of_one_table_is_told_and_deletes_nothing(catalog: CatalogClient) -> None:
    """A retention nobody understands leaves the table alone and says so."""
    table = SmallFiles(catalog, open_storage(), fresh("t"), properties={"firn.retention": "one month"})
    table.append(this_hour() - 5_000, 10)
    (expired,) = MaintenanceTasks(maintenance(catalog, [table.name])).retention()
    assert "write days or hours" in expired.reason
    assert expired.files == ()


def test_purge_leaves_a_table_created_again_under_the_same_name(catalog: CatalogClient) -> None:
    """The dry run deletes nothing; then the files of the dropped table go, to the last, and those of its
    successor with the same name stay."""
    storage = open_storage()
    first = SmallFiles(catalog, storage, fresh("t"))
    first.append(this_hour(), 10)
    catalog.drop_table(first.name, purge=True)
    assert catalog.warehouse is not None
    catalog.create_table(
        first.name, creation_request(new_table_state(first.name, "t", "logs", catalog.warehouse))
    )
    second = SmallFiles(catalog, storage, first.name.namespace)
    second.append(this_hour(), 10)
    tasks = MaintenanceTasks(maintenance(catalog, retention__purge_after_s=0))
    would = {dropped.uuid: dropped for dropped, _ in tasks.purge(dry_run=True)}
    assert would[first.state.uuid].refusal == ""
    assert second.state.uuid not in would
    assert local_path(first.state.location).exists()
    went = {dropped.uuid: files for dropped, files in tasks.purge()}
    assert went[first.state.uuid] >= 4
    assert not local_path(first.state.location).exists()
    assert missing_files(catalog, storage, second.name) == []
    assert first.state.uuid not in {dropped.uuid for dropped, _ in tasks.purge(dry_run=True)}


def orphans_of(catalog: CatalogClient, table: SmallFiles) -> Orphans:
    """What is found below a table that is there."""
    found = find_orphans(
        catalog,
        table.storage,
        table.name,
        Throttle(1_000),
        age_min_s=7 * 86_400,
        now=datetime.now(UTC),
        metadata=catalog.load_table(table.name)["metadata"],
    )
    assert found is not None
    return found


def test_orphans_are_found_by_age_and_live_files_stay(catalog: CatalogClient) -> None:
    """An old file that nobody refers to goes; a young one, one with another table, and every live file stay,
    however old it is."""
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
    found = orphans_of(catalog, table)
    assert found.files == (f"file://{old}",)
    assert delete_orphans(catalog, table.storage, found, Throttle(1_000)) == 1
    assert not old.exists()
    assert young.exists()
    assert missing_files(catalog, table.storage, table.name) == []


def test_delete_files_go_with_the_hours_they_belong_to(catalog: CatalogClient) -> None:
    """Retention takes the position deletes of the hours it takes, others stay; totals and the catalog's index
    follow."""
    table = SmallFiles(catalog, open_storage(), fresh("t"), properties={"firn.retention": "24h"})
    hours = [this_hour() - hours_ago for hours_ago in (3, 50)]
    for hour in hours:
        table.append(hour, 10, times=2)
    stays, goes = (add_delete_file(table, hour) for hour in hours)
    (went,) = MaintenanceTasks(maintenance(catalog, [table.name])).retention()
    assert {file.uri for file in went.files} >= {goes}
    assert (went.rows, len(went.data_files), len(went.files)) == (20, 2, 3)
    view = load_view(catalog, table.storage, table.name)
    assert view is not None
    assert [file.uri for files in view.delete_files().values() for file in files] == [stays]
    assert (
        view.state.totals.rows,
        view.state.totals.files,
        view.state.totals.delete_files,
        view.state.totals.position_deletes,
    ) == (20, 2, 1, 1)
    assert index_of(catalog, table.name) == {this_hour() - 3: (2, 1)}
    assert missing_files(catalog, table.storage, table.name) == []
    assert list(MaintenanceTasks(maintenance(catalog, [table.name])).retention()) == []


def index_of(catalog: CatalogClient, table: TableName) -> dict[int, tuple[int, int]]:
    """Data and delete files by hour, as the catalog's index of partitions has them."""
    rows = catalog.get("/firn/v1/dirty-partitions", pageSize="1000")["partitions"]
    own = [row for row in rows if row["identifier"] == table.to_json()]
    return {
        parse_partition_path(row["partition"]) or 0: (row["data-files"], row["delete-files"]) for row in own
    }


def test_interrupted_duty_is_done_again_at_the_next_round(
    catalog: CatalogClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIGTERM, or a lost lease, between two tables: the task does not count as done, so that the other table
    does not wait for a whole interval."""
    monkeypatch.setattr(maintenance_tasks, "TABLES_TOGETHER", 1)
    tables = [
        SmallFiles(catalog, open_storage(), fresh("t"), properties={"firn.retention": "24h"})
        for _ in range(2)
    ]
    for table in tables:
        for hours_ago in (3, 50):
            table.append(this_hour() - hours_ago, 5)
    m = maintenance(catalog, [table.name for table in tables], retention__interval_s=0.001)

    def hours() -> list[int]:
        return [len(live_files(catalog, table.storage, table.name)) for table in tables]

    before = MaintenanceTasks(m)._last("retention")
    MaintenanceTasks(replace(m, halted=lambda: hours()[0] == 1)).run_due()
    assert hours() == [1, 2]
    assert MaintenanceTasks(m)._last("retention") == before
    MaintenanceTasks(m).run_due()
    assert hours() == [1, 1]
    assert MaintenanceTasks(m)._last("retention") > before


def test_daily_duty_brings_tables_that_nobody_merges_within_their_limits(catalog: CatalogClient) -> None:
    """A table with one file an hour never has anything to merge; its snapshots and manifests are tidied all
    the same, without retention."""
    table = SmallFiles(catalog, open_storage(), fresh("slow"))
    for hours_ago in range(3, 23):
        table.append(this_hour() - hours_ago, 2)
    assert (
        list(
            MaintenanceTasks(maintenance(catalog, [table.name], merge__manifests_max=4)).retention(
                expire=True
            )
        )
        == []
    )
    state = table.reload()
    assert len(catalog.load_table(table.name)["metadata"]["snapshots"]) <= 10
    assert len(state.manifests) == 1
    assert state.totals.rows == 40


def purged(catalog: CatalogClient, table: TableName, **settings: Any) -> list[tuple[Dropped, int]]:
    """What a purge does to the dropped tables of that name, with the number of files deleted."""
    return [
        (dropped, files)
        for dropped, files in MaintenanceTasks(maintenance(catalog, **settings)).purge()
        if dropped.name == str(table)
    ]


def test_a_purge_that_is_not_to_wait_is_done_beside_the_rounds(catalog: CatalogClient) -> None:
    """Of tables whose files somebody wants gone at once; others wait for their time. What is gone is noted,
    and forgotten after 90 days."""
    storage = open_storage()
    first, second = (SmallFiles(catalog, storage, fresh("t")) for _ in range(2))
    for table in (first, second):
        table.append(this_hour(), 10)
        catalog.drop_table(table.name, purge=True)
    (dropped,) = [each for each in ExtrasClient(catalog).dropped_tables() if each.table == first.name]
    ExtrasClient(catalog).request_purge(dropped.id, at_once=True)
    m = maintenance(catalog)
    went = {each.name: files for each, files in MaintenanceTasks(m).purge(only_at_once=True)}
    assert went[first.name.dotted] >= 4
    assert second.name.dotted not in went
    assert list(storage.list(first.state.location)) == []
    assert list(storage.list(second.state.location)) != []
    (noted,) = [each for each in purged_tables(catalog) if each.uuid == first.state.uuid]
    assert (noted.table, noted.files, noted.dropped_ms) == (
        first.name,
        went[first.name.dotted],
        dropped.dropped_ms,
    )
    forget_old(catalog, noted.purged_ms + KEPT_MS)
    assert noted in list(purged_tables(catalog))
    forget_old(catalog, noted.purged_ms + KEPT_MS + 1)
    assert noted not in list(purged_tables(catalog))


def test_dropped_table_stays_for_three_days_and_comes_back_whole(catalog: CatalogClient) -> None:
    """Within `retention.purge_after_s` nothing of a dropped table is deleted, whatever the catalog
    would allow; undone, it is never purged."""
    table = SmallFiles(catalog, open_storage(), fresh("t"))
    table.append(this_hour() - 3, 10, times=2)
    catalog.drop_table(table.name, purge=True)
    assert purged(catalog, table.name) == []
    catalog.post("/firn/v1/dropped-tables/undo", {"identifier": table.name.to_json()})
    assert purged(catalog, table.name, retention__purge_after_s=0) == []
    assert offsets_of(table) == list(range(20))
    assert missing_files(catalog, table.storage, table.name) == []


def test_table_dropped_and_created_again_within_three_days_has_two_lives(catalog: CatalogClient) -> None:
    """While the time for undo runs, neither purge nor orphan removal touches the first table's files; undone
    under another name, both are whole."""
    storage = open_storage()
    first = SmallFiles(catalog, storage, fresh("t"))
    first.append(this_hour() - 3, 10, times=2)
    catalog.drop_table(first.name, purge=True)
    assert catalog.warehouse is not None
    catalog.create_table(
        first.name, creation_request(new_table_state(first.name, "t", "logs", catalog.warehouse))
    )
    second = SmallFiles(catalog, storage, first.name.namespace)
    second.append(this_hour() - 3, 7, times=2)
    for path in (
        p
        for state in (first.state, second.state)
        for p in local_path(state.location).rglob("*")
        if p.is_file()
    ):
        os.utime(path, (LONG_AGO_S, LONG_AGO_S))
    assert purged(catalog, first.name) == []
    assert list(MaintenanceTasks(maintenance(catalog, [second.name])).orphans(delete=True)) == []
    with pytest.raises(ConflictError):
        catalog.post("/firn/v1/dropped-tables/undo", {"identifier": first.name.to_json()})
    back = TableName(first.name.namespace, "before")
    catalog.post(
        "/firn/v1/dropped-tables/undo", {"identifier": first.name.to_json(), "new-identifier": back.to_json()}
    )
    assert purged(catalog, first.name, retention__purge_after_s=0) == []
    assert offsets_of(SmallFiles(catalog, storage, first.name.namespace, "before")) == list(range(20))
    assert offsets_of(second) == list(range(14))
    assert [missing_files(catalog, storage, name) for name in (back, second.name)] == [[], []]


def test_purge_refuses_a_location_that_a_living_table_has(catalog: CatalogClient) -> None:
    """A dropped table whose metadata was registered under another name lives on there: its files stay."""
    table = SmallFiles(catalog, open_storage(), fresh("t"))
    table.append(this_hour() - 3, 10, times=2)
    metadata_location = catalog.load_table(table.name)["metadata-location"]
    catalog.drop_table(table.name, purge=True)
    again = TableName(table.name.namespace, "again")
    catalog.post(
        f"/v1/namespaces/{again.namespace}/register",
        {"name": again.name, "metadata-location": metadata_location},
    )
    ((dropped, files),) = purged(catalog, table.name, retention__purge_after_s=0)
    assert (dropped.refusal, files) == ("a living table shares its location", 0)
    assert offsets_of(SmallFiles(catalog, table.storage, again.namespace, "again")) == list(range(20))
    assert missing_files(catalog, table.storage, again) == []


def test_table_dropped_without_purge_is_kept(catalog: CatalogClient) -> None:
    """A drop that did not ask for a purge keeps its files until somebody asks."""
    table = SmallFiles(catalog, open_storage(), fresh("t"))
    table.append(this_hour(), 10)
    catalog.drop_table(table.name)
    assert purged(catalog, table.name, retention__purge_after_s=0) == []
    assert local_path(table.state.location).exists()


def test_neighbour_whose_path_begins_with_that_of_the_dropped_table_stays(catalog: CatalogClient) -> None:
    """Of two tables at `.../UUID` and below `.../UUIDb` the purge of the first deletes nothing of the
    second."""
    storage, warehouse = open_storage(), catalog.warehouse
    assert warehouse is not None
    table = SmallFiles(catalog, storage, fresh("t"))
    table.append(this_hour(), 10)
    neighbour = fresh("n")
    state = new_table_state(TableName(neighbour, "logs"), neighbour, "logs", warehouse)
    catalog.create_namespace(neighbour, {})
    catalog.create_table(
        state.name, creation_request(replace(state, location=f"{table.state.location}b/{state.uuid}"))
    )
    other = SmallFiles(catalog, storage, neighbour)
    other.append(this_hour(), 10)
    catalog.drop_table(table.name, purge=True)
    ((dropped, files),) = purged(catalog, table.name, retention__purge_after_s=0)
    assert dropped.refusal == ""
    assert files >= 4
    assert not list(storage.list(table.state.location))
    assert offsets_of(other) == list(range(10))
    assert missing_files(catalog, storage, other.name) == []


def test_table_that_lies_elsewhere_keeps_its_files(catalog: CatalogClient, elsewhere: Path) -> None:
    """A table registered from outside the warehouse is refused by purge and by orphan removal: others may own
    what lies there."""
    storage = open_storage()
    name = TableName(fresh("foreign"), "logs")
    catalog.create_namespace(name.namespace, {})
    state = new_table_state(name, name.namespace, "logs", f"file://{elsewhere}")
    catalog.create_table(name, creation_request(state))
    table = SmallFiles(catalog, storage, name.namespace)
    table.append(this_hour() - 3, 10, times=2)
    metadata_location = catalog.load_table(name)["metadata-location"]
    catalog.drop_table(name)
    registered = TableName(fresh("registered"), "logs")
    catalog.create_namespace(registered.namespace, {})
    catalog.post(
        f"/v1/namespaces/{registered.namespace}/register",
        {"name": "logs", "metadata-location": metadata_location},
    )
    before = sorted(p for p in elsewhere.rglob("*") if p.is_file())
    (local_path(state.location) / "data/not ours.parquet").write_bytes(b"x")
    ((found, reason),) = MaintenanceTasks(maintenance(catalog, [registered])).orphans(delete=True)
    assert found.files == ()
    assert "not below the warehouse" in reason
    catalog.drop_table(registered, purge=True)
    ((dropped, files),) = purged(catalog, registered, retention__purge_after_s=0)
    assert "not below the warehouse" in dropped.refusal
    assert files == 0
    assert set(before) < set(elsewhere.rglob("*"))


@pytest.mark.parametrize("below", ["", "/data/inner"])
def test_table_at_or_below_the_location_of_another_keeps_its_files(
    catalog: CatalogClient, below: str
) -> None:
    """Where an engine was told to put a table into the folder of another, old files of both stay, and the
    search says why."""
    storage, tenant, warehouse = open_storage(), fresh("t"), catalog.warehouse
    assert warehouse is not None
    outer = SmallFiles(catalog, storage, tenant)
    outer.append(this_hour() - 3, 10, times=2)
    request = creation_request(new_table_state(TableName(tenant, "inner"), tenant, "inner", warehouse))
    as_engines_do = {key: value for key, value in request.items() if key != "table-uuid"}
    catalog.create_table(
        TableName(tenant, "inner"), as_engines_do | {"location": outer.state.location + below}
    )
    inner = SmallFiles(catalog, storage, tenant, "inner")
    inner.append(this_hour() - 3, 10, times=2)
    for path in local_path(outer.state.location).rglob("*"):
        os.utime(path, (LONG_AGO_S, LONG_AGO_S))
    ((found, reason),) = MaintenanceTasks(maintenance(catalog, [outer.name])).orphans(delete=True)
    assert found.files == ()
    assert "another one may lie there" in reason
    assert [missing_files(catalog, storage, table.name) for table in (outer, inner)] == [[], []]


def test_metadata_that_a_lost_commit_left_behind_is_an_orphan(catalog: CatalogClient) -> None:
    """A metadata file of the table's own, compressed or not, that no version names is found and goes like any
    other file."""
    table = SmallFiles(catalog, open_storage(), fresh("t"))
    table.append(this_hour() - 3, 10)
    folder, text = (
        local_path(table.state.location) / "metadata",
        f'{{"table-uuid":"{table.state.uuid}"}}'.encode(),
    )
    left = [folder / "00000-lost.metadata.json", folder / "00000-lost.gz.metadata.json"]
    for path, data in zip(left, (text, gzip.compress(text)), strict=True):
        path.write_bytes(data)
        os.utime(path, (LONG_AGO_S, LONG_AGO_S))
    ((found, reason),) = MaintenanceTasks(maintenance(catalog, [table.name])).orphans(delete=True)
    assert (found.files, reason) == (tuple(sorted(f"file://{path}" for path in left)), "")
    assert not any(path.exists() for path in left)
    assert missing_files(catalog, table.storage, table.name) == []


def test_what_waits_for_its_readers_is_no_orphan(catalog: CatalogClient) -> None:
    """A file that expiry has queued, however old it is, also where it is queued after it was found: a query
    that began before may read it until the grace is over."""
    table = SmallFiles(catalog, open_storage(), fresh("t"))
    table.append(this_hour() - 3, 1)
    waits, late, orphan = (
        local_path(table.state.location) / f"data/{name}.parquet" for name in ("waits", "late", "orphan")
    )
    for path in (waits, late, orphan):
        path.write_bytes(b"x")
        os.utime(path, (LONG_AGO_S, LONG_AGO_S))
    queue, hour_ms = DeletionQueue(catalog), 3_600_000
    at_ms = epoch_ms(datetime.now(UTC)) + hour_ms

    queue.add([(f"file://{waits}", table.name, table.state.uuid)], at_ms)
    orphans = orphans_of(catalog, table)
    assert set(orphans.files) == {f"file://{late}", f"file://{orphan}"}
    queue.add([(f"file://{late}", table.name, table.state.uuid)], at_ms)
    assert delete_orphans(catalog, table.storage, orphans, Throttle(1_000)) == 1
    assert [path.exists() for path in (waits, late, orphan)] == [True, True, False]
    assert orphans_of(catalog, table).files == ()


def test_folders_that_were_emptied_long_ago_go_with_orphans(catalog: CatalogClient) -> None:
    """On a disk each hour leaves one. Those with anything in them stay, and so does one that is new; nothing
    goes where nothing is to be deleted."""
    table = SmallFiles(catalog, open_storage(), fresh("t"))
    table.append(this_hour() - 3, 1)
    data = local_path(table.state.location) / "data"
    empty, young, above = data / "1", data / "2", data / "3" / "below"
    for folder in (empty, young, above):
        folder.mkdir(parents=True)
    for folder in (above, empty, above.parent, *(path for path in data.iterdir() if path != young)):
        os.utime(folder, (LONG_AGO_S, LONG_AGO_S))
    full = {path.parent for path in data.rglob("*.parquet")}
    tasks = MaintenanceTasks(maintenance(catalog, [table.name]))
    assert list(tasks.orphans(delete=False)) == []
    assert empty.exists()
    assert list(tasks.orphans(delete=True)) == []
    assert not empty.exists()
    assert not above.exists()
    assert young.exists()
    assert above.parent.exists()  # it has just lost one: next time
    assert full
    assert all(folder.exists() for folder in full)
    table.append(this_hour() - 3, 1)
    assert missing_files(catalog, table.storage, table.name) == []


def test_a_catalog_that_cannot_say_what_is_queued_has_orphans_kept(
    catalog: CatalogClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An older one, while maintenance is newer."""
    table = SmallFiles(catalog, open_storage(), fresh("t"))
    table.append(this_hour() - 3, 1)
    orphan = local_path(table.state.location) / "data/orphan.parquet"
    orphan.write_bytes(b"x")
    os.utime(orphan, (LONG_AGO_S, LONG_AGO_S))
    tasks = MaintenanceTasks(maintenance(catalog, [table.name]))
    with monkeypatch.context() as older:
        older.setattr("lake.extras_client._QUEUED", "/firn/v1/no-such-route")
        ((kept, reason),) = tasks.orphans(delete=True)
    assert kept.files == ()
    assert "no-such-route" in reason
    assert orphan.exists()
    ((found, reason),) = tasks.orphans(delete=True)
    assert (len(found.files), reason) == (1, "")
    assert not orphan.exists()


def test_file_that_becomes_live_after_it_was_found_stays(catalog: CatalogClient) -> None:
    """A file that looked like an orphan and is committed before the deletion is looked up again, and stays;
    one beside it goes."""
    table = SmallFiles(catalog, open_storage(), fresh("t"))
    table.append(this_hour() - 3, 1)
    late, orphan = (local_path(table.state.location) / f"data/{name}.parquet" for name in ("late", "orphan"))
    for path in (late, orphan):
        path.write_bytes(b"x")
        os.utime(path, (LONG_AGO_S, LONG_AGO_S))
    found = orphans_of(catalog, table)
    assert len(found.files) == 2
    state = table.reload()
    prepared = prepare_append(
        state,
        [DataFile(f"file://{late}", this_hour() - 3, 1, 1)],
        state.schema,
        state.marks,
        state.updated_ms,
    )
    table.storage.write_all(prepared.files)
    (result,) = catalog.commit_all([prepared.request])
    assert result.status.value == "committed", result
    assert delete_orphans(catalog, table.storage, found, Throttle(1_000)) == 1
    assert late.exists()
    assert not orphan.exists()


def test_ten_thousand_files_in_all_spellings_no_live_one_goes_and_every_orphan_does(
    catalog: CatalogClient,
) -> None:
    """Metadata names 3,333 files in five spellings; of 10,000 that lie there exactly the other 6,667 are
    deleted, a dry look first."""
    storage = open_storage()
    table = SmallFiles(catalog, storage, fresh("t"))
    table.append(this_hour() - 3, 1)
    folder = local_path(table.state.location) / "data/region=eu west"
    folder.mkdir(parents=True)
    paths = [folder / f"part {at}.parquet" for at in range(10_000)]
    live = {path for at, path in enumerate(paths) if at % 3 == 1}
    for path in paths:
        path.write_bytes(b"")
        os.utime(path, (LONG_AGO_S, LONG_AGO_S))
    spelled = [SPELLINGS[at % len(SPELLINGS)](str(path)) for at, path in enumerate(sorted(live))]
    state = table.reload()
    prepared = prepare_append(
        state,
        [DataFile(uri, this_hour() - 3, 1, 1) for uri in spelled],
        state.schema,
        state.marks,
        state.updated_ms,
    )
    storage.write_all(prepared.files)
    (result,) = catalog.commit_all([prepared.request])
    assert result.status.value == "committed", result
    ((found, reason),) = MaintenanceTasks(
        maintenance(catalog, [table.name], retention__storage_requests_per_s_max=1e6)
    ).orphans(delete=False)
    assert (len(found.files), reason) == (6_667, "")
    assert len(list(folder.iterdir())) == 10_000
    list(
        MaintenanceTasks(
            maintenance(catalog, [table.name], retention__storage_requests_per_s_max=1e6)
        ).orphans(delete=True)
    )
    assert set(folder.iterdir()) == live
