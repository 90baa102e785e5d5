"""The Iceberg REST protocol against the live server, on SQLite and PostgreSQL."""

from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import orjson
import pytest

from tests.catalog.conftest import Server, wait_until
from tests.catalog.support.table_requests import JSON, SCHEMA, SPEC, append, create_body, main_is

pytestmark = pytest.mark.stack


def create_table(client: httpx.Client, name: str = "t", **fields: Any) -> dict[str, Any]:
    client.post("/v1/namespaces", json={"namespace": ["a"]})
    response = client.post("/v1/namespaces/a/tables", json=create_body(name, **fields))
    assert response.status_code == 200, response.text
    body: dict[str, Any] = response.json()
    return body


def test_config_lists_endpoints_and_extras(client: httpx.Client, server: Server) -> None:
    """The configuration names the endpoints, and where Firn's clients may choose locations."""
    body = client.get("/v1/config").json()
    assert "POST /v1/{prefix}/transactions/commit" in body["endpoints"]
    assert body["overrides"] == {"firn.extras": "v1", "firn.warehouse": server.warehouse}


def test_config_tells_the_retention_of_the_lake(tmp_path: Path) -> None:
    """Where the settings have one."""
    told = Server(tmp_path, f"sqlite:///{tmp_path}/c.db", environment={"FIRN_CATALOG_RETENTION": "90d"})
    told.start()
    try:
        assert httpx.get(f"{told.url}/v1/config").json()["overrides"]["firn.retention"] == "90d"
    finally:
        told.stop()


def test_namespaces_live_and_die(client: httpx.Client, server: Server) -> None:
    """A namespace is created, listed with its parents, changed, found and dropped only when it is empty."""
    assert (
        client.post("/v1/namespaces", json={"namespace": ["a", "b"], "properties": {"k": "v"}}).status_code
        == 200
    )
    assert (
        client.post("/v1/namespaces", json={"namespace": ["a", "b"]}).json()["error"]["type"]
        == "AlreadyExistsException"
    )
    assert client.get("/v1/namespaces").json()["namespaces"] == [["a"]]
    assert client.get("/v1/namespaces", params={"parent": "a"}).json()["namespaces"] == [["a", "b"]]
    changed = client.post(
        "/v1/namespaces/a%1Fb/properties", json={"removals": ["k", "none"], "updates": {"x": "y"}}
    ).json()
    assert changed == {"updated": ["x"], "removed": ["k"], "missing": ["none"]}
    properties = client.get("/v1/namespaces/a%1Fb").json()["properties"]
    assert properties.pop("location").startswith(f"{server.warehouse}/")
    assert properties == {"x": "y"}
    assert client.delete("/v1/namespaces/a").status_code == 409
    assert client.delete("/v1/namespaces/a%1Fb").status_code == 204
    assert client.head("/v1/namespaces/a%1Fb").status_code == 404


def test_listing_goes_by_pages(client: httpx.Client) -> None:
    """Pages follow each other without gap or repetition, in byte order of the names."""
    names = ["B", "a", "a.b", "a/b", "ä", "é'\"", "z z"]
    for name in names:
        create_table(client, name)
    found, token = [], ""
    while token is not None:
        page = client.get("/v1/namespaces/a/tables", params={"pageToken": token, "pageSize": "3"}).json()
        found += [identifier["name"] for identifier in page["identifiers"]]
        token = page["next-page-token"]
    assert found == sorted(names, key=str.encode)


def test_creation_assigns_fresh_ids(client: httpx.Client) -> None:
    """Field ids are assigned anew, all fields of a struct before anything nested; spec and order follow
    them."""
    schema = {
        "type": "struct",
        "fields": [
            {
                "id": 10,
                "name": "s",
                "required": False,
                "type": {
                    "type": "struct",
                    "fields": [{"id": 11, "name": "x", "type": "int", "required": False}],
                },
            },
            {"id": 7, "name": "t", "type": "timestamptz", "required": True},
            {
                "id": 3,
                "name": "m",
                "required": False,
                "type": {
                    "type": "map",
                    "key-id": 1,
                    "key": "string",
                    "value-id": 2,
                    "value": "long",
                    "value-required": True,
                },
            },
        ],
        "identifier-field-ids": [7],
    }
    order = {
        "order-id": 5,
        "fields": [{"source-id": 7, "transform": "identity", "direction": "asc", "null-order": "nulls-last"}],
    }
    spec = {"fields": [{"source-id": 7, "field-id": 55, "name": "t_day", "transform": "day"}]}
    fields: dict[str, Any] = {"schema": schema, "partition-spec": spec, "write-order": order}
    metadata = create_table(client, **fields)["metadata"]
    fresh = metadata["schemas"][0]
    assert [field["id"] for field in fresh["fields"]] == [1, 2, 3]
    assert fresh["fields"][0]["type"]["fields"][0]["id"] == 4
    assert (fresh["fields"][2]["type"]["key-id"], fresh["fields"][2]["type"]["value-id"]) == (5, 6)
    assert fresh["identifier-field-ids"] == [2]
    assert metadata["last-column-id"] == 6
    assert metadata["partition-specs"] == [
        {"spec-id": 0, "fields": [{"source-id": 2, "field-id": 1000, "name": "t_day", "transform": "day"}]}
    ]
    assert metadata["sort-orders"][0]["order-id"] == 1
    assert metadata["sort-orders"][0]["fields"][0]["source-id"] == 2


def test_commit_moves_the_head(client: httpx.Client) -> None:
    """A commit adds its snapshot, logs it and the metadata file before; the second with the same requirement
    is a 409."""
    created = create_table(client)
    updates = append(None, 1)
    response = client.post(
        "/v1/namespaces/a/tables/t", json={"requirements": [main_is(None)], "updates": updates}
    )
    metadata = response.json()["metadata"]
    snapshot_id = updates[0]["snapshot"]["snapshot-id"]
    assert metadata["current-snapshot-id"] == snapshot_id
    assert metadata["last-sequence-number"] == 1
    assert [entry["snapshot-id"] for entry in metadata["snapshot-log"]] == [snapshot_id]
    assert [entry["metadata-file"] for entry in metadata["metadata-log"]] == [created["metadata-location"]]
    again = client.post(
        "/v1/namespaces/a/tables/t", json={"requirements": [main_is(None)], "updates": append(None, 2)}
    )
    assert (again.status_code, again.json()["error"]["type"]) == (409, "CommitFailedException")
    assert (
        client.get("/v1/namespaces/a/tables/t").json()["metadata-location"]
        == response.json()["metadata-location"]
    )


def test_a_late_copy_is_refused_where_the_head_was_moved_back(client: httpx.Client) -> None:
    """A copy of a lost commit that arrives when the head is again what it asserts finds its sequence number
    taken: what was lost stays lost, as its writer has deleted its files."""
    create_table(client)
    first = append(None, 1)
    base = first[0]["snapshot"]["snapshot-id"]
    lost = {"requirements": [main_is(base)], "updates": append(base, 2)}
    back = [{"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": base}]
    for updates in (first, append(base, 2), back):
        answer = client.post("/v1/namespaces/a/tables/t", json={"requirements": [], "updates": updates})
        assert answer.status_code == 200
    answer = client.post("/v1/namespaces/a/tables/t", json=lost)
    assert (answer.status_code, answer.json()["error"]["type"]) == (409, "CommitFailedException")
    metadata = client.get("/v1/namespaces/a/tables/t").json()["metadata"]
    assert metadata["current-snapshot-id"] == base


def test_metadata_log_is_bounded_and_old_files_go(client: httpx.Client, server: Server) -> None:
    """With delete-after-commit only so many old metadata files stay, in the log and on the disk."""
    properties = {
        "write.metadata.delete-after-commit.enabled": "true",
        "write.metadata.previous-versions-max": "3",
    }
    first = create_table(client, properties=properties)
    for number in range(8):
        body = {"requirements": [], "updates": [{"action": "set-properties", "updates": {"n": str(number)}}]}
        last = client.post("/v1/namespaces/a/tables/t", json=body).json()
    assert len(last["metadata"]["metadata-log"]) == 3
    folder = server.folder / "warehouse" / first["metadata"]["location"].split("/warehouse/")[1] / "metadata"
    wait_until(lambda: len(list(folder.glob("*.metadata.json"))) == 4, "the deletion of old metadata files")


def test_transaction_is_all_or_nothing(client: httpx.Client) -> None:
    """One failing requirement refuses the changes of all tables of a transaction."""
    create_table(client, "one")
    create_table(client, "two")
    good = {
        "identifier": {"namespace": ["a"], "name": "one"},
        "requirements": [main_is(None)],
        "updates": append(None, 1),
    }
    bad = {
        "identifier": {"namespace": ["a"], "name": "two"},
        "requirements": [main_is(77)],
        "updates": append(None, 1),
    }
    assert client.post("/v1/transactions/commit", json={"table-changes": [good, bad]}).status_code == 409
    assert "current-snapshot-id" not in client.get("/v1/namespaces/a/tables/one").json()["metadata"]
    bad["requirements"] = [main_is(None)]
    assert client.post("/v1/transactions/commit", json={"table-changes": [good, bad]}).status_code == 204
    assert "current-snapshot-id" in client.get("/v1/namespaces/a/tables/two").json()["metadata"]


def test_staged_creation_commits_later(client: httpx.Client) -> None:
    """A staged table does not exist until a commit with assert-create brings it to life."""
    fields: dict[str, Any] = {"stage-create": True}
    staged = create_table(client, **fields)
    assert "metadata-location" not in staged
    assert client.head("/v1/namespaces/a/tables/t").status_code == 404
    metadata = staged["metadata"]
    updates = [
        {"action": "assign-uuid", "uuid": metadata["table-uuid"]},
        {"action": "upgrade-format-version", "format-version": 2},
        {
            "action": "add-schema",
            "schema": metadata["schemas"][0],
            "last-column-id": metadata["last-column-id"],
        },
        {"action": "set-current-schema", "schema-id": -1},
        {"action": "add-spec", "spec": metadata["partition-specs"][0]},
        {"action": "set-default-spec", "spec-id": -1},
        {"action": "add-sort-order", "sort-order": metadata["sort-orders"][0]},
        {"action": "set-default-sort-order", "sort-order-id": -1},
        {"action": "set-location", "location": metadata["location"]},
        *append(None, 1),
    ]
    body = {"requirements": [{"type": "assert-create"}], "updates": updates}
    created = client.post("/v1/namespaces/a/tables/t", json=body).json()["metadata"]
    assert {key: created[key] for key in ("table-uuid", "location", "schemas", "partition-specs")} == {
        key: metadata[key] for key in ("table-uuid", "location", "schemas", "partition-specs")
    }
    assert client.post("/v1/namespaces/a/tables/t", json=body).status_code == 409


@pytest.mark.parametrize(
    "location",
    [
        "file:///etc/table",
        "file:///elsewhere",
        "{warehouse}/../x",
        "{warehouse}",
        "gopher://x/y",
        "not a uri",
        "",
    ],
)
def test_locations_outside_the_warehouse_are_refused(
    client: httpx.Client, server: Server, location: str
) -> None:
    """A location must lie below the warehouse; the refusal says so and nothing is created."""
    client.post("/v1/namespaces", json={"namespace": ["a"]})
    response = client.post(
        "/v1/namespaces/a/tables", json=create_body("t", location=location.format(warehouse=server.warehouse))
    )
    assert response.status_code in (400, 403)
    assert "location" in response.json()["error"]["message"]
    assert client.head("/v1/namespaces/a/tables/t").status_code == 404


def test_rename_and_drop(client: httpx.Client) -> None:
    """A renamed table keeps its metadata and location; a dropped one is gone, and its name gets another
    location."""
    created = create_table(client)
    body = {"source": {"namespace": ["a"], "name": "t"}, "destination": {"namespace": ["a"], "name": "u"}}
    assert client.post("/v1/tables/rename", json=body).status_code == 204
    assert client.post("/v1/tables/rename", json=body).status_code == 404
    assert client.get("/v1/namespaces/a/tables/u").json()["metadata-location"] == created["metadata-location"]
    assert client.delete("/v1/namespaces/a/tables/u").status_code == 204
    assert client.get("/v1/namespaces/a/tables/u").json()["error"] == {
        "message": "Table does not exist: a.u",
        "type": "NoSuchTableException",
        "code": 404,
    }
    assert create_table(client, "u")["metadata"]["location"] != created["metadata"]["location"]


def test_same_key_same_answer(client: httpx.Client) -> None:
    """A mutation repeated under its Idempotency-Key is answered as the first time and done once; another
    request under it gets 422."""
    create_table(client)
    body = {"requirements": [], "updates": append(None, 1)}
    key = {"Idempotency-Key": "0190-key"}
    first = client.post("/v1/namespaces/a/tables/t", json=body, headers=key)
    second = client.post("/v1/namespaces/a/tables/t", json=body, headers=key)
    assert (first.status_code, second.content) == (200, first.content)
    assert (
        client.post(
            "/v1/namespaces/a/tables/t", json={**body, "updates": append(None, 2)}, headers=key
        ).status_code
        == 422
    )
    refused = {"Idempotency-Key": "0190-refused"}
    conflict = {"requirements": [main_is(5)], "updates": append(5, 9)}
    assert client.post("/v1/namespaces/a/tables/t", json=conflict, headers=refused).status_code == 409
    assert client.post("/v1/namespaces/a/tables/t", json=conflict, headers=refused).status_code == 409
    dropped = {"Idempotency-Key": "0190-drop"}
    assert client.delete("/v1/namespaces/a/tables/t", headers=dropped).status_code == 204
    assert client.delete("/v1/namespaces/a/tables/t", headers=dropped).status_code == 204


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{",
        b'{"requirements":1,"updates":[]}',
        b'{"requirements":[],"updates":[{"action":"no"}]}',
        b'{"requirements":[{"type":[]}],"updates":[]}',
        b'{"requirements":[],"updates":[{"action":"add-snapshot","snapshot":{"snapshot-id":"x"}}]}',
        b"[" * 5000,
    ],
)
def test_malformed_commits_get_a_sentence(client: httpx.Client, body: bytes) -> None:
    """A body that is no valid commit is answered by 400 and a sentence, never by 500."""
    create_table(client)
    response = client.post("/v1/namespaces/a/tables/t", content=body, headers=JSON)
    assert response.status_code == 400
    assert len(response.json()["error"]["message"]) > 10


@pytest.mark.parametrize(
    "name", ["q'uo\"te", "sl/ash", "dot.ted", "ünï", "sp ace", "plus+", "per%cent", "a\\b", "💥", "?x=y", "#"]
)
def test_names_are_stored_exactly(client: httpx.Client, name: str) -> None:
    """Names with quotes, slashes, dots and unicode come back as they went in."""
    client.post("/v1/namespaces", json={"namespace": [name]})
    assert (
        client.post(f"/v1/namespaces/{quote(name, safe='')}/tables", json=create_body(name)).status_code
        == 200
    )
    listed = client.get(f"/v1/namespaces/{quote(name, safe='')}/tables").json()["identifiers"]
    assert listed == [{"namespace": [name], "name": name}]
    assert (
        client.get(f"/v1/namespaces/{quote(name, safe='')}/tables/{quote(name, safe='')}").status_code == 200
    )


@pytest.mark.parametrize("name", ["", "a\x00b", "a\x1fb", "line\n", "x" * 300])
def test_unusable_names_are_refused(client: httpx.Client, name: str) -> None:
    """Control characters, empty and over-long names are refused with 400."""
    assert (
        client.post("/v1/namespaces", content=orjson.dumps({"namespace": [name]}), headers=JSON).status_code
        == 400
    )
    client.post("/v1/namespaces", json={"namespace": ["a"]})
    body = orjson.dumps({"name": name, "schema": SCHEMA, "partition-spec": SPEC})
    assert client.post("/v1/namespaces/a/tables", content=body, headers=JSON).status_code == 400


def test_views_are_created_replaced_and_dropped(client: httpx.Client) -> None:
    """A view shares its name with no table, keeps its versions, and is gone when dropped."""
    create_table(client)
    version = {
        "version-id": 1,
        "timestamp-ms": 1_700_000_000_000,
        "schema-id": 0,
        "summary": {"engine": "test"},
        "representations": [{"type": "sql", "sql": "select 1", "dialect": "trino"}],
        "default-namespace": ["a"],
    }
    body = {"name": "v", "schema": SCHEMA, "view-version": version, "properties": {}}
    assert (
        client.post("/v1/namespaces/a/views", json={**body, "name": "t"}).json()["error"]["message"]
        == "Table with same name already exists: a.t"
    )
    assert client.post("/v1/namespaces/a/views", json=body).status_code == 200
    again = {
        **version,
        "version-id": 2,
        "representations": [{"type": "sql", "sql": "select 2", "dialect": "trino"}],
    }
    updates = [
        {"action": "add-view-version", "view-version": again},
        {"action": "set-current-view-version", "view-version-id": -1},
    ]
    replaced = client.post("/v1/namespaces/a/views/v", json={"requirements": [], "updates": updates}).json()[
        "metadata"
    ]
    assert (replaced["current-version-id"], len(replaced["versions"])) == (2, 2)
    assert client.get("/v1/namespaces/a/views").json()["identifiers"] == [{"namespace": ["a"], "name": "v"}]
    assert client.delete("/v1/namespaces/a/views/v").status_code == 204
    assert client.get("/v1/namespaces/a/views/v").json()["error"]["type"] == "NoSuchViewException"


def test_loading_can_be_cheap(client: httpx.Client) -> None:
    """An ETag spares the body while nothing changed; snapshots=refs leaves out what no branch or tag points
    at."""
    create_table(client)
    first = append(None, 1)
    head = first[0]["snapshot"]["snapshot-id"]
    client.post("/v1/namespaces/a/tables/t", json={"requirements": [], "updates": first})
    client.post("/v1/namespaces/a/tables/t", json={"requirements": [], "updates": append(head, 2)})
    loaded = client.get("/v1/namespaces/a/tables/t")
    assert (
        client.get("/v1/namespaces/a/tables/t", headers={"If-None-Match": loaded.headers["etag"]}).status_code
        == 304
    )
    small = client.get("/v1/namespaces/a/tables/t", params={"snapshots": "refs"})
    assert (len(loaded.json()["metadata"]["snapshots"]), len(small.json()["metadata"]["snapshots"])) == (2, 1)
    assert small.headers["etag"] != loaded.headers["etag"]


def test_registered_metadata_becomes_a_table(client: httpx.Client) -> None:
    """A metadata file below the warehouse can be registered under a name, one elsewhere cannot."""
    created = create_table(client)
    client.delete("/v1/namespaces/a/tables/t")
    body = {"name": "again", "metadata-location": created["metadata-location"]}
    assert (
        client.post("/v1/namespaces/a/register", json=body).json()["metadata"]["table-uuid"]
        == created["metadata"]["table-uuid"]
    )
    assert client.post("/v1/namespaces/a/register", json=body).status_code == 409
    assert (
        client.post(
            "/v1/namespaces/a/register", json={"name": "x", "metadata-location": "file:///etc/passwd"}
        ).status_code
        == 403
    )
