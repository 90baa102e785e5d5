"""The loss of the database, an old dump of it, and the check of database against storage."""

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest

from catalog.store.database import Database, schema
from lake.catalog_client import CatalogClient, TableName
from tests.catalog.conftest import ON_SQLITE, Server, dump
from tests.catalog.support.log_tables import append_rows, offsets_and_marks
from tests.catalog.support.table_requests import append, create_body

pytestmark = pytest.mark.stack

Json = dict[str, Any]


def run_cli(server: Server, verb: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return server.run(verb, *arguments, warehouse=True)


def rebuild(server: Server) -> Json:
    """What `rebuild` says it did."""
    answer = run_cli(server, "rebuild", "--from-warehouse")
    assert answer.returncode == 0, answer.stderr
    result: Json = orjson.loads(answer.stdout.splitlines()[-1])
    return result


def fill(client: httpx.Client) -> None:
    client.post("/v1/namespaces", json={"namespace": ["a"], "properties": {"k": "v"}})
    client.post("/v1/namespaces", json={"namespace": ["a", "deep"]})
    for name in ("kept", "renamed", "dropped"):
        client.post("/v1/namespaces/a/tables", json=create_body(name, properties={"firn.offsets": "{}"}))
    client.post(
        "/v1/tables/rename",
        json={
            "source": {"namespace": ["a"], "name": "renamed"},
            "destination": {"namespace": ["a", "deep"], "name": "x"},
        },
    )
    client.delete("/v1/namespaces/a/tables/dropped?purgeRequested=true")
    commit(client, "kept", 1)


def commit(client: httpx.Client, name: str, number: int) -> None:
    updates = [
        *append(None, number),
        {"action": "set-properties", "updates": {"firn.offsets": f'{{"n":{number}}}'}},
    ]
    assert (
        client.post(
            f"/v1/namespaces/a/tables/{name}", json={"requirements": [], "updates": updates}
        ).status_code
        == 200
    )


def state(client: httpx.Client) -> Json:
    return {
        "namespaces": [client.get(f"/v1/namespaces/{path}").json() for path in ("a", "a%1Fdeep")],
        "tables": [
            client.get(f"/v1/namespaces/{path}").json() for path in ("a/tables/kept", "a%1Fdeep/tables/x")
        ],
        "lists": [client.get(f"/v1/namespaces/{path}/tables").json() for path in ("a", "a%1Fdeep")],
        "dropped": [
            entry["table-uuid"] for entry in client.get("/firn/v1/dropped-tables").json()["dropped-tables"]
        ],
    }


def empty(server: Server) -> None:
    database = Database(server.database_url)
    with database.write() as connection:
        schema.drop_all(connection)
    database.close()


def test_a_lost_database_comes_back_from_the_warehouse(own_server: Server) -> None:
    """Every table is back under its name at its newest metadata, with namespaces, properties and what was
    dropped."""
    with own_server.client() as client:
        fill(client)
        before = state(client)
    own_server.stop()
    empty(own_server)
    nothing: Json = {"nameless": [], "parked": [], "missing": [], "unreadable": []}
    assert rebuild(own_server) == {"unchanged": 0, "advanced": 0, "created": 2, "dropped": 1, **nothing}
    with own_server.start().client() as client:
        assert state(client) == before
        assert (
            client.post(
                "/firn/v1/dropped-tables/undo", json={"identifier": {"namespace": ["a"], "name": "dropped"}}
            ).status_code
            == 200
        )
    own_server.stop()
    assert rebuild(own_server) == {"unchanged": 3, "advanced": 0, "created": 0, "dropped": 0, **nothing}


@ON_SQLITE
def test_an_empty_database_beside_a_warehouse_with_tables_is_not_served(own_server: Server) -> None:
    """Its callers would make every table anew, and no rebuild could tell which one a name belongs to. A key
    in it makes no difference."""
    with own_server.client() as client:
        client.post("/v1/namespaces", json={"namespace": ["a"]})
        client.post("/v1/namespaces/a/tables", json=create_body("kept", properties={}))
    own_server.stop()
    empty(own_server)
    assert own_server.run("key", "create", "--scope", "admin").returncode == 0
    refused = run_cli(own_server, "serve", "--anonymous", "--port", "0")
    said = " ".join(refused.stderr.split())
    assert (refused.returncode, "has 1: it was lost" in said) == (2, True)
    assert "`python -m catalog rebuild --from-warehouse`" in said
    assert rebuild(own_server)["created"] == 1
    with own_server.start().client() as client:
        assert client.get("/v1/namespaces/a/tables/kept").status_code == 200


@contextmanager
def connected(server: Server) -> Iterator[tuple[httpx.Client, CatalogClient]]:
    """Two clients of a live server: of any request, and of Firn's commits."""
    with server.client() as client, closing(CatalogClient(server.url)) as catalog:
        yield client, catalog


def rename(client: httpx.Client, name: str, to: str) -> None:
    body = {"source": {"namespace": ["a"], "name": name}, "destination": {"namespace": ["a"], "name": to}}
    assert client.post("/v1/tables/rename", json=body).status_code == 204


def drop(client: httpx.Client, name: str) -> None:
    assert client.delete(f"/v1/namespaces/a/tables/{name}?purgeRequested=true").status_code == 204


def live_before_the_dump(client: httpx.Client, catalog: CatalogClient) -> None:
    """A namespace `a` with tables of five rows each, two of them dropped, and one that will be empty."""
    for name in ("grown", "moved", "one", "other", "gone", "back", "purged", "history"):
        append_rows(catalog, TableName("a", name), 5)
    client.post("/v1/namespaces", json={"namespace": ["closed"]})
    drop(client, "back")
    drop(client, "purged")


def live_after_the_dump(client: httpx.Client, catalog: CatalogClient, server: Server) -> None:
    """Everything that a dump can miss: rows, tables, names, drops, an undo, a purge, expired history,
    namespaces and their properties."""
    for name, rows in (
        ("grown", 3),
        ("grown", 4),
        ("later", 6),
        ("moved", 1),
        ("history", 2),
        ("history", 2),
    ):
        append_rows(catalog, TableName("a", name), rows)
    rename(client, "moved", "new_name")
    for name, to in (("one", "spare"), ("other", "one"), ("spare", "other")):
        rename(client, name, to)
    drop(client, "gone")
    append_rows(catalog, TableName("b", "first"), 2)
    client.post("/v1/namespaces/a/properties", json={"updates": {"k": "new"}})
    assert client.delete("/v1/namespaces/closed").status_code == 204
    assert (
        client.post(
            "/firn/v1/dropped-tables/undo", json={"identifier": {"namespace": ["a"], "name": "back"}}
        ).status_code
        == 200
    )
    append_rows(catalog, TableName("a", "back"), 2)
    (entry,) = [
        e
        for e in client.get("/firn/v1/dropped-tables").json()["dropped-tables"]
        if e["identifier"]["name"] == "purged"
    ]
    assert client.post(f"/firn/v1/dropped-tables/{entry['id']}/purge-started").status_code == 200
    shutil.rmtree(server.folder / "warehouse" / entry["location"].split("/warehouse/")[1])
    assert client.delete(f"/firn/v1/dropped-tables/{entry['id']}").status_code == 204
    snapshots = catalog.load_table(TableName("a", "history"))["metadata"]["snapshots"]
    expired = {
        "action": "remove-snapshots",
        "snapshot-ids": [snapshot["snapshot-id"] for snapshot in snapshots[:-1]],
    }
    assert (
        client.post(
            "/v1/namespaces/a/tables/history", json={"requirements": [], "updates": [expired]}
        ).status_code
        == 200
    )


def everything(client: httpx.Client) -> Json:
    """What the catalog says of names, tables and dropped tables; not what only one database can know (ids,
    times)."""
    namespaces = [".".join(levels) for levels in client.get("/v1/namespaces").json()["namespaces"]]
    listed = {name: client.get(f"/v1/namespaces/{name}/tables").json()["identifiers"] for name in namespaces}
    return {
        "namespaces": {name: client.get(f"/v1/namespaces/{name}").json() for name in namespaces},
        "tables": {
            str(one): client.get(f"/v1/namespaces/{name}/tables/{one['name']}").json()
            for name, found in listed.items()
            for one in found
        },
        "dropped": sorted(
            (e["identifier"]["name"], e["table-uuid"], e["purge-requested"])
            for e in client.get("/firn/v1/dropped-tables").json()["dropped-tables"]
        ),
    }


@pytest.fixture
def ready_to_purge(database_url: str, tmp_path: Path) -> Iterator[Server]:
    """A live catalog whose dropped tables may be purged at once."""
    server = Server(tmp_path, database_url, environment={"FIRN_CATALOG_UNDO_WINDOW_S": "0"})
    try:
        yield server.start()
    finally:
        server.stop()


def test_an_old_dump_is_brought_forward(ready_to_purge: Server, request: pytest.FixtureRequest) -> None:
    """An old dump beside newer tables: after `rebuild` every table has exactly the rows and marks it had,
    under its name; none waits for a person."""
    server = ready_to_purge
    with connected(server) as (client, catalog):
        live_before_the_dump(client, catalog)
    server.stop()
    old = dump(server, request)
    with connected(server.start()) as (client, catalog):
        live_after_the_dump(client, catalog, server)
        before, rows = everything(client), offsets_and_marks(server.url)
    assert {name: len(offsets) for name, (offsets, _) in rows.items()} == {
        "a.grown": 12,
        "a.new_name": 6,
        "a.one": 5,
        "a.other": 5,
        "a.back": 7,
        "a.later": 6,
        "a.history": 9,
        "b.first": 2,
    }
    server.stop()
    server.database_url = old
    result = rebuild(server)
    assert (result["parked"], result["nameless"], result["missing"], result["unreadable"]) == ([], [], [], [])
    with connected(server.start()) as (client, catalog):
        assert everything(client) == before
        assert offsets_and_marks(server.url) == rows
        append_rows(catalog, TableName("a", "grown"), 1)
        assert client.get("/firn/v1/parked").json()["parked"] == []


@ON_SQLITE
def test_marks_that_lie_are_parked(ready_to_purge: Server, request: pytest.FixtureRequest) -> None:
    """A table that was rolled back after the dump is found with marks that say more than its rows: it is
    parked, at exactly the rows it has."""
    server, name = ready_to_purge, TableName("a", "t")
    with connected(server) as (_, catalog):
        append_rows(catalog, name, 5)
    server.stop()
    old = dump(server, request)
    with connected(server.start()) as (client, catalog):
        first = catalog.load_table(name)["metadata"]["current-snapshot-id"]
        append_rows(catalog, name, 3)
        back = {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": first}
        assert (
            client.post("/v1/namespaces/a/tables/t", json={"requirements": [], "updates": [back]}).status_code
            == 200
        )
        rows = offsets_and_marks(server.url)
    server.stop()
    for url in (old, None):
        server.database_url = url or server.database_url
        if url is None:
            empty(server)
        assert rebuild(server)["parked"] == ["a.t"]
        with connected(server.start()) as (client, _):
            assert offsets_and_marks(server.url) == rows
            assert client.get("/firn/v1/parked/a/t").json()["reason"] == "rolled_back"
        server.stop()


@ON_SQLITE
def test_two_newest_files_are_for_a_person(own_server: Server) -> None:
    """Where a commit that lost left a file beside the winner's and the database is gone, nobody can tell
    which: the table is parked."""
    server, name = own_server, TableName("a", "t")
    with connected(server) as (_, catalog):
        append_rows(catalog, name, 5)
        append_rows(catalog, name, 5)
        location = catalog.load_table(name)["metadata-location"].removeprefix("file://")
    server.stop()
    shutil.copy(
        location, Path(location).with_name("00001-ffffffff-ffff-4fff-bfff-ffffffffffff.metadata.json")
    )
    empty(server)
    assert rebuild(server)["parked"] == ["a.t"]


@ON_SQLITE
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
