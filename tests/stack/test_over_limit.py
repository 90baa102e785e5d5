"""A tenant at fifty times its limit, through the whole line: what is over it are dead letters, rows when they
are sent again, and nobody else's records wait."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from lake.clock import epoch_ms
from lake.tenant import to_identifier
from tests.stack.support.kafka_topics import Record
from tests.stack.support.line import Line
from tests.stack.support.tool_line import ToolLine
from tests.stack.support.waiting import fresh, wait_for

pytestmark = pytest.mark.stack
LIMIT = 60  # one a second, counted by the minute
SENT = 50 * LIMIT


def _records(tenant: str, count: int, at_ms: int, stream: str = "logs") -> list[Record]:
    """All of one minute."""
    headers = ("tenant", tenant.encode()), ("stream", stream.encode())
    return [Record(b'{"message":"m"}', headers=headers, timestamp_ms=at_ms) for _ in range(count)]


def test_fifty_times_the_limit(line: Line, tmp_path: Path) -> None:
    """Every record is a row or a dead letter with its reason, also where the node is killed when the
    commit is there and no dead letter yet; sent again they are rows, each once."""
    flood, calm, topic = fresh("flood-"), fresh("calm-"), line.kafka.topic(1)
    line.catalog.create_namespace(to_identifier(flood), {"firn.limits.records_per_s": "1"})
    ours = ToolLine(line, topic)
    try:
        dies = {"FIRN_FAULT_POINT": "commit_answered:kill", "FIRN_FAULT_FOLDER": str(tmp_path)}
        ours.ingester.start(environment=dies)
        at_ms = (epoch_ms(datetime.now(UTC)) // 60_000 - 1) * 60_000
        line.kafka.produce(topic, _records(flood, SENT // 2, at_ms))
        wait_for(lambda: not ours.ingester.alive, 60.0, "the end of the node, its commit being there")
        assert line.kafka.dead_letters(ours.ingester.dead_letter_topic) == {}
        ours.ingester.start()
        line.wait_for_dead_letters(ours.ingester, SENT // 2 - LIMIT)
        line.kafka.produce(topic, [*_records(flood, SENT // 2, at_ms), *_records(calm, 100, at_ms)])
        line.wait_for_rows(ours.ingester, calm, 100)
        ours.wait_until_stored(topic, {0: SENT + 100})
        assert ours.audit() == {}, ours.audited
        assert line.sql(f"SELECT count(*) FROM {line.table(calm)}") == [(100,)]
        before = line.sql(f"SELECT count(*) FROM {line.table(flood)}")
        assert before == [(2 * LIMIT,)]  # a worker that begins anew has counted nothing
        ours.run("dead-letters", "replay", "--reason", "over_limit")
        line.wait_for_rows(ours.ingester, flood, SENT)
        found = line.sql(f"SELECT count(*), count(DISTINCT _offset) FROM {line.table(flood)}")
        assert found == [(SENT, SENT)]
        assert ours.ingester.stop() == 0
        assert ours.audit() == {}
    finally:
        ours.ingester.kill()


def test_a_tenant_with_as_many_streams_as_it_may(line: Line) -> None:
    """A new stream beyond them is dead letters, with who said so; those that are there go on, and so do
    others' new ones."""
    full, calm, topic = fresh("full-"), fresh("calm-"), line.kafka.topic(1)
    line.catalog.create_namespace(to_identifier(full), {"firn.limits.streams": "1"})
    ours = ToolLine(line, topic)
    try:
        ours.ingester.start()
        at_ms = epoch_ms(datetime.now(UTC))
        line.kafka.produce(topic, _records(full, 10, at_ms))
        line.wait_for_rows(ours.ingester, full, 10)
        more = [
            *_records(full, 20, at_ms, "new"),
            *_records(full, 5, at_ms),
            *_records(calm, 5, at_ms, "new"),
        ]
        line.kafka.produce(topic, more)
        line.wait_for_dead_letters(ours.ingester, 20)
        line.wait_for_rows(ours.ingester, full, 15)
        letters = line.kafka.dead_letters(ours.ingester.dead_letter_topic).values()
        facts = {(each.facts["firn.reason"], each.facts["firn.table"]) for each in letters}
        assert facts == {("over_limit", f"{to_identifier(full)}.new")}
        assert all("streams is 1, as the tenant says" in each.facts["firn.detail"] for each in letters)
        ours.wait_until_stored(topic, {0: 10 + len(more)})
        assert line.rows_written(calm, "new") == 5
        assert not line.exists(full, "new")
        assert ours.ingester.stop() == 0
        assert ours.audit() == {}
    finally:
        ours.ingester.kill()
