"""What Kafka's client holds of messages that nobody has asked for yet."""

import multiprocessing
import os
from contextlib import closing
from multiprocessing.connection import Connection

import psutil
import pytest

from ingest.kafka.consumer import ANSWER_BYTES, WAITING_BYTES, InputTopics
from lake.settings import IngestSettings, TopicSettings
from tests.stack.support.kafka_topics import KafkaTopics, Record
from tests.stack.support.waiting import fresh, pause, wait_for

pytestmark = pytest.mark.stack

MIB = 1024 * 1024
PARTITIONS = 8
FULL_S = 60.0
# Six times what may wait and the one answer that may be on its way beside it.
MESSAGES, MESSAGE_BYTES = 400, MIB // 2
HELD_MAX = WAITING_BYTES + ANSWER_BYTES + 8 * MIB  # its own


def test_a_worker_that_takes_nothing_has_no_more_fetched_than_is_bounded(kafka: KafkaTopics) -> None:
    """While the buffers of a worker are full the client fetches no further; without the bound of what waits
    it held two and a half times as much."""
    topic = kafka.topic(PARTITIONS)
    kafka.produce(
        topic, [Record(os.urandom(MESSAGE_BYTES), partition=at % PARTITIONS) for at in range(MESSAGES)]
    )
    settings = IngestSettings.load(
        kafka__bootstrap_servers=kafka.bootstrap_servers,
        kafka__group=fresh("g-"),
        topics=(TopicSettings(name=topic),),
    )
    context = multiprocessing.get_context("spawn")  # where nothing is that would be used again
    ours, theirs = context.Pipe()
    worker = context.Process(target=_hold, args=(theirs, settings))
    worker.start()
    theirs.close()
    try:
        assert ours.recv() == "ready"
        process = psutil.Process(worker.pid)
        before = process.memory_info().rss
        ours.send("now")
        wait_for(lambda: process.memory_info().rss - before >= WAITING_BYTES // 2, FULL_S, "a first answer")
        for _ in range(10):
            pause(0.3)
            held = process.memory_info().rss - before
            assert held <= HELD_MAX, f"the client holds {held / MIB:.0f} MiB"
    finally:
        ours.close()
        worker.kill()
        worker.join()


def _hold(pipe: Connection, settings: IngestSettings) -> None:
    with closing(InputTopics(settings)) as inputs:
        pipe.send("ready")
        pipe.recv()
        inputs.discover()
        pipe.poll(2 * FULL_S)
