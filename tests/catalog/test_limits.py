"""Limits of tenants in the catalog: who sets them, and who is told."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from lake.catalog_client import CatalogClient
from lake.extras_client import ExtrasClient
from tests.catalog.conftest import ON_SQLITE, Server
from tests.catalog.support.guarded import Guarded, guarded_server

pytestmark = pytest.mark.stack
EXPORTS = "firn.limits.exports"


@pytest.fixture
def guarded(database_url: str, tmp_path: Path) -> Iterator[Guarded]:
    with guarded_server(database_url, tmp_path) as found:
        yield found


def change(guarded: Guarded, key: str, *, namespace: str = "acme", **body: Any) -> httpx.Response:
    body = {"removals": [], "updates": {}, **body}
    return guarded.ask("POST", f"/v1/namespaces/{namespace}/properties", key, json=body)


def limits(guarded: Guarded, namespace: str = "acme") -> dict[str, str]:
    told = guarded.ask("GET", f"/v1/namespaces/{namespace}", "admin").json()["properties"]
    return {name: text for name, text in told.items() if name.startswith("firn.limits.")}


@ON_SQLITE
def test_a_tenants_own_key_reads_its_limits_and_changes_none(guarded: Guarded) -> None:
    """By no property, and not by making its namespace anew, or one that is not there yet."""
    assert change(guarded, "room", updates={EXPORTS: "3"}).is_success
    own = guarded.ask("GET", "/v1/namespaces/acme", "reader").json()["properties"]
    assert own[EXPORTS] == "3"
    for body in ({"updates": {EXPORTS: "9"}}, {"removals": [EXPORTS]}, {"removals": ["firn.limits.x"]}):
        refused = change(guarded, "mine", **body)
        assert refused.status_code == 403
        assert "bound to no namespace" in refused.json()["error"]["message"]
    for table in ("t", "u"):
        assert guarded.ask("DELETE", f"/v1/namespaces/acme/tables/{table}", "mine").is_success
    refused = guarded.ask("DELETE", "/v1/namespaces/acme", "mine")
    assert refused.status_code == 403
    assert "it has limits" in refused.json()["error"]["message"]
    assert limits(guarded) == {EXPORTS: "3"}
    assert guarded.ask("DELETE", "/v1/namespaces/acme", "room").is_success
    made = {"namespace": ["acme"], "properties": {EXPORTS: "9"}}
    assert guarded.ask("POST", "/v1/namespaces", "mine", json=made).status_code == 403


@ON_SQLITE
def test_no_limit_is_taken_that_nobody_could_read(guarded: Guarded) -> None:
    """Nor one of something that is not limited; the sentence says what there is."""
    for updates in ({EXPORTS: "0"}, {EXPORTS: "many"}, {"firn.limits.export": "3"}):
        refused = change(guarded, "room", updates=updates)
        assert refused.status_code == 400
        assert EXPORTS in refused.json()["error"]["message"]
        made = {"namespace": ["new"], "properties": updates}
        assert guarded.ask("POST", "/v1/namespaces", "room", json=made).status_code == 400
    assert limits(guarded) == {}


@ON_SQLITE
def test_one_answer_tells_the_limits_of_all_tenants(database_url: str, tmp_path: Path) -> None:
    """Those of the lake by its settings, there and in the configuration; no other property, and of those who
    say nothing of limits nothing where nobody asks for more."""
    server = Server(tmp_path, database_url, environment={"FIRN_CATALOG_LIMITS__EXPORTS": "7"})
    try:
        with server.start().client() as client:
            for name, said in (
                ("a", {EXPORTS: "3", "firn.retention": "1d", "x": "1"}),
                ("b", {"x": "1"}),
                ("c", {"firn.retention": "1d"}),
            ):
                body = {"namespace": [name], "properties": said}
                client.post("/v1/namespaces", json=body).raise_for_status()
            with closing(CatalogClient(str(client.base_url))) as catalog:
                extras, lake, kept = ExtrasClient(catalog), {EXPORTS: "7"}, {"firn.retention": "1d"}
                assert extras.policies() == {None: lake, "a": {EXPORTS: "3", **kept}, "c": kept}
                assert extras.policies(limits_alone=True) == {None: lake, "a": {EXPORTS: "3"}}
                assert catalog.config_now()[EXPORTS] == "7"
    finally:
        server.stop()
