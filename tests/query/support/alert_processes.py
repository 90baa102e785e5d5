"""Servers of the search API that evaluate rules, as processes of their own, over a catalog of their own. What
ingestion says is said by the test, which commits the rows itself."""

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import orjson

from infra.local.supervisor import Stack
from lake.catalog_client import CatalogClient
from query.alerts.rule import Rule
from query.alerts.rule_state import RuleState
from query.alerts.rule_store import RuleStore, StoredRule, id_of
from query.model.instant import rfc3339
from tests.query.support.alert_world import SECRET, TENANT, Receiver
from tests.query.support.log_table import LogTable
from tests.query.support.processes import Child


@dataclass
class SaidStatus(Receiver):
    """`ingest serve` as the API asks it: everything is in until a time that the test says."""

    complete_until: datetime | None = None

    def _take(self, request: BaseHTTPRequestHandler) -> None:
        said = None if self.complete_until is None else rfc3339(self.complete_until)
        body = orjson.dumps(
            {"lag_records": 0, "complete_until": said, "now": said, "flush_interval_s": 10, "parked": {}}
        )
        request.send_response(200)
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body)


@dataclass
class Lake:
    """A catalog, a table of a tenant, and what servers need to evaluate rules over it."""

    folder: Path
    catalog: CatalogClient
    status: SaidStatus
    environment: dict[str, str]
    table: LogTable
    servers: list[Child] = field(default_factory=list)

    @property
    def store(self) -> RuleStore:
        return RuleStore(self.catalog)

    def server(self, **settings: str) -> Child:
        """A server that evaluates as soon as it has the lease."""
        self.servers.append(
            Child("query", self.folder, {**self.environment, **settings}, ready_path="/healthz")
        )
        return self.servers[-1]

    def keep(self, *rules: Mapping[str, Any]) -> None:
        """Somebody writes rules."""
        self.store.keep([StoredRule(TENANT, Rule.model_validate(each), "somebody", "") for each in rules])

    def state(self, name: str) -> RuleState | None:
        """What is written of a rule; None: nothing yet."""
        found = self.store.state(id_of(TENANT, name), TENANT)
        return None if found is None else found.state


@contextmanager
def lake_of_rules(folder: Path, **settings: str) -> Iterator[Lake]:
    """A lake whose servers end with it. `settings`: of the servers."""
    with Stack(folder / "stack", tied=True) as stack, SaidStatus().running() as status:
        stack.start("catalog")
        with closing(CatalogClient(stack.address("catalog"))) as catalog:
            environment = {
                **stack.environment(),
                "FIRN_QUERY_CATALOG__URI": stack.address("catalog"),
                "FIRN_QUERY_STATE": str(folder / "state"),
                "FIRN_QUERY_INGEST__URI": status.uri,
                "FIRN_QUERY_ALERTS__ENABLED": "true",
                "FIRN_QUERY_ALERTS__LEASE_S": "1",
                "FIRN_QUERY_ALERTS__WEBHOOK_SECRET": SECRET,
                **settings,
            }
            lake = Lake(folder, catalog, status, environment, LogTable(catalog, TENANT.name))
            try:
                yield lake
            finally:
                for server in lake.servers:
                    server.kill()
