"""Finding 31: what a tenant's key is told of how much all tenants together do. Nothing."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.query.support.guarded import START, Guarded
from tests.query.support.processes import Child
from tests.security.support.edges import limited
from tests.stack.support.kafka_topics import Record
from tests.stack.support.line import Line
from tests.stack.support.tool_line import ToolLine
from tests.stack.support.waiting import wait_for

pytestmark = [pytest.mark.finding(31), pytest.mark.stack]
WAITING = 4_321  # records of others that nobody reads
SUMS = {"lag_records", "buffered_bytes", "in_flight_bytes", "buffered_tables", "partitions"}


@pytest.fixture(scope="module")
def told(
    keyed: Guarded, line: Line, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Guarded, str]]:
    """The keyed API that asks a real `ingest serve`, and the topic that waits."""
    topic, folder = line.kafka.topic(), tmp_path_factory.mktemp("told")
    line.kafka.produce(topic, [_record("b", f"waits {at}") for at in range(WAITING)])
    with ToolLine(line, topic).serve() as serve:
        own = limited(
            "query",
            catalog__uri=keyed.catalog.address,
            catalog__token=keyed.keys["room"],
            state=folder / "state",
            ingest__uri=serve.base_url,
        )
        api = Child("query", folder, {**keyed.environment, **own}).start()
        try:
            yield (
                Guarded(
                    Path(folder), keyed.catalog, api, keyed.keys, keyed.mine, keyed.theirs, keyed.environment
                ),
                topic,
            )
        finally:
            api.kill()


def _record(tenant: str, message: str) -> Record:
    return Record(orjson.dumps({"tenant": tenant, "message": message}))


def test_health_tells_a_tenants_key_no_sums(told: tuple[Guarded, str]) -> None:
    """An operator is told them; a tenant only whether things run, and until when everything is in."""
    at, topic = told

    def of_operator() -> dict[str, Any] | None:
        found = dict(at.ask("GET", "/v1/health", "admin").json())
        return found if found["lag_records"] == WAITING else None

    assert wait_for(of_operator, 60.0, "the lag")
    for key in ("mine", "reader", "theirs"):
        answer = at.ask("GET", "/v1/health", key)
        found = answer.json()
        assert found["lag_records"] is None
        assert found["partitions_with_many_files"] is None
        assert not SUMS & set(found["ingest"] or {})
        assert {each["name"]: each["up"] for each in found["services"]}["ingest"]
        assert str(WAITING) not in answer.text
        assert topic not in answer.text


def test_a_search_says_that_rows_may_be_missing_and_not_how_many(told: tuple[Guarded, str]) -> None:
    """How many records wait is the sum over all tenants."""
    at, _ = told
    body = {"tenant": "a", "from": START.isoformat(), "to": "now"}
    operator = wait_for(
        lambda: [
            a
            for a in [at.ask("POST", "/v1/search", "admin", json=body).json()]
            if a["freshness"]["lag_records"]
        ],
        60.0,
        "the lag",
    )[0]
    assert f"{WAITING:,} records behind" in operator["reasons"][0]
    for key in ("mine", "reader"):
        answer = at.ask("POST", "/v1/search", key, json=body)
        found = answer.json()
        assert (found["complete"], found["freshness"]["lag_records"]) == (False, None)
        assert found["reasons"][0].startswith("ingestion is behind")
        assert not {str(WAITING), f"{WAITING:,}"} & set(answer.text.replace(")", " ").split())


def test_a_tail_tells_of_nobody_else(told: tuple[Guarded, str]) -> None:
    """Its first event names the tenant; not the topics, which are everybody's and may be named like them."""
    at, topic = told
    with at.client("reader") as client, client.stream("GET", "/v1/tail", params={"tenant": "a"}) as answer:
        assert answer.status_code == 200
        lines = answer.iter_lines()
        assert next(lines) == "event: open"
        data = next(lines)
    assert topic not in data
    assert orjson.loads(data.removeprefix("data: ")) == {"tenant": "a", "stream": None}
