"""The engine on Spark: the same rows, dead letters and marks as the local one, alone and in turns with it, whatever dies."""

from collections.abc import Iterator

import orjson
import pytest

from tests.stack.kafka_topics import Record
from tests.stack.line import Line
from tests.stack.tool_line import ToolLine
from tests.stack.waiting import fresh

pytestmark = pytest.mark.stack

PARTITIONS = 3


def _records(tenants: list[str], count: int) -> Iterator[Record]:
    """Every seventh is a dead letter; columns come in the course of time."""
    for number in range(count):
        body = b'{"n":' if number % 7 == 0 else orjson.dumps({"n": number, f"field_{number * 5 // count}": "x"})
        yield Record(body, headers=(("tenant", tenants[number % len(tenants)].encode()),), partition=number % PARTITIONS)


def test_minimal(line: Line) -> None:
    tenants, topic = [fresh("spark-") for _ in range(3)], line.kafka.topic(PARTITIONS)
    ours = ToolLine(line, topic, engine="spark")
    line.kafka.produce(topic, _records(tenants, 700))
    try:
        ours.ingester.start()
        ours.wait_until_stored(topic, line.kafka.ends(topic))
        line.kafka.produce(topic, _records(tenants, 700))
        ours.wait_until_stored(topic, line.kafka.ends(topic))
        assert ours.audit() == {}
        assert (ours.audited["written"], ours.audited["dead_lettered"]) == (1200, 200)
        assert ours.ingester.stop() == 0
    finally:
        print(ours.ingester.log())
        ours.ingester.kill()
