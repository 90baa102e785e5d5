"""What ingestion asks of Kafka and its client; subclassed once per kind of broker."""

from collections.abc import Iterator
from contextlib import closing
from operator import itemgetter

import pytest
from confluent_kafka import Message

from ingest.dead_letters.dead_letter import DeadLetters
from ingest.kafka.acknowledged_producer import AcknowledgedProducer
from ingest.kafka.consumer import InputTopics
from ingest.kafka.kafka_reader import Ends, KafkaReader, Stored
from ingest.model.source import Source
from ingest.route.buffer import RawRecord
from lake.errors import Reason, Rejected
from lake.settings import IngestSettings
from lake.storage import open_storage
from tests.ingest.support.fake_queue import FailingCore
from tests.stack.support.waiting import wait_for


class KafkaContract:
    """The suite. A subclass gives the fixture `settings`: brokers, a group that is new, an input topic of two
    partitions and a dead-letter topic, both empty."""

    @pytest.fixture
    def producer(self, settings: IngestSettings) -> AcknowledgedProducer:
        """Writes to the input topic."""
        return AcknowledgedProducer(settings, settings.topics[0].name, queue_kbytes=1_024)

    @pytest.fixture
    def reader(self, settings: IngestSettings) -> KafkaReader:
        return KafkaReader(settings)

    @pytest.fixture
    def inputs(self, settings: IngestSettings) -> Iterator[InputTopics]:
        with closing(InputTopics(settings)) as inputs:
            yield inputs

    def test_messages_come_back_as_they_were_in_order(
        self, settings: IngestSettings, producer: AcknowledgedProducer, reader: KafkaReader
    ) -> None:
        for number in range(20):
            producer.send(
                b"%d" % number, b"key", [("a", b"1"), ("b", None)], partition=1, timestamp_ms=5 + number
            )
        producer.send(None, None, [], partition=0)
        assert producer.flush(30.0) == 0
        assert producer.refusals == []
        first, second = reader.partitions([settings.topics[0].name, "not-there"])
        assert (first.partition, second.partition, first.topic_id) == (0, 1, second.topic_id)
        assert reader.ends([first, second]) == {first: Ends(0, 1), second: Ends(0, 20)}
        assert reader.from_time([second], 12) == {second: 7}
        messages = list(reader.read({second: (3, 20)}))
        assert [(message.offset(), message.value()) for message in messages] == [
            (number, b"%d" % number) for number in range(3, 20)
        ]
        assert messages[0].timestamp() == (1, 8)
        assert (messages[0].key(), messages[0].headers()[:2]) == (b"key", [("a", b"1"), ("b", None)])
        (nothing,) = reader.read({first: (0, 1)})
        assert (nothing.key(), nothing.value()) == (None, None)

    def test_a_group_goes_on_where_it_stored_its_offsets(
        self,
        settings: IngestSettings,
        producer: AcknowledgedProducer,
        reader: KafkaReader,
        inputs: InputTopics,
    ) -> None:
        for number in range(4):
            producer.send(b"%d" % number, None, [], partition=0)
        producer.flush(30.0)
        partitions = reader.partitions([settings.topics[0].name])
        assert reader.stored(partitions) == {}
        assert inputs.discover() == [0, 1]
        assert inputs.discover() == []
        inputs.check_identity()
        found: list[Message] = []

        def are_all_there() -> bool:
            found.extend(inputs.poll(0.5))
            return len(found) >= 4

        wait_for(are_all_there, 30, "all messages")
        assert [message.value() for message in found] == [b"0", b"1", b"2", b"3"]
        inputs.commit_group({0: 3}, "c1")
        topic_id = partitions[0].topic_id
        assert reader.stored(partitions) == {partitions[0]: Stored(3, topic_id, "c1")}
        with closing(InputTopics(settings)) as successor:
            successor.discover()
            assert (successor.positions, successor.first(0)) == ({0: 3, 1: 0}, 0)
            assert successor.end(0) >= 3

    @pytest.mark.core
    def test_what_a_failing_core_has_lost_is_read_again(
        self, settings: IngestSettings, producer: AcknowledgedProducer
    ) -> None:
        """By the same client, in order, once: its partitions leave the core's queue for the consumer."""
        found, routed = list[tuple[int, int]](), dict[int, int]()

        def send(count: int) -> None:
            for number in range(2 * count):
                producer.send(b"v", b"k", [], partition=number % 2)
            producer.flush(30.0)

        def come(inputs: InputTopics) -> bool:
            messages, runs = inputs.take(0.5)
            came = [(message.partition(), message.offset()) for message in messages]
            for run in runs:
                partition = inputs.assignment.sources[run.source].partition
                came += [(partition, offset) for group in run.groups for offset in group.read().offsets]
            found.extend(came)
            numbers = inputs.assignment.numbers
            routed.update({numbers[topic, partition]: offset + 1 for partition, offset in came})
            assert inputs.step_over(routed) == []
            return len(found) >= len(sent)

        topic = settings.topics[0].name
        with closing(InputTopics(settings, rules={topic: b"k."})) as inputs:
            routed.update(dict.fromkeys(inputs.discover(), 0))
            send(5)
            sent = [(partition, offset) for partition in (0, 1) for offset in range(5)]
            wait_for(lambda: come(inputs), 30, "the first messages")
            consumption = inputs._consumption
            assert consumption is not None
            consumption._functions = FailingCore(consumption._functions)
            send(5)
            sent = [(partition, offset) for partition in (0, 1) for offset in range(10)]
            wait_for(lambda: come(inputs), 30, "the rest")
            assert not consumption.takes
        assert sorted(found, key=itemgetter(0)) == sent

    def test_dead_letters_are_there_once_they_are_flushed(
        self, settings: IngestSettings, reader: KafkaReader
    ) -> None:
        letters = DeadLetters(settings, open_storage(), "file:///nowhere")
        source = Source("t", "id", 2, "json", "UTC")
        for offset in range(3):
            record = RawRecord(0, offset, 7, b"k", (("tenant", b"a"),), b"{")
            letters.send(source, record, Rejected(Reason.UNDECODABLE, "no"), "a.logs")
        letters.flush()
        (partition,) = reader.partitions([settings.internal_topics.dead_letters])
        messages = list(reader.read({partition: (0, 3)}))
        facts = [dict(message.headers()) for message in messages]
        assert [(each["tenant"], each["firn.offset"]) for each in facts] == [
            (b"a", b"%d" % offset) for offset in range(3)
        ]
        assert {message.value() for message in messages} == {b"{"}
