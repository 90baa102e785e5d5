"""The contract of Kafka for a real broker and for the one in memory that stands for it in plain tests."""

import pytest

from lake.settings import IngestSettings, TopicSettings
from tests.contracts.support.kafka_suite import KafkaContract
from tests.ingest.support.fake_kafka import FakeBroker
from tests.stack.support.kafka_topics import KafkaTopics
from tests.stack.support.waiting import fresh


class TestFakeBroker(KafkaContract):
    """The one in memory."""

    @pytest.fixture
    def settings(self, monkeypatch: pytest.MonkeyPatch) -> IngestSettings:
        broker = FakeBroker()
        broker.create_topic("t", 2)
        broker.create_topic("dead")
        broker.install(monkeypatch)
        return IngestSettings.load(topics=(TopicSettings(name="t"),), internal_topics__dead_letters="dead")


@pytest.mark.stack
class TestKafka(KafkaContract):
    """A real one."""

    @pytest.fixture
    def settings(self, kafka: KafkaTopics) -> IngestSettings:
        return IngestSettings.load(
            kafka__bootstrap_servers=kafka.bootstrap_servers,
            kafka__group=fresh("g-"),
            topics=(TopicSettings(name=kafka.topic(2)),),
            internal_topics__dead_letters=kafka.topic(),
        )
