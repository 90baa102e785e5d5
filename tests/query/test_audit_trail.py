"""Who did what through the API: every act before it begins and when it has ended, every search when it has.

Nobody takes the events away here, so that they are read where the API writes them down.
"""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest
from fastapi import APIRouter

from query.api.app import ROUTES
from query.api.audited import AUDITED, Kind, check_audited
from tests.query.support.guarded import SECRET, START, Guarded
from tests.query.support.processes import Child
from tests.stack.support.plain_http import http
from tests.stack.support.waiting import wait_for

RANGE = {"from": START.isoformat(), "to": (START + timedelta(hours=1)).isoformat()}
MINE = {"tenant": "Mine", "stream": "logs"}
Event = dict[str, Any]


def test_every_route_is_an_act_a_search_or_neither() -> None:
    """A route that nobody has thought about keeps the API from starting; a line without a route fails here.
    What changes something is an act, but for searches that somebody keeps for themselves; Elasticsearch's
    routes change nothing."""
    check_audited(routes.router for routes in ROUTES)
    served = {
        (method, route.path)
        for routes in ROUTES
        for route in routes.router.routes
        for method in route.methods
    }
    assert set(AUDITED) == served
    changing = {
        key
        for key in AUDITED
        if key[0] in ("PUT", "DELETE")
        and "saved-searches" not in key[1]
        and not key[1].startswith("/elasticsearch")
    }
    assert {AUDITED[key].kind for key in changing} == {Kind.ACT}
    assert all(audited.action for audited in AUDITED.values() if audited.kind is not Kind.NONE)
    new = APIRouter()
    new.add_api_route("/v1/new", lambda: None, methods=["POST"])
    with pytest.raises(LookupError, match="POST /v1/new"):
        check_audited([new])


class Audited:
    """An API with a trail, beside the guarded one."""

    def __init__(self, guarded: Guarded, folder: Path, **settings: str) -> None:
        self.keys = guarded.keys
        self.spool = folder / "state" / "audit"
        own = {
            "FIRN_QUERY_CATALOG__URI": guarded.catalog.address,
            "FIRN_QUERY_CATALOG__TOKEN": guarded.keys["room"],
            "FIRN_QUERY_STATE": str(folder / "state"),
            "FIRN_QUERY_INGEST__URI": "http://127.0.0.1:9",
            "FIRN_QUERY_INGEST__TOKEN": "token-of-ingest",
            "FIRN_QUERY_AUDIT__ENABLED": "true",
            **settings,
        }
        self.api = Child("query", folder, {**guarded.environment, **own})

    def ask(self, method: str, path: str, key: str, **options: Any) -> httpx.Response:
        """A request with one of the keys."""
        headers = {"Authorization": f"Bearer {self.keys[key]}", **options.pop("headers", {})}
        return http.request(method, f"{self.api.address}{path}", headers=headers, timeout=60.0, **options)

    @property
    def text(self) -> str:
        """All that was written down."""
        return "".join(file.read_text() for file in sorted(self.spool.glob("*.ndjson")))

    def events(self, action: str, number: int = 1) -> list[Event]:
        """The events of an action so far, as many as there have to be."""
        found: list[Event] = []

        def are_there() -> bool:
            found[:] = [e for e in map(orjson.loads, self.text.splitlines()) if e["event.action"] == action]
            return len(found) >= number

        wait_for(are_there, 10.0, f"{number} events of {action}")
        assert len(found) == number
        return found

    def has_lost(self, kind: str) -> bool:
        """Whether its counter says that an event of this kind is missing."""
        metrics = http.get(f"{self.api.address}/metrics").text
        return f'firn_audit_events_lost_total{{kind="{kind}"}}' in metrics

    def key_id(self, key: str) -> str:
        return self.keys[key].split("_")[1]


@pytest.fixture
def audited(guarded: Guarded, tmp_path: Path) -> Iterator[Audited]:
    made = Audited(guarded, tmp_path)
    made.api.start()
    yield made
    made.api.kill()


@pytest.mark.stack
def test_searches_are_told_with_who_what_and_how_much(audited: Audited) -> None:
    """Who, from where, whose rows, which words, which range, how many rows and bytes; refused ones too."""
    headers = {"User-Agent": "probe/1", "X-Forwarded-For": "203.0.113.9"}
    body = {**MINE, **RANGE, "query": "Mine", "limit": 7}
    assert audited.ask("POST", "/v1/search", "mine", json=body, headers=headers).status_code == 200
    (event,) = audited.events("search")
    assert (
        event.items()
        >= {
            "user.id": audited.key_id("mine"),
            "source.ip": "203.0.113.9",  # a proxy on this machine is believed
            "network.forwarded_ip": "203.0.113.9",
            "user_agent.original": "probe/1",
            "organization.name": "Mine",
            "firn.stream": "logs",
            "firn.query": "Mine",
            "firn.from": "2026-09-01T10:00:00Z",
            "firn.to": "2026-09-01T11:00:00Z",
            "firn.rows": 7,
            "event.type": "access",
            "event.outcome": "success",
            "http.response.status_code": 200,
            "url.path": "/v1/search",
        }.items()
    )
    assert event["firn.bytes"] > 0
    assert event["event.duration"] > 0
    assert orjson.loads(event["firn.parameters"]) == {"limit": 7}
    theirs = {"tenant": "Theirs", **RANGE, "query": "anything"}
    assert audited.ask("POST", "/v1/search", "mine", json=theirs).status_code == 403
    refused = audited.events("search", 2)[1]
    assert (
        refused.items()
        >= {
            "organization.name": "Theirs",
            "event.outcome": "failure",
            "http.response.status_code": 403,
            "firn.query": "anything",
        }.items()
    )
    assert "does not reach" in refused["event.reason"]


@pytest.mark.stack
def test_other_ways_to_rows_are_told_too(audited: Audited) -> None:
    """Streams with all their rows, links, lines of progress, histograms, SQL with the tenants it reads."""
    search = {**MINE, **RANGE}
    assert audited.ask("POST", "/v1/search/stream", "mine", json=search).status_code == 200
    assert audited.events("search.stream")[0]["firn.rows"] == 30
    lines = {"Accept": "application/x-ndjson"}
    assert audited.ask("POST", "/v1/search", "mine", json=search, headers=lines).status_code == 200
    assert audited.events("search")[0]["firn.rows"] == 30
    link = audited.ask("GET", "/v1/histogram", "mine", params={**search, "query": "of"})
    assert link.status_code == 200
    assert audited.events("search.histogram")[0].items() >= {"firn.query": "of", "firn.rows": 30}.items()
    sql = "SELECT message FROM logs"
    for key, body in (
        ("mine", {"sql": sql, "tenant": "Mine"}),
        ("mine", {"sql": 'SELECT 1 FROM "Theirs".logs'}),
    ):
        audited.ask("POST", "/v1/sql", key, json=body)
    own, foreign = audited.events("sql", 2)
    assert own.items() >= {"firn.query": sql, "organization.name": "Mine", "firn.rows": 30}.items()
    assert foreign.items() >= {"organization.name": "Theirs", "http.response.status_code": 403}.items()
    assert SECRET not in audited.text


@pytest.mark.stack
def test_acts_are_told_before_and_after(audited: Audited) -> None:
    """What was asked stands there before it is done; what became of it afterwards, refusals among it."""
    retention = {**MINE, "retention": "forever", "dry_run": True}
    assert audited.ask("POST", "/v1/streams/retention", "mine", json=retention).status_code == 200
    begun, ended = audited.events("stream.retention", 2)
    assert (
        begun.items()
        >= {
            "event.type": "start",
            "event.outcome": "unknown",
            "event.category": "configuration",
            "user.id": audited.key_id("mine"),
            "organization.name": "Mine",
        }.items()
    )
    assert orjson.loads(begun["firn.parameters"]) == {"dry_run": True, "retention": "forever"}
    assert ended.items() >= {"event.type": "end", "event.outcome": "success"}.items()
    hold = {"tenant": "Mine", "reason": "case 12"}
    made = audited.ask("POST", "/v1/holds", "admin", json=hold).json()["id"]
    assert audited.events("hold.set", 2)[1]["firn.object"] == made
    assert audited.ask("DELETE", f"/v1/holds/{made}", "admin", params={"tenant": "Mine"}).status_code == 200
    assert orjson.loads(audited.events("hold.lift", 2)[0]["firn.parameters"]) == {"hold_id": made}
    assert audited.ask("DELETE", "/v1/streams", "reader", params=MINE).status_code == 403
    assert audited.events("stream.delete", 2)[1]["event.outcome"] == "failure"
    made = audited.ask("POST", "/v1/exports", "mine", json={**MINE, **RANGE}).json()["id"]
    assert audited.events("export.create", 2)[1]["firn.object"] == made
    assert audited.ask("DELETE", f"/v1/exports/{made}", "mine").status_code == 204
    assert audited.events("export.delete", 2)[1]["organization.name"] == "Mine"


@pytest.mark.stack
def test_no_secret_and_nothing_erased_stands_there(audited: Audited) -> None:
    """Keys in headers, typed where a query belongs, of the settings that the trail begins with; what an
    erasure looks for."""
    key = audited.keys["theirs"]
    for query in (key, f'"{key}"'):
        audited.ask("POST", "/v1/search", "mine", json={**MINE, **RANGE, "query": query})
    audited.ask("POST", "/v1/search?token=" + key, "mine", json={**MINE, **RANGE, "unknown": key})
    audited.ask("POST", "/v1/sql", "mine", json={"sql": f"SELECT '{key}'", "tenant": "Mine"})
    audited.ask(
        "POST", "/v1/erasures", "mine", json={"tenant": "Mine", "query": "alice@example.org", "dry_run": True}
    )
    audited.events("erasure.create", 2)
    audited.events("search", 3)
    (settings,) = audited.events("service.start")
    assert orjson.loads(settings["firn.parameters"])["audit"]["enabled"] is True
    text = audited.text
    assert "alice" not in text
    for name, secret in audited.keys.items():
        assert secret not in text, name
        assert secret.split("_", 2)[2] not in text, name
    assert "token-of-ingest" not in text


@pytest.mark.stack
@pytest.mark.prove
def test_a_lost_trail_stops_acts_and_no_search(guarded: Guarded, tmp_path: Path) -> None:
    """With a spool that is full nothing changes any more: the sentence says what to do. Searches answer, and
    a counter tells what is missing. Where the settings say so acts go on as well."""
    small = {"FIRN_QUERY_AUDIT__SPOOL_BYTES_MAX": str(1 << 20)}
    audited = Audited(guarded, tmp_path, **small)
    audited.api.start()
    retention = {**MINE, "retention": "30d", "dry_run": True}
    for _ in range(400):
        search = {**MINE, **RANGE, "query": "x" * 3_000}
        assert audited.ask("POST", "/v1/search", "mine", json=search).status_code in (200, 400)
        if audited.has_lost("search"):
            break
    assert audited.ask("POST", "/v1/streams/retention", "mine", json=retention).status_code == 200
    for _ in range(400):  # the last tenth is for acts
        answer = audited.ask("POST", "/v1/streams/retention", "mine", json=retention)
        if not answer.is_success:
            break
    assert answer.status_code == 503
    assert "audit.required" in answer.json()["error"]["message"]
    assert audited.ask("POST", "/v1/search", "mine", json={**MINE, **RANGE}).status_code == 200
    audited.api.kill()
    lenient = Audited(guarded, tmp_path, **small, FIRN_QUERY_AUDIT__REQUIRED="false")
    lenient.api.start()
    assert lenient.ask("POST", "/v1/streams/retention", "mine", json=retention).status_code == 200
    assert lenient.has_lost("act")
    lenient.api.kill()
