"""`POST /firn/v1/commits` against the live server."""

import shutil
import uuid
from typing import Any

import httpx
import pytest

from tests.catalog.conftest import Server
from tests.catalog.support.table_requests import SCHEMA, SPEC, append, main_is

pytestmark = pytest.mark.stack

Json = dict[str, Any]


def item(name: str, **fields: Any) -> Json:
    return {"identifier": {"namespace": ["a"], "name": name}, **fields}


def creation(name: str, **fields: Any) -> Json:
    return item(
        name,
        create={"name": name, "schema": SCHEMA, "partition-spec": SPEC, "properties": {}, **fields},
        updates=append(None, 1),
    )


def send(client: httpx.Client, *items: Json, key: str | None = None) -> list[Json]:
    response = client.post(
        "/firn/v1/commits",
        json={"commits": list(items)},
        headers={} if key is None else {"Idempotency-Key": key},
    )
    assert response.status_code == 200, response.text
    results: list[Json] = response.json()["results"]
    return results


def statuses(results: list[Json]) -> list[str]:
    return [result["status"] for result in results]


def test_each_commit_has_its_own_result(client: httpx.Client) -> None:
    """Commits of one batch succeed and fail independently, and the results keep the order."""
    assert statuses(send(client, creation("one"), creation("two"), creation("gone"))) == ["committed"] * 3
    client.delete("/v1/namespaces/a/tables/gone")
    results = send(
        client,
        item("one", requirements=[main_is(77)], updates=append(77, 2)),
        item("two", requirements=[], updates=append(None, 2)),
        item("none", requirements=[], updates=append(None, 1)),
        item("gone", requirements=[], updates=append(None, 2)),
        creation("gone"),
        creation("one"),
        {"identifier": "what", "updates": []},
        item("one", updates=[{"action": "dance"}]),
        item("two", updates=append(None, 3), **{"deadline-ms": 0}),
    )
    expected = [
        "conflict",
        "committed",
        "not-found",
        "deleted",
        "deleted",
        "conflict",
        "invalid",
        "invalid",
        "timeout",
    ]
    assert statuses(results) == expected
    assert results[5]["error"]["type"] == "AlreadyExistsException"


def test_creation_and_first_append_are_one_commit(client: httpx.Client, server: Server) -> None:
    """A table begins with the uuid, location and field ids the client chose, and holds its first snapshot at
    once."""
    table_uuid = str(uuid.uuid4())
    location = f"{server.warehouse}/{table_uuid[:2]}/{table_uuid}"
    result = send(
        client, creation("t", location=location, **{"table-uuid": table_uuid}) | {"return-metadata": True}
    )[0]
    metadata = result["metadata"]
    assert (metadata["table-uuid"], metadata["location"]) == (table_uuid, location)
    assert metadata["schemas"][0]["fields"] == SCHEMA["fields"]
    assert len(metadata["snapshots"]) == 1
    other = creation("u", location=location, **{"table-uuid": table_uuid})
    elsewhere = creation("v", location=f"{server.warehouse}/x", **{"table-uuid": str(uuid.uuid4())})
    assert statuses(send(client, other, elsewhere)) == ["invalid", "invalid"]


def test_a_dropped_name_can_be_taken_on_demand(client: httpx.Client) -> None:
    """A dropped table's name is free again only for those who say so."""
    send(client, creation("t"))
    client.delete("/v1/namespaces/a/tables/t")
    assert statuses(send(client, creation("t"))) == ["deleted"]
    assert statuses(send(client, creation("t") | {"allow-recreate": True})) == ["committed"]


def test_same_table_twice_goes_in_order(client: httpx.Client) -> None:
    """Two commits of one table in a batch follow each other; the second sees the first."""
    first = creation("t")
    head = first["updates"][0]["snapshot"]["snapshot-id"]
    results = send(client, first, item("t", requirements=[main_is(head)], updates=append(head, 2)))
    assert statuses(results) == ["committed", "committed"]


def test_repeated_batch_gets_the_first_results(client: httpx.Client) -> None:
    """A batch repeated under its key is answered item by item as the first time; nothing is applied twice."""
    batch = [creation("one"), item("none", updates=append(None, 1))]
    first = send(client, *batch, key="k")
    assert send(client, *batch, key="k") == first
    assert send(client, batch[0], creation("two"), key="k")[1]["error"]["code"] == 422
    assert len(client.get("/v1/namespaces/a/tables/one").json()["metadata"]["snapshots"]) == 1


@pytest.mark.parametrize("broken", ["missing", "unwritable"])
def test_one_broken_table_hurts_no_other(own_server: Server, broken: str) -> None:
    """A table whose metadata file is missing, or whose folder cannot be written, fails alone."""
    server = own_server
    with server.client() as client:
        created = send(client, creation("one"), creation("two"))
    folder = (
        server.folder
        / "warehouse"
        / created[0]["metadata-location"].split("/warehouse/")[1].rsplit("/", 1)[0]
    )
    server.stop()
    server.start()
    if broken == "missing":
        shutil.rmtree(folder)
    else:
        content = {path.name: path.read_bytes() for path in folder.iterdir()}
        shutil.rmtree(folder)
        folder.symlink_to("/proc/self/fdinfo")  # a place where not even root can create files
        assert content
    with server.client() as fresh:
        results = send(fresh, item("one", updates=append(None, 2)), item("two", updates=append(None, 2)))
        assert statuses(results) == ["failed", "committed"]
        assert fresh.get("/v1/namespaces/a/tables/two").status_code == 200


def test_an_absurd_summary_hurts_no_other_table(client: httpx.Client) -> None:
    """A summary with counts or partitions that no database can keep is counted from the manifests; the other
    tables of the batch do not notice."""
    absurd = {
        "changed-partition-count": "1",
        "partitions.p\x00=1": f"added-data-files={10**30},added-files-size={10**30}",
        "added-data-files": "1",
    }
    results = send(client, creation("one"), creation("two"))
    assert statuses(results) == ["committed", "committed"]
    broken = item("one", updates=append(None, 2, summary=absurd))
    unreadable = item("one", updates=[{"action": "assign-uuid", "uuid": "\x00"}])
    assert statuses(send(client, broken, item("two", updates=append(None, 2)))) == ["committed", "committed"]
    assert statuses(send(client, unreadable, item("two", updates=append(None, 3)))) == [
        "invalid",
        "committed",
    ]
