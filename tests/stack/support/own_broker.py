"""A Kafka that nobody else needs, for tests that end it: the stack's is that of all processes of the run."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from infra.local.supervisor import Stack
from tests.stack.support.kafka_topics import KafkaTopics
from tests.stack.support.line import Line
from tests.stack.support.secured_kafka import admit


@contextmanager
def own_broker(line: Line, folder: Path) -> Iterator[tuple[Line, Stack]]:
    """The line with a broker of its own, and the stack that runs it."""
    with Stack(folder / "broker", tied=True) as stack:
        stack.start("kafka")
        admit(stack.address("kafka"))
        made = Line(line.stack, KafkaTopics(stack.address("kafka")), folder)
        try:
            yield made, stack
        finally:
            made.catalog.close()
