"""The queue between a live tail and whoever looks on: bounded, and honest about what it dropped."""

from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, Message

from ingest.kafka.kafka_trouble import KafkaRefusedError
from ingest.serve import live_tail
from ingest.serve.live_tail import LiveTail, TailEvent, TailFilter, TailQueue, holds_all, words_of
from lake.settings import IngestSettings
from lake.tenant import TenantId
from tests.ingest.support.fake_kafka import FakeBroker, FakeConsumer
from tests.ingest.support.masking import CUT, DROP, masking_settings, message


def _events(count: int, size_bytes: int = 1) -> list[TailEvent]:
    return [TailEvent("record", {"n": at}, size_bytes) for at in range(count)]


@pytest.mark.parametrize(
    ("bound", "limit", "size_bytes"), [("QUEUE_EVENTS_MAX", 3, 1), ("QUEUE_BYTES_MAX", 30, 10)]
)
def test_what_does_not_fit_is_dropped_counted_and_told_once(
    monkeypatch: pytest.MonkeyPatch, bound: str, limit: int, size_bytes: int
) -> None:
    """By number and by bytes: the first ones stay, the count of the others comes behind them, and the queue
    takes records again."""
    monkeypatch.setattr(live_tail, bound, limit)
    queue = TailQueue()
    for event in _events(8, size_bytes):
        queue.put(event)
    *kept, dropped = queue.take()
    assert [event.data["n"] for event in kept] == [0, 1, 2]
    assert (dropped.kind, dropped.data) == ("dropped", {"records": 5, "total": 5})
    assert queue.take() == []
    for event in _events(4, size_bytes):
        queue.put(event)
    assert queue.take()[-1].data == {"records": 1, "total": 6}


def test_words_are_found_in_any_case() -> None:
    """All of them have to be there, in any order."""
    assert words_of("  Timeout DB ") == ("timeout", "db")
    assert holds_all("a db had a timeout", words_of("Timeout DB"))
    assert not holds_all("a timeout", words_of("Timeout DB"))
    assert holds_all("anything", words_of(""))


@pytest.mark.parametrize(
    ("code", "topic", "told"),
    [
        (KafkaError.GROUP_AUTHORIZATION_FAILED, None, "may not READ group firn.tail"),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, "logs", "may not READ topic logs"),
    ],
)
def test_a_tail_that_may_not_read_says_which_right_is_missing(
    code: int, topic: str | None, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Instead of showing nothing for ever."""
    monkeypatch.setenv("FIRN_CONFIG", "")
    tail = LiveTail(IngestSettings.load(), TailFilter(TenantId("a")))
    consumer: Any = FakeConsumer(FakeBroker(), "firn.tail")
    with pytest.raises(KafkaRefusedError, match=told):
        tail._take_all(consumer, [Message(topic=topic, error=KafkaError(code))])


def test_a_tail_shows_what_masking_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a message that is withheld nothing."""
    monkeypatch.setenv("FIRN_CONFIG", "")
    settings = masking_settings(DROP, CUT, tenant=["const:a"])
    tail, consumer = LiveTail(settings, TailFilter(TenantId("a"))), FakeConsumer(FakeBroker(), "firn.tail")
    values = [b'{"message":"from bob@example.com","password":"x"}', b'{"password":"hunter2']
    tail._take_all(cast("Any", consumer), [message(value, at) for at, value in enumerate(values)])
    (event,) = tail.queue.take()
    assert (event.data["message"], event.data["fields"]) == ("from [email]", {})


def test_a_record_has_the_level_of_its_severity(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the severity as it is spelled, as the rows of a search have it."""
    monkeypatch.setenv("FIRN_CONFIG", "")
    tail = LiveTail(masking_settings(DROP, tenant=["const:a"]), TailFilter(TenantId("a")))
    values = [b'{"message":"m","level":"Warning"}', b'{"message":"m"}']
    consumer: Any = FakeConsumer(FakeBroker(), "firn.tail")
    tail._take_all(consumer, [message(value, at) for at, value in enumerate(values)])
    assert [(e.data["severity"], e.data["level"]) for e in tail.queue.take()] == [
        ("Warning", "warn"),
        (None, "other"),
    ]
