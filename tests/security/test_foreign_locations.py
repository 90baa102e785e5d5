"""Where tables and views may lie and write, and who may make views: tried with the keys of a tenant, of a
service and of an administrator."""

import os
import uuid
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from lake.storage import local_path
from tests.catalog.support.table_requests import SCHEMA, create_body
from tests.security.support.hostile_tables import Hostile, start_hostile

pytestmark = pytest.mark.stack
TABLES = "/v1/namespaces/a/tables"
PATHS = ("write.metadata.path", "write.data.path", "write.object-storage.path", "write.folder-storage.path")
GRANTS = "firn.file-locations"
VERSION = {"version-id": 1, "timestamp-ms": 1, "schema-id": 0, "summary": {}, "default-namespace": ["a"]}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hostile]:
    """A catalog of this module's own, with the tables of `a` and `b`."""
    made = start_hostile(tmp_path_factory.mktemp("locations"))
    yield made
    made.server.stop()


def fresh() -> str:
    return f"t{uuid.uuid4().hex[:12]}"


def client_location(world: Hostile, namespace: str) -> str:
    """The folder in which engines put tables of a namespace."""
    with world.http("admin") as client:
        return str(client.get(f"/v1/namespaces/{namespace}").json()["properties"]["location"])


def view_of(sql: str) -> dict[str, Any]:
    """The body of createView."""
    representations = [{"type": "sql", "sql": sql, "dialect": "trino"}]
    return {
        "name": fresh(),
        "schema": SCHEMA,
        "view-version": {**VERSION, "representations": representations},
        "properties": {},
    }


def creations(body: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """The routes that create a table from a body."""
    identifier = {"namespace": ["a"], "name": body["name"]}
    return [
        (TABLES, body),
        (TABLES, {**body, "stage-create": True}),
        (
            "/firn/v1/commits",
            {"commits": [{"identifier": identifier, "create": body, "requirements": [], "updates": []}]},
        ),
    ]


def refused(response: httpx.Response) -> bool:
    """403, also where a batch says it of its only commit."""
    if response.status_code == 200 and "results" in response.json():
        return bool(response.json()["results"][0].get("error", {}).get("code") == 403)
    return response.status_code == 403


@pytest.mark.finding(6)
@pytest.mark.parametrize("key", ["mine", "room", "admin"])
def test_no_key_makes_writers_write_elsewhere(world: Hostile, key: str) -> None:
    """A path property that leads out of the table, given at creation, by a commit or a batch, is refused, and
    no file appears there."""
    elsewhere = [
        f"file://{world.outside}/x",
        world.state(world.theirs).location,
        f"{world.server.warehouse}/elsewhere",
        "file:///etc/x",
    ]
    with world.http(key) as client:
        for prop in PATHS:
            for path in elsewhere:
                body = create_body(fresh(), properties={prop: path})
                assert refused(client.post(TABLES, json=body)), (prop, path)
                batch = {
                    "commits": [
                        {
                            "identifier": {"namespace": ["a"], "name": body["name"]},
                            "create": body,
                            "requirements": [],
                            "updates": [],
                        }
                    ]
                }
                assert refused(client.post("/firn/v1/commits", json=batch)), (prop, path)
                update = {
                    "requirements": [],
                    "updates": [{"action": "set-properties", "updates": {prop: path}}],
                }
                assert refused(client.post(f"{TABLES}/logs", json=update)), (prop, path)
        name = fresh()
        location = client.post(TABLES, json=create_body(name)).json()["metadata"]["location"]
        update = {
            "requirements": [],
            "updates": [{"action": "set-properties", "updates": dict.fromkeys(PATHS, f"{location}/inside")}],
        }
        inside = client.post(f"{TABLES}/{name}", json=update)
        assert inside.status_code == 200, inside.text
        again = client.post(
            f"{TABLES}/{name}",
            json={"requirements": [], "updates": [{"action": "set-properties", "updates": {"k": "v"}}]},
        )
        assert again.json()["metadata-location"].startswith(f"{location}/inside/")
    assert sorted(path.name for path in world.outside.iterdir()) == ["secret.avro"]
    assert not local_path(f"{world.server.warehouse}/elsewhere").exists()


@pytest.mark.finding(6)
def test_a_bound_key_chooses_no_foreign_location(world: Hostile) -> None:
    """A new table of a bound key lies where the catalog chooses or in its namespace's folder, never at, in or
    above another table, nor behind a link."""
    theirs, warehouse = world.state(world.theirs).location, world.server.warehouse
    hexadecimal = theirs.split("/")[-2]
    os.makedirs(local_path(f"{warehouse}/a"), exist_ok=True)
    local_path(f"{warehouse}/a/link").symlink_to(local_path(theirs))
    wrong = [
        theirs,
        f"{theirs}/x",
        f"{warehouse}/{hexadecimal}",
        f"{warehouse}/b/x",
        f"{warehouse}/_firn/x",
        f"{warehouse}/a",
        f"{warehouse}/abc/x",
        warehouse,
    ]
    wrong += [
        f"{warehouse}/a/../b/x",
        f"{warehouse}/a/%2e%2e/b",
        f"{warehouse}/a//b",
        f"file://{world.outside}/t",
        f"{warehouse}/a/link/t",
        f"{warehouse}/a/link",
    ]
    with world.http("mine") as client:
        for location in wrong:
            for path, body in creations(create_body(fresh(), location=location)):
                answer = client.post(path, json=body)
                assert refused(answer) or answer.status_code == 400 or '"code":400' in answer.text, (
                    path,
                    location,
                    answer.text,
                )
        folder = {name: client_location(world, name) for name in ("a", "b")}
        assert refused(client.post(TABLES, json=create_body(fresh(), location=f"{folder['b']}/x")))
        named = {"location": folder["b"], "table-uuid": folder["b"].rsplit("/", 1)[1]}
        assert refused(client.post(TABLES, json=create_body(fresh(), **named)))
        assert client.post(TABLES, json=create_body(fresh(), location=f"{folder['a']}/x")).status_code == 200
        lead = {"updates": {"location": folder["b"]}, "removals": []}
        assert refused(client.post("/v1/namespaces/a/properties", json=lead))
        assert refused(
            client.post("/v1/namespaces", json={"namespace": ["a", "below"], "properties": lead["updates"]})
        )
        first = f"{warehouse}/a/one"
        assert client.post(TABLES, json=create_body(fresh(), location=first)).status_code == 200
        for location in (first, f"{first}/below", f"{warehouse}/a"):
            assert refused(client.post(TABLES, json=create_body(fresh(), location=location))), location
        assert client.post(TABLES, json=create_body(fresh(), location=f"{first}0")).status_code == 200
        table_uuid = str(uuid.uuid4())
        chosen = {"location": f"{warehouse}/{table_uuid[:2]}/{table_uuid}", "table-uuid": table_uuid}
        assert client.post(TABLES, json=create_body(fresh(), **chosen)).status_code == 200
        move = {
            "requirements": [],
            "updates": [{"action": "set-location", "location": f"{warehouse}/a/moved"}],
        }
        assert refused(client.post(f"{TABLES}/logs", json=move))


@pytest.mark.finding(6)
def test_only_an_administrator_grants_and_moves(world: Hostile) -> None:
    """The property that lets a table's files lie elsewhere, and the table's location, change with an
    administrator's key alone; readers then follow."""
    name = fresh()
    granted = f"{world.server.warehouse}/imported/"
    grant = {
        "requirements": [],
        "updates": [{"action": "set-properties", "updates": {GRANTS: f'["{granted}"]'}}],
    }
    point = {
        "requirements": [],
        "updates": [{"action": "set-properties", "updates": {"write.data.path": f"{granted}data"}}],
    }
    with world.http("mine") as mine, world.http("room") as room, world.http("admin") as admin:
        assert mine.post(TABLES, json=create_body(name)).status_code == 200
        for client in (mine, room):
            assert refused(client.post(f"{TABLES}/{name}", json=grant))
            assert refused(
                client.post(TABLES, json=create_body(fresh(), properties={GRANTS: f'["{granted}"]'}))
            )
        assert refused(mine.post(f"{TABLES}/{name}", json=point))
        assert admin.post(f"{TABLES}/{name}", json=grant).status_code == 200
        assert mine.post(f"{TABLES}/{name}", json=point).status_code == 200
        for text in ("x", '"x"', '["/"]', '["s3://bucket"]', '["file:///etc/"]', '["hdfs://x/y"]'):
            wrong = {"requirements": [], "updates": [{"action": "set-properties", "updates": {GRANTS: text}}]}
            assert admin.post(f"{TABLES}/{name}", json=wrong).status_code in (400, 403), text
        remove = {"requirements": [], "updates": [{"action": "remove-properties", "removals": [GRANTS]}]}
        assert refused(mine.post(f"{TABLES}/{name}", json=remove))
        before = admin.get(f"{TABLES}/{name}").json()["metadata"]["location"]
        move = {
            "requirements": [],
            "updates": [{"action": "set-location", "location": f"{world.server.warehouse}/moved"}],
        }
        assert refused(room.post(f"{TABLES}/{name}", json=move))
        moved = admin.post(f"{TABLES}/{name}", json=move)
        assert moved.status_code == 200, moved.text
        assert f"{before}/" in moved.json()["metadata"]["properties"][GRANTS]


@pytest.mark.finding(6)
def test_registered_metadata_names_its_own_files(world: Hostile) -> None:
    """Also an administrator registers no metadata that names files elsewhere, and nobody else registers
    any."""
    metadata = world.metadata(world.mine)
    theirs = world.state(world.theirs).location
    location = f"{world.server.warehouse}/registered"
    fine = {
        **metadata,
        "location": location,
        "snapshots": [],
        "refs": {},
        "snapshot-log": [],
        "metadata-log": [],
        "table-uuid": str(uuid.uuid4()),
    }
    fine.pop("current-snapshot-id")
    wrong = [
        {**fine, "properties": {"write.metadata.path": theirs}},
        {
            **fine,
            "metadata-log": [{"timestamp-ms": 1, "metadata-file": f"{theirs}/metadata/x.metadata.json"}],
        },
        {
            **fine,
            "statistics": [
                {
                    "snapshot-id": 1,
                    "statistics-path": f"{theirs}/x",
                    "file-size-in-bytes": 1,
                    "file-footer-size-in-bytes": 1,
                }
            ],
        },
        {**fine, "snapshots": metadata["snapshots"], "current-snapshot-id": metadata["current-snapshot-id"]},
        {**fine, "location": f"{world.server.warehouse}/other"},
    ]
    with world.http("admin") as admin, world.http("mine") as mine:
        for at, document in enumerate([*wrong, fine]):
            file = f"{location}/metadata/0000{at}-x.metadata.json"
            world.storage.write(file, httpx.Request("POST", "http://x", json=document).content)
            body = {"name": fresh(), "metadata-location": file}
            assert refused(mine.post("/v1/namespaces/a/register", json=body))
            answer = admin.post("/v1/namespaces/a/register", json=body)
            assert answer.status_code == (200 if document is fine else 403), (at, answer.text)


@pytest.mark.finding(1)
def test_a_bound_key_makes_and_changes_no_views(world: Hostile) -> None:
    """A key bound to a namespace creates, replaces and registers no view, of whatever SQL; an administrator's
    may, and says so of the other."""
    sql = 'SELECT message, "$path" FROM lake.b.logs'
    with world.http("admin") as admin, world.http("mine") as mine:
        views = "/v1/namespaces/a/views"
        for body in (view_of(sql), view_of("SELECT 1"), view_of("SELECT * FROM logs")):
            answer = mine.post(views, json=body)
            assert answer.status_code == 403, answer.text
            assert "administrator" in answer.text
            assert admin.get(f"{views}/{body['name']}").status_code == 404
        made = view_of("SELECT 1 AS one")
        created = admin.post(views, json=made)
        assert created.status_code == 200, created.text
        other = {
            **VERSION,
            "version-id": 2,
            "representations": [{"type": "sql", "sql": sql, "dialect": "trino"}],
        }
        replace = {
            "requirements": [],
            "updates": [
                {"action": "add-view-version", "view-version": other},
                {"action": "set-current-view-version", "view-version-id": -1},
            ],
        }
        assert mine.post(f"{views}/{made['name']}", json=replace).status_code == 403
        register = {"name": fresh(), "metadata-location": created.json()["metadata-location"]}
        assert mine.post("/v1/namespaces/a/register-view", json=register).status_code == 403
        assert sql not in admin.get(f"{views}/{made['name']}").text
        assert admin.post(f"{views}/{made['name']}", json=replace).status_code == 200
        elsewhere = {
            **view_of("SELECT 1"),
            "properties": {"write.metadata.path": f"file://{world.outside}/v"},
        }
        assert admin.post(views, json=elsewhere).status_code == 403
