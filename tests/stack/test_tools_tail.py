"""The live tail: records as they reach Kafka, before any commit, of one tenant, until the caller leaves."""

import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import httpx
import orjson
import pytest

from ingest.kafka.kafka_client import reading_consumer
from ingest.kafka.kafka_reader import KafkaReader
from ingest.serve import live_tail
from ingest.serve.live_tail import LiveTail, TailFilter
from lake.kafka_access_list import grants
from lake.settings import IngestSettings, TopicSettings
from lake.tenant import TenantId
from tests.stack.support.kafka_topics import Record
from tests.stack.support.line import Line
from tests.stack.support.secured_kafka import grant
from tests.stack.support.tool_line import ToolLine
from tests.stack.support.waiting import fresh, wait_for

pytestmark = pytest.mark.stack


class Listener:
    """Reads server-sent events in a thread of its own."""

    def __init__(self, client: httpx.Client, **query: str) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []
        self._client, self._query = client, query
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._leaving = threading.Event()
        self._thread.start()

    def _listen(self) -> None:
        kind = ""
        with self._client.stream("GET", "/v1/tail", params=self._query) as response:
            assert response.headers["content-type"].startswith("text/event-stream")
            for text in response.iter_lines():
                if text.startswith("event: "):
                    kind = text.removeprefix("event: ")
                elif text.startswith("data: "):
                    self.events.append((kind, orjson.loads(text.removeprefix("data: "))))
                if self._leaving.is_set():
                    return

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [data for found, data in self.events if found == kind]

    def leave(self) -> None:
        self._leaving.set()
        self._thread.join(30)
        assert not self._thread.is_alive()


@contextmanager
def _listening(client: httpx.Client, **query: str) -> Iterator[Listener]:
    listener = Listener(client, **query)
    wait_for(lambda: listener.of("open"), 30, "the first event")
    try:
        yield listener
    finally:
        listener.leave()


def _record(tenant: str, body: bytes, stream: str = "logs", partition: int = 0) -> Record:
    return Record(
        body, headers=(("tenant", tenant.encode()), ("stream", stream.encode())), partition=partition
    )


def test_records_of_a_tenant_are_shown_before_any_commit(line: Line) -> None:
    """A tail shows what comes after it began: its tenant's records only, those that hold the words, decoded,
    batches taken apart, no ingester needed."""
    tenant, other, topic = fresh("tail-"), fresh("tail-"), line.kafka.topic(2)
    line.kafka.produce(topic, [_record(tenant, b"before anybody looked on")])
    ours = ToolLine(line, topic)
    with (
        ours.serve() as client,
        _listening(client, tenant=tenant) as every,
        _listening(client, tenant=tenant, stream="web", q="TIMEOUT db") as some,
    ):
        line.kafka.produce(
            topic,
            [
                _record(tenant, b'{"level":"warn","msg":"Timeout of DB-3","took":1.50}', "web"),
                _record(other, b"somebody else's Timeout of db"),
                _record(tenant, b'{"msg":"first"}\n{"msg":}\n{"msg":"third"}', partition=1),
                _record(tenant, b"timeout, but no d-b", "web"),
                _record(tenant, b"timeout of db in another stream"),
            ],
        )
        wait_for(lambda: len(every.of("record")) >= 5 and every.of("rejected"), 30, "the tenant's records")
        wait_for(lambda: some.of("record"), 30, "the record that holds the words")
    (shown,) = some.of("record")
    assert {
        name: shown[name]
        for name in ("severity", "message", "fields", "stream", "topic", "partition", "index")
    } == {
        "severity": "warn",
        "message": "Timeout of DB-3",
        "fields": {"took": "1.50"},
        "stream": "web",
        "topic": topic,
        "partition": 0,
        "index": 0,
    }
    messages = {data["message"] for data in every.of("record")}
    assert messages == {
        "Timeout of DB-3",
        "first",
        "third",
        "timeout, but no d-b",
        "timeout of db in another stream",
    }
    (rejected,) = every.of("rejected")
    assert (rejected["reason"], rejected["index"]) == ("undecodable", 1)
    assert not line.exists(tenant), "nothing is committed by looking on"


def test_a_tail_ends_when_its_caller_leaves_and_only_so_many_run(line: Line) -> None:
    """One more than `serve.tails_max` is turned away, until one of the others has gone."""
    topic = line.kafka.topic()
    ours = ToolLine(line, topic)
    with ours.serve(serve__tails_max="1") as client:
        with _listening(client, tenant="a"):
            assert "firn_ingest_live_tails 1.0" in client.get("/metrics").text
            refused = client.get("/v1/tail", params={"tenant": "a"})
            assert refused.status_code == 429
            line.kafka.produce(topic, [_record("a", b"something to wake the listener up")])
        wait_for(
            lambda: "firn_ingest_live_tails 0.0" in client.get("/metrics").text, 30, "the end of the tail"
        )
        with _listening(client, tenant="a"):
            line.kafka.produce(topic, [_record("a", b"again")])
        assert client.get("/v1/tail", params={"tenant": "x" * 101}).status_code == 400


def test_a_tail_far_behind_skips_to_the_end_and_says_so(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who cannot keep up with a busy topic sees its present, not its past."""
    topic = line.kafka.topic()
    line.kafka.produce(topic, [_record("a", b"old") for _ in range(300)])
    settings = IngestSettings.load(
        kafka__bootstrap_servers=line.kafka.bootstrap_servers,
        topics=(TopicSettings(name=topic),),
        kafka__group=fresh("tail-"),
    )
    grant(line.kafka.bootstrap_servers, grants(settings))
    tail = LiveTail(settings, TailFilter(TenantId("a")))
    monkeypatch.setattr(live_tail, "BEHIND_MAX", 100)
    with closing(reading_consumer(settings, settings.kafka.group)) as consumer:
        tail.discover(consumer, KafkaReader(settings), from_end=False)
        assert wait_for(lambda: consumer.consume(1, 1.0), 30, "a message")[0].offset() == 0
        tail.skip_ahead(consumer)
        line.kafka.produce(topic, [_record("a", b"new")])
        later = wait_for(
            lambda: [m for m in consumer.consume(10, 1.0) if m.error() is None], 30, "the new message"
        )
    assert [message.value() for message in later] == [b"new"]
    (skipped,) = tail.queue.take()
    assert (skipped.kind, list(skipped.data)) == ("skipped", ["message"])  # nothing of how much others write
    assert "left out" in skipped.data["message"]
