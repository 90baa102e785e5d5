"""Finding 3: a client of Kafka that cannot be closed stops nobody."""

import threading
from collections.abc import Iterator

import pytest

from ingest.kafka import kafka_client
from ingest.kafka.unreadable import Probe
from lake.settings import IngestSettings

pytestmark = pytest.mark.finding(3)


class Stuck:
    """Its thread waits for a lock that it holds itself, as librdkafka's does."""

    def __init__(self) -> None:
        self.let_go = threading.Event()
        self.asked = threading.Event()

    def close(self) -> None:
        self.asked.set()
        self.let_go.wait()


@pytest.fixture
def stuck(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stuck]:
    monkeypatch.setattr(kafka_client, "CLOSE_S", 0.05)
    made = Stuck()
    yield made
    made.let_go.set()


def test_a_consumer_that_does_not_close_is_left_to_itself(stuck: Stuck) -> None:
    """Whoever parts with it goes on; it is being closed all the while."""
    with kafka_client.parting_with(stuck) as consumer:
        assert consumer is stuck
        assert not stuck.asked.is_set()
    assert stuck.asked.is_set()


def test_a_probe_goes_on_with_a_new_client(stuck: Stuck) -> None:
    """The next question is asked of another client."""
    probe = Probe(IngestSettings())
    probe._consumer = stuck
    probe.close()
    assert stuck.asked.is_set()
    assert probe._consumer is None
