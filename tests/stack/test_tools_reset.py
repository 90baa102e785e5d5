"""`reset-topic`: the way on that the ingester names when a topic was re-created."""

from collections.abc import Iterator

import orjson
import pytest

from tests.stack.support.kafka_topics import Record
from tests.stack.support.line import Line
from tests.stack.support.tool_line import ToolLine
from tests.stack.support.waiting import fresh

pytestmark = pytest.mark.stack


@pytest.fixture
def recreated(line: Line) -> Iterator[tuple[ToolLine, str, str]]:
    """A topic of 6 records for which the group has stored offset 5 of another topic's id; its tools, its
    name, its tenant."""
    topic, tenant = line.kafka.topic(), fresh("reset-")
    line.kafka.produce(
        topic, [Record(orjson.dumps({"n": n}), headers=(("tenant", tenant.encode()),)) for n in range(6)]
    )
    ours = ToolLine(line, topic)
    line.kafka.store_group_offset(ours.group, topic, 5, "id-of-the-topic-before")
    try:
        yield ours, topic, tenant
    finally:
        ours.ingester.kill()


def test_a_recreated_topic_is_read_from_its_start_after_reset_topic(
    line: Line, recreated: tuple[ToolLine, str, str]
) -> None:
    """It shows what it will do and asks; afterwards the ingester reads everything, and there is nothing left
    to reset."""
    ours, topic, tenant = recreated
    assert ours.json("status")["recreated_topics"] == [topic]
    asked = ours.answered("reset-topic", topic, answer="n\n", code=1)
    assert "id-of-the-topic-before" in asked
    assert line.kafka.group_offsets(ours.group, topic) == {0: 5}
    assert f"reads {topic} from its start" in ours.answered("reset-topic", topic, answer="y\n", code=0)
    assert line.kafka.group_offsets(ours.group, topic) == {0: 0}
    ours.ingester.start()
    line.wait_for_rows(ours.ingester, tenant, 6)
    assert "runs; stop it" in ours.refusal("reset-topic", topic, "--yes")
    assert ours.ingester.stop() == 0
    assert "nothing to do" in ours.run("reset-topic", topic, "--yes")
    assert ours.audit() == {}
    assert "is no input topic" in ours.refusal("reset-topic", "another")


def test_reset_topic_takes_the_lease_that_a_node_would_take(
    line: Line, recreated: tuple[ToolLine, str, str]
) -> None:
    """While anybody holds the group's lease, nothing is changed."""
    ours, topic, _ = recreated
    lease = f"/firn/v1/leases/ingest.{ours.group}"
    token = line.catalog.post(f"{lease}/acquire", {"holder": "a node", "ttl-ms": 60_000})["token"]
    assert "is held by a node" in ours.refusal("reset-topic", topic, "--yes")
    assert line.kafka.group_offsets(ours.group, topic) == {0: 5}
    line.catalog.post(f"{lease}/release", {"token": token})
    ours.run("reset-topic", topic, "--yes")
    assert line.kafka.group_offsets(ours.group, topic) == {0: 0}
