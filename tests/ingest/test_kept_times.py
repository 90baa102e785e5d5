"""Records that are past the retention of their table: dead letters, just where maintenance would delete their
rows in its next round."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import orjson
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.convert.batched import Waiting, convert_batched
from ingest.convert.converter import convert
from ingest.convert.kept_times import KeptTimes
from ingest.convert.terms import TimeLimits
from ingest.convert.work import ConverterLimits
from ingest.dead_letters.dead_letter import DeadLetters
from ingest.model.link import TableView
from ingest.model.source import Source
from ingest.model.table_retention import TableRetention
from ingest.route.buffer import RawRecord, TableBuffer
from ingest.write import catalog_retentions
from ingest.write.catalog_retentions import CatalogRetentions
from ingest.write.flush_writer import Flush, FlushWriter
from lake.catalog_client import CatalogClient, TableName
from lake.clock import epoch_ms
from lake.data_file import DataFile
from lake.holds import Hold, TableHolds, spell_holds
from lake.log_schema import new_log_schema
from lake.marks import NO_MARKS, TopicPartition
from lake.retention import MS_PER_HOUR, Level, Retention
from lake.settings import IngestSettings
from lake.storage import local_path, open_storage
from lake.table_layout import US_PER_HOUR
from lake.tenant import TableId, TenantId
from optimize.retention import expired_files
from optimize.table_view import Partition
from tests.ingest.support.conversion import ANY_TIME
from tests.ingest.support.fake_clock import START, FakeClock
from tests.ingest.support.fake_kafka import FakeBroker
from tests.ingest.support.fake_link import FakeLink

TABLE = TableId(TenantId("acme"), "logs")
SOURCES = [Source("topic", "id", 0, "auto")]
SAID = {"firn.tenant": "acme"}
NOW = START + timedelta(seconds=FakeClock.s)
HOUR = timedelta(hours=1)


class Told:
    """Who tells what a test says; `now`: what the table itself says by now, where that is another thing."""

    def __init__(self, hours: int | None, *holds: Hold) -> None:
        self.before = TableRetention(Retention(hours, Level.TENANT), holds)
        self.now = self.before
        self.asked: list[bool] = []

    def says_now(self, hours: int | None) -> "Told":
        self.now = TableRetention(Retention(hours, Level.STREAM), self.before.holds)
        return self

    def retention(self, table: TableId, said: Mapping[str, str], *, anew: bool) -> TableRetention:
        assert (table, said) == (TABLE, SAID)
        self.asked.append(anew)
        return self.now if anew else self.before

    def kept(self, now: datetime = NOW) -> KeptTimes:
        return KeptTimes(TABLE, SAID, self, epoch_ms(now))


def us(*moments: datetime) -> Any:
    return np.array([epoch_ms(each) * 1_000 for each in moments], np.int64)


def late(kept: KeptTimes, *moments: datetime) -> list[bool]:
    found = kept.late(us(*moments))
    return [False] * len(moments) if found is None else [bool(each) for each in found]


@given(
    st.lists(st.integers(0, 400 * 3_600), min_size=1, max_size=30),
    st.integers(1, 300),
    st.integers(0, MS_PER_HOUR - 1),
    st.lists(st.tuples(st.integers(0, 400 * 60), st.integers(1, 3_000)), max_size=2),
)
def test_a_row_is_late_just_where_maintenance_would_delete_it(
    seconds: list[int], hours: int, past_ms: int, ranges: list[tuple[int, int]]
) -> None:
    """The same whole hours, to the millisecond, with and without legal holds."""
    base = datetime(2026, 1, 1, tzinfo=UTC)
    now_ms = epoch_ms(base) + 400 * MS_PER_HOUR + past_ms
    holds = [
        Hold("h", start=base + timedelta(minutes=first), end=base + timedelta(minutes=first + count))
        for first, count in ranges
    ]
    moments = [base + timedelta(seconds=each) for each in seconds]
    times = us(*moments)
    found = Told(hours, *holds).kept(datetime.fromtimestamp(now_ms / 1_000, UTC)).late(times)
    of_rows = [int(each) // US_PER_HOUR for each in times]
    partitions = [
        Partition(hour, (DataFile(f"file:///{hour}", hour, 1, 1),)) for hour in sorted(set(of_rows))
    ]
    expired = expired_files(
        TableName("acme", "logs"), partitions, [], hours, now_ms, time_id=1, holds=TableHolds(tuple(holds))
    )
    gone = {file.hour for file in expired.data_files}
    is_late = [False] * len(times) if found is None else found.tolist()
    assert is_late == [hour in gone for hour in of_rows]


def test_the_first_moment_of_an_hour_is_of_that_hour() -> None:
    """To the microsecond."""
    first = us(NOW.replace(minute=0, second=0) - 24 * HOUR)
    kept = Told(24).kept()
    assert kept.late(first) is None
    assert kept.late(np.concatenate((first, first - 1))).tolist() == [False, True]


def test_nobody_is_asked_while_nothing_is_older_than_an_hour() -> None:
    """Then the catalog is, and the table itself only where a record would be turned away."""
    told = Told(24)
    kept = told.kept()
    assert late(kept, NOW - HOUR, NOW + HOUR) == [False, False]
    assert told.asked == []
    assert late(kept, NOW - 2 * HOUR) == [False]
    assert told.asked == [False]
    assert late(kept, NOW - 2 * HOUR, NOW - 26 * HOUR) == [False, True]
    assert late(kept, NOW - 26 * HOUR) == [True]
    assert told.asked == [False, True]


@pytest.mark.parametrize(("says_now", "is_late"), [(None, False), (48, False), (24, True), (1, True)])
def test_what_the_table_says_by_now_counts_where_it_is_longer(says_now: int | None, is_late: bool) -> None:
    """A shorter one does not reach behind what was found before: those records have been passed already."""
    kept = Told(24).says_now(says_now).kept()
    assert late(kept, NOW - 2 * HOUR) == [False]
    assert late(kept, NOW - 26 * HOUR) == [is_late]
    assert late(kept, NOW - 2 * HOUR) == [False]


class Writer:
    """A worker's writer of one table that a test fills."""

    def __init__(self, folder: Path, broker: FakeBroker, told: Told, late: float | str = "accept") -> None:
        settings = IngestSettings().changed(limits__late=late)
        self._broker, self._letters = broker, settings.internal_topics.dead_letters
        broker.create_topic(self._letters)
        self.clock = FakeClock()
        letters = DeadLetters(settings, open_storage(), f"file://{folder}")
        self.writer = FlushWriter(
            settings, FakeLink(), letters, open_storage(), retentions=told, clock=self.clock
        )
        schema = orjson.dumps(new_log_schema().json)
        self.view = TableView("u", f"file://{folder}/t", schema, NO_MARKS, said=SAID)
        self.buffer, self.offset = TableBuffer(TABLE, 0.0), 0

    def add(self, *values: bytes) -> None:
        for value in values:
            self.buffer.add(*RawRecord(0, self.offset, epoch_ms(NOW), None, (), value))
            self.offset += 1

    def write(self) -> list[int]:
        """Offsets of the rows that are written."""
        flush = Flush(
            TABLE, self.buffer, {TopicPartition("id", 0): self.offset}, hot=self.writer.take_hot(TABLE)
        )
        written = self.writer.write([flush], SOURCES, {TABLE: self.view})
        assert written.stuck == []
        files = [file for one in written.flushes for file in one.files]
        return sorted(
            row for f in files for row in pq.read_table(local_path(f.uri)).column("_offset").to_pylist()
        )

    def dead(self) -> list[tuple[int, int | None, str, str]]:
        """Offset, index, reason and detail of the dead letters."""
        found = []
        for message in self._broker.messages(self._letters):
            headers = {name: value.decode() for name, value in message.headers()}
            index = headers.get("firn.index")
            place = int(headers["firn.offset"]), None if index is None else int(index)
            found.append((*place, headers["firn.reason"], headers["firn.detail"]))
        return found


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> FakeBroker:
    made = FakeBroker()
    made.install(monkeypatch)
    return made


def record(at: datetime) -> bytes:
    return orjson.dumps({"time": at.isoformat(), "message": "m"})


OLD, OLDER = NOW - 30 * HOUR, NOW - 60 * HOUR


def test_late_records_become_dead_letters_and_no_rows(tmp_path: Path, broker: FakeBroker) -> None:
    """Single ones and such as come with others in a message, those of Kafka's own time too; with event time,
    limit and table. Under a hold they are rows."""
    writer = Writer(tmp_path, broker, Told(24, Hold("h", start=OLDER - HOUR, end=OLDER + HOUR)))
    writer.add(record(NOW), record(OLD), record(OLDER), record(NOW) + b"\n" + record(OLD))
    writer.buffer.add(*RawRecord(0, 4, epoch_ms(OLD), None, (), b'{"message":"told no time"}'))
    assert writer.write() == [0, 2, 3]
    dead = sorted(writer.dead())
    assert [each[:3] for each in dead] == [
        (1, None, "past_retention"),
        (3, 1, "past_retention"),
        (4, None, "past_retention"),
    ]
    detail = dead[0][3]
    assert detail == (
        "happened 2025-12-30T18:01:40+00:00; acme.logs keeps rows from 2025-12-31T00:00:00+00:00 on "
        "(1d, as the tenant says)"
    )
    assert writer.writer.take_counts().dead == {"past_retention": 3}


def test_a_record_that_is_late_twice_over_is_one_dead_letter(tmp_path: Path, broker: FakeBroker) -> None:
    """By what its Kafka timestamp says first."""
    writer = Writer(tmp_path, broker, Told(24), late=3_600.0)
    writer.add(record(OLD), record(NOW))
    assert writer.write() == [1]
    assert [each[2] for each in writer.dead()] == ["too_late"]


@pytest.mark.parametrize("waits", ["as it came", "in a file", "packed", "all packed"])
def test_a_flush_that_is_written_again_turns_the_same_records_away(
    tmp_path: Path, broker: FakeBroker, waits: str
) -> None:
    """Whatever the clock says by then, and whoever has said what of retention meanwhile: no record is a row
    and a dead letter, and none neither."""
    told = Told(24)
    writer = Writer(tmp_path, broker, told)
    young = NOW - 20 * HOUR
    writer.add(record(young), record(OLD))
    if waits == "in a file":
        writer.writer.append(writer.buffer, SOURCES, writer.view)
    if waits != "as it came":
        writer.buffer.close_part()
        writer.buffer.pack()
    if waits in ("in a file", "packed"):
        writer.add(record(young), record(OLD))
    rows = writer.write()
    dead = [each[0] for each in writer.dead()]
    assert (rows, dead) == (([0, 2], [1, 3]) if waits in ("in a file", "packed") else ([0], [1]))
    writer.clock.s += 5 * 3_600.0
    for hours in (1, None):
        told.before = told.now = TableRetention(Retention(hours, Level.LAKE))
        assert writer.write() == rows
        assert [each[0] for each in writer.dead()] == dead


def test_a_table_with_a_key_takes_changes_of_any_age(tmp_path: Path, broker: FakeBroker) -> None:
    """Its rows have no retention: nobody is asked."""
    told = Told(24)
    writer = Writer(tmp_path, broker, told)
    assert writer.writer._kept(writer.buffer, writer.view) is not None
    keyed = TableView("u", "file:///t", b"{}", NO_MARKS, key=object())  # type: ignore[arg-type]
    assert writer.writer._kept(writer.buffer, keyed) is None


@given(st.lists(st.lists(st.sampled_from([NOW, OLD, OLDER]), min_size=1, max_size=6), min_size=2, max_size=4))
def test_tables_converted_together_turn_away_what_each_would(tables: list[list[datetime]]) -> None:
    """By what each keeps itself."""
    told = [Told(None), Told(24), Told(48), Told(24, Hold("h", start=OLDER, end=OLDER + HOUR))]
    limits = ConverterLimits(100, 1_000, ANY_TIME)
    schema, waiting = new_log_schema(), []
    for number, moments in enumerate(tables):
        buffer = TableBuffer(TableId(TenantId(f"t{number}"), "logs"), 0.0)
        for at, moment in enumerate(moments):
            buffer.add(*RawRecord(0, at, epoch_ms(NOW), None, (), record(moment)))
        waiting.append(Waiting(buffer, schema, told[number].kept()))
    parts = convert_batched(waiting, SOURCES, limits)
    for number, (buffer, _, _) in enumerate(waiting):

        def offsets(parts: Sequence[Any], at: int = number, whose: TableBuffer = buffer) -> tuple[Any, Any]:
            own = ConverterLimits(100, 1_000, TimeLimits(None, None, told[at].kept()))
            done = convert(whose, SOURCES, schema, [0], own, parts)
            rows = done.rows.column("_offset").to_pylist() if done.rows.num_rows else []
            return sorted(rows), sorted(done.rejected)

        assert offsets(parts.get(buffer.table, ())) == offsets(())


class Catalog(httpx.BaseTransport):
    """Answers as one without extras, until it is away."""

    def __init__(self) -> None:
        self.is_away = False
        self.asked: list[str] = []
        self.namespace = {"firn.retention": "1d"}
        self.table: dict[str, str] | None = dict(SAID)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(request.url.path)
        if self.is_away:
            return httpx.Response(503, json={})
        if request.url.path.endswith("/tables/logs") and self.table is None:
            return httpx.Response(404, json={})
        if "/tables/" in request.url.path:
            return httpx.Response(200, json={"metadata": {"properties": self.table}})
        if request.url.path.endswith("/namespaces/acme"):
            return httpx.Response(200, json={"properties": self.namespace})
        return httpx.Response(200, json={"overrides": {"firn.retention": "9d"}})


def retentions(catalog: Catalog) -> CatalogRetentions:
    client = CatalogClient("http://catalog", transport=catalog)
    return CatalogRetentions(lambda: client, FakeClock())


def test_a_worker_is_told_by_the_catalog() -> None:
    """Of the table by what it says now where that is asked for, so that who has it keep more and replays its
    dead letters does not have them turned away again; with its holds."""
    catalog = Catalog()
    asking = retentions(catalog)
    holds = spell_holds([Hold("h", "logs"), Hold("i", "other")])
    catalog.namespace["firn.holds"] = holds
    told = asking.retention(TABLE, SAID, anew=False)
    assert (told.kept, [hold.id for hold in told.holds]) == (Retention(24, Level.TENANT), ["h"])
    catalog.table = {**SAID, "firn.retention": "2d"}
    assert asking.retention(TABLE, SAID, anew=False).kept.hours == 24
    assert asking.retention(TABLE, SAID, anew=True).kept == Retention(48, Level.STREAM)
    catalog.table = {**SAID, "firn.retention": "3d"}
    assert asking.retention(TABLE, SAID, anew=True).kept.hours == 72


def test_who_writes_old_records_to_many_streams_has_no_worker_ask_all_day(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Behind so many questions a minute no table is asked: rows are written, and maintenance deletes them."""
    monkeypatch.setattr(catalog_retentions, "ASKED_MAX", 2)
    catalog, clock = Catalog(), FakeClock()
    client = CatalogClient("http://catalog", transport=catalog)
    asking = CatalogRetentions(lambda: client, clock)
    streams = [TableId(TABLE.tenant, name) for name in ("logs", "b", "c")]

    def hours() -> list[int | None]:
        return [asking.retention(each, SAID, anew=True).kept.hours for each in streams]

    assert hours() == [24, 24, None]
    before = len(catalog.asked)
    assert hours() == [None, None, None]
    assert len(catalog.asked) == before
    clock.s += 61.0
    streams.reverse()
    assert hours() == [24, 24, None]


def test_a_table_that_is_not_there_yet_keeps_what_its_tenant_says() -> None:
    """The first flush of a table makes it."""
    catalog = Catalog()
    catalog.table = None
    assert retentions(catalog).retention(TABLE, SAID, anew=True).kept == Retention(24, Level.TENANT)


def test_what_nobody_can_tell_turns_no_record_away() -> None:
    """A catalog that is away is not asked again for a minute; what is unclear deletes nothing, so it keeps
    out nothing."""
    catalog = Catalog()
    asking = retentions(catalog)
    catalog.namespace["firn.retention"] = "soon"
    assert asking.retention(TABLE, SAID, anew=False).kept.hours is None
    catalog.is_away = True
    assert asking.retention(TABLE, SAID, anew=True).kept.hours is None
    before = len(catalog.asked)
    assert asking.retention(TABLE, SAID, anew=True).kept.hours is None
    assert len(catalog.asked) == before
