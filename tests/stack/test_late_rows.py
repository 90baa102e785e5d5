"""A record past its table's retention, through the whole line: a dead letter, and a row when it is replayed
to a table that keeps it."""

from datetime import UTC, datetime, timedelta

import orjson
import pytest

from lake.tenant import to_identifier
from tests.stack.support.kafka_topics import Record
from tests.stack.support.line import Line
from tests.stack.support.parked import table_name
from tests.stack.support.tool_line import ToolLine
from tests.stack.support.waiting import fresh

pytestmark = pytest.mark.stack


def test_a_late_record_is_a_dead_letter_until_its_stream_keeps_it(line: Line) -> None:
    """By what its tenant says, of a table that is made by the same flush; replayed it dies no second death
    once its stream says otherwise, and is stored once."""
    tenant, topic, now = fresh("late-"), line.kafka.topic(1), datetime.now(UTC)
    line.catalog.create_namespace(to_identifier(tenant), {"firn.retention": "1d"})
    records = [
        Record(orjson.dumps({"time": at.isoformat(), "message": "m"}), headers=(("tenant", tenant.encode()),))
        for at in (now, now - timedelta(days=2))
    ]
    line.kafka.produce(topic, records)
    ours = ToolLine(line, topic)
    try:
        ours.ingester.start()
        line.wait_for_rows(ours.ingester, tenant, 1)
        line.wait_for_dead_letters(ours.ingester, 1)
        (letter,) = map(orjson.loads, ours.run("dead-letters", "list", "--json").splitlines())
        assert (letter["reason"], letter["offset"]) == ("past_retention", 1)
        line.catalog.set_properties(table_name(tenant), {"firn.retention": "forever"})
        ours.run("dead-letters", "replay", "--reason", "past_retention")
        line.wait_for_rows(ours.ingester, tenant, 2)
        found = line.sql(f"SELECT _offset FROM {line.table(tenant)} ORDER BY 1")
        assert found == [(0,), (1,)]
        assert ours.ingester.stop() == 0
        assert ours.audit() == {}
    finally:
        ours.ingester.kill()
