"""Legal holds: maintenance takes nothing that one is on, and says which."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lake.catalog_client import CatalogClient, TableName
from lake.data_file import POSITION_DELETES, DataFile
from lake.erasure_work import ErasureAnswer, ErasureRequest, ErasureWork, pack_rows
from lake.extras_client import ExtrasClient
from lake.holds import Hold, TableHolds
from lake.retention import MS_PER_HOUR
from lake.span import Span, Unit
from lake.storage import open_storage
from optimize.erase_rows import RowErasure, Tools
from optimize.maintenance_tasks import MaintenanceTasks
from optimize.retention import Expired, expired_files
from optimize.table_view import Partition, load_view
from tests.optimize.support.live_files import live_files, offsets_of
from tests.optimize.support.maintained import FixedClock, maintenance
from tests.optimize.support.small_files import SmallFiles, this_hour
from tests.optimize.test_cold_tables import DAY, FIRST, maintain, table_of
from tests.stack.support.waiting import fresh

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NAME = TableName("a", "b")


def at(hour: float) -> datetime:
    return EPOCH + timedelta(hours=hour)


def held(*holds: Hold) -> TableHolds:
    return TableHolds(holds)


@given(
    st.lists(st.integers(0, 300), unique=True, max_size=40),
    st.lists(st.tuples(st.integers(0, 300), st.integers(1, 60)), max_size=3),
)
def test_of_what_is_past_the_retention_just_the_hours_of_holds_stay(
    hours: list[int], ranges: list[tuple[int, int]]
) -> None:
    """Overlapping holds or not; delete files stay with the data that they are about."""
    partitions = [Partition(hour, (DataFile(f"file:///{hour}", hour, 1, 1),)) for hour in hours]
    deletes = [DataFile(f"file:///{hour}-deletes", hour, 1, 1, content=POSITION_DELETES) for hour in hours]
    holds = held(*(Hold("h", start=at(first), end=at(first + count)) for first, count in ranges))
    expired = expired_files(NAME, partitions, deletes, 100, 300 * MS_PER_HOUR, time_id=1, holds=holds)
    spared = {hour for first, count in ranges for hour in range(first, first + count)}
    past = {hour for hour in hours if hour < 200}
    assert {file.hour for file in expired.data_files} == past - spared
    assert {file.hour for file in expired.files if file.content == POSITION_DELETES} == past - spared
    assert {file.hour for file in expired.held} == past & spared


@pytest.mark.parametrize(
    ("start", "end", "stays"),
    [
        (47.9, 48, ["cut"]),  # the last of the hours that would be cut away
        (48, 60, []),  # only of those that stay anyway
        (0, 0.1, ["whole", "cut"]),
        (24, 24.1, ["cut"]),
        (-5, 0, []),
    ],
)
def test_a_day_of_which_a_moment_that_would_go_is_held_stays_whole(
    start: float, end: float, stays: list[str]
) -> None:
    """Also the one at the boundary, of which nothing is cut away then."""
    whole, cut = (
        DataFile(f"file:///{name}", None, 1, 1, span=span)
        for name, span in (("whole", Span(Unit.DAY, 0)), ("cut", Span(Unit.MONTH, 0)))
    )
    partitions = [Partition(Span(Unit.DAY, 0), (whole,)), Partition(Span(Unit.MONTH, 0), (cut,))]
    holds = held(Hold("h", start=at(start), end=at(end)))
    expired = expired_files(NAME, partitions, [], 100, 148 * MS_PER_HOUR, time_id=1, holds=holds)
    names = [file.uri.removeprefix("file:///") for file in expired.held]
    assert names == stays
    assert [file.uri for file in (*expired.data_files, *expired.cut)] == [
        f"file:///{name}" for name in ("whole", "cut") if name not in stays
    ]


def hold(catalog: CatalogClient, table: SmallFiles, **fields: Any) -> str:
    """A hold on the table's tenant; its id."""
    asked = {"stream": None, "start": None, "end": None, "reason": "case 7", **fields}
    return ExtrasClient(catalog).set_hold(table.name.namespace, **asked).id


def retention(
    catalog: CatalogClient, table: SmallFiles, between: Callable[[], object] = lambda: None, **more: Any
) -> list[Expired]:
    m = maintenance(catalog, [table.name], between=between, **more)
    return list(MaintenanceTasks(m).retention())


@pytest.mark.stack
def test_retention_takes_what_is_outside_of_a_hold_and_names_it(catalog: CatalogClient) -> None:
    """The held hour stays with its rows, others past the retention go; lifted, it goes like any other."""
    table = SmallFiles(catalog, open_storage(), fresh("t"), properties={"firn.retention": "24h"})
    hours = [this_hour() - ago for ago in (2, 26, 40, 50)]
    for hour in hours:
        table.append(hour, 10)
    made = hold(catalog, table, stream="logs", start=at(hours[2] + 0.5), end=at(hours[2] + 0.6))
    other = hold(catalog, table, stream="another")
    (would,) = MaintenanceTasks(maintenance(catalog, [table.name])).retention(dry_run=True)
    (went,) = retention(catalog, table)
    assert (went.rows, went.reason, went.files) == (20, "", would.files)
    assert [one.hour for one in went.held] == [one.hour for one in would.held] == [hours[2]]
    assert [one.id for one in went.holds.holds] == [made]
    assert set(live_files(catalog, table.storage, table.name)) == {hours[0], hours[2]}
    (still,) = retention(catalog, table)
    assert (still.rows, len(still.held)) == (0, 1)
    ExtrasClient(catalog).lift_hold(table.name.namespace, made)
    (went,) = retention(catalog, table)
    assert (went.rows, went.held) == (10, ())
    ExtrasClient(catalog).lift_hold(table.name.namespace, other)


@pytest.mark.stack
def test_a_hold_of_the_last_minute_that_maintenance_has_not_heard_of_keeps_everything(
    catalog: CatalogClient,
) -> None:
    """What is remembered of all tenants is no answer to what the catalog asserts."""
    table = SmallFiles(catalog, open_storage(), fresh("t"), properties={"firn.retention": "24h"})
    table.append(this_hour() - 40, 10)
    tasks = MaintenanceTasks(maintenance(catalog, [table.name]))
    (would,) = tasks.retention(dry_run=True)
    made = hold(catalog, table)
    (refused,) = tasks.retention()
    assert (would.rows, would.held) == (10, ())
    assert "have changed meanwhile" in refused.reason
    assert len(offsets_of(table)) == 10
    tasks.maintenance.policies.forget()
    (held_back,) = tasks.retention()
    assert (held_back.rows, [one.id for one in held_back.holds.holds]) == (0, [made])
    ExtrasClient(catalog).lift_hold(table.name.namespace, made)


@pytest.mark.stack
def test_a_hold_that_is_set_while_retention_works_keeps_everything(catalog: CatalogClient) -> None:
    """Between the look at the holds and the commit: the catalog refuses it, and the files written for it
    go."""
    hours = list(DAY.hours)
    table = table_of(catalog, *hours, properties={"firn.retention": "30d"})
    maintain(table, FIRST + timedelta(days=8))
    before = offsets_of(table)
    moment = FIRST + timedelta(days=30, hours=12, minutes=1)
    (refused,) = retention(catalog, table, between=lambda: hold(catalog, table), clock=FixedClock(moment))
    assert "have changed meanwhile" in refused.reason
    assert offsets_of(table) == before
    (kept,) = retention(catalog, table, clock=FixedClock(moment))
    assert (kept.files, kept.cut, len(kept.held)) == ((), (), 1)


@pytest.mark.stack
def test_a_held_table_is_not_purged_and_the_others_are(catalog: CatalogClient) -> None:
    """One that was dropped before; the purge says which hold keeps it, also where it is set at the last
    moment."""
    tables = [SmallFiles(catalog, open_storage(), fresh("t")) for _ in range(3)]
    for table in tables:
        table.append(this_hour(), 10)
        catalog.drop_table(table.name, purge=True)
    own = {table.name.dotted for table in tables}
    made = hold(catalog, tables[0])
    tasks = MaintenanceTasks(maintenance(catalog, retention__purge_after_s=0))
    would = {dropped.name: dropped.refusal for dropped, _ in tasks.purge(dry_run=True)}
    assert made in would[tables[0].name.dotted]
    assert would[tables[1].name.dotted] == ""
    found: dict[str, tuple[str, int]] = {}
    for dropped, files in tasks.purge():
        if dropped.name in own:
            found[dropped.name] = dropped.refusal, files
            if len(found) == 2:  # the third is on the list of this purge already
                late = hold(catalog, tables[2])
    assert made in found[tables[0].name.dotted][0]
    assert found[tables[1].name.dotted][0] == ""
    assert found[tables[1].name.dotted][1] > 0
    assert late in found[tables[2].name.dotted][0]
    for table in (tables[0], tables[2]):
        assert list(table.storage.list(table.state.location))


@pytest.mark.stack
@pytest.mark.parametrize("set_late", [False, True])
def test_rows_under_a_hold_are_not_erased(
    catalog: CatalogClient, set_late: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever asked; also where the hold is set just before the commit. Those of another time are."""
    table = SmallFiles(catalog, open_storage(), fresh("t"))
    held_hour, free_hour = this_hour() - 10, this_hour() - 5
    for hour in (held_hour, free_hour):
        table.append(hour, 10)
    before = offsets_of(table)

    def set_hold() -> None:
        hold(catalog, table, start=at(held_hour), end=at(held_hour + 1))

    def asserts(erasure: RowErasure) -> Any:
        found = original(erasure)
        set_hold()
        return found

    original = RowErasure._asserts
    if set_late:
        monkeypatch.setattr(RowErasure, "_asserts", asserts)
    else:
        set_hold()
    with pytest.raises(
        Exception, match="have changed meanwhile" if set_late else "nothing is erased .*case 7"
    ):
        erase(catalog, table, held_hour)
    assert offsets_of(table) == before
    monkeypatch.undo()
    assert erase(catalog, table, free_hour).rows == 3
    assert len(offsets_of(table)) == len(before) - 3


def erase(catalog: CatalogClient, table: SmallFiles, hour: int) -> ErasureAnswer:
    """The first three rows of an hour go."""
    view = load_view(catalog, table.storage, table.name)
    assert view is not None
    (file,) = view.partitions()[hour].files
    request = ErasureRequest(
        fresh("erasure"),
        table.name,
        table.reload().uuid,
        {file.uri: pack_rows([0, 1, 2])},
        0,
        at(hour),
        at(hour + 1),
    )
    tools = Tools(catalog, table.storage, FixedClock(datetime.now(UTC)))
    work = ErasureWork(catalog)
    return RowErasure(tools, request, ErasureAnswer(request.id), work.save).erase()
