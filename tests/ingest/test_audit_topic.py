"""Events of the audit trail on their way into Kafka."""

from datetime import UTC, datetime
from typing import Any

import pytest

from ingest.kafka import service_topic
from ingest.kafka.audit_topic import AuditTopic
from lake.audit.event import Head, make_event
from lake.errors import SettingsError, UnavailableError
from lake.settings import IngestSettings
from tests.ingest.support.fake_kafka import FakeBroker, FakeProducer

AT = datetime(2026, 11, 20, 10, 0, tzinfo=UTC)
LINES = [make_event({"event.action": "x"}, "writer", Head(at), AT).line.decode() for at in range(3)]


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> FakeBroker:
    made = FakeBroker()
    made.create_topic("firn.audit", 4)
    made.install(monkeypatch)
    monkeypatch.setattr(service_topic, "ensure_topic", lambda *_, **__: None)
    return made


def test_a_writers_events_stay_in_order_and_are_never_late(broker: FakeBroker) -> None:
    """In one partition, as they were written; a message has its event's time, however long that waited."""
    topic = AuditTopic(IngestSettings())
    topic.write(LINES[:2])
    topic.write(LINES[2:])
    messages = broker.messages("firn.audit")
    assert [(message.value() or b"").decode() for message in messages] == LINES
    assert {(message.partition(), message.key()) for message in messages} == {
        (messages[0].partition(), b"writer")
    }
    assert {message.timestamp()[1] for message in messages} == {int(AT.timestamp() * 1000)}


@pytest.mark.parametrize(
    "line", ["", "text", "[]", "{}", '{"event.original":"{}","event.hash":"0"}', LINES[0].replace("x", "y")]
)
def test_what_is_no_event_is_refused(broker: FakeBroker, line: str) -> None:
    """As a whole: nothing of the request is written."""
    with pytest.raises(SettingsError, match="no event"):
        AuditTopic(IngestSettings()).write([LINES[0], line])
    assert broker.messages("firn.audit") == []


def test_who_gets_no_answer_is_told_to_send_again(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client that got none is not asked again: it may still try with what it has."""
    made = list[FakeProducer]()

    class Silent(FakeProducer):
        """Acknowledges nothing while it is the only one."""

        def flush(self, timeout_s: float) -> int:
            return 1 if len(made) == 1 else super().flush(timeout_s)

    def producer(_: Any) -> FakeProducer:
        made.append(Silent(broker))
        return made[-1]

    monkeypatch.setattr("ingest.kafka.acknowledged_producer.Producer", producer)
    topic = AuditTopic(IngestSettings())
    with pytest.raises(UnavailableError, match="no answer"):
        topic.write(LINES)
    topic.write(LINES)
    topic.write(LINES)
    assert len(made) == 2
    assert len(broker.messages("firn.audit")) == 6
