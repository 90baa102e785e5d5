"""The loss of the database, an old dump of it, and the check of database against storage."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest

from catalog.database import Database, schema
from tests.catalog.conftest import REPOSITORY, Server
from tests.catalog.table_requests import append, create_body

pytestmark = pytest.mark.stack

Json = dict[str, Any]


def run_cli(server: Server, verb: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [*server.command(verb, *arguments), "--database-url", server.database_url, "--warehouse", server.warehouse]
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=120, check=False)


def fill(client: httpx.Client) -> None:
    client.post("/v1/namespaces", json={"namespace": ["a"], "properties": {"k": "v"}})
    client.post("/v1/namespaces", json={"namespace": ["a", "deep"]})
    for name in ("kept", "renamed", "dropped"):
        client.post("/v1/namespaces/a/tables", json=create_body(name, properties={"firn.offsets": "{}"}))
    client.post("/v1/tables/rename", json={"source": {"namespace": ["a"], "name": "renamed"}, "destination": {"namespace": ["a", "deep"], "name": "x"}})
    client.delete("/v1/namespaces/a/tables/dropped?purgeRequested=true")
    commit(client, "kept", 1)


def commit(client: httpx.Client, name: str, number: int) -> None:
    updates = [*append(None, number), {"action": "set-properties", "updates": {"firn.offsets": f'{{"n":{number}}}'}}]
    assert client.post(f"/v1/namespaces/a/tables/{name}", json={"requirements": [], "updates": updates}).status_code == 200


def state(client: httpx.Client) -> Json:
    return {
        "namespaces": [client.get(f"/v1/namespaces/{path}").json() for path in ("a", "a%1Fdeep")],
        "tables": [client.get(f"/v1/namespaces/{path}").json() for path in ("a/tables/kept", "a%1Fdeep/tables/x")],
        "lists": [client.get(f"/v1/namespaces/{path}/tables").json() for path in ("a", "a%1Fdeep")],
        "dropped": [entry["table-uuid"] for entry in client.get("/firn/v1/dropped-tables").json()["dropped-tables"]],
    }


def empty(server: Server) -> None:
    database = Database(server.database_url)
    with database.write() as connection:
        schema.drop_all(connection)
    database.close()


def test_a_lost_database_comes_back_from_the_warehouse(own_server: Server) -> None:
    """Every table is back under its name at its newest metadata, with namespaces, properties and what was dropped."""
    with own_server.client() as client:
        fill(client)
        before = state(client)
    own_server.stop()
    empty(own_server)
    answer = run_cli(own_server, "rebuild", "--from-warehouse")
    assert answer.returncode == 0, answer.stderr
    assert orjson.loads(answer.stdout.splitlines()[-1]) | {"unchanged": 0} == {
        "unchanged": 0, "advanced": 0, "created": 2, "dropped": 1, "nameless": [], "parked": [], "unreadable": [],
    }  # fmt: skip
    with own_server.start().client() as client:
        assert state(client) == before
        assert client.post("/firn/v1/dropped-tables/undo", json={"identifier": {"namespace": ["a"], "name": "dropped"}}).status_code == 200


def test_an_old_dump_is_brought_forward(tmp_path: Path) -> None:
    """Over an old dump, rebuild brings exact rows and marks; a table that went another way meanwhile is parked."""
    server = Server(tmp_path, f"sqlite:///{tmp_path}/catalog.db").start()
    try:
        with server.client() as client:
            fill(client)
        server.stop()
        shutil.copy(tmp_path / "catalog.db", tmp_path / "dump.db")
        with server.start().client() as client:
            client.post("/v1/namespaces/a/tables", json=create_body("later"))
            commit(client, "kept", 2)
            commit(client, "later", 1)
            before = state(client)
        server.stop()
        for leftover in tmp_path.glob("catalog.db*"):
            leftover.unlink()
        shutil.copy(tmp_path / "dump.db", tmp_path / "catalog.db")
        answer = run_cli(server, "rebuild", "--from-warehouse")
        assert answer.returncode == 0, answer.stderr
        result = orjson.loads(answer.stdout.splitlines()[-1])
        assert (result["advanced"], result["created"], result["parked"]) == (1, 1, ["a.kept"])  # its second snapshot has no parent
        with server.start().client() as client:
            assert state(client) == before
            assert client.get("/firn/v1/parked/a/kept").json()["reason"] == "rolled_back"
            assert client.get("/v1/namespaces/a/tables/kept").json()["metadata"]["properties"]["firn.offsets"] == '{"n":2}'
    finally:
        server.stop()


def test_check_names_what_is_missing(own_server: Server) -> None:
    """A missing metadata file is named, with what to do; a sound catalog has no problems."""
    with own_server.client() as client:
        fill(client)
        location = client.get("/v1/namespaces/a/tables/kept").json()["metadata-location"]
    assert run_cli(own_server, "check").returncode == 0
    Path(location.removeprefix("file://")).unlink()
    answer = run_cli(own_server, "check")
    assert answer.returncode == 1
    assert "a.kept: metadata file" in answer.stdout
    assert "rebuild" in answer.stdout
