"""Lag, completeness, freshness: told by Kafka and the catalog, whether an ingester runs or not."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import orjson
import pytest

from infra.local.ports import LOOPBACK, reserve_free
from lake.tenant import to_identifier
from tests.environment import without_settings
from tests.stack.support.forked import start_room
from tests.stack.support.kafka_topics import Record
from tests.stack.support.line import Line
from tests.stack.support.tool_line import ToolLine
from tests.stack.support.waiting import fresh, wait_for

pytestmark = pytest.mark.stack

START = datetime.now(UTC).replace(microsecond=0) - timedelta(minutes=10)


def _records(tenant: str, count: int, partition: int = 0, first: datetime = START) -> list[Record]:
    """Records a second apart."""
    times = [first + timedelta(seconds=at) for at in range(count)]
    header = (("tenant", tenant.encode()),)
    return [
        Record(
            orjson.dumps({"time": time.isoformat(), "n": at}),
            None,
            header,
            int(time.timestamp() * 1000),
            partition,
        )
        for at, time in enumerate(times)
    ]


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


def _now() -> datetime:
    """As the status tells times: to the millisecond."""
    now = datetime.now(UTC)
    return now.replace(microsecond=now.microsecond // 1000 * 1000)


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


def test_lag_and_completeness_are_told_and_searches_know_of_them(
    line: Line, tools: Callable[..., ToolLine]
) -> None:
    """With nobody ingesting everything lags and completeness ends at the oldest record; when all is committed
    nothing lags and it ends now. Searches say whether they are complete."""
    tenant, topic = fresh("lag-"), line.kafka.topic(2)
    line.kafka.produce(topic, [*_records(tenant, 30), *_records(tenant, 20, 1, START + timedelta(seconds=5))])
    ours = tools(topic)
    before = ours.json("status")
    assert (before["lag_records"], _moment(before["complete_until"]), before["node"]) == (50, START, None)
    lags = {
        p["partition"]: (p["stored"], p["end"], p["lag"], _moment(p["oldest"])) for p in before["partitions"]
    }
    assert lags == {0: (None, 30, 30, START), 1: (None, 20, 20, START + timedelta(seconds=5))}
    started = _now()
    ours.ingester.start()
    ours.wait_until_stored(topic, {0: 30, 1: 20})
    asked = _now()
    after = ours.json("status")
    assert after["lag_records"] == 0
    assert (
        asked <= _moment(after["complete_until"]) <= _now()
    )  # all is in that had reached Kafka when it was asked, however long the answer took
    assert [(p["stored"], p["routed"]) for p in after["partitions"] if p["topic"] == topic] == [
        (30, 30),
        (20, 20),
    ]
    assert (after["role"], after["ready"], after["missing_topics"]) == ("active", True, [])
    assert f"{to_identifier(tenant)}.logs" not in after["parked"]
    assert after["buffered_bytes"] == 0
    with ours.serve() as client:
        (freshness,) = client.get("/v1/freshness", params={"tenant": tenant}).json()["tenants"]
        assert started <= _moment(freshness["last_commit"]) <= asked
        assert freshness["age_s"] >= 0
        assert (
            f'firn_ingest_group_lag_records{{partition="1",topic="{topic}"}} 0.0'
            in client.get("/metrics").text
        )
        assert "lag" in ours.run("status")
        assert ours.ingester.stop() == 0
        _check_search(line, ours, topic, tenant, client)


@contextmanager
def _query(line: Line, ours: ToolLine, ingest: httpx.Client) -> Iterator[httpx.Client]:
    """A search API that asks this `ingest serve` for the lag."""
    port = reserve_free()
    inherited = without_settings()
    own = {"FIRN_QUERY_INGEST__URI": str(ingest.base_url), "FIRN_QUERY_STATE": str(ours.folder / "query")}
    environment = {**inherited, **line.stack.environment(), **own, "FIRN_CONFIG": ""}
    arguments = ("serve", "--host", LOOPBACK, "--port", str(port))
    process = start_room("query", *arguments, environment=environment, log=ours.folder / "query.log")
    try:
        with httpx.Client(base_url=f"http://{LOOPBACK}:{port}", timeout=60.0, trust_env=False) as client:
            wait_for(lambda: _answers(client), 60, "the search API")
            yield client
    finally:
        process.kill()
        process.wait()


def _answers(client: httpx.Client) -> bool:
    try:
        return client.get("/readyz").is_success
    except httpx.HTTPError:
        return False


def _check_search(line: Line, ours: ToolLine, topic: str, tenant: str, ingest: httpx.Client) -> None:
    """A search over an hour that is not fully ingested says so, with the number of records waiting; one that
    ended before them is complete."""
    line.kafka.produce(topic, _records(tenant, 25, first=START + timedelta(seconds=60)))
    wait_for(lambda: ingest.get("/v1/status").json()["lag_records"] == 25, 60, "the lag")
    with _query(line, ours, ingest) as client:

        def search(end: datetime) -> dict[str, Any]:
            body = {
                "tenant": tenant,
                "from": (START - timedelta(minutes=5)).isoformat(),
                "to": end.isoformat(),
                "query": "",
            }
            answer = client.post("/v1/search", json=body)
            assert answer.status_code == 200, answer.text
            return dict(answer.json())

        partly = search(START + timedelta(minutes=5))
        assert len(partly["rows"]) == 50
        assert partly["complete"] is False
        assert "ingestion is 25 records behind" in " ".join(partly["reasons"])
        assert search(START + timedelta(seconds=60))["complete"] is True


def test_serve_lets_nobody_in_without_its_token(line: Line, tools: Callable[..., ToolLine]) -> None:
    """With a token only health needs none; beyond loopback serve refuses to start without one."""
    ours = tools(line.kafka.topic())
    with ours.serve(http__token="s3cret") as client:
        assert client.get("/healthz").is_success
        for path in ("/v1/status", "/metrics", "/v1/dead-letters", "/v1/tail?tenant=a"):
            assert client.get(path).status_code == 401
            assert client.get(path, headers={"Authorization": "Bearer s3cre"}).status_code == 401
        assert client.get("/v1/status", headers={"Authorization": "Bearer s3cret"}).is_success
    assert "refuses to listen on 0.0.0.0 without a token" in ours.refusal(
        "serve", "--host", "0.0.0.0", "--port", "0"
    )
    ours.environment["FIRN_INGEST_NODE__HOST"] = "0.0.0.0"
    assert "refuses to listen on 0.0.0.0 without a token" in ours.refusal("run")


def test_serve_explains_a_message(line: Line, tools: Callable[..., ToolLine]) -> None:
    """The same explanation as the command gives, over HTTP."""
    topic = line.kafka.topic()
    ours = tools(topic)
    with ours.serve() as client:
        told = client.post(
            "/v1/explain-message",
            json={"topic": topic, "headers": {"tenant": "Acme"}, "value": '{"level":"warn","msg":"x"}'},
        ).json()
        assert (told["tenant"], told["table"], told["rejected"]) == ("Acme", "_41cme.logs", None)
        assert client.post("/v1/explain-message", json={"value_base64": "%"}).status_code == 400
