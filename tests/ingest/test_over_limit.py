"""A tenant that sends more than its limit: what is over it becomes dead letters, and each record is a row or
a dead letter, whatever happens between the two."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path

import httpx
import numpy as np
import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import parquet as pq

from ingest.dead_letters.dead_letter import DeadLetters
from ingest.model import over_limit
from ingest.model.link import TableView
from ingest.model.over_limit import OverLimit, parse_stretches, spell_stretches
from ingest.model.source import Source
from ingest.model.tenant_rate import TenantRate
from ingest.route import tenant_meter
from ingest.route.buffer import RawRecord, TableBuffer
from ingest.route.tenant_meter import TenantMeter
from ingest.write.catalog_rates import CatalogRates
from ingest.write.flush_writer import Flush, FlushWriter
from lake.catalog_client import CatalogClient
from lake.clock import epoch_ms
from lake.limits import UNBOUND, Bound
from lake.log_schema import WantedColumn, new_log_schema
from lake.marks import NO_MARKS, Range, TopicPartition
from lake.retention import Level
from lake.settings import IngestSettings, MaskRule, TopicSettings
from lake.settings.masking import TopicMasking
from lake.storage import local_path, open_storage
from lake.tenant import SYSTEM_TENANT, TableId, TenantId
from tests.ingest.support.fake_clock import START, FakeClock
from tests.ingest.support.fake_kafka import FakeBroker
from tests.ingest.support.fake_link import FakeLink
from tests.ingest.test_kept_times import broker as broker

TABLE = TableId(TenantId("acme"), "logs")
PLACE = TopicPartition("id", 0)
SOURCES = [Source("topic", "id", 0, "auto"), Source("firn.replay", "rid", 0, "replay")]
NOW_MS = epoch_ms(START + timedelta(seconds=FakeClock.s))
FATES = ("settled", "redone", "lost", "crash", "crash before")
ONE_A_SECOND = TenantRate(records=Bound(1, Level.TENANT))  # sixty in a minute


def over(
    meter: TenantMeter, rate: TenantRate, times_s: Sequence[int], sizes: Sequence[int] = ()
) -> list[int]:
    """Places of messages, by seconds before now, that are over it."""
    times = np.array([NOW_MS - 1_000 * each for each in times_s], np.int64)
    found = meter.over("acme", rate, times, np.array(sizes or [1] * len(times_s), np.int64), NOW_MS)
    return list(np.flatnonzero(found))


def test_minutes_are_those_of_kafka() -> None:
    """However late and in whatever order messages are read; what claims to come from the future counts as
    now, and other tenants have minutes of their own."""
    meter = TenantMeter()
    rate = TenantRate(records=Bound(1, Level.TENANT))
    for minutes_ago in (5, 2, 3):
        assert over(meter, rate, [60 * minutes_ago] * 60) == []
    assert over(meter, rate, [180, 240, 300]) == [0, 2]
    assert over(meter, rate, [-3_600 * at for at in range(61)]) == [60]
    assert not meter.over("other", rate, np.array([NOW_MS]), np.array([1]), NOW_MS).any()


def test_bytes_count_as_well() -> None:
    """Each for itself; whichever is reached first."""
    rate = TenantRate(size_bytes=Bound(10, Level.LAKE))
    assert over(TenantMeter(), rate, [0, 0, 0], [300, 301, 1]) == [1, 2]
    both = TenantRate(Bound(1, Level.LAKE), Bound(10, Level.LAKE))
    assert over(TenantMeter(), both, [0] * 62) == [60, 61]
    assert over(TenantMeter(), both, [0, 0], [300, 301]) == [1]


def test_a_meter_forgets_the_oldest_minutes(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that whoever makes times up does not fill the memory."""
    monkeypatch.setattr(tenant_meter, "MINUTES_MAX", 10)
    meter = TenantMeter()
    over(meter, ONE_A_SECOND, [60 * at for at in range(1_000)])
    assert len(meter._came["acme"]) <= 10
    assert over(meter, ONE_A_SECOND, [0] * 60) == [59]


def test_stretches_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """A table's properties do not grow with what its tenant sends: behind so many all is over the limit."""
    monkeypatch.setattr(over_limit, "STRETCHES_MAX", 2)
    found = OverLimit()
    offsets = np.arange(0, 80, 10)
    found.decide(0, offsets, np.array([False, True, False, True, False, True, False, False]))
    assert found.stretches[0] == [(10, 11), (30, 51)]
    assert found.places(np.zeros(8, np.int32), offsets).tolist() == [
        *(False, True, False, True, True, True, False, False)
    ]


def test_a_table_tells_the_newest_stretches() -> None:
    """Of each topic-partition; nothing of what somebody else wrote there is believed, and nothing fails."""
    other = TopicPartition("id", 1)
    first = spell_stretches("", [{PLACE: [(1, 5)]}, {other: [(2, 3)]}, {}])
    assert first is not None
    assert parse_stretches(first) == {PLACE: [(1, 5)], other: [(2, 3)]}
    second = spell_stretches(first, [{PLACE: [(7, 9)]}])
    assert parse_stretches(second or "") == {PLACE: [(7, 9)], other: [(2, 3)]}
    assert spell_stretches(first, [{}]) is None
    for text in (
        "",
        "[]",
        "7",
        '{"a":1}',
        '{"id/x":[]}',
        "nonsense",
        '{"id/0":[[1]]}',
        '{"id/0":[[0,1e30]]}',
    ):
        assert parse_stretches(text) == {}


class Growing(FakeLink):
    """Hands columns out."""

    def grow(self, names: Mapping[TableId, Mapping[str, WantedColumn]]) -> Mapping[TableId, bytes]:
        schema, schemas = new_log_schema(), dict[TableId, bytes]()
        for table, new in names.items():
            ids = enumerate(new.items(), schema.last_column_id + 1)
            columns = {name: (column_id, str(path)) for column_id, (name, path) in ids}
            schemas[table] = schema.with_strings(columns, 1).encoded
        return schemas


class Told:
    """Who tells what a test says."""

    def __init__(self, rate: TenantRate | None) -> None:
        self.said, self.most = rate, UNBOUND

    def rate(self, namespace: str) -> TenantRate | None:
        assert namespace == TABLE.tenant.namespace
        return self.said

    def columns(self, namespace: str) -> Bound:
        assert namespace == TABLE.tenant.namespace
        return self.most

    def memory_percent(self, namespace: str) -> Bound:
        assert namespace == TABLE.tenant.namespace
        return UNBOUND


@dataclass
class Table:
    """A table as the catalog has it, and the workers, one after the other, that write to it."""

    folder: Path
    broker: FakeBroker
    told: Told
    clock: FakeClock = field(default_factory=FakeClock)
    rows: list[int] = field(default_factory=list)
    commits: int = 0
    view: TableView = field(init=False)
    writer: FlushWriter = field(init=False)

    def __post_init__(self) -> None:
        self.settings = IngestSettings()
        self.letters = self.settings.internal_topics.dead_letters
        self.broker.create_topic(self.letters)  # anew
        schema = orjson.dumps(new_log_schema().json)
        self.view = TableView("u", f"file://{self.folder}/t", schema, NO_MARKS)
        self.restart()

    def restart(self) -> None:
        """A worker that knows nothing of the one before."""
        letters = DeadLetters(self.settings, open_storage(), f"file://{self.folder}")
        self.writer = FlushWriter(
            self.settings, FakeLink(), letters, open_storage(), clock=self.clock, rates=self.told
        )

    def flush(
        self, first: int, end: int, *, source: int = 0, drain: int = 0, withheld: Collection[int] = ()
    ) -> Flush:
        """What was read from an offset on, one of ten messages being no record."""
        buffer = TableBuffer(TABLE, 0.0)
        for at in range(first, end):
            value = b"\xff" if at % 10 == 3 else b'{"message":"m"}'
            buffer.add(*RawRecord(source, at, NOW_MS, None, (), b"" if at in withheld else value))
        return Flush(TABLE, buffer, {_place(source): end}, drain)

    def write(self, flush: Flush) -> bool:
        """Writes and commits it; whether there was anything to commit."""
        flush.hot = flush.hot or self.writer.take_hot(TABLE)
        written = self.writer.write([flush], SOURCES, {TABLE: self.view})
        assert written.stuck == []
        assert len(written.flushes) + len(written.empty) == 1
        for one in written.flushes:
            self.rows += [
                row
                for file in one.files
                for row in pq.read_table(local_path(file.uri)).column("_offset").to_pylist()
            ]
            said = spell_stretches(self.view.over, [one.over])
            marks = self.view.marks.advanced(one.ranges, {})
            self.view = replace(self.view, marks=marks, over=self.view.over if said is None else said)
            self.commits += 1
        return bool(written.flushes)

    def settle(self, flush: Flush) -> None:
        self.writer.committed(flush.buffer, SOURCES, self.view)
        self.writer.acknowledged()

    def dead(self, reason: str = "over_limit") -> list[int]:
        """Offsets of dead letters."""
        headers = [dict(message.headers()) for message in self.broker.messages(self.letters)]
        return [int(each["firn.offset"]) for each in headers if each["firn.reason"].decode() == reason]


def _place(source: int) -> TopicPartition:
    return TopicPartition(SOURCES[source].topic_id, SOURCES[source].partition)


@pytest.fixture
def table(tmp_path: Path, broker: FakeBroker) -> Table:
    return Table(tmp_path, broker, Told(ONE_A_SECOND))


def test_what_is_over_the_limit_is_dead_once_the_table_says_so(table: Table) -> None:
    """With the limit and who set it; no dead letter before that, and no other than those. The next minute has
    room again, and whoever raises the limit finds it in force."""
    flush = table.flush(0, 100)
    assert table.write(flush)
    assert parse_stretches(table.view.over) == {PLACE: [(60, 100)]}
    assert table.dead() == []
    table.settle(flush)
    assert table.rows == [at for at in range(60) if at % 10 != 3]
    assert table.dead() == list(range(60, 100))
    detail = dict(table.broker.messages(table.letters)[-1].headers())["firn.detail"].decode()
    assert "records_per_s is 1, as the tenant says" in detail
    assert table.writer.take_counts().dead == {"over_limit": 40, "undecodable": 6}
    table.settle(flush)
    assert len(table.dead()) == 40
    table.told.said = TenantRate(records=Bound(2, Level.TENANT))
    more = table.flush(100, 121)
    assert table.write(more)
    table.settle(more)
    assert table.dead() == [*range(60, 100), 120]


def test_without_a_limit_nothing_is_looked_at(table: Table) -> None:
    """The table says nothing, either."""
    table.told.said = None
    flush = table.flush(0, 100)
    assert table.write(flush)
    table.settle(flush)
    assert (table.view.over, table.dead(), flush.buffer.over) == ("", [], None)


def test_a_flush_without_any_row_is_committed_too(table: Table) -> None:
    """Else nobody would know, after a crash, that its records are dead letters."""
    table.write(table.flush(0, 60))
    more = table.flush(60, 80)
    assert table.write(more)
    table.settle(more)
    assert (table.commits, table.dead()) == (2, list(range(60, 80)))
    assert table.view.marks.of(PLACE) == 80


@pytest.mark.parametrize("waits", ["as it came", "in a file", "packed"])
def test_a_flush_that_is_written_again_decides_the_same(table: Table, waits: str) -> None:
    """Whatever the limit says by then."""
    flush = table.flush(0, 90)
    if waits == "in a file":
        table.writer.append(flush.buffer, SOURCES, table.view)
    if waits != "as it came":
        flush.buffer.close_part()
        flush.buffer.pack()
        for at in range(90, 100):
            flush.buffer.add(*RawRecord(0, at, NOW_MS, None, (), b"{}"))
    flush.ends = {PLACE: 100}
    end = 90 if waits == "as it came" else 100
    flush.hot = table.writer.take_hot(TABLE)
    lost = table.writer.write([flush], SOURCES, {TABLE: table.view})
    assert [one.over for one in lost.flushes] == [{PLACE: [(60, end)]}]
    table.told.said = TenantRate(records=Bound(1_000, Level.LAKE))
    assert table.write(flush)
    table.settle(flush)
    assert table.dead() == list(range(60, end))
    assert table.rows == [at for at in range(60) if at % 10 != 3]


def test_a_limit_that_is_lifted_meanwhile_takes_back_no_decision(table: Table) -> None:
    """Also where small flushes of several tables are converted together."""
    flush = table.flush(0, 70)
    table.writer.write([flush], SOURCES, {TABLE: table.view})
    table.told.said = None
    other = TableBuffer(TableId(TABLE.tenant, "other"), 0.0)
    other.add(*RawRecord(0, 70, NOW_MS, None, (), b"{}"))
    others = Flush(other.table, other, {PLACE: 71})
    written = table.writer.write([flush, others], SOURCES, {TABLE: table.view, other.table: table.view})
    rows = {one.table: one.rows for one in written.flushes}
    assert rows == {TABLE: 54, other.table: 1}


def test_after_a_crash_before_its_dead_letters_they_are_sent(table: Table) -> None:
    """By whoever reads the records again, although the minute has room for him; in one flush or in several,
    with what has come since."""
    table.write(table.flush(0, 100))
    table.restart()
    flush = table.flush(50, 80)
    assert not table.write(flush)
    table.settle(flush)
    assert table.dead() == list(range(60, 80))
    flush = table.flush(80, 110)
    assert table.write(flush)
    table.settle(flush)
    assert table.dead() == list(range(60, 100))
    assert table.rows == [at for at in (*range(60), *range(100, 110)) if at % 10 != 3]


def test_what_the_table_says_goes_before_what_a_worker_has_decided(table: Table) -> None:
    """Another node, which is gone since, has committed the same records, and had room for others of them."""
    flush = table.flush(0, 100)
    mine = table.writer.write([flush], SOURCES, {TABLE: table.view})
    assert mine.flushes[0].over == {PLACE: [(60, 100)]}
    said = spell_stretches("", [{PLACE: [(30, 80)]}]) or ""
    table.view = replace(table.view, marks=table.view.marks.advanced({PLACE: Range(0, 100)}, {}), over=said)
    table.settle(flush)
    assert table.dead() == list(range(30, 80))


def test_half_a_flush_that_is_there_is_not_told_anew(table: Table) -> None:
    """What another node has committed as rows stays so, whatever this one had decided."""
    flush = table.flush(0, 100)
    table.writer.write([flush], SOURCES, {TABLE: table.view})
    marks = table.view.marks.advanced({PLACE: Range(0, 90)}, {})
    table.view = replace(table.view, marks=marks)
    assert table.write(flush)
    assert parse_stretches(table.view.over) == {PLACE: [(90, 100)]}
    table.settle(flush)
    assert table.dead() == list(range(90, 100))


def test_what_is_sent_again_or_was_parked_counts_against_no_limit(table: Table) -> None:
    """A person has decided that it be written."""
    flush = table.flush(0, 100, source=1)
    assert table.write(flush)
    table.settle(flush)
    flush = table.flush(0, 100, drain=1)
    assert table.write(flush)
    table.settle(flush)
    assert (table.dead(), table.view.over) == ([], "")


@pytest.mark.parametrize("together", [False, True])
def test_a_tenant_may_have_so_many_columns(table: Table, together: bool) -> None:
    """In place of what the settings say; further fields stand in `_overflow`, also where small flushes of
    several tables are converted together."""
    table.told.said = None
    table.writer = FlushWriter(
        table.settings,
        Growing(),
        table.writer._dead_letters,
        open_storage(),
        clock=table.clock,
        rates=table.told,
    )
    flushes = []
    for number in range(2 if together else 1):
        buffer = TableBuffer(TableId(TABLE.tenant, f"logs{number}"), 0.0)
        buffer.add(*RawRecord(0, 0, NOW_MS, None, (), b'{"message":"m","one":"1","two":"2"}'))
        flushes.append(Flush(buffer.table, buffer, {PLACE: 1}))
    system = len(table.view.log_schema.columns)
    for most, left in ((system + 1, {"two": "2"}), (None, None)):
        table.told.most = Bound(most, Level.TENANT)
        written = table.writer.write(flushes, SOURCES, {flush.table: table.view for flush in flushes}).flushes
        assert len(written) == len(flushes)
        for flush in written:
            (row,) = pq.read_table(local_path(flush.files[0].uri)).to_pylist()
            overflow = row.get("_overflow")
            assert (row["one"], row.get("two"), None if overflow is None else orjson.loads(overflow)) == (
                "1",
                None if left else "2",
                left,
            )


@pytest.mark.parametrize("waits", ["as it came", "in a file", "packed"])
def test_a_flush_tells_the_bytes_that_came(table: Table, waits: str) -> None:
    """Of all its messages, be they rows or dead letters; not of those that somebody else has committed
    since."""
    table.told.said = None
    sizes = [1 if at % 10 == 3 else len(b'{"message":"m"}') for at in range(100)]
    flush = table.flush(0, 90)
    if waits == "in a file":
        table.writer.append(flush.buffer, SOURCES, table.view)
    if waits != "as it came":
        flush.buffer.close_part()
        flush.buffer.pack()
    for at in range(90, 100):
        flush.buffer.add(*RawRecord(0, at, NOW_MS, None, (), b'{"message":"m"}'[: sizes[at]]))
    flush.ends = {PLACE: 100}
    flush.hot = table.writer.take_hot(TABLE)
    for mark in (0, 35):
        view = replace(table.view, marks=table.view.marks.advanced({PLACE: Range(0, mark)}, {}))
        (written,) = table.writer.write([flush], SOURCES, {TABLE: view}).flushes
        assert written.value_bytes == sum(sizes[mark:])


def test_what_came_without_its_value_is_over_the_limit(table: Table) -> None:
    """It was withheld when it came: whatever the limit says when it is written, in a drain, too; it has taken
    no room from what came whole."""
    masking = TopicMasking(rules=(MaskRule(name="r", action="drop", fields=("a",)),), over_limit="withhold")
    table.settings = IngestSettings(topics=(TopicSettings(name="topic", masking=masking, tenant=("key",)),))
    table.restart()
    flush = table.flush(0, 120, withheld=range(50, 100))
    assert table.write(flush)
    table.settle(flush)
    assert parse_stretches(table.view.over) == {PLACE: [(50, 100), (110, 120)]}
    assert table.dead() == [*range(50, 100), *range(110, 120)]
    details = [dict(each.headers())["firn.detail"].decode() for each in table.broker.messages(table.letters)]
    assert ["kept nowhere" in each for each in details if "records_per_s" in each] == [
        *[True] * 50,
        *[False] * 10,
    ]
    for said, drain in ((None, 0), (ONE_A_SECOND, 1)):
        table.told.said = said
        start = table.view.marks.of(PLACE)
        flush = table.flush(start, start + 20, withheld=range(start, start + 10), drain=drain)
        assert table.write(flush)
        table.settle(flush)
        assert table.dead()[-10:] == list(range(start, start + 10))
    assert set(table.rows) == {
        at for at in (*range(50), *range(100, 110), *range(130, 140), *range(150, 160)) if at % 10 != 3
    }


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.tuples(
            st.integers(1, 45), st.sampled_from(["settled", "redone", "lost", "crash", "crash before"])
        ),
        max_size=8,
    )
)
@pytest.mark.long
def test_each_record_is_a_row_or_a_dead_letter(
    tmp_path_factory: pytest.TempPathFactory, broker: FakeBroker, steps: list[tuple[int, str]]
) -> None:
    """Whatever ends a worker when: it reads on from the first record of which it does not know that it is
    there."""
    table = Table(tmp_path_factory.mktemp("t"), broker, Told(ONE_A_SECOND))
    stored = at = 0
    for count, fate in [*steps, (100, "settled")]:
        flush, at = table.flush(at, at + count), at + count
        if fate in ("redone", "crash before"):
            table.writer.write([flush], SOURCES, {TABLE: table.view})
        if fate != "crash before":
            table.write(flush)
        if fate in ("settled", "redone"):
            table.settle(flush)
            stored = at
        if fate.startswith("crash"):
            table.restart()
            at = stored
        elif fate == "lost":  # the answer; it is found to be there
            table.settle(flush)
            stored = at
    bad = {each for each in range(at) if each % 10 == 3}
    dead = set(table.dead())
    assert len(table.rows) == len(set(table.rows))
    assert set(table.rows) | dead | set(table.dead("undecodable")) == set(range(at))
    assert not set(table.rows) & dead
    assert not set(table.rows) & bad


ASKED = ("columns", "streams", "memory_percent")


class Catalog(httpx.BaseTransport):
    """Firn's, until it is away."""

    def __init__(self) -> None:
        self.is_away, self.asked = False, list[str]()
        self.extras = {"firn.extras": "1"}
        self.lake: dict[str, str] = {}
        self.said = {"firn.limits.records_per_s": "5"}

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        if self.is_away:
            return httpx.Response(503, json={})
        if request.url.path == "/v1/config":
            return httpx.Response(200, json={"overrides": self.extras})
        self.asked.append(str(request.url.params.get("only")))
        told = [{"namespace": ["acme"], "properties": self.said}]
        return httpx.Response(200, json={"lake": self.lake, "namespaces": told, "next-page-token": None})


def test_a_worker_asks_once_a_minute_for_all_tenants() -> None:
    """And goes on by what it knows where nobody answers."""
    catalog, clock = Catalog(), FakeClock()
    client = CatalogClient("http://catalog", transport=catalog)
    rates = CatalogRates(lambda: client, clock)
    assert rates.rate("acme") == TenantRate(Bound(5, Level.TENANT), UNBOUND)
    assert rates.rate("other") is None
    assert catalog.asked == ["limits"]
    catalog.lake = {"firn.limits.bytes_per_s": "7"}
    catalog.said = {"firn.limits.records_per_s": "none", "firn.limits.bytes_per_s": "none"}
    catalog.is_away = True
    clock.s += 61.0
    assert rates.rate("acme") == TenantRate(Bound(5, Level.TENANT), UNBOUND)
    catalog.is_away = False
    assert rates.rate("other") is None
    clock.s += 61.0
    assert rates.rate("other") == TenantRate(UNBOUND, Bound(7, Level.LAKE))
    assert (
        rates.rate(SYSTEM_TENANT.namespace) is None
    )  # no event of the audit trail is over what is meant for others
    assert rates.rate("acme") is None


def test_a_worker_hears_of_each_limit_by_its_own_name() -> None:
    """Of columns, streams and memory; who says nothing has what the lake says."""
    catalog = Catalog()
    catalog.said = {f"firn.limits.{name}": str(at) for at, name in enumerate(ASKED, 11)}
    catalog.lake = {"firn.limits.memory_percent": "50"}
    client = CatalogClient("http://catalog", transport=catalog)
    rates = CatalogRates(lambda: client, FakeClock())
    ask = (rates.columns, rates.streams, rates.memory_percent)
    assert [each("acme").most for each in ask] == [11, 12, 13]
    assert [each("other") for each in ask] == [UNBOUND, UNBOUND, Bound(50, Level.LAKE)]


def test_another_catalog_limits_nobody() -> None:
    """It is not asked for each namespace."""
    catalog = Catalog()
    catalog.extras = {}
    client = CatalogClient("http://catalog", transport=catalog)
    assert CatalogRates(lambda: client, FakeClock()).rate("acme") is None
    assert catalog.asked == []
