"""The audit trail from a request to the table: API, `ingest serve`, Kafka, ingester, search, verification;
and who wants to write into it, or to take something away."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from lake.audit.event import TYPED_COLUMNS
from lake.catalog_client import TableName
from lake.tenant import SYSTEM_TENANT
from tests.query.support.processes import Child, run
from tests.stack.support.kafka_topics import Record
from tests.stack.support.line import Line
from tests.stack.support.plain_http import http
from tests.stack.support.tool_line import ToolLine
from tests.stack.support.waiting import wait_for

SEARCHES = 8
OF_TRAIL = {"tenant": ["const:system"], "stream": ["const:audit"], "format": "json"}
OF_USAGE = {"tenant": ["const:system"], "stream": ["const:usage"], "changes": {"format": "keyed_json"}}


class Trail:
    """An API whose events reach the table, and the verification."""

    def __init__(self, line: Line, tools: ToolLine, serve_uri: str, folder: Path) -> None:
        self.line, self.tools = line, tools
        self.open_topic = ""
        own = {
            "FIRN_QUERY_CATALOG__URI": line.stack.address("catalog"),
            "FIRN_QUERY_STATE": str(folder / "state"),
            "FIRN_QUERY_INGEST__URI": serve_uri,
            "FIRN_QUERY_AUDIT__ENABLED": "true",
            "FIRN_QUERY_USAGE__ENABLED": "true",
            "FIRN_QUERY_USAGE__INTERVAL_S": "5",
        }
        self.api = Child("query", folder, {**line.stack.environment(), **own}).start()
        self.writer = (folder / "state" / "audit" / "writer").read_text()
        self._asks = {"FIRN_QUERY_CLIENT__URI": self.api.address}

    def search(self, number: int) -> None:
        """A search whose words tell its number; there is no such tenant."""
        body = {"tenant": "nobody-is-called-so", "query": f"number{number}"}
        http.request("POST", f"{self.api.address}/v1/search", json=body, timeout=60.0)

    def told(self) -> list[dict[str, Any]]:
        """The rows of this API's chain, in order."""
        body = {
            "tenant": "system",
            "stream": "audit",
            "from": "now-1d",
            "to": "now+1d",
            "query": f'firn_writer:"{self.writer}"',
            "order": "oldest",
        }
        answer = http.request("POST", f"{self.api.address}/v1/search", json=body, timeout=60.0)
        return [row["fields"] for row in answer.json()["rows"]] if answer.is_success else []

    def verify(self, *arguments: str, code: int) -> dict[str, Any]:
        """What the verification says of this chain."""
        done = run("query", self._asks, "audit", "verify", *arguments)
        assert done.returncode == code, done.stdout + done.stderr
        told = [orjson.loads(text) for text in done.stdout.splitlines()]
        return next(each for each in told if each.get("writer") == self.writer)


@pytest.fixture
def trail(line: Line, tmp_path: Path) -> Iterator[Trail]:
    topic, open_topic, usage_topic = (line.kafka.topic(1) for _ in range(3))
    topics: list[dict[str, Any]] = [
        {"name": topic, **OF_TRAIL},
        {"name": usage_topic, **OF_USAGE},
        {"name": open_topic},
    ]
    tools = ToolLine(line, topics, audit__topic=topic, usage__topic=usage_topic)
    tools.ingester.start()
    with tools.serve() as serve:
        made = Trail(line, tools, str(serve.base_url), tmp_path)
        made.open_topic = open_topic
        yield made
        made.api.kill()
    tools.ingester.kill()


def check_usage(line: Line) -> None:
    """What tenants used is a table as well, with a row for each day and stream however often it is told; its
    figures are those of the commits."""
    of_trail = "tenant = 'system' AND stream = 'audit' AND source = 'tables'"
    asked = f"SELECT sum(records), count(DISTINCT day), count(*) FROM {line.table('system', 'usage')}"

    def told() -> tuple[int, int, int] | None:
        is_there = line.exists("system", "usage")
        return line.sql(f"{asked} WHERE {of_trail}")[0] if is_there else None

    def is_told() -> bool:
        return (told() or (0, 0, 0))[0] == line.rows_written("system", "audit")

    wait_for(is_told, 90.0, "the figures of the trail")
    _, days, rows = told() or (0, 0, 0)
    assert days == rows


@pytest.mark.stack
def test_who_did_what_is_in_the_table_and_a_removed_row_shows(trail: Trail) -> None:
    """Numbers are numbers; nobody writes there by what a record says; the chain is whole until a row goes."""
    for number in range(SEARCHES):
        trail.search(number)
    wait_for(lambda: len(trail.told()) > SEARCHES, 90.0, "the events in the table")
    rows = trail.told()
    numbered = [row for row in rows if str(row.get("firn_query")).startswith("number")]
    assert [row["firn_query"] for row in numbered] == [f"number{number}" for number in range(SEARCHES)]
    assert [row["event_sequence"] for row in numbered] == list(range(2, SEARCHES + 2))
    assert {row["http_response_status_code"] for row in numbered} == {404}
    metadata = trail.line.catalog.load_table(TableName(SYSTEM_TENANT.namespace, "audit"))["metadata"]
    schema = next(s for s in metadata["schemas"] if s["schema-id"] == metadata["current-schema-id"])
    kinds = {each["name"]: each["type"] for each in schema["fields"]}
    assert {name: kinds[name] for name in TYPED_COLUMNS} == TYPED_COLUMNS

    forged = [Record(b'{"message":"forged"}', headers=(("tenant", b"system"), ("stream", b"audit")))]
    (place,) = trail.line.kafka.produce(trail.open_topic, forged)
    trail.line.wait_for_dead_letters(trail.tools.ingester, 1)
    (letter,) = trail.line.kafka.dead_letters(trail.tools.ingester.dead_letter_topic).values()
    assert (
        letter.facts.items()
        >= {
            "firn.reason": "tenant_reserved",
            "firn.topic": place.topic,
        }.items()
    )

    check_usage(trail.line)
    whole = trail.verify(code=0)
    assert (whole["faults"], whole["from"], whole["events"] > SEARCHES) == ([], 1, True)
    assert trail.verify("--head", whole["head"], code=0)["faults"] == []
    today = trail.told()[-1]["event_original"]
    day = orjson.loads(today)["@timestamp"][:10]
    assert trail.verify("--day", day, code=0)["faults"] == []
    trail.line.sql(
        f"DELETE FROM {trail.line.table('system', 'audit')} "
        f"WHERE event_sequence = 4 AND firn_writer = '{trail.writer}'"
    )
    assert trail.verify(code=1)["faults"] == ["event 4 is missing"]
    assert trail.verify("--day", day, code=1)["faults"] == ["event 4 is missing"]
