"""Leases, parked records, soft delete and work lists against the live server."""

import time
from typing import Any

import httpx
import pytest

from tests.catalog.conftest import wait_until
from tests.catalog.support.table_requests import append, create_body, main_is

pytestmark = pytest.mark.stack

Json = dict[str, Any]
IDENT = {"namespace": ["a"], "name": "t"}


def create_table(client: httpx.Client, **fields: Any) -> Json:
    client.post("/v1/namespaces", json={"namespace": ["a"]})
    response = client.post("/v1/namespaces/a/tables", json=create_body("t", **fields))
    assert response.status_code == 200, response.text
    body: Json = response.json()
    return body


def acquire(client: httpx.Client, holder: str, ttl_ms: int = 60_000) -> httpx.Response:
    return client.post("/firn/v1/leases/maintenance/acquire", json={"holder": holder, "ttl-ms": ttl_ms})


def commit(client: httpx.Client, updates: list[Json], lease: str | None = None) -> httpx.Response:
    headers = {} if lease is None else {"X-Firn-Lease": lease}
    return client.post(
        "/v1/namespaces/a/tables/t", json={"requirements": [], "updates": updates}, headers=headers
    )


def test_a_late_lease_holder_cannot_commit(client: httpx.Client) -> None:
    """A holder that was paused past its lease is refused, in single and batch commits alike; its successor is
    not."""
    create_table(client)
    first = acquire(client, "one", 1_000).json()
    assert acquire(client, "two").status_code == 409
    old = f"maintenance:{first['token']}"
    assert commit(client, append(None, 1), old).status_code == 200
    wait_until(
        lambda: not client.get("/firn/v1/leases").json()["leases"][0]["in-force"], "the end of the lease"
    )
    assert commit(client, append(None, 2), old).status_code == 403  # also while nobody has it
    second = acquire(client, "two").json()
    assert second["token"] > first["token"]
    refused = commit(client, append(None, 2), old)
    assert (refused.status_code, refused.json()["error"]["type"]) == (403, "StaleLeaseException")
    batch = {"commits": [{"identifier": IDENT, "updates": append(None, 2)}]}
    assert (
        client.post("/firn/v1/commits", json=batch, headers={"X-Firn-Lease": old}).json()["results"][0][
            "status"
        ]
        == "invalid"
    )
    assert commit(client, append(None, 2), f"maintenance:{second['token']}").status_code == 200
    renew = {"token": first["token"], "ttl-ms": 5_000}
    assert client.post("/firn/v1/leases/maintenance/renew", json=renew).status_code == 403
    assert (
        client.post("/firn/v1/leases/maintenance/release", json={"token": second["token"]}).status_code == 204
    )
    assert acquire(client, "one").status_code == 200


def test_parked_records_change_by_compare_and_set(client: httpx.Client) -> None:
    """A parked record changes only under the newest token and over the version last read."""
    old = acquire(client, "one").json()["token"]
    new = acquire(client, "one").json()["token"]

    def change(token: int, version: int, record: Any) -> httpx.Response:
        body = {
            "lease": f"maintenance:{token}",
            "changes": [{"identifier": IDENT, "version": version, "reason": "storage", "record": record}],
        }
        return client.post("/firn/v1/parked", json=body)

    assert change(old, 0, {"x": 1}).status_code == 403
    assert change(new, 0, {"x": 1}).json()["results"][0]["version"] == 1
    assert change(new, 0, {"x": 2}).json()["results"][0]["error"]["code"] == 409
    assert change(new, 1, {"x": 2}).json()["results"][0]["version"] == 2
    assert client.get("/firn/v1/parked/a/t").json()["record"] == {"x": 2}
    assert [entry["reason"] for entry in client.get("/firn/v1/parked").json()["parked"]] == ["storage"]
    assert change(new, 2, None).json()["results"][0]["version"] == 0
    assert client.get("/firn/v1/parked/a/t").status_code == 404


def test_a_table_moved_back_is_parked(client: httpx.Client) -> None:
    """A head that is no descendant of the one before parks a table with marks in the same commit; going
    forward does not."""
    create_table(client, properties={"firn.offsets": "{}"})
    first = append(None, 1)
    one = first[0]["snapshot"]["snapshot-id"]
    second = append(one, 2)
    two = second[0]["snapshot"]["snapshot-id"]
    assert commit(client, first).status_code == 200
    assert commit(client, second).status_code == 200
    assert client.get("/firn/v1/parked").json()["parked"] == []
    back = [{"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": one}]
    assert commit(client, back).status_code == 200
    (entry,) = client.get("/firn/v1/parked").json()["parked"]
    assert (entry["reason"], entry["version"]) == ("rolled_back", 1)
    assert entry["record"]["rolled_back"] == {"head-before": two, "head-after": one}


def test_older_metadata_registered_in_place_parks_the_table(client: httpx.Client) -> None:
    """Registering a table's older metadata over it moves its head back without a commit: it is parked all the
    same."""
    create_table(client, properties={"firn.offsets": "{}"})
    first = append(None, 1)
    older = commit(client, first).json()["metadata-location"]
    assert commit(client, append(first[0]["snapshot"]["snapshot-id"], 2)).status_code == 200
    body = {"name": "t", "metadata-location": older, "overwrite": True}
    assert client.post("/v1/namespaces/a/register", json=body).status_code == 200
    assert client.get("/firn/v1/parked/a/t").json()["reason"] == "rolled_back"


def test_undo_brings_a_table_back(client: httpx.Client) -> None:
    """A dropped table comes back with its data, under another name where its own is taken; a table of the
    same name lies elsewhere."""
    created = create_table(client)
    client.delete("/v1/namespaces/a/tables/t?purgeRequested=true")
    (entry,) = client.get("/firn/v1/dropped-tables").json()["dropped-tables"]
    assert entry["identifier"] == IDENT
    assert entry["purge-due-ms"] == entry["dropped-ms"] + 3 * 86_400_000
    assert client.get("/firn/v1/dropped-tables", params={"purgeable": "true"}).json()["dropped-tables"] == []
    assert client.post(f"/firn/v1/dropped-tables/{entry['id']}/purge-started").status_code == 409
    other = create_table(client)
    assert other["metadata"]["location"] != created["metadata"]["location"]
    assert client.post("/firn/v1/dropped-tables/undo", json={"identifier": IDENT}).status_code == 409
    renamed = {"identifier": IDENT, "new-identifier": {"namespace": ["a"], "name": "old"}}
    assert client.post("/firn/v1/dropped-tables/undo", json=renamed).status_code == 200
    assert client.get("/v1/namespaces/a/tables/old").json()["metadata"] == created["metadata"]
    assert client.get("/firn/v1/dropped-tables").json()["dropped-tables"] == []


def test_a_purge_that_is_not_to_wait_is_due_at_once(client: httpx.Client) -> None:
    """Of a table that was dropped with a purge or without; asking again for a later one changes nothing. The
    time for undo is not over, so until it begins the table may come back."""
    for name, purge in (("t", "true"), ("u", "false"), ("v", "false")):
        create_table(client)
        client.post("/v1/tables/rename", json={"source": IDENT, "destination": {**IDENT, "name": name}})
        client.delete(f"/v1/namespaces/a/tables/{name}?purgeRequested={purge}")
    listed = client.get("/firn/v1/dropped-tables").json()["dropped-tables"]
    ids = {each["identifier"]["name"]: each["id"] for each in listed}
    assert [each["purge-at-once"] for each in listed] == [False] * 3
    for path in (f"{ids['t']}/purge?atOnce=true", f"{ids['u']}/purge?atOnce=true", f"{ids['v']}/purge"):
        assert client.post(f"/firn/v1/dropped-tables/{path}").status_code == 204
    assert client.post(f"/firn/v1/dropped-tables/{ids['u']}/purge").status_code == 204
    due = client.get("/firn/v1/dropped-tables", params={"purgeable": "true"}).json()["dropped-tables"]
    assert [each["identifier"]["name"] for each in due] == ["t", "u"]
    assert all(each["purge-due-ms"] == each["dropped-ms"] for each in due)
    assert client.post(f"/firn/v1/dropped-tables/{ids['v']}/purge-started").status_code == 409
    assert client.post("/firn/v1/dropped-tables/undo", json={"id": ids["u"]}).status_code == 200
    assert client.post(f"/firn/v1/dropped-tables/{ids['t']}/purge-started").status_code == 200
    assert client.post("/firn/v1/dropped-tables/999999/purge").status_code == 404


def test_tasks_and_deletions_survive_their_owner(client: httpx.Client) -> None:
    """Tasks change over the version last read; files wait for their time and are forgotten when
    acknowledged."""
    task = {"id": "x/1", "kind": "compact", "state": "planned", "version": 0, "record": {"files": 3}}
    assert client.post("/firn/v1/tasks", json={"tasks": [task]}).json()["results"] == [
        {"id": "x/1", "version": 1}
    ]
    assert "error" in client.post("/firn/v1/tasks", json={"tasks": [task]}).json()["results"][0]
    client.post("/firn/v1/tasks", json={"tasks": [{**task, "state": "done", "version": 1}]})
    assert client.get("/firn/v1/tasks", params={"state": "done"}).json()["tasks"][0]["version"] == 2
    assert client.delete("/firn/v1/tasks/x%2F1").status_code == 204
    metadata = create_table(client)["metadata"]
    location, record = metadata["location"], {"table-uuid": metadata["table-uuid"]}
    later = int(time.time() * 1000) + 3_600_000
    files = [
        {"location": f"{location}/data/a", "record": record},
        {"location": f"{location}/data/b", "not-before-ms": later, "record": record},
    ]
    assert client.post("/firn/v1/deletions", json={"deletions": files}).json() == {"added": 2, "refused": []}
    assert client.post("/firn/v1/deletions", json={"deletions": files}).json() == {"added": 0, "refused": []}
    assert (
        client.post(
            "/firn/v1/deletions", json={"deletions": [{"location": "file:///etc/passwd"}]}
        ).status_code
        == 403
    )
    (due,) = client.get("/firn/v1/deletions").json()["deletions"]
    assert due["location"].endswith("/a")
    asked = [f"{location}/data/{name}" for name in "abc"]
    told = client.post("/firn/v1/deletions/queued", json={"locations": asked}).json()["queued"]
    assert sorted(told) == asked[:2]
    others = [spelled.replace("file:///", "file:/") for spelled in asked]
    again = [{"location": others[0], "record": record}]
    assert client.post("/firn/v1/deletions", json={"deletions": again}).json() == {"added": 0, "refused": []}
    told = client.post("/firn/v1/deletions/queued", json={"locations": others}).json()["queued"]
    assert told == others[:2]
    nowhere = {"locations": ["gopher://x/y"]}
    assert client.post("/firn/v1/deletions/queued", json=nowhere).status_code == 400
    assert client.post("/firn/v1/deletions/queued", json={}).json() == {"queued": []}
    assert client.post("/firn/v1/deletions/queued", json={"locations": asked * 400}).status_code == 400
    assert due["places"] == [f"{location}/"]
    assert client.post("/firn/v1/deletions/acknowledge", json={"ids": [due["id"]]}).status_code == 204
    assert client.get("/firn/v1/deletions").json()["deletions"] == []
    told = client.post("/firn/v1/deletions/queued", json={"locations": asked}).json()["queued"]
    assert told == asked[1:2]


def test_tenants_are_namespaces_with_a_name(client: httpx.Client) -> None:
    """Tenants are listed by their own names, with the number of their tables."""
    create_table(client)
    client.post("/v1/namespaces", json={"namespace": ["_41cme"]})
    client.post("/v1/namespaces", json={"namespace": ["firn_system"]})
    tenants = client.get("/firn/v1/tenants").json()["tenants"]
    assert tenants == [
        {"tenant": "Acme", "namespace": "_41cme", "tables": 0},
        {"tenant": "a", "namespace": "a", "tables": 1},
    ]


def test_requirements_count_under_a_lease_too(client: httpx.Client) -> None:
    """A lease does not replace requirements: a failed one is a 409 as ever."""
    create_table(client)
    token = acquire(client, "one").json()["token"]
    body = {"requirements": [main_is(7)], "updates": append(7, 1)}
    assert (
        client.post(
            "/v1/namespaces/a/tables/t", json=body, headers={"X-Firn-Lease": f"maintenance:{token}"}
        ).status_code
        == 409
    )
