"""The parts of a backfill from a topic that need no services: which offsets it reads, whose marks a commit
moves, what stands beside a group's offset."""

from collections.abc import Mapping
from datetime import datetime

import pytest

from ingest.backfill.backfill_commits import ChangedMeanwhileError
from ingest.backfill.backfill_offsets import ALL, Wanted, plan_ranges
from ingest.backfill.backfill_topic_ledger import TopicLedger
from ingest.cli.backfill import _bound, _input_topic
from ingest.commit.ledger import LiveMarks
from ingest.kafka.kafka_reader import KafkaPartition, KafkaReader, Stored, parse_stored
from lake.catalog_client import TableName
from lake.commit import TableState, new_table_state
from lake.errors import NotFoundError, RefusedError, SettingsError
from lake.marks import MARKS_PROPERTY, NO_MARKS, Marks, Range, TopicPartition
from lake.settings import IngestSettings, TopicSettings
from lake.topic_fill import TopicFill, fill_property
from tests.ingest.support.fake_kafka import FakeBroker

P0, P1 = KafkaPartition("t", "id", 0), KafkaPartition("t", "id", 1)
PLACE = TopicPartition("id", 0)


GROUP = {P0: Stored(90, "id", first=60), P1: Stored(95, "id", first=70)}


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> FakeBroker:
    """Two partitions of offsets 10 to 100, each of a second's time."""
    broker = FakeBroker()
    broker.install(monkeypatch)
    broker.create_topic("t", 2)
    for number in range(2):
        for second in range(100):
            broker.append("t", b"", partition=number, timestamp_ms=second * 1_000 + 1)
        broker.retain("t", number, 10)
    store(broker, GROUP)
    return broker


def store(broker: FakeBroker, group: Mapping[KafkaPartition, Stored]) -> None:
    """What the group has stored, and nothing else."""
    stored: dict[tuple[str, int], tuple[int, str | None]] = {
        each.key: (found.offset, found.metadata) for each, found in group.items()
    }
    broker.stored[IngestSettings().kafka.group] = stored


def _ranges(wanted: Wanted, topic: str = "t") -> list[tuple[int, int, int]]:
    found = plan_ranges(IngestSettings(), topic, KafkaReader(IngestSettings()), wanted)
    return [(each.partition.partition, each.start, each.end) for each in found]


@pytest.mark.usefixtures("broker")
@pytest.mark.parametrize(
    ("wanted", "ranges"),
    [
        (Wanted(), [(0, 10, 60), (1, 10, 70)]),
        (Wanted({ALL: 20}, {ALL: 50}), [(0, 20, 50), (1, 20, 50)]),
        (Wanted({0: 20}, {1: 50}), [(0, 20, 60), (1, 10, 50)]),
        (Wanted({ALL: 20, 1: 30}, partitions=frozenset({1})), [(1, 30, 70)]),
        (Wanted({}, {ALL: 1_000}), [(0, 10, 90), (1, 10, 95)]),
        (Wanted(from_ms=30_000, to_ms=40_000), [(0, 30, 40), (1, 30, 40)]),
        (Wanted({ALL: 65}), [(1, 65, 70)]),
        (Wanted({ALL: 50}, {ALL: 50}), []),
    ],
)
def test_ranges_are_what_was_asked_for_as_far_as_it_is_there_and_not_to_be_read_live(
    wanted: Wanted, ranges: list[tuple[int, int, int]]
) -> None:
    """Without bounds all before the group began; never below what Kafka has nor beyond what the group has
    read."""
    assert _ranges(wanted) == ranges


def test_what_nobody_can_know_is_refused(broker: FakeBroker) -> None:
    """A group that has not begun, a topic that was re-created, a topic or a partition that is not there; a
    partition not begun yet is left alone."""
    with pytest.raises(NotFoundError):
        _ranges(Wanted(), topic="other")
    with pytest.raises(SettingsError, match="no partition 7"):
        _ranges(Wanted({7: 1}))
    store(broker, {})
    with pytest.raises(RefusedError, match="has not begun to read"):
        _ranges(Wanted())
    store(broker, {P0: Stored(90, "old", first=60)})
    with pytest.raises(RefusedError, match="reset-topic"):
        _ranges(Wanted())
    store(broker, {P0: Stored(90, "id", first=60)})
    assert _ranges(Wanted()) == [(0, 10, 60)]
    store(broker, {P0: Stored(90, "id"), P1: Stored(95, "id")})
    assert _ranges(Wanted()) == []


def test_bounds_and_topics_that_mean_nothing_are_refused() -> None:
    """An offset is a number, for all partitions or for one; offset and time do not go together; the replay
    topic has no past of its own."""
    assert _bound("from", ["7", "3:9"], None) == ({ALL: 7, 3: 9}, None)
    assert _bound("to", None, datetime(1970, 1, 2)) == ({}, 86_400_000)  # noqa: DTZ001 - as the command line gives it
    for texts in (["x"], ["1:x"], ["x:1"], [":1"], ["-1"]):
        with pytest.raises(SettingsError, match="is no offset"):
            _bound("from", texts, None)
    with pytest.raises(SettingsError, match="not both"):
        _bound("from", ["1"], datetime(1970, 1, 2))  # noqa: DTZ001
    settings = IngestSettings(topics=(TopicSettings(name="t"),)).with_own_topics()
    assert _input_topic(settings, "t").name == "t"
    for name in ("other", settings.internal_topics.replay):
        with pytest.raises(SettingsError, match="is no input topic"):
            _input_topic(settings, name)


@pytest.mark.parametrize(
    "stored",
    [Stored(7, "id", "n.t:u:1:2", 5), Stored(7, "id", "n.t:u:1:2"), Stored(7, "id", "", 5), Stored(7, "id")],
)
def test_what_stands_beside_an_offset_comes_back(stored: Stored) -> None:
    """Topic, checkpoint and beginning; an older Firn wrote no beginning, and another tool nothing at
    all: then the group begins there."""
    assert parse_stored(7, stored.metadata) == stored
    assert parse_stored(7, "id n.t:u:1:2") == Stored(7, "id", "n.t:u:1:2", 0)
    assert parse_stored(7, "") == parse_stored(7, None) == Stored(7, "", "", 7)


def _state(marks: Marks = NO_MARKS, fill: TopicFill | None = None) -> TableState:
    state = new_table_state(TableName("acme", "logs"), "acme", "logs", "file:///warehouse")
    properties = {} if fill is None else {fill_property("id"): fill.to_property()}
    changed = {"properties": properties, "marks": marks, "writer": "node", "uuid": "u"}
    return TableState(**{name: getattr(state, name) for name in TableState.__slots__} | changed)


def test_commit_joins_offsets_and_moves_no_live_mark() -> None:
    """What was filled stays; the mark of the run is the first offset that the table lacks, beyond stretches
    that are there."""
    live, ledger = Marks({PLACE: 90}, {PLACE: 60}), TopicLedger("t", "id", {0: 10})
    state = _state(live, TopicFill("t", {0: (Range(30, 40),)}))
    assert ledger.marks(state) == Marks({PLACE: 10})
    advance = ledger.advance(state, {PLACE: Range(10, 35)}, "backfill")
    assert (advance.marks, advance.writer) == (live, "node")
    assert advance.properties == {
        fill_property("id"): TopicFill("t", {0: (Range(10, 40),)}).to_property(),
        MARKS_PROPERTY: live.to_property(),
    }
    assert ledger.marks(_state(live, TopicFill("t", {0: (Range(10, 40),)}))) == Marks({PLACE: 40})
    assert ledger.moved_by(state) == ""


def test_stretch_that_another_run_has_filled_ahead_ends_the_run() -> None:
    """Its rows would be there twice; what was there from the beginning, and what this run adds, is known."""
    ledger = TopicLedger("t", "id", {0: 10})
    ledger.marks(_state(fill=TopicFill("t", {0: (Range(50, 60),)})))
    ledger.marks(_state(fill=TopicFill("t", {0: (Range(10, 20), Range(50, 60))})))
    with pytest.raises(ChangedMeanwhileError, match="another backfill"):
        ledger.marks(_state(fill=TopicFill("t", {0: (Range(10, 20), Range(30, 35), Range(50, 60))})))


def test_live_ingestion_takes_what_was_filled_for_committed_where_it_has_no_mark() -> None:
    """Also where somebody sets its offsets back, nothing comes twice; its first commit says where it
    began."""
    live, filled = (
        LiveMarks({PLACE: 60}),
        _state(fill=TopicFill("t", {0: (Range(10, 40),), 1: (Range(0, 5),)})),
    )
    assert live.marks(filled) == Marks({PLACE: 40, TopicPartition("id", 1): 5})
    assert live.advance(filled, {PLACE: Range(40, 70)}, "node").marks == Marks({PLACE: 70}, {PLACE: 60})
    assert live.marks(
        _state(Marks({PLACE: 70}, {PLACE: 60}), TopicFill("t", {0: (Range(10, 40),)}))
    ) == Marks({PLACE: 70}, {PLACE: 60})
    assert live.marks(_state()) == NO_MARKS
