"""All HTTP services beside each other, and requests to them as the matrix of routes describes them."""

import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from enum import Enum, auto
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import httpx

from infra.local.ports import LOOPBACK, is_listening, reserve_free
from tests.query.support.guarded import SECRET, Guarded
from tests.query.support.log_table import LogTable
from tests.query.support.processes import Child, child_environment
from tests.security.support.markers import Markers
from tests.security.support.route_matrix import TOKEN_KIND, Route
from tests.stack.support.forked import start_room
from tests.stack.support.line import Line
from tests.stack.support.plain_http import http
from tests.stack.support.tool_line import ToolLine
from tests.stack.support.waiting import wait_for

ANSWER_S = 60.0
BYTES_MAX = 8_000_000
SERVE_TOKEN = "token-of-the-ingest-tools-alone"
READY_S = 60.0


class Names(Enum):
    """Whose things a request names. Nobody has the `GONE` ones: asking for them changes nothing."""

    OF_B = auto()
    OF_A = auto()
    GONE = auto()
    GONE_OF_A = auto()


@dataclass(frozen=True)
class Services:
    """Addresses by service, keys by kind, and the names for the requests."""

    addresses: Mapping[str, str]
    keys: Mapping[str, str]
    names: Mapping[Names, Mapping[str, str]]
    key_id_of_theirs: str


@dataclass(frozen=True)
class Ingest:
    """A node and `ingest serve`, which ask for a token. `topic`: what the node reads."""

    tools: ToolLine
    topic: str
    address: str

    @property
    def of_api(self) -> dict[str, str]:
        """The variables of an API that asks it."""
        return {"FIRN_QUERY_INGEST__URI": self.address, "FIRN_QUERY_INGEST__TOKEN": SERVE_TOKEN}


def started_ingest(ends: ExitStack, line: Line) -> Ingest:
    """Starts both; they end with `ends`."""
    topic = line.kafka.topic(1)
    tools = ToolLine(line, topic, http__token=SERVE_TOKEN)
    ends.callback(tools.ingester.kill)
    tools.ingester.start()
    return Ingest(tools, topic, str(ends.enter_context(tools.serve()).base_url))


def started_services(ends: ExitStack, keyed: Guarded, ingest: Ingest, folder: Path) -> Services:
    """Starts those that are not there yet; they end with `ends`."""
    ui = Child("ui", folder, {"FIRN_UI_API": keyed.api.address}, ready_path="/_stcore/health")
    ends.callback(ui.kill)
    addresses = {
        "catalog": keyed.catalog.address,
        "query": keyed.api.address,
        "ingest-serve": ingest.address,
        "ingest-node": ingest.tools.ingester.address,
        "ui": ui.start().address,
        "optimize": _metrics_of_optimize(ends, folder),
    }
    return Services(addresses, _keys(keyed), _names(keyed), _id_of(keyed.keys["theirs"]))


def _metrics_of_optimize(ends: ExitStack, folder: Path) -> str:
    """`optimize run` with its endpoint, over a catalog of its own that has no tables: there is nothing to
    maintain, and no Spark to start."""
    own = {
        "FIRN_CATALOG_DATABASE_URL": f"sqlite:///{folder}/catalog.db",
        "FIRN_CATALOG_WAREHOUSE": f"file://{folder}/warehouse",
    }
    catalog = Child("catalog", folder, own, "--anonymous")
    ends.callback(catalog.kill)
    port = reserve_free()
    environment = child_environment(
        {"FIRN_OPTIMIZE_CATALOG__URI": catalog.start().address, "FIRN_OPTIMIZE_HTTP__PORT": str(port)}
    )
    process = start_room("optimize", "run", environment=environment, log=folder / "optimize.log")
    ends.callback(process.wait, 30)
    ends.callback(process.kill)
    wait_for(lambda: is_listening(port), READY_S, "the metrics of optimize")
    return f"http://{LOOPBACK}:{port}"


def _id_of(key: str) -> str:
    return key.split("_")[1]


def _keys(keyed: Guarded) -> dict[str, str]:
    """The keys of the fixture, and by kind those that it has not."""

    def admin(method: str, path: str, **options: Any) -> httpx.Response:
        headers = {"Authorization": f"Bearer {keyed.keys['admin']}"}
        return http.request(
            method,
            f"{keyed.catalog.address}{path}",
            headers=headers,
            timeout=ANSWER_S,
            **options,
        ).raise_for_status()

    maintenance = str(admin("POST", "/firn/v1/keys", json={"scope": "maintenance"}).json()["key"])
    revoked = str(admin("POST", "/firn/v1/keys", json={"scope": "admin"}).json()["key"])
    admin("DELETE", f"/firn/v1/keys/{_id_of(revoked)}")
    own = {
        "unknown": f"firn_0123456789ab_{'x' * 43}",
        "revoked": revoked,
        "maintenance": maintenance,
        TOKEN_KIND: SERVE_TOKEN,
    }
    return {**keyed.keys, **own}


def _names(keyed: Guarded) -> dict[Names, dict[str, str]]:
    """What braces in the matrix stand for. Both tenants get an export, an erasure, a saved search, a rule and
    a board."""
    of_b, of_a = _things_of(keyed, keyed.theirs, "theirs"), _things_of(keyed, keyed.mine, "mine")
    gone = of_b | {
        "table": "gone",
        "view": "gone",
        "location": f"{of_b['location']}/gone",
        "key": "gone",
        "export": "gone",
        "erasure": "gone",
        "saved": "matrix",
        "rule": "gone",
        "board": "gone",
        "index": f"{of_b['tenant']}.gone",
    }
    of_tenant = {name: of_a[name] for name in ("namespace", "tenant")}
    of_tenant["index"] = f"{of_a['tenant']}.gone"
    return {Names.OF_B: of_b, Names.OF_A: of_a, Names.GONE: gone, Names.GONE_OF_A: gone | of_tenant}


def _things_of(keyed: Guarded, table: LogTable, key: str) -> dict[str, str]:
    """What a tenant has that others might ask for."""
    own = {"tenant": table.tenant, "stream": table.stream, "from": "2026-09-01", "to": "2026-09-02"}
    export = keyed.ask("POST", "/v1/exports", key, json=own).raise_for_status().json()["id"]
    words = SECRET if key == "theirs" else "words of its own"
    wanted = {"tenant": table.tenant, "query": words, "dry_run": True}
    erasure = keyed.ask("POST", "/v1/erasures", key, json=wanted).raise_for_status().json()["id"]
    saved = f"of-{key}"
    asked = {"address": {"q": words}}
    keyed.ask("PUT", f"/v1/saved-searches/{saved}", key, json=asked).raise_for_status()
    condition = {"mode": "count", "over": 1_000_000}
    rule = {"name": saved, "query": "nothing", "condition": condition, "annotations": {"summary": words}}
    rules = {"tenant": table.tenant, "rules": [{**rule, "stream": table.stream}]}
    keyed.ask("POST", "/v1/alerts/rules", key, json=rules).raise_for_status()
    board = {"title": words, "tiles": [{"title": words, "query": words}]}
    kept = {"tenant": table.tenant, "board": board}
    keyed.ask("PUT", f"/v1/boards/{saved}", key, json=kept).raise_for_status()
    return {
        "lease": "matrix",
        "task": "matrix",
        "dropped": "999999",
        "hold": "gone",
        "hold_id": "gone",
        "letter": "0:0",
        "part": "part-00000.ndjson",
        "file": "x",
        "session": "x",
        "namespace": table.name.namespace,
        "tenant": table.tenant,
        "table": table.name.name,
        "index": f"{table.tenant}.{table.stream}",
        "view": "seen",
        "location": table.catalog.load_table(table.name)["metadata"]["location"],
        "key": _id_of(keyed.keys[key]),
        "export": export,
        "erasure": erasure,
        "saved": saved,
        "rule": saved,
        "board": saved,
    }


@dataclass
class Asker:
    """Sends what the matrix says. `hung`: requests that were not answered in time."""

    services: Services
    markers: Markers
    hung: list[str] = field(default_factory=list)
    client: httpx.Client = field(default_factory=lambda: httpx.Client(timeout=ANSWER_S, trust_env=False))

    def ask(self, route: Route, kind: str, whose: Names) -> httpx.Response | None:
        """The answer, a stream cut where it begins; None where none came in time."""
        names = self.services.names[whose]
        path = "/".join(_part(part, names) for part in route.path.split("/"))
        request = self.client.build_request(
            "GET" if route.method == "WEBSOCKET" else route.method,
            f"{self.services.addresses[route.service].rstrip('/')}{path}",
            params=_filled(route.query, names),
            headers={} if kind == "none" else {"Authorization": f"Bearer {self.services.keys[kind]}"},
            **({} if route.body is None else {"json": _filled(route.body, names)}),
            **({} if route.form is None else {"data": _filled(route.form, names)}),
        )
        try:
            return answered(self.client, request)
        except httpx.TimeoutException:
            self.hung.append(f"{route.key} with {kind}")
            return None


def sent_as_it_is(
    address: str, method: str, target: str, headers: Mapping[str, str], body: bytes | None = None
) -> httpx.Response:
    """Asks for a target exactly as it is written: other clients tidy paths up. Raises OSError,
    http.client.HTTPException."""
    connection = HTTPConnection(urlsplit(address).netloc, timeout=ANSWER_S)
    try:
        connection.request(method, target, body, dict(headers))
        answer = connection.getresponse()
        return httpx.Response(answer.status, headers=answer.getheaders(), content=answer.read())
    finally:
        connection.close()


def answered(client: httpx.Client, request: httpx.Request) -> httpx.Response:
    """The whole answer; of a stream of events, which has no end, the beginning. Raises
    httpx.TimeoutException."""
    deadline_s = time.monotonic() + ANSWER_S
    answer = client.send(request, stream=True)
    try:
        content = b""
        for part in answer.iter_bytes():
            content += part
            if (
                answer.headers.get("content-type", "").startswith("text/event-stream")
                or len(content) > BYTES_MAX
            ):
                break
            if time.monotonic() > deadline_s:
                raise httpx.ReadTimeout("the answer has no end", request=request)
    finally:
        answer.close()
    kept = {
        name: value
        for name, value in answer.headers.items()
        if name not in ("content-encoding", "content-length", "transfer-encoding")
    }
    return httpx.Response(answer.status_code, headers=kept, content=content, request=request)


def _part(part: str, names: Mapping[str, str]) -> str:
    """One part of a path, its parameter filled in and encoded."""
    return quote(names[part[1:-1].split(":")[0]], safe="") if part.startswith("{") else part


def _filled(template: Any, names: Mapping[str, str]) -> Any:
    """A template with the names in place of the words between braces."""
    if isinstance(template, str):
        for name, value in names.items():
            template = template.replace(f"{{{name}}}", value)
        return template
    if isinstance(template, list):
        return [_filled(each, names) for each in template]
    return (
        {key: _filled(value, names) for key, value in template.items()}
        if isinstance(template, Mapping)
        else template
    )
