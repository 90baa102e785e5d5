"""An API that asks the ingest tools of one topic, and the ingester of that topic."""

from typing import Any

from tests.query.support.processes import Child
from tests.stack.support.kafka_topics import Record
from tests.stack.support.line import Line
from tests.stack.support.plain_http import http
from tests.stack.support.waiting import fresh


class Following:
    """`tenant` and `other` send to the topic; the ingester is not started. `settings`: of ingestion."""

    def __init__(self, line: Line, folder: Any, **settings: Any) -> None:
        self.line, self.topic, self.tenant, self.other = (
            line,
            line.kafka.topic(1),
            fresh("follow-"),
            fresh("other-"),
        )
        self.ingester = line.ingester({"name": self.topic, "format": "json"}, start=False, **settings)
        environment = {**self.ingester.environment, "FIRN_INGEST_NODE__URI": ""}
        self.serve = Child("ingest", folder, environment).start()
        own = {
            **line.stack.environment(),
            "FIRN_QUERY_INGEST__URI": self.serve.address,
            "FIRN_QUERY_STATE": str(folder / "query"),
        }
        self.folder, self.environment = folder, own
        self.api = Child("query", folder, own).start()

    def produce(self, tenant: str, *bodies: bytes) -> None:
        self.line.kafka.produce(
            self.topic, [Record(body, headers=(("tenant", tenant.encode()),)) for body in bodies]
        )

    def get(self, path: str, **query: Any) -> dict[str, Any]:
        answer = http.get(f"{self.api.address}/v1/{path}", params=query, timeout=60.0)
        assert answer.is_success, answer.text
        return dict(answer.json())

    def post(self, path: str, **body: Any) -> dict[str, Any]:
        answer = http.post(f"{self.api.address}/v1/{path}", json=body, timeout=120.0)
        assert answer.is_success, answer.text
        return dict(answer.json())

    def end(self) -> None:
        """Ends all three processes."""
        for one in (self.api, self.serve, self.ingester):
            one.kill()
