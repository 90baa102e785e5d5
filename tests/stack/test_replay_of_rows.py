"""A dead letter whose record became a row after all, because its table was moved back and read again, is not
sent a second time."""

from datetime import UTC, datetime, timedelta

import orjson
import pytest

from lake.tenant import to_identifier
from tests.stack.support.kafka_topics import Record
from tests.stack.support.line import Line
from tests.stack.support.parked import (
    location,
    resolve,
    roll_back_by_rest,
    snapshots,
    table_name,
    wait_parked,
    wait_released,
)
from tests.stack.support.tool_line import ToolLine
from tests.stack.support.waiting import fresh

pytestmark = pytest.mark.stack
NOW = datetime.now(UTC)


def _record(tenant: str, at: datetime) -> Record:
    return Record(orjson.dumps({"time": at.isoformat()}), headers=(("tenant", tenant.encode()),))


def test_a_dead_letter_that_was_read_again_is_not_sent_again(line: Line) -> None:
    """It is told as a row, over HTTP too, and nothing is sent where that cannot be told; the other one
    becomes a row. Once what is a row is erased, each record is in one place."""
    tenant, topic = fresh("again-"), line.kafka.topic(1)
    line.catalog.create_namespace(to_identifier(tenant), {"firn.retention": "1d"})
    late = NOW - timedelta(days=2)
    ours = ToolLine(line, topic)
    running = ours.ingester
    try:
        running.start()
        line.kafka.produce(topic, [_record(tenant, late), _record(tenant, NOW)])
        line.wait_for_rows(running, tenant, 1)
        line.wait_for_dead_letters(running, 1)
        ours.wait_until_stored(topic, {0: 2})
        first = snapshots(line, tenant)[-1]
        line.kafka.produce(topic, [_record(tenant, late), _record(tenant, NOW)])
        line.wait_for_rows(running, tenant, 2)
        line.wait_for_dead_letters(running, 2)
        ours.wait_until_stored(topic, {0: 4})
        assert running.stop() == 0  # one that begins anew has believed no retention yet
        line.catalog.set_properties(table_name(tenant), {"firn.retention": "forever"})
        roll_back_by_rest(line, tenant, first)
        assert "resolve" in ours.refusal("dead-letters", "replay", "--all")
        running.start()
        line.kafka.produce(topic, [_record(tenant, NOW)])
        wait_parked(running, tenant, "rolled_back")
        resolve(running, "--reread", str(table_name(tenant)))
        wait_released(running, tenant)
        line.wait_for_rows(running, tenant, 4)
        assert _offsets(line, tenant) == [1, 2, 3, 4]
        _look(ours, line, tenant)
        assert ours.json("dead-letters", "replay", "--all") == {
            "dry_run": False,
            "replayed": 1,
            "tables": {str(table_name(tenant)): 1},
            "left": {"already a row": 1},
        }
        line.wait_for_rows(running, tenant, 5)
        assert _offsets(line, tenant) == [0, 1, 2, 3, 4]
        assert running.stop() == 0
        assert ours.audit() == {"in_two_places": 1}
        ours.run("dead-letters", "erase", "--reason", "past_retention")
        assert ours.audit() == {}
        assert ours.audited["written"] == 5
    finally:
        running.kill()


def _look(ours: ToolLine, line: Line, tenant: str) -> None:
    """What the tools say, and without a look what the old ones said."""
    with ours.serve() as client:
        told = client.post("/v1/dead-letters/replay", json={"all": True, "dry_run": True}).json()
        assert (told["replayed"], told["left"]) == (1, {"already a row": 1})
        body = {"all": True, "dry_run": True, "look": False}
        assert client.post("/v1/dead-letters/replay", json=body).json()["replayed"] == 2
        data = location(line, tenant) / "data"
        data.rename(data.with_name("aside"))
        try:
            answer = client.post("/v1/dead-letters/replay", json={"all": True})
        finally:
            data.with_name("aside").rename(data)
    assert (answer.status_code, "--no-look" in answer.text) == (409, True)
    assert ours.json("dead-letters", "replay", "--all", "--no-look", "--dry-run")["replayed"] == 2


def _offsets(line: Line, tenant: str) -> list[int]:
    return [offset for (offset,) in line.sql(f"SELECT _offset FROM {line.table(tenant)} ORDER BY 1")]
