"""Real tables whose cold hours are days and months: nothing is lost, whatever happens to them then."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from prometheus_client import REGISTRY
from pyiceberg.catalog import load_catalog
from pyroaring import BitMap64

from lake.catalog_client import CatalogClient, TableName
from lake.clock import SystemClock, epoch_ms
from lake.commit import RowDelta, load_state, prepare_replace, prepare_row_delta
from lake.deletes.row_delta import delete_rows
from lake.erasure_work import ErasureRequest, ErasureWork, pack_rows
from lake.extras_client import ExtrasClient
from lake.manifest import Status, write_manifest
from lake.relief import Bounds, prepare_relief
from lake.settings import OptimizeSettings
from lake.span import Span, Unit
from lake.storage import open_storage
from lake.table_layout import metadata_uri
from lake.table_version import Manifests, load_version
from optimize.cold_hours import ColdHours
from optimize.deletions import Throttle
from optimize.erase_rows import Tools
from optimize.erasures import Erasures
from optimize.explain import explain_table
from optimize.maintenance_tasks import MaintenanceTasks
from optimize.orphan_files import find_orphans
from optimize.printing import print_status
from optimize.table_view import TableView, load_view
from tests.optimize.support.delete_files import delete_positions
from tests.optimize.support.live_files import live_uris, missing_files, offsets_of
from tests.optimize.support.maintained import FixedClock, maintenance, utc
from tests.optimize.support.small_files import SmallFiles, hour_of, rows_of
from tests.stack.support.waiting import fresh

pytestmark = pytest.mark.stack
FIRST = utc(2025, 3, 1)
MARCH = Span.holding(Unit.MONTH, hour_of(FIRST))
DAY = Span.holding(Unit.DAY, hour_of(FIRST))
SECOND = Span(Unit.DAY, DAY.value + 1)


def table_of(
    catalog: CatalogClient, *hours: int, rows: int = 3, properties: Mapping[str, str] | None = None
) -> SmallFiles:
    """A table with a file of three rows in each of these hours, all in one commit."""
    table = SmallFiles(catalog, open_storage(), fresh("cold"), properties=properties)
    parts = {hour: rows_of(hour, at * rows, rows) for at, hour in enumerate(hours)}
    table.commit(parts, len(hours) * rows)
    return table


def maintain(
    table: SmallFiles, now: datetime, between: Callable[[], object] = lambda: None, **settings: Any
) -> TableView:
    """One round at that time, without a failure; the table after it."""
    report = maintenance(
        table.catalog, [table.name], clock=FixedClock(now), between=between, **settings
    ).run()
    assert report.failures == {}
    return view_of(table)


def view_of(table: SmallFiles) -> TableView:
    view = load_view(table.catalog, table.storage, table.name)
    assert view is not None
    return view


def files_of(view: TableView) -> dict[object, int]:
    return {at: len(partition.files) for at, partition in view.partitions().items()}


def index_of(table: SmallFiles) -> dict[str, tuple[int, int]]:
    """What the catalog knows of the table's partitions: files and rows."""
    rows = table.catalog.get("/firn/v1/dirty-partitions", pageSize="1000")["partitions"]
    own = [row for row in rows if row["identifier"]["namespace"] == [table.name.namespace]]
    return {row["partition"]: (row["data-files"], row["records"]) for row in own}


def test_hours_become_days_and_days_a_month(catalog: CatalogClient) -> None:
    """In one snapshot each, that replaces files; the default spec stays that of hours, both catalogs and
    PyIceberg see the same rows, and the marks are what they were."""
    hours = [*DAY.hours, *SECOND.hours[:5]]
    table = table_of(catalog, *hours)
    marks = table.reload().marks
    assert files_of(maintain(table, FIRST + timedelta(days=8, hours=-1))) == dict.fromkeys(hours, 1)
    view = maintain(table, FIRST + timedelta(days=8))
    assert files_of(view) == dict.fromkeys([DAY, *SECOND.hours[:5]], 1)
    assert view.snapshots[-1]["summary"]["operation"] == "replace"
    assert view.state.span_specs.known[Unit.DAY]["spec-id"] == 1
    assert index_of(table) == {
        DAY.path: (1, 72),
        **{f"timestamp_hour={SECOND}-{at:02d}": (1, 3) for at in range(5)},
    }
    before = len(view.snapshots)
    view = maintain(table, FIRST + timedelta(days=45))
    assert files_of(view) == {MARCH: 1}
    assert len(view.snapshots) == before + 1
    assert [spec["spec-id"] for spec in view.metadata["partition-specs"]] == [0, 1, 2]
    assert view.metadata["default-spec-id"] == 0
    assert index_of(table) == {MARCH.path: (1, 87)}
    body = {"identifier": table.name.to_json()}
    catalog.post("/firn/v1/dirty-partitions/recount", body)
    assert index_of(table) == {MARCH.path: (1, 87)}
    assert (table.reload().marks, offsets_of(table)) == (marks, list(range(87)))
    assert missing_files(catalog, table.storage, table.name) == []
    theirs = load_catalog("live", type="rest", uri=catalog.uri).load_table(tuple(table.name))
    assert sorted(theirs.scan().to_arrow().column("_offset").to_pylist()) == list(range(87))
    some = theirs.scan(row_filter=f"timestamp < '{(FIRST + timedelta(hours=5)).isoformat()}'").to_arrow()
    assert len(some) == 15
    assert maintain(table, FIRST + timedelta(days=46)).state.head == view.state.head


def test_the_retention_of_a_tenant_bounds_the_spans_of_its_tables(catalog: CatalogClient) -> None:
    """Of ten days a day is a tenth, of less its hours stay hours; what nobody understands deletes nothing,
    and bounds nothing."""
    for retention, files in (("240h", {DAY: 1}), ("239h", dict.fromkeys(DAY.hours, 1)), ("soon", {DAY: 1})):
        table = table_of(catalog, *DAY.hours)
        catalog.update_namespace(table.name.namespace, {"firn.retention": retention}, [])
        assert files_of(maintain(table, FIRST + timedelta(days=8))) == files, retention


def test_a_spec_that_is_there_is_used(catalog: CatalogClient) -> None:
    """Whatever id it has: somebody else has added months before."""
    table = table_of(catalog, *DAY.hours[:3])
    field = {"source-id": 1, "name": "timestamp_month", "transform": "month"}
    other = {"source-id": 1, "name": "by_year", "transform": "year"}
    updates = [{"action": "add-spec", "spec": {"fields": [each]}} for each in (other, field)]
    catalog.commit_all([{"identifier": table.name.to_json(), "requirements": [], "updates": updates}])
    view = maintain(table, FIRST + timedelta(days=60))
    assert files_of(view) == {MARCH: 1}
    assert len(view.metadata["partition-specs"]) == 3
    assert [m.spec_id for m in view.manifests if m.live_files] == [2]


def test_a_spec_that_somebody_adds_in_between_does_not_take_the_number(catalog: CatalogClient) -> None:
    """The commit was prepared for the next number; it is prepared again."""
    table = table_of(catalog, *DAY.hours[:3])
    spec = {"fields": [{"source-id": 1, "name": "by_year", "transform": "year"}]}
    request = {
        "identifier": table.name.to_json(),
        "requirements": [],
        "updates": [{"action": "add-spec", "spec": spec}],
    }
    view = maintain(table, FIRST + timedelta(days=8), between=lambda: catalog.commit_all([request]))
    assert files_of(view) == {DAY: 1}
    assert [m.spec_id for m in view.manifests if m.live_files] == [2]
    assert offsets_of(table) == list(range(9))


def test_late_rows_of_a_cold_day_are_written_into_its_file_after_its_rest(catalog: CatalogClient) -> None:
    """They come to an hour, as always, while the day is merged as well; deletes that come to the inputs
    meanwhile hold in the new file."""
    table, now = table_of(catalog, *DAY.hours[:4]), FIRST + timedelta(days=8)
    late = DAY.hours[2]
    view = maintain(table, now, between=lambda: table.append(late, 3))
    assert files_of(view) == {DAY: 1, late: 1}
    assert files_of(maintain(table, now + timedelta(hours=23))) == {DAY: 1, late: 1}
    (uri,) = (file.uri for file in view.partitions()[late].files)
    view = maintain(table, now + timedelta(days=1))
    assert files_of(view) == {DAY: 1}
    assert uri not in {file.uri for file in view.partitions()[DAY].files}
    assert offsets_of(table) == list(range(15))


def test_deleted_rows_stay_deleted_in_a_day(catalog: CatalogClient) -> None:
    """Those that were deleted before are left out; those that come while the day is made are deleted in its
    file, by a delete file of the day's own partition, and the next round leaves them out."""
    table, now = table_of(catalog, *DAY.hours[:4]), FIRST + timedelta(days=8)
    first, second = (view_of(table).partitions()[hour].files[0].uri for hour in DAY.hours[:2])
    delete_positions(table, DAY.hours[0], {first: [1]})
    view = maintain(table, now, between=lambda: delete_positions(table, DAY.hours[1], {second: [0, 2]}))
    assert files_of(view) == {DAY: 1}
    assert [(file.partition, file.rows) for files in view.delete_files().values() for file in files] == [
        (DAY, 2)
    ]
    assert view.state.totals.rows - view.state.totals.position_deletes == 9
    view = maintain(table, now + timedelta(days=1, hours=1))
    assert view.delete_files() == {}
    assert len(offsets_of(table)) == 9


def test_retention_takes_whole_spans_and_cuts_the_one_at_the_boundary(catalog: CatalogClient) -> None:
    """Of 30 days' retention: what is a minute too young stays; the dry run names the same files; a day goes
    whole once its end is past, without being read."""
    hours = [*DAY.hours, *SECOND.hours]
    table = table_of(catalog, *hours, properties={"firn.retention": "30d"})
    assert files_of(maintain(table, FIRST + timedelta(days=9))) == {DAY: 1, SECOND: 1}

    def retained(now: datetime) -> TableView:
        tasks = MaintenanceTasks(maintenance(catalog, [table.name], clock=FixedClock(now)))
        would, went = list(tasks.retention(dry_run=True)), list(tasks.retention())
        assert [(each.files, each.cut) for each in would] == [(each.files, each.cut) for each in went]
        assert not any(each.reason for each in went)
        return view_of(table)

    def kept() -> list[int]:
        return [at // 3 for at in offsets_of(table)[::3]]

    view = retained(FIRST + timedelta(days=30, hours=5, minutes=59))
    assert files_of(view) == {DAY: 1, SECOND: 1}
    assert kept() == list(range(5, 48))
    assert view.snapshots[-1]["summary"]["operation"] == "overwrite"
    assert view.state.totals.rows == 43 * 3
    head = view.state.head
    assert retained(FIRST + timedelta(days=30, hours=5, minutes=59)).state.head == head
    view = retained(FIRST + timedelta(days=31, hours=1))
    assert files_of(view) == {SECOND: 1}
    assert kept() == list(range(25, 48))
    view = retained(FIRST + timedelta(days=32))
    assert files_of(view) == {}
    assert view.snapshots[-1]["summary"]["operation"] == "delete"
    assert missing_files(catalog, table.storage, table.name) == []
    assert index_of(table) == {}


def test_the_daily_run_writes_no_day_anew(catalog: CatalogClient) -> None:
    """At whatever hour of the day it comes, it takes what was past the retention at midnight, which are whole
    days; it comes once a day, also where less than 24 hours lie between."""
    table = table_of(catalog, *DAY.hours, *SECOND.hours, properties={"firn.retention": "30d"})
    view = maintain(table, FIRST + timedelta(days=9))

    ExtrasClient(catalog).remove_task("optimize.duty:retention")  # other tests live in other years

    def daily(now: datetime) -> TableView:
        MaintenanceTasks(maintenance(catalog, [table.name], clock=FixedClock(now))).run_due()
        return view_of(table)

    files = {value: each.files[0].uri for value, each in view.partitions().items()}
    later = daily(FIRST + timedelta(days=30, hours=22))
    assert {value: each.files[0].uri for value, each in later.partitions().items()} == files
    later = daily(FIRST + timedelta(days=31, hours=3))
    assert [each.files[0].uri for each in later.partitions().values()] == [files[SECOND]]
    assert later.snapshots[-1]["summary"]["operation"] == "delete"
    daily(FIRST + timedelta(days=31, hours=23, minutes=59))
    assert files_of(view_of(table)) == {SECOND: 1}
    assert files_of(daily(FIRST + timedelta(days=32, minutes=1))) == {}


def test_rows_past_the_retention_go_also_where_others_of_the_file_are_deleted(catalog: CatalogClient) -> None:
    """What is deleted while the file is cut is deleted in the new one."""
    table = table_of(catalog, *DAY.hours, properties={"firn.retention": "30d"})
    view = maintain(table, FIRST + timedelta(days=9))
    (file,) = view.partitions()[DAY].files
    _delete_in(table, file.uri, [0, 40])
    now = FIRST + timedelta(days=30, hours=6)
    tasks = MaintenanceTasks(
        maintenance(
            catalog,
            [table.name],
            clock=FixedClock(now),
            between=lambda: _delete_in(table, file.uri, [71]),
        )
    )
    (went,) = tasks.retention()
    assert (went.reason, went.rows) == ("", 6 * 3 + 1)
    view = view_of(table)
    assert view.state.totals.rows - view.state.totals.position_deletes == 18 * 3 - 2
    assert {file.rows for files in view.delete_files().values() for file in files} == {1}
    assert missing_files(catalog, table.storage, table.name) == []


def _delete_in(table: SmallFiles, uri: str, places: list[int]) -> None:
    """Deletes rows of a day's file, as an engine does it: in the file's own partition."""
    state = load_state(table.catalog, table.storage, table.name)
    assert state is not None
    (file,) = (f for p in view_of(table).partitions().values() for f in p.files if f.uri == uri)
    deletes = delete_rows(table.storage, state, [(file, BitMap64(places))])
    prepared = prepare_row_delta(
        state, RowDelta((), deletes.entries, deletes.kept), state.schema, state.marks, state.updated_ms
    )
    table.storage.write_all([*deletes.written, *prepared.files])
    (result,) = table.catalog.commit_all([prepared.request])
    assert result.status.value == "committed", result


def test_an_erasure_writes_the_file_of_a_day_anew(catalog: CatalogClient) -> None:
    """Into the same partition, beside hours of the same table."""
    table = table_of(catalog, *DAY.hours, SECOND.hours[0])
    maintain(table, FIRST + timedelta(days=8))
    version = load_version(catalog, Manifests(table.storage), table.name)
    assert version is not None
    wanted = {uri: pack_rows([0, 2]) for uri in version.data}
    request = ErasureRequest(fresh("r"), table.name, version.state.uuid, wanted, 3_600_000)
    ErasureWork(catalog).ask(request)
    assert Erasures(Tools(catalog, open_storage(), SystemClock()), ErasureWork(catalog)).run() == 1
    answer = ErasureWork(catalog).answer(request.id)
    assert answer is not None
    assert (answer.problem, answer.rows, answer.files_rewritten) == (None, 4, 2)
    view = view_of(table)
    assert files_of(view) == {DAY: 1, SECOND.hours[0]: 1}
    assert sorted(m.spec_id for m in view.manifests) == [0, 1]
    assert len(offsets_of(table)) == 75 - 4
    assert {DAY.path} < index_of(table).keys()
    assert missing_files(catalog, table.storage, table.name) == []


def test_a_table_that_is_set_back_to_its_hours_has_all_its_files(catalog: CatalogClient) -> None:
    """While a snapshot is kept its files stay; then expiry and the search for orphans find what nobody
    reaches, and nothing else."""
    table = table_of(catalog, *DAY.hours)
    hours = {file.uri for p in view_of(table).partitions().values() for file in p.files}
    back_to = view_of(table).state.head
    cold = maintain(table, FIRST + timedelta(days=8))
    days = {file.uri for p in cold.partitions().values() for file in p.files}
    update = {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": back_to}
    (result,) = catalog.commit_all(
        [{"identifier": table.name.to_json(), "requirements": [], "updates": [update]}]
    )
    assert result.status.value == "committed", result
    view = view_of(table)
    assert files_of(view) == dict.fromkeys(DAY.hours, 1)
    assert offsets_of(table) == list(range(72))
    again = maintain(table, FIRST + timedelta(days=8))
    assert files_of(again) == {DAY: 1}
    assert offsets_of(table) == list(range(72))
    maintain(table, FIRST + timedelta(days=9), snapshots__count_max=1, snapshots__age_max_s=1.0)
    assert missing_files(catalog, table.storage, table.name) == []
    now = SystemClock().now() + timedelta(days=1)
    found = find_orphans(
        catalog,
        table.storage,
        table.name,
        Throttle(1_000),
        age_min_s=0,
        now=now,
        metadata=catalog.load_table(table.name)["metadata"],
    )
    assert found is not None
    reached = live_uris(catalog, table.storage, table.name)
    orphans = {uri for uri in found.files if "/data/" in uri}
    assert orphans.isdisjoint(reached)
    left = {uri for uri in hours | days if table.storage.size(uri) is not None}
    # What nobody reaches waits for the readers' grace.
    assert left - reached == orphans | ExtrasClient(catalog).queued_deletions(sorted(left))


def test_a_merge_that_dies_before_its_commit_leaves_the_hours(catalog: CatalogClient) -> None:
    """The next round does it again; the files of the first are orphans."""
    table, now = table_of(catalog, *DAY.hours), FIRST + timedelta(days=8)

    class KilledError(Exception):
        """Stands for SIGKILL."""

    def killed() -> None:
        raise KilledError

    with pytest.raises(KilledError):
        maintain(table, now, between=killed)
    view = view_of(table)
    assert files_of(view) == dict.fromkeys(DAY.hours, 1)
    assert not view.state.span_specs.known
    assert files_of(maintain(table, now)) == {DAY: 1}
    assert offsets_of(table) == list(range(72))


def test_manifests_are_gathered_by_spec(catalog: CatalogClient) -> None:
    """By ingestion's relief as by maintenance: entries of one spec go into one manifest, numbers and files
    stay."""
    days = [Span(Unit.DAY, DAY.value + at) for at in range(10)]
    table = table_of(catalog, *(day.hours[0] for day in days), *(day.hours[1] for day in days))
    view = maintain(table, FIRST + timedelta(days=17))
    assert files_of(view) == dict.fromkeys(days, 1)
    state = view.state
    for at in range(9):  # a manifest for each of nine days, and of nine hours
        entries = list(view.live_entries(view.manifests[-1]))
        one, rest = entries[:1], entries[1:]
        kept = list(view.manifests[:-1])
        prepared = prepare_replace(state, one, (), (), [*kept, *_rewritten(table, view, rest, at)], 0)
        _commit(table, prepared)
        table.append(days[-1].hours[5] + 24 + at, 1)
        view = view_of(table)
        state = view.state
    specs = [m.spec_id for m in view.manifests]
    assert min(specs.count(0), specs.count(1)) >= 9
    metadata = catalog.load_table(table.name)["metadata"]
    relief = prepare_relief(metadata, state, table.storage, Bounds(1_000, 8), 0)
    assert relief is not None
    _commit(table, relief)
    after = view_of(table)
    assert len(after.manifests) < 6
    assert {m.spec_id for m in after.manifests} == {0, 1}
    assert files_of(after) == files_of(view)
    assert missing_files(catalog, table.storage, table.name) == []


def _rewritten(table: SmallFiles, view: TableView, entries: list[Any], at: int) -> list[Any]:
    """The other entries of a manifest in one of their own."""
    if not entries:
        return []
    existing = [replace(entry, status=Status.EXISTING) for entry in entries]
    uri = metadata_uri(view.state.location, f"{fresh('m')}-{at}.avro")
    data, line = write_manifest(
        uri,
        existing,
        schema=view.state.schema.json,
        spec=view.state.span_specs.known[Unit.DAY],
        snapshot_id=view.manifests[-1].snapshot_id,
        sequence_number=view.manifests[-1].sequence_number,
    )
    table.storage.write_all([(uri, data)])
    return [line]


def _commit(table: SmallFiles, prepared: Any) -> None:
    table.storage.write_all(list(prepared.files))
    (result,) = table.catalog.commit_all([prepared.request])
    assert result.status.value == "committed", result
    table.reload()


def test_cold_hours_of_all_tables_are_found_by_one_question(catalog: CatalogClient) -> None:
    """Once in `cold.interval_s`; what is done is in no further answer, what stays as it is is looked at again
    after a day, and a late hour at once. A round over the whole catalog makes the days."""
    quiet = table_of(catalog, *DAY.hours)
    kept = table_of(catalog, *DAY.hours[:2], properties={"firn.retention": "9d"})
    large = table_of(catalog, *DAY.hours[:2], properties={"write.target-file-size-bytes": "100"})
    ours, now = {quiet.name, kept.name, large.name}, FIRST + timedelta(days=8)
    settings = OptimizeSettings.load(catalog__uri=catalog.uri)
    cold = ColdHours(catalog, settings)

    def looked_at(later: timedelta = timedelta(), unfinished: Sequence[str] = ()) -> dict[TableName, Span]:
        found = {each.table: span for span, each in cold.spans(epoch_ms(now + later)) if each.table in ours}
        cold.settle(unfinished)
        return found

    assert looked_at() == dict.fromkeys(ours, DAY)
    assert looked_at(timedelta(hours=5)) == {}
    maintain(quiet, now)
    assert looked_at(timedelta(hours=6), [str(large.name)]) == {}
    assert looked_at(timedelta(hours=6)) == {large.name: DAY}
    quiet.append(DAY.hours[3], 3)
    assert looked_at(timedelta(hours=12)) == {quiet.name: DAY}
    assert looked_at(timedelta(hours=24)) == {kept.name: DAY}
    report = maintenance(catalog, clock=FixedClock(now + timedelta(days=2))).run()
    assert {str(each) for each in ours}.isdisjoint(report.failures)
    assert files_of(view_of(quiet)) == {DAY: 1}
    assert files_of(view_of(kept)) == files_of(view_of(large)) == dict.fromkeys(DAY.hours[:2], 1)
    found = {(each.table, span) for span, each in ColdHours(catalog, settings).spans(epoch_ms(now))}
    assert {table for table, span in found if table in ours} == {kept.name, large.name}


def test_explain_and_status_name_days_and_months(
    catalog: CatalogClient, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is due, what is done; the metric counts the files that went into them."""
    table, now = table_of(catalog, *DAY.hours, *SECOND.hours), FIRST + timedelta(days=8)
    before = _counted("day")
    due = maintenance(catalog, [table.name], clock=FixedClock(now))
    told = explain_table(due, view_of(table))
    assert f"day {DAY}: 24 files" in " ".join(told)
    assert "cold: 1 days, 1 of them due, 0 done" in told
    print_status(due)
    assert re.search(
        r"cold hours and days that may become one file: of [1-9]\d* days", capsys.readouterr().out
    )
    maintain(table, now)
    assert _counted("day") - before == 24
    assert "cold: 1 days, 0 of them due, 1 done" in explain_table(due, view_of(table))


def _counted(span: str) -> float:
    return REGISTRY.get_sample_value("firn_optimize_cold_files_total", {"span": span}) or 0.0
