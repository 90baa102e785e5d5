"""A change that became a dead letter is not replayed where later changes of its key would be undone."""

from datetime import UTC, datetime
from typing import Any

import orjson
import pytest

from ingest.dead_letters.later_changes import FOLLOWED, TRUNCATE, LaterChanges
from ingest.decode.dead_letter import DeadLetter
from ingest.kafka.kafka_reader import KafkaReader
from lake.settings import ChangeSettings, IngestSettings, TopicSettings
from lake.tenant import TableId, TenantId
from tests.ingest.support.fake_kafka import FakeBroker

NOW = datetime(2026, 3, 1, tzinfo=UTC)
ORDERS = TableId(TenantId("shop"), "logs")


def _change(op: str, number: int, lsn: int) -> bytes:
    row = None if op in ("d", "t") else {"id": number}
    return orjson.dumps({"op": op, "before": {"id": number}, "after": row, "source": {"lsn": lsn}})


def _letter(offset: int) -> DeadLetter:
    return DeadLetter(
        *(0, 0, NOW, "unstorable", "", "orders", "id", 0, offset, 1, None, None, None, None, 0),
        key=b'{"id":1}',
        headers=(),
        value=None,
        value_bytes=None,
    )


def _asked(
    monkeypatch: pytest.MonkeyPatch, order_by: Any, dead: tuple[str, int, int], *later: tuple[str, int, int]
) -> str | None:
    """Why a change is not replayed that is the first of its topic; the others follow it there."""
    broker = FakeBroker()
    broker.install(monkeypatch)
    broker.create_topic("orders")
    headers = [("tenant", b"shop")]
    for op, number, lsn in (dead, *later):
        key = None if op == "t" else orjson.dumps({"id": number})
        broker.append("orders", _change(op, number, lsn), key=key, headers=headers)
    topic = TopicSettings(name="orders", changes=ChangeSettings(order_by=order_by))
    settings = IngestSettings(topics=(topic,))
    return LaterChanges(settings, KafkaReader(settings)).why_late(_letter(0), _change(*dead), topic, ORDERS)


def test_a_later_change_of_the_key_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    """By offset whatever comes later; a change of another key is no hindrance."""
    assert _asked(monkeypatch, "offset", ("c", 1, 5), ("c", 2, 6)) is None
    assert _asked(monkeypatch, "offset", ("c", 1, 5), ("d", 1, 6)) == FOLLOWED
    assert _asked(monkeypatch, "offset", ("c", 1, 5), ("u", 1, 2)) == FOLLOWED


def test_by_position_an_older_change_that_comes_later_is_no_hindrance(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert _asked(monkeypatch, "position", ("c", 1, 5), ("u", 1, 2)) is None
    assert _asked(monkeypatch, "position", ("c", 1, 5), ("u", 1, 2), ("d", 1, 9)) == FOLLOWED


def test_a_truncate_is_neither_replayed_nor_undone(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _asked(monkeypatch, "position", ("c", 1, 5), ("t", 0, 3)) == FOLLOWED
    assert _asked(monkeypatch, "offset", ("t", 0, 5)) == TRUNCATE
