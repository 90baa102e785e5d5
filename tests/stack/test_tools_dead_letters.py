"""Dead letters listed, shown and replayed; what is replayed keeps the identity it was first read under, and
is stored once."""

import base64
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
import pytest

from tests.stack.support.kafka_topics import Record
from tests.stack.support.line import Line
from tests.stack.support.tool_line import ToolLine
from tests.stack.support.waiting import fresh, wait_for

pytestmark = pytest.mark.stack

NOW = datetime.now(UTC).replace(microsecond=0)
KAFKA_MS = int(NOW.timestamp() * 1000)
LATE = NOW - timedelta(days=9)
COLUMNS = "_topic, _topic_id, _topic_partition, _offset, _index, message"


@pytest.fixture
def tools(line: Line) -> Iterator[Callable[..., ToolLine]]:
    """`tools(topics, **settings)`; ingesters are ended after the test."""
    made: list[ToolLine] = []

    def make(topics: Any, **settings: Any) -> ToolLine:
        made.append(ToolLine(line, topics, **settings))
        return made[-1]

    try:
        yield make
    finally:
        for one in made:
            one.ingester.kill()


def _messages(tenant: bytes) -> list[Record]:
    """A good message, and one for each way to die: the second has no tenant, the fourth is a batch with a bad
    record, the fifth is late."""
    to = (("tenant", tenant),)
    bodies = [
        (b'{"message":"good"}', to),
        (b'{"message":"whose?"}', (("x", b"\xff"), ("null", None))),
        (b'{"half":', to),
        (b'{"message":"first"}\n{"message":}\n{"message":"third"}', to),
        (orjson.dumps({"time": LATE.isoformat(), "message": "late"}), to),
    ]
    return [Record(body, b"key-%d" % at, headers, KAFKA_MS, 1) for at, (body, headers) in enumerate(bodies)]


def _list(ours: ToolLine, *filters: str) -> list[dict[str, Any]]:
    return [orjson.loads(text) for text in ours.run("dead-letters", "list", "--json", *filters).splitlines()]


def test_letters_are_listed_shown_and_replayed_once_for_each_death(
    line: Line, tools: Callable[..., ToolLine]
) -> None:
    """Replayed letters become rows with their first identity and time, or die again; asking twice sends
    nothing twice; the audit stays clean."""
    tenant, topic = fresh("Letters-"), line.kafka.topic(2)
    line.kafka.produce(topic, _messages(tenant.encode()))
    ours = tools(topic)
    ours.ingester.start()
    line.wait_for_rows(ours.ingester, tenant, 3)
    line.wait_for_dead_letters(ours.ingester, 4)
    _check_lists(ours, tenant, topic)
    with ours.serve() as client:
        _check_http_list(client, tenant)
        body = {"filter": {"reason": "tenant_missing"}, "to_tenant": tenant}
        assert client.post("/v1/dead-letters/replay", json={}).status_code == 400
        assert client.post("/v1/dead-letters/replay", json={**body, "dry_run": True}).json()["replayed"] == 1
        assert client.post("/v1/dead-letters/replay", json=body).json()["replayed"] == 1
        again = client.post("/v1/dead-letters/replay", json=body).json()
        assert (again["replayed"], again["left"]) == (0, {"replayed already": 1})
    line.wait_for_rows(ours.ingester, tenant, 4)
    topic_id = line.kafka.topic_id(topic)
    assert line.sql(f"SELECT {COLUMNS} FROM {line.table(tenant)} WHERE message = 'whose?'") == [
        (topic, topic_id, 1, 1, 0, "whose?")
    ]
    _die_again(ours)
    rows = line.sql(
        f"SELECT _offset, _index, message, observed_timestamp FROM {line.table(tenant)} ORDER BY 1, 2"
    )
    assert [row[:3] for row in rows] == [(0, 0, "good"), (1, 0, "whose?"), (3, 0, "first"), (3, 2, "third")]
    assert {row[3] for row in rows} == {NOW}
    assert ours.ingester.stop() == 0
    assert ours.audit() == {}
    assert [ours.audited[name] for name in ("consumed", "written", "dead_lettered")] == [7, 4, 3]


def _check_lists(ours: ToolLine, tenant: str, topic: str) -> None:
    letters = _list(ours)
    assert [letter["reason"] for letter in sorted(letters, key=lambda one: one["offset"])] == [
        "tenant_missing",
        "undecodable",
        "undecodable",
        "too_late",
    ]
    assert [letter["reason"] for letter in _list(ours, "--reason", "too_late", "--topic", topic)] == [
        "too_late"
    ]
    assert [letter["tenant"] for letter in _list(ours, "--tenant", tenant)] == [tenant] * 3
    assert len(_list(ours, "--limit", "1")) == 1
    assert (
        _list(ours, "--topic", "other")
        == _list(ours, "--until", "2020-01-01")
        == _list(ours, "--since", "2099-01-01")
        == []
    )
    (one,) = _list(ours, "--reason", "tenant_missing")
    shown = ours.json("dead-letters", "show", one["id"])
    assert (shown["key"], shown["value"], shown["topic"], shown["partition"], shown["offset"]) == (
        "key-1",
        '{"message":"whose?"}',
        topic,
        1,
        1,
    )
    assert (shown["tenant"], shown["table"]) == (None, None)
    assert shown["headers"] == [
        {"name": "x", "value": None, "value_base64": base64.b64encode(b"\xff").decode()},
        {"name": "null", "value": None, "value_base64": None},
    ]
    assert ours.run("dead-letters", "show", one["id"], "--raw") == '{"message":"whose?"}'
    (bad_record,) = [letter for letter in letters if letter["index"] is not None]
    assert (bad_record["offset"], bad_record["index"], bad_record["begins"]) == (3, 1, '{"message":}')
    assert "has no dead letter 0:9999" in ours.refusal("dead-letters", "show", "0:9999")


def _check_http_list(client: Any, tenant: str) -> None:
    seen, before = list[str](), None
    while True:
        page = client.get(
            "/v1/dead-letters",
            params={"limit": 3, "tenant": tenant, **({"before": before} if before else {})},
        ).json()
        seen += [letter["id"] for letter in page["dead_letters"]]
        if (before := page["next"]) is None:
            break
    assert len(seen) == len(set(seen)) == 3
    assert client.get(f"/v1/dead-letters/{seen[0]}").json()["id"] == seen[0]
    assert client.get(f"/v1/dead-letters/{seen[0]}/value").content
    assert client.get("/v1/dead-letters/1:1").status_code == 404
    assert client.get("/v1/dead-letters/nonsense").status_code == 400


def _die_again(ours: ToolLine) -> None:
    """What is no better than before dies again under its first coordinates, the late one too: it is judged as
    it was then; and may be sent again."""
    assert ours.json("dead-letters", "replay", "--all")["replayed"] == 3

    def attempts() -> list[tuple[int, int | None, str, int]]:
        return sorted(
            (letter["offset"], letter["index"], letter["reason"], letter["attempt"])
            for letter in _list(ours)
            if letter["attempt"]
        )

    again = wait_for(lambda: len(found := attempts()) == 3 and found, 30, "the letters of replayed letters")
    assert again == [(2, None, "undecodable", 1), (3, 1, "undecodable", 1), (4, None, "too_late", 1)]
    assert ours.json("dead-letters", "replay", "--all", "--dry-run")["replayed"] == 3


@pytest.mark.prove
def test_letters_are_stored_once_the_limit_that_killed_them_is_lifted(
    line: Line, tools: Callable[..., ToolLine]
) -> None:
    """A late and a large record become rows; one too large for any topic stays a letter, whose body lies in
    the warehouse and is shown."""
    tenant, topic = fresh("large-"), line.kafka.topic(max_message_bytes=str(24 * 2**20))
    huge, large, late = b"h" * (17 * 2**20), b"L" * (5 * 2**20), orjson.dumps({"time": LATE.isoformat()})
    line.kafka.produce(
        topic, [Record(body, None, (("tenant", tenant.encode()),), KAFKA_MS) for body in (huge, large, late)]
    )
    ours = tools(topic)
    ours.ingester.start()
    line.wait_for_dead_letters(ours.ingester, 3)
    letters = sorted(_list(ours), key=lambda one: int(one["offset"]))
    assert [letter["body"] is not None for letter in letters] == [True, False, False]
    with ours.serve() as client:
        assert client.get(f"/v1/dead-letters/{letters[0]['id']}/value").content == huge
    refused = ours.json("dead-letters", "replay", "--reason", "too_large")
    assert (refused["replayed"], list(refused["left"].values())) == (0, [2])
    ours.ingester.stop()
    ours.ingester.restart_with(limits__record_bytes_max=str(20 * 2**20), limits__late="accept")
    ours.environment["FIRN_INGEST_LIMITS__RECORD_BYTES_MAX"] = str(20 * 2**20)
    assert ours.json("dead-letters", "replay", "--all")["replayed"] == 2
    line.wait_for_rows(ours.ingester, tenant, 2)
    rows = line.sql(f"SELECT _offset, length(message), timestamp FROM {line.table(tenant)} ORDER BY 1")
    assert rows == [(1, len(large), NOW), (2, None, LATE)]
