"""Who did what on the catalog itself: keys, holds, drops and what comes back, before it begins and when it
has ended."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest

from catalog.http.acts import ACTS, NO_ACTS, RESOLVES, is_act
from catalog.http.app import CONTROL, EVERYTHING
from tests.catalog.conftest import ON_SQLITE, Server, wait_until
from tests.catalog.support.table_requests import create_body

FOLDER = "catalog-audit"


def test_every_route_that_changes_something_is_an_act_or_not() -> None:
    """A route that nobody has thought about fails here: is it what a person decides?"""
    served = {
        (method, route.path)
        for module in (*EVERYTHING, *CONTROL)
        for route in module.router.routes
        for method in route.methods
        if method not in ("GET", "HEAD")
    }
    assert sorted(served - ACTS.keys() - NO_ACTS) == []
    assert sorted((ACTS.keys() | NO_ACTS) - served) == []
    assert ACTS.keys() & NO_ACTS == set()


class Told:
    """A catalog with a trail that nobody takes away, and its administrator."""

    def __init__(self, folder: Path, database_url: str, **settings: str) -> None:
        audit = {"ENABLED": "true", "URI": "http://127.0.0.1:9", "FOLDER": str(folder / FOLDER), **settings}
        environment = {f"FIRN_CATALOG_AUDIT__{name}": value for name, value in audit.items()}
        self.folder = folder / FOLDER
        self.server = Server(folder, database_url, arguments=[], environment=environment)
        made = self.server.run("key", "create", "--scope", "admin")
        assert made.returncode == 0, made.stderr
        self.admin = made.stdout.strip()

    def ask(self, method: str, path: str, *, key: str = "", **options: Any) -> httpx.Response:
        """A request, as the administrator or with another key."""
        headers = {"Authorization": f"Bearer {key or self.admin}"}
        with self.server.client() as client:
            return client.request(method, path, headers=headers, **options)

    @property
    def text(self) -> str:
        """All lines that are written to their end."""
        texts = [file.read_text() for file in sorted(self.folder.glob("*/*.ndjson"))]
        return "".join(text[: text.rfind("\n") + 1] for text in texts)

    def events(self, action: str, number: int = 2) -> list[dict[str, Any]]:
        """The events of an action, once there are so many."""
        found: list[dict[str, Any]] = []

        def are_there() -> bool:
            found[:] = [e for e in map(orjson.loads, self.text.splitlines()) if e["event.action"] == action]
            return len(found) >= number

        wait_until(are_there, f"{number} events of {action}")
        assert len(found) == number
        return found


@pytest.fixture
def told(database_url: str, tmp_path: Path) -> Iterator[Told]:
    made = Told(tmp_path, database_url)
    made.server.start()
    yield made
    made.server.stop()


@pytest.mark.stack
def test_keys_are_told_by_their_ids(told: Told) -> None:
    """Who made which key for whom; refusals as well; the secret nowhere."""
    body = {"scope": "read", "namespace": ["acme"], "note": "for the auditors"}
    key = told.ask("POST", "/firn/v1/keys", json=body).json()["key"]
    _, key_id, secret = key.split("_", 2)
    begun, ended = told.events("key.create")
    assert (
        begun.items()
        >= {
            "event.type": "start",
            "event.outcome": "unknown",
            "event.provider": "catalog",
            "user.id": told.admin.split("_")[1],
            "organization.name": "acme",
            "source.ip": "127.0.0.1",
        }.items()
    )
    assert orjson.loads(begun["firn.parameters"]) == {"note": "for the auditors", "scope": "read"}
    assert ended.items() >= {"firn.object": key_id, "event.outcome": "success"}.items()
    assert told.ask("POST", "/firn/v1/keys", key=key, json=body).status_code == 403
    refused = told.events("key.create", 3)[2]
    assert (
        refused.items()
        >= {"user.id": key_id, "firn.key_namespace": "acme", "event.outcome": "failure"}.items()
    )
    assert told.ask("DELETE", f"/firn/v1/keys/{key_id}").status_code == 204
    assert orjson.loads(told.events("key.revoke")[0]["firn.parameters"]) == {"key": key_id}
    text = told.text
    assert secret not in text
    assert told.admin.split("_", 2)[2] not in text


@pytest.mark.stack
@ON_SQLITE
def test_drops_holds_and_undo_are_told_and_commits_are_not(told: Told) -> None:
    """What a person decides; what ingestion does all the time is not told, nor a question."""
    assert told.ask("POST", "/v1/namespaces", json={"namespace": ["acme"], "properties": {}}).is_success
    assert told.ask("POST", "/v1/namespaces/acme/tables", json=create_body("logs")).is_success
    hold = told.ask("POST", "/firn/v1/holds", json={"namespace": ["acme"], "reason": "case 12"}).json()["id"]
    assert told.events("hold.set")[1]["firn.object"] == hold
    assert told.ask("DELETE", "/v1/namespaces/acme/tables/logs").status_code == 403
    refused = told.events("table.drop")[1]
    assert refused.items() >= {"event.outcome": "failure", "http.response.status_code": 403}.items()
    assert hold in refused["event.reason"]
    assert told.ask("DELETE", f"/firn/v1/holds/acme/{hold}").is_success
    assert told.ask("DELETE", "/v1/namespaces/acme/tables/logs").is_success
    assert told.events("table.drop", 4)[3]["organization.name"] == "acme"
    name = {"identifier": {"namespace": ["acme"], "name": "logs"}}
    assert told.ask("POST", "/firn/v1/dropped-tables/undo", json=name).is_success
    assert orjson.loads(told.events("table.undo")[0]["firn.parameters"]) == name
    changes = {"removals": [], "updates": {"owner": "ops"}}
    assert told.ask("POST", "/v1/namespaces/acme/properties", json={"removals": [], "updates": {}}).is_success
    assert told.ask("POST", "/v1/namespaces/acme/properties", json=changes).is_success
    assert orjson.loads(told.events("namespace.properties")[0]["firn.parameters"]) == changes
    assert {each["event.action"] for each in map(orjson.loads, told.text.splitlines())} == {
        "service.start",
        "hold.set",
        "hold.lift",
        "table.drop",
        "table.undo",
        "namespace.properties",
    }


def test_what_a_person_decides_of_a_parked_table_is_an_act() -> None:
    """By the lease that is named after the table; a node notes what it parks under its own."""
    change = {"identifier": {"namespace": ["acme"], "name": "logs"}, "version": 1, "record": {}}
    for lease, changes, found in (
        ("ingest.firn.acme.logs:7", [change], True),
        ("ingest.firn:7", [change], False),
        ("ingest.firn.acme.other:7", [change], False),
        ("ingest.firn.acme.logs:7", [change, change], False),
        ("ingest.firn.acme.logs:7", [], False),
        ("ingest.firn.acme.logs:7", "nothing", False),
    ):
        assert is_act(RESOLVES, {"lease": lease, "changes": changes}) is found


@pytest.mark.stack
@ON_SQLITE
def test_a_decision_about_a_parked_table_is_told(told: Told) -> None:
    """Which table, and how it goes on."""
    lease = told.ask(
        "POST", "/firn/v1/leases/ingest.g.acme.logs/acquire", json={"holder": "person", "ttl-ms": 60_000}
    ).json()
    name = {"namespace": ["acme"], "name": "logs"}
    change = {"identifier": name, "version": 0, "reason": "resolved", "record": {"resolution": "accept"}}
    body = {"lease": f"ingest.g.acme.logs:{lease['token']}", "changes": [change]}
    assert told.ask("POST", "/firn/v1/parked", json=body).is_success
    event = told.events("table.resolve")[0]
    assert event["organization.name"] == "acme"
    assert orjson.loads(event["firn.parameters"]) == {"identifier": name, "resolution": "accept"}
    assert told.ask("POST", "/firn/v1/parked", json={**body, "changes": []}).is_success
    told.events("table.resolve")


@pytest.mark.stack
@ON_SQLITE
def test_a_lost_trail_stops_acts_and_no_ingestion(database_url: str, tmp_path: Path) -> None:
    """Where events find no room keys are neither made nor revoked; tables are made and read on."""
    told = Told(tmp_path, database_url, SPOOL_BYTES_MAX=str(1 << 20))
    told.server.start()
    try:
        key = {"scope": "read", "note": "x" * 50_000}
        answers = [told.ask("POST", "/firn/v1/keys", json=key) for _ in range(12)]
        assert answers[-1].status_code == 503
        assert "audit.required" in answers[-1].json()["error"]["message"]
        assert len(told.ask("GET", "/firn/v1/keys").json()["keys"]) == 1 + sum(a.is_success for a in answers)
        assert told.ask("POST", "/v1/namespaces", json={"namespace": ["acme"], "properties": {}}).is_success
        assert told.ask("POST", "/v1/namespaces/acme/tables", json=create_body("logs")).is_success
    finally:
        told.server.stop()
