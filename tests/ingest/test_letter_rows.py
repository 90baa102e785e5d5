"""Dead letters as rows of `system.dead_letters`: each is one, says nothing of what the record held, and never
makes another dead letter."""

from pathlib import Path
from typing import Any

import orjson
import pytest
from confluent_kafka import Message
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from ingest.convert.converter import convert
from ingest.convert.terms import TimeLimits
from ingest.convert.work import Converted, ConverterLimits
from ingest.dead_letters.dead_letter import DeadLetters
from ingest.decode.formats.rejected_record import RejectedRecord
from ingest.kafka.consumer import InputTopics
from ingest.kafka.header_workaround import UNREADABLE
from ingest.kafka.unreadable import UnreadableRange
from ingest.model.source import Source
from ingest.node.pipeline import Pipeline
from ingest.parking.parked_topic import ParkedTopic
from ingest.route.buffer import RawRecord, TableBuffer
from ingest.route.letter_rows import TEXT_CHARACTERS_MAX, LetterRows
from ingest.route.routes import Routes, rules_to_group
from ingest.write.flush_writer import FlushWriter
from lake.clock import epoch_ms
from lake.errors import Reason, Rejected
from lake.log_schema import MESSAGE, SYSTEM_COLUMNS, TIMESTAMP, new_log_schema
from lake.settings import IngestSettings, TopicSettings
from lake.storage import open_storage
from lake.system_tables import LETTER_COLUMNS, LETTERS_STREAM
from lake.tenant import SYSTEM_TENANT, TableId
from tests.ingest.support.conversion import KAFKA_MS, rows_of
from tests.ingest.support.fake_clock import FakeClock
from tests.ingest.support.fake_kafka import FakeBroker
from tests.ingest.support.fake_link import FakeLink

TABLE = TableId(SYSTEM_TENANT, LETTERS_STREAM)
LETTERS = "firn.dead-letters"
SECRET = "what only the record says"
SCHEMA = new_log_schema(LETTER_COLUMNS)
LIMITS = ConverterLimits(100, 1_000, TimeLimits(3 * 86_400_000_000, 86_400_000_000))
KEYS = {"internal_topics__signing_keys": ["of these nodes alone"]}


@pytest.fixture(autouse=True)
def _no_settings_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FIRN_CONFIG", "")


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> FakeBroker:
    broker = FakeBroker()
    broker.install(monkeypatch)
    for topic in ("t", LETTERS, "firn.parked", "firn.replay"):
        broker.create_topic(topic)
    return broker


def _settings(**more: Any) -> IngestSettings:
    return IngestSettings.load(
        topics=(TopicSettings(name="t"),), internal_topics__dead_letters_table=True, **more
    ).with_own_topics()


def _rows(settings: IngestSettings, messages: list[Message]) -> dict[tuple[int, int], dict[str, Any]]:
    """The rows of messages of the dead-letter topic, none of which is turned away; without system columns
    that are those of any row."""
    ((target, sorted_),) = Routes(settings).sort(LETTERS, messages).items()
    assert target == TABLE
    result = _converted(sorted_)
    assert result.rejected == []
    assert result.new == {}
    rows = rows_of(result)
    assert all("_errors" not in row and "_overflow" not in row for row in rows.values())
    for message in messages:
        assert epoch_ms(rows[message.offset(), 0][TIMESTAMP]) == message.timestamp()[1]
    own = {*SYSTEM_COLUMNS} - {MESSAGE}
    return {key: {name: value for name, value in row.items() if name not in own} for key, row in rows.items()}


def _converted(messages: list[Message]) -> Converted:
    buffer = TableBuffer(TABLE, 0.0)
    for each in messages:
        record = RawRecord(
            0, each.offset(), each.timestamp()[1], each.key(), each.headers() or (), each.value()
        )
        buffer.add(*record)
    return convert(buffer, [Source(LETTERS, "id", 0, "json")], SCHEMA, [0], LIMITS)


def test_a_letter_is_a_row_that_quotes_nothing(broker: FakeBroker, tmp_path: Path) -> None:
    """Of every reason; the value, key, headers and detail of the record are in none."""
    settings = _settings(**KEYS)
    letters = DeadLetters(settings, open_storage(), f"file://{tmp_path}")
    source = Source("t", "topic-id", 3, "auto")
    headers = [("tenant", b"Acme"), ("h", SECRET.encode())]
    for at, reason in enumerate(Reason):
        record = RawRecord(0, at, KAFKA_MS, SECRET.encode(), headers, f"{SECRET} {at}".encode())
        letters.send(source, record, Rejected(reason, f"it says {SECRET!r}"), "acme__x.logs")
    letters.flush()
    assert SECRET.encode() in broker.messages(LETTERS)[0].value()
    rows = _rows(settings, broker.messages(LETTERS))
    assert len(rows) == len(Reason)
    assert SECRET not in str(rows)
    for at, reason in enumerate(Reason):
        row = rows[at, 0]
        assert epoch_ms(row.pop("record_time")) == KAFKA_MS
        assert row == {
            "message": f"{reason.value}: offset {at} of partition 3 of t is dead letter 0:{at}",
            "letter": f"0:{at}",
            "reason": reason.value,
            "tenant": "acme_x",
            "stream": "logs",
            "record_topic": "t",
            "record_topic_id": "topic-id",
            "record_partition": 3,
            "record_offset": at,
            "record_bytes": len(f"{SECRET} {at}"),
            "key_bytes": len(SECRET),
            "headers": 2,
            "attempt": 0,
            "in_warehouse": False,
        }


def test_whose_a_letter_without_a_table_is_its_topics_rules_say(broker: FakeBroker, tmp_path: Path) -> None:
    """As the lists of dead letters have it; a part of a message has its index."""
    settings = _settings()
    letters = DeadLetters(settings, open_storage(), f"file://{tmp_path}")
    source = Source("t", "topic-id", 0, "auto")
    late = RawRecord(0, 7, KAFKA_MS, None, [("tenant", b"Acme"), ("stream", b"web")], b"x")
    letters.send(source, late, RejectedRecord(Reason.UNDECODABLE, "d", 4, b"{"), None)
    letters.send(source, late._replace(headers=()), Rejected(Reason.TENANT_MISSING, "d"), None)
    letters.flush()
    first, second = _rows(settings, broker.messages(LETTERS)).values()
    assert (first["tenant"], first["stream"], first["record_index"]) == ("Acme", "web", 4)
    assert not {"tenant", "stream", "record_index"} & second.keys()


def test_of_what_somebody_else_wrote_nothing_is_believed(broker: FakeBroker) -> None:
    """It has no signature: its row has its own place alone."""
    told = {"reason": "too_late", "topic": SECRET, "topic_id": SECRET, "partition": "1", "offset": "5"}
    facts = {**told, "timestamp_ms": "5", "table": "acme.logs"}
    headers = [(f"firn.{name}", text.encode()) for name, text in facts.items()]
    broker.append(LETTERS, SECRET.encode(), headers=headers)
    rows = _rows(_settings(**KEYS), broker.messages(LETTERS))
    assert (rows[0, 0]["reason"], rows[0, 0]["record_topic"]) == ("foreign", LETTERS)
    assert "tenant" not in rows[0, 0]
    assert SECRET not in str(rows)


FACTS = ("reason", "detail", "timestamp_ms", "topic", "topic_id", "partition", "offset", "index", "until")
NAMES = st.sampled_from([*(f"firn.{name}" for name in (*FACTS, "table", "attempt", "body", "mac")), "x", ""])
NUMBERS = st.one_of(st.integers(-(2**70), 2**70).map(lambda n: str(n).encode()), st.just(b"9" * 5_000))
TEXTS = st.one_of(
    st.none(), st.binary(max_size=600), NUMBERS, st.sampled_from([b"too_late", b"a.logs", b"1"])
)
HEADERS = st.one_of(st.just(UNREADABLE), st.lists(st.tuples(NAMES, TEXTS), max_size=12))
WHOLE = st.lists(st.tuples(st.sampled_from(FACTS), TEXTS), min_size=len(FACTS), max_size=20).map(
    lambda some: [("firn.reason", b"too_late"), *((f"firn.{name}", text) for name, text in some)]
)


UNSIGNED = _settings()


@given(st.one_of(HEADERS, WHOLE), st.one_of(st.none(), st.binary(max_size=40)), st.integers(0, 2**42))
def test_any_message_of_the_topic_is_one_small_row(headers: Any, value: bytes | None, at_ms: int) -> None:
    """Whatever is in it: nothing is turned away, no column is added, no value refused."""
    message = Message(
        topic=LETTERS, partition=0, offset=3, value=value, headers=headers, timestamp=(1, at_ms)
    )
    (row,) = LetterRows(UNSIGNED).rows([message])
    told = orjson.loads(row.value())
    assert told.keys() <= {TIMESTAMP, MESSAGE, *LETTER_COLUMNS}
    texts = [text for name, text in told.items() if isinstance(text, str) and name != MESSAGE]
    assert all(len(text) <= TEXT_CHARACTERS_MAX for text in texts)
    assert len(row.value()) < 8_192
    assert (row.offset(), row.timestamp(), row.key()) == (3, (1, at_ms), None)
    assert len(_rows(UNSIGNED, [message])) == 1


def test_a_letter_of_which_nothing_can_be_read_is_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """By an error that nobody foresaw, which the log has."""

    def fail(*_: object) -> None:
        raise ValueError("unforeseen")

    monkeypatch.setattr("ingest.route.letter_rows.any_letter", fail)
    message = Message(topic=LETTERS, partition=0, offset=3, value=b"x", timestamp=(1, KAFKA_MS))
    with capture_logs() as logs:
        rows = _rows(_settings(), [message])
    assert rows[3, 0] == {
        "message": "unknown: a message is dead letter 0:3",
        "letter": "0:3",
        "reason": "unknown",
    }
    assert {(each["event"], each["offset"]) for each in logs} == {("letter.not_read", 3)}


class Worker:
    """A worker that reads its own dead letters, on brokers in memory."""

    def __init__(self, broker: FakeBroker, folder: Path, **settings: Any) -> None:
        self.settings = _settings(**settings)
        self._broker, self._topics = broker, InputTopics(self.settings, rules=rules_to_group(self.settings))
        letters = DeadLetters(self.settings, open_storage(), f"file://{folder}")
        self.writer = FlushWriter(self.settings, FakeLink(), letters, open_storage())
        parked = ParkedTopic(self.settings, open_storage(), f"file://{folder}")
        self.pipeline = Pipeline(
            self.settings, self._topics, FakeLink(), self.writer, parked, FakeClock(), 8 << 20
        )
        self.pipeline.discover()

    def take(self, *bodies: bytes) -> None:
        """Messages come; all that follows is read, too."""
        for body in bodies:
            self._broker.append("t", body, headers=[("tenant", b"Acme")])
        for _ in range(20):
            self.pipeline.take(*self._topics.take(0.0))
            self.writer.acknowledged()


def test_letters_wait_for_their_table_and_make_no_others(broker: FakeBroker, tmp_path: Path) -> None:
    """Each once, however often the topic is read."""
    worker = Worker(broker, tmp_path)
    worker.take(b"x" * 5_000_000, b"y" * 5_000_000)
    assert [table for table in worker.pipeline.buffers if table.table == TABLE]
    assert [len(each) for each in worker.pipeline.buffers] == [2]
    assert len(broker.messages(LETTERS)) == 2
    counts = worker.pipeline.report().counts
    assert (counts.dead, counts.letters_not_stored) == ({"too_large": 2}, {})


def test_a_letter_that_is_no_row_stays_and_is_counted(broker: FakeBroker, tmp_path: Path) -> None:
    """No dead letter is made of it; the log says once where such ones are."""
    worker = Worker(broker, tmp_path, limits__record_bytes_max=10)
    with capture_logs() as logs:
        worker.take(b"x" * 11, b"y" * 12, b"z" * 13)
        counts = worker.pipeline.report().counts
    assert len(broker.messages(LETTERS)) == 3
    assert list(worker.pipeline.buffers) == []
    assert (counts.dead, counts.letters_not_stored) == ({"too_large": 3}, {"too_large": 3})
    (line,) = [each for each in logs if each["event"] == "letters.not_stored"]
    assert {name: line[name] for name in ("topic", "partition", "reason", "letters", "first", "last")} == {
        "topic": LETTERS,
        "partition": 0,
        "reason": "too_large",
        "letters": 3,
        "first": 0,
        "last": 2,
    }
    assert worker.pipeline.report().counts.letters_not_stored == {}


def test_letters_that_nobody_can_read_make_no_others(broker: FakeBroker, tmp_path: Path) -> None:
    """A batch of the dead-letter topic is stepped over like any other, and counted."""
    worker = Worker(broker, tmp_path)
    unreadable = UnreadableRange(LETTERS, 0, 4, 9, "it does not decompress")
    worker.writer.dead_letter_range(0, Source(LETTERS, "id", 0, "json"), unreadable, KAFKA_MS)
    counts = worker.writer.take_counts()
    assert broker.messages(LETTERS) == []
    assert (counts.dead, counts.letters_not_stored, counts.unreadable) == (
        {},
        {"unreadable": 5},
        {LETTERS: 1},
    )


def test_the_topic_is_an_input_topic_where_that_is_wanted() -> None:
    """Behind the replay topic; the core sorts none of it. Tools have it without the replay topic."""
    settings = _settings()
    assert [topic.name for topic in settings.topics] == ["t", "firn.replay", LETTERS]
    assert settings.with_own_topics() == settings
    assert (settings.topics[2].tenant, settings.topics[2].stream) == (
        ("const:system",),
        ("const:dead_letters",),
    )
    assert LETTERS not in rules_to_group(settings)
    asked = IngestSettings.load(topics=(TopicSettings(name="t"),), internal_topics__dead_letters_table=True)
    assert [topic.name for topic in asked.with_letters_topic().topics] == ["t", LETTERS]
    off = IngestSettings.load(topics=(TopicSettings(name="t"),))
    assert off.with_letters_topic() == off
    assert [topic.name for topic in off.with_own_topics().topics] == ["t", "firn.replay"]
    assert IngestSettings.load(internal_topics__dead_letters_table=True).with_own_topics().topics == ()
