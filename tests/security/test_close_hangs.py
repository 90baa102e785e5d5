"""Finding 3: a client of Kafka that cannot be closed stops nobody."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from ingest.kafka import kafka_client
from ingest.kafka.unreadable import Probe
from ingest.node.worker import Worker
from lake.errors import UnavailableError
from lake.settings import IngestSettings
from tests.ingest.support.fake_clock import FakeClock

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
    monkeypatch.setattr(kafka_client, "_closing", [])
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


@pytest.mark.long
def test_a_process_with_many_such_clients_ends(stuck: Stuck) -> None:
    """A producer of such batches takes no memory without end: the worker says why it ends, and the node
    starts it anew. One that closed late does not count."""
    for _ in range(kafka_client.LEFT_BEHIND_MAX):
        kafka_client.part_with(stuck)
    kafka_client.check_left_behind()
    kafka_client.part_with(stuck)
    with pytest.raises(UnavailableError, match="17 clients of Kafka"):
        kafka_client.check_left_behind()
    stuck.let_go.set()
    for thread in kafka_client._closing:
        thread.join()
    kafka_client.check_left_behind()


class Idle(Worker):
    """A worker that does nothing but its periodic tasks."""

    def _work(self) -> None: ...

    def _finish(self) -> bool:
        return True


@pytest.mark.long
def test_a_worker_looks_for_them(stuck: Stuck) -> None:
    """The process ends with the sentence that its node logs."""
    for _ in range(kafka_client.LEFT_BEHIND_MAX + 1):
        kafka_client.part_with(stuck)
    nobody: Any = None
    worker = Idle(IngestSettings(), nobody, nobody, nobody, nobody, FakeClock())
    with pytest.raises(UnavailableError, match="do not close"):
        worker._duties()
