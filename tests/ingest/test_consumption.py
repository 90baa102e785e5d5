"""The core sorts Kafka's messages as Python does: each goes where the rules say, as it was, in its order."""

import re
from collections.abc import Sequence
from itertools import chain
from typing import Any, NamedTuple

import confluent_kafka
import pytest
from confluent_kafka import Consumer, KafkaError, Message
from hypothesis import example, given
from hypothesis import strategies as st

from ingest.core import library
from ingest.core.consumption import ODD, UNDECIDED, Consumption, consumption_of
from ingest.dead_letters.dead_letter import DeadLetters
from ingest.decode.formats.registry import BATCH_ROOTS
from ingest.kafka.batch_size import BATCH_BYTES, MESSAGES_MAX
from ingest.kafka.consumer import InputTopics
from ingest.kafka.header_workaround import UNREADABLE
from ingest.model.raw_rows import Envelope
from ingest.node.pipeline import Pipeline
from ingest.parking.parked_topic import ParkedTopic
from ingest.route.buffer import RawRecord
from ingest.route.router import grouping_rules
from ingest.route.routes import rules_to_group
from ingest.write.flush_writer import FlushWriter
from lake.errors import UnavailableError
from lake.settings import ChangeSettings, FormatName, IngestSettings, TopicSettings
from lake.storage import open_storage
from lake.tenant import TableId, TenantId
from tests.ingest.support.fake_clock import FakeClock
from tests.ingest.support.fake_kafka import FakeBroker, FakeConsumer, FakePartition, Headers
from tests.ingest.support.fake_link import FakeLink
from tests.ingest.support.fake_queue import FailingCore, FakeQueue
from tests.ingest.support.own_process import in_a_process

BYTES_MAX = 80
PARKED = TableId(TenantId("parked"), "logs")
RULES = (
    (("header:tenant",), ("header:stream",)),
    (("header:tenant", "field:tenant"), ("header:stream",)),
    (("header:tenant", "key"), ("key", "header:stream")),
    (("key",), ("topic:(t).*", "header:stream")),
    (("topic:other(.*)", "header:tenant", "const:rest"), ("header:stream", "field:stream")),
    (("field:tenant",), ("field:stream",)),
)
FORMATS: tuple[FormatName, ...] = ("auto", "json", "text")
KEYED = ChangeSettings(mode="upsert", format="debezium")
WITH_HISTORY = KEYED.model_copy(update={"history": True})
NAMES = st.sampled_from(["tenant", "stream", "other", "Tenant", "é", ""])
TEXTS = st.one_of(
    st.sampled_from([b"", b"a", b"b", b"parked", b"x" * 101, b"x" * 2_000, b"\xff", b"a\x00b", "é".encode()]),
    st.binary(max_size=4),
)
MEMBERS = st.sampled_from(
    [
        b'"tenant":"a"',
        b' "tenant" : "\\u0062" ',
        b'"ten\\u0061nt":"c"',
        b'"tenant":""',
        b'"tenant":1',
        b'"tenant":"\\ud800"',
        b'"stream":"s"',
        b'"x":{"tenant":"no","tenant":1}',
        b'"x":{"\\ud800":"\\ud800"}',
        b'"x":[NaN,-Infinity]',
        b'"x":"\x01"',
        b'"x":"\xff"',
        b'"x":{"y":["\xff"]}',
        b'"x":01',
        b'"resourceLogs":[]',
        b"",
    ]
)
OBJECTS = st.builds(
    lambda before, members, behind: before + b"{" + b",".join(members) + b"}" + behind,
    st.sampled_from([b"", b"", b" ", b"\xef\xbb\xbf", b"["]),
    st.lists(MEMBERS, max_size=3),
    st.sampled_from([b"", b"", b" \n", b"\xef\xbb\xbf", b"}", b'\n{"tenant":"a"}', b"]"]),
)
VALUES = st.one_of(
    st.none(),
    OBJECTS,
    st.sampled_from([b"", b"x" * BYTES_MAX, b"x" * (BYTES_MAX + 1)]),
    st.binary(max_size=20),
)


class Sent(NamedTuple):
    topic: str
    value: bytes | None
    partition: int
    key: bytes | None
    headers: Headers
    timestamp_ms: int


MESSAGES = st.lists(
    st.builds(
        Sent,
        st.sampled_from(["t1", "t2"]),
        VALUES,
        st.integers(0, 1),
        st.none() | TEXTS,
        st.lists(st.tuples(NAMES, st.none() | TEXTS), max_size=4),
        st.integers(1, 2**62),
    ),
    max_size=25,
)


class Line:
    """A worker's line on brokers in memory, with the core or without it."""

    def __init__(self, broker: FakeBroker, topics: Sequence[TopicSettings], *, has_core: bool) -> None:
        settings = IngestSettings.load(
            topics=tuple(topics), limits__record_bytes_max=BYTES_MAX, kafka__group=f"core {has_core}"
        )
        self._letters = settings.internal_topics.dead_letters
        self._parked, self._broker = settings.internal_topics.parked, broker
        for name in (self._letters, self._parked):
            broker.create_topic(name)
            broker.partitions[name, 0] = FakePartition()
        rules = rules_to_group(settings) if has_core else {}
        self.topics = InputTopics(settings, rules=rules)
        storage, warehouse, link = open_storage(), "file:///nowhere", FakeLink()
        self.pipeline = Pipeline(
            settings,
            self.topics,
            link,
            FlushWriter(settings, link, DeadLetters(settings, storage, warehouse), storage),
            ParkedTopic(settings, storage, warehouse),
            FakeClock(),
            1 << 30,
        )
        self.pipeline.discover()
        self.pipeline.park({PARKED: "parking"})

    def take_all(self) -> None:
        for _ in range(3):
            self.pipeline.take(*self.topics.take(0.0))
        self.pipeline.durable_offsets(1.0)

    @property
    def waiting(self) -> dict[TableId, tuple[list[RawRecord], dict[int, int]]]:
        """By table, of each partition, what waits; and where that begins."""
        found = {}
        for buffer in self.pipeline.buffers:
            records = sorted(
                buffer.alive(), key=lambda record: record.source
            )  # stable: offsets stay in order
            plain = [each._replace(headers=tuple(each.headers)) for each in records]
            found[buffer.table] = plain, buffer.first_offsets
        return found

    @property
    def aside(self) -> dict[str, list[Any]]:
        """What went to the dead letters and to the parking topic."""
        return {
            name: sorted(
                repr((message.headers(), message.key(), message.value()))
                for message in self._broker.messages(name)
            )
            for name in (self._letters, self._parked)
        }


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> FakeBroker:
    broker = FakeBroker()
    broker.install(monkeypatch)
    return broker


def _topics(broker: FakeBroker, rules: Sequence[tuple[Sequence[str], Sequence[str]]]) -> list[TopicSettings]:
    topics = []
    for number, (tenant, stream) in enumerate(rules, 1):
        name = f"t{number}"
        broker.create_topic(name, 2)
        topics.append(TopicSettings(name=name, tenant=tuple(tenant), stream=tuple(stream)))
    return topics


@pytest.mark.long
@pytest.mark.core
@example(
    (RULES[0], RULES[1]),
    "auto",
    (None, KEYED),
    [
        Sent("t2", b"{}", 0, b"k", [("tenant", b"a")], 1),
        Sent("t2", None, 0, b"k", [("tenant", b"a")], 1),
        Sent("t2", None, 0, b"k", [], 1),
        Sent("t2", b"", 0, None, [("tenant", b"parked")], 1),
        Sent("t2", b"{}", 0, b"k", [("tenant", b"a")], 1),
        Sent("t1", None, 0, b"k", [("tenant", b"a")], 1),
    ],
)
@example(
    (RULES[0], RULES[1]),
    "auto",
    (None, None),
    [
        Sent("t1", b"v", 0, None, [("tenant", b"parked")], 1),
        Sent("t1", b"v", 0, None, [("tenant", b"a")], 1),
        Sent("t2", b"{", 0, None, [("tenant", b"a")], 1),
        Sent("t2", b'{"tenant":"a","x":01}', 0, None, [], 1),
        Sent("t2", b'{"tenant":"a"}', 0, b"k", [], 1),
        Sent("t2", b'{"x":NaN,"tenant":"a"}', 0, b"k", [], 1),
    ],
)
@given(
    st.tuples(st.sampled_from(RULES), st.sampled_from(RULES)),
    st.sampled_from(FORMATS),
    st.tuples(st.none(), st.sampled_from([None, KEYED, WITH_HISTORY])),
    MESSAGES,
)
def test_any_messages_go_where_python_has_them_go(
    rules: Sequence[tuple[Sequence[str], Sequence[str]]],
    form: FormatName,
    changes: Sequence[ChangeSettings | None],
    messages: Sequence[Sent],
) -> None:
    """Tables, parking topic and dead letters have the same messages, coordinates and envelopes, and all are
    as far."""
    broker = FakeBroker()
    topics = [
        topic.model_copy(update={"format": form, "changes": of_topic})
        for topic, of_topic in zip(_topics(broker, rules), changes, strict=True)
    ]
    for topic, value, partition, key, headers, at_ms in messages:
        broker.append(topic, value, partition=partition, key=key, headers=headers, timestamp_ms=at_ms)
    found = []
    for has_core in (False, True):
        with pytest.MonkeyPatch.context() as patch:
            broker.install(patch)
            line = Line(broker, topics, has_core=has_core)
            line.take_all()
        counts = line.pipeline.report().counts
        found.append((line.waiting, line.aside, line.pipeline.offsets.routed, counts))
    assert found[0] == found[1]


def _taken(
    broker: FakeBroker, rules: bytes = b"htenant\0.", value_bytes_max: int = 100
) -> tuple[FakeQueue, Consumption]:
    broker.create_topic("t")
    consumer = FakeConsumer(broker, "g")
    consumer.incremental_assign([confluent_kafka.TopicPartition("t", 0, 0)])
    functions = library.load()
    assert not isinstance(functions, library.Absent)
    queue = FakeQueue(consumer)
    taking = Consumption(functions, queue, value_bytes_max)
    taking.add("t", 0, 7, rules)
    taking.divert("t", 0)
    return queue, taking


def _names(taking: Consumption, count: int = 100) -> list[tuple[int, list[int]]]:
    """The groups' names, and the offsets that they have. What runs say of all their groups is so."""
    runs = taking.take(count, 0.0).runs
    for run in runs:
        offsets = [offset for group in run.groups for offset in group.read().offsets]
        assert (run.messages, run.next_offset) == (len(offsets), max(offsets) + 1)
        assert run.size_bytes == sum(len(group.values) for group in run.groups)
    return [(group.name, list(group.read().offsets)) for run in runs for group in run.groups]


@pytest.mark.core
def test_messages_of_one_name_lie_together_and_the_client_has_all_back() -> None:
    """Names keep their numbers from batch to batch."""
    broker = FakeBroker()
    queue, taking = _taken(broker)
    for tenant in (b"a", b"b", b"a", b"b"):
        broker.append("t", b"v", headers=[("tenant", tenant)])
    assert _names(taking, 3) == [(0, [0, 2]), (1, [1])]
    assert _names(taking) == [(1, [3])]
    assert _names(taking) == []
    assert queue.given == {}


@pytest.mark.core
@pytest.mark.parametrize(
    ("value", "headers"),
    [(None, ()), (b"", ()), (b"x" * 101, ()), (b"v", UNREADABLE), (b"v", [("tenant", b"n" * 1_025)])],
    ids=["tombstone", "empty", "large", "unreadable headers", "long name"],
)
def test_what_no_table_takes_is_odd(value: bytes | None, headers: Headers) -> None:
    """It stands by itself, as it was; its neighbours are grouped."""
    broker = FakeBroker()
    _, taking = _taken(broker)
    broker.append("t", b"v")
    broker.append("t", value, key=b"k", headers=headers, timestamp_ms=5)
    broker.append("t", b"v")
    (run,) = taking.take(100, 0.0).runs
    assert [(group.name, list(group.read().offsets)) for group in run.groups] == [(0, [0, 2]), (ODD, [1])]
    read = run.groups[1].read()
    readable = None if headers is UNREADABLE else tuple(headers)
    assert (read.value(0), read.opened, list(read.timestamps_ms)) == (value, [Envelope(b"k", readable)], [5])
    assert (run.source, run.next_offset, run.messages) == (7, 3, 3)
    assert run.size_bytes == sum(len(group.values) for group in run.groups) == 2 + len(value or b"")


@pytest.mark.core
@pytest.mark.parametrize("value", [None, b""])
def test_deletes_of_a_keyed_topic_are_grouped(value: bytes | None) -> None:
    """They have no value, and a place between the other changes of their table."""
    broker = FakeBroker()
    _, taking = _taken(broker, rules=b"zhtenant\0.")
    for key, sent in ((b"k", b"v"), (b"k", value), (b"l", b"v")):
        broker.append("t", sent, key=key, headers=[("tenant", b"a")])
    (run,) = taking.take(100, 0.0).runs
    (group,) = run.groups
    read = group.read()
    assert (group.name, list(read.offsets)) == (0, [0, 1, 2])
    assert [read.value(at) for at in range(3)] == [b"v", value, b"v"]
    assert [envelope.key for envelope in read.opened] == [b"k", b"k", b"l"]


@pytest.mark.core
def test_messages_that_need_a_further_look_are_runs_of_their_own() -> None:
    """So that they come neither behind nor before others of their tables."""
    broker = FakeBroker()
    _, taking = _taken(broker, b"htenant\0ft\0\0.")
    for value in (b'{"t":"a"}', b"v", b"v", b'{"t":"b"}', b'{"t":"a"}'):
        broker.append("t", value)
    broker.append("t", b"v", headers=[("tenant", b"a")])
    assert _names(taking) == [(0, [0]), (UNDECIDED, [1, 2]), (1, [3]), (0, [4, 5])]


@pytest.mark.core
@pytest.mark.long
def test_names_are_forgotten_when_there_are_too_many() -> None:
    """New numbers are none of the old ones, so that nobody takes one name for another."""
    broker = FakeBroker()
    _, taking = _taken(broker, b"k.")
    first = list[tuple[int, list[int]]]()
    for number in range(0, 70_000, 10_000):
        for key in range(number, number + 10_000):
            broker.append("t", b"v", key=b"%d" % key)
        first = first or _names(taking, 10_000)
        while _names(taking, 10_000):
            pass
    broker.append("t", b"v", key=b"0")
    ((name, _),) = _names(taking)
    assert name >= 2**32 > first[0][0]


@pytest.mark.core
def test_an_error_of_the_client_leaves_the_whole_batch(broker: FakeBroker) -> None:
    """What is sound of it is told as it is without the core."""
    (topic,) = _topics(broker, [(("header:tenant",), ())])
    line = Line(broker, [topic], has_core=True)
    for code in (None, KafkaError._ALL_BROKERS_DOWN, KafkaError._BAD_MSG, None):
        message = broker.append(topic.name, b"v", key=b"k", headers=[("tenant", b"a")])
        if code is not None:
            there = broker.partitions[topic.name, 0].messages
            there[message.offset()] = Message(
                topic=topic.name, partition=0, offset=message.offset(), error=KafkaError(code)
            )
    messages, runs = line.topics.take(0.0)
    assert ([message.offset() for message in messages], runs) == ([0], [])
    assert (messages[0].key(), messages[0].headers(), messages[0].value()) == (b"k", [("tenant", b"a")], b"v")
    broker.partitions[topic.name, 1].messages[0] = Message(
        topic=topic.name, partition=1, offset=0, error=KafkaError(KafkaError._AUTO_OFFSET_RESET, "gone")
    )
    with pytest.raises(UnavailableError, match=re.escape(f"topic {topic.name} partition 1: gone")):
        line.topics.take(0.0)


@pytest.mark.core
def test_what_the_consumer_still_has_comes_before_what_the_core_has(broker: FakeBroker) -> None:
    """A partition's first messages may be there already when it is diverted; as long as there may be more of
    them, the core is not asked."""
    (topic,) = _topics(broker, [(("header:tenant",), ())])
    line = Line(broker, [topic], has_core=True)
    consumer = line.topics._consumer
    broker.create_topic("early", 1)
    for _ in range(501):
        broker.append("early", b"v")
    consumer.incremental_assign([confluent_kafka.TopicPartition("early", 0, 0)])
    broker.append(topic.name, b"v", headers=[("tenant", b"a")])
    counts = []
    for _ in range(3):
        messages, runs = line.topics.take(0.0)
        counts.append((len(messages), [run.messages for run in runs]))
    assert counts == [(500, []), (1, [1]), (0, [])]
    assert line.topics._batch_size.messages == MESSAGES_MAX


@pytest.mark.core
def test_how_many_are_asked_for_is_learned_of_what_the_core_has(broker: FakeBroker) -> None:
    """About as many as fit into a batch."""
    (topic,) = _topics(broker, [(("header:tenant",), ())])
    line = Line(broker, [topic], has_core=True)
    broker.append(topic.name, b"x" * 4_096, headers=[("tenant", b"a")])
    line.topics.take(0.0)
    assert line.topics._batch_size.messages == BATCH_BYTES // 4_096


@pytest.mark.core
def test_a_core_that_fails_to_take_messages_is_done_without(broker: FakeBroker) -> None:
    """What it has lost is read again, once, by this process; partitions that come later are read in Python,
    too, and the failure is counted."""
    (topic,) = _topics(broker, [(("header:tenant",), ())])
    line = Line(broker, [topic], has_core=True)
    sent = list[int]()

    def send(partition: int) -> None:
        for _ in range(3):
            sent.append(len(sent))
            broker.append(
                topic.name, b"%d" % sent[-1], partition=partition, headers=[("tenant", b"a")], timestamp_ms=1
            )

    def waiting() -> list[int]:
        return sorted(int(each.value or b"") for records, _ in line.waiting.values() for each in records)

    send(0)
    line.take_all()
    consumption = line.topics._consumption
    assert waiting() == sent
    assert consumption is not None
    consumption._functions = FailingCore(consumption._functions)
    send(0)
    send(1)
    before = waiting()
    line.pipeline.take(*line.topics.take(0.0))
    assert waiting() == before
    broker.partitions[topic.name, 2] = FakePartition()
    line.pipeline.discover()
    send(2)
    line.take_all()
    assert waiting() == sent
    assert line.pipeline.report().counts.unforeseen == {"consume": 1}


@pytest.mark.core
def test_a_message_whose_headers_nobody_can_read_is_a_dead_letter(broker: FakeBroker) -> None:
    """It says so, whatever tenant the key may name."""
    (topic,) = _topics(broker, [(("header:tenant", "key"), ())])
    line = Line(broker, [topic], has_core=True)
    broker.append(topic.name, b"v", key=b"a", headers=UNREADABLE)
    line.take_all()
    assert line.waiting == {}
    (letter,) = chain.from_iterable(line.aside.values())
    assert "a header's name is no UTF-8" in letter


@pytest.mark.core
def test_a_client_that_nobody_knows_is_read_in_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where its handle lies is known for some versions; the one in use has to be among them."""
    consumer = Consumer({"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "log_level": 0})
    assert isinstance(consumption_of(consumer, 1), Consumption)
    monkeypatch.setattr(confluent_kafka, "version", lambda: "9.9.9")
    assert consumption_of(consumer, 1) is None
    consumer.close()


@pytest.mark.core
@pytest.mark.long
def test_hostile_messages_stay_within_the_stated_memory() -> None:
    """Noise, and floods of names, headers, bytes and depth, under a limit that ends the process where it is
    passed; each message comes as it was."""
    assert in_a_process("hostile_messages")["messages"] > 100_000


ROOTS = b"".join(b"%s\0" % root.encode() for root in sorted(BATCH_ROOTS))


@pytest.mark.parametrize(
    ("form", "tenant", "stream", "rules"),
    [
        ("auto", ("header:a", "header:b"), ("const:x",), b"ha\0hb\0.c"),
        ("auto", ("topic:no(.*)", "key", "field:f"), (), b"kff\0" + ROOTS + b"\0."),
        ("text", ("key", "field:f"), (), b"ke."),
        ("text", ("field:f", "key"), (), None),
        ("auto", ("key",), ("field:resourceLogs",), None),
    ],
)
def test_rules_are_spelled_for_the_core(
    form: FormatName, tenant: tuple[str, ...], stream: tuple[str, ...], rules: bytes | None
) -> None:
    """A constant that names nothing is left out; where only Python can tell, and is asked first, the core is
    left out."""
    topic = TopicSettings(name="t", format=form, tenant=tenant, stream=stream)
    assert grouping_rules(topic) == rules
    keyed = grouping_rules(topic.model_copy(update={"changes": KEYED}))
    assert keyed == (None if rules is None else b"z" + rules)
