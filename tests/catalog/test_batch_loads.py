"""`POST /firn/v1/loads` against the live server."""

from typing import Any

import httpx
import pytest

from catalog.http.routes.batch_loads import ANSWER_BYTES_MAX, LOADS_MAX
from tests.catalog.support.table_requests import create_body

pytestmark = pytest.mark.stack

Json = dict[str, Any]


def identifier(name: str, namespace: str = "a") -> Json:
    return {"namespace": [namespace], "name": name}


def load(client: httpx.Client, *identifiers: Json) -> list[Json]:
    response = client.post("/firn/v1/loads", json={"identifiers": list(identifiers)})
    assert response.status_code == 200, response.text
    results: list[Json] = response.json()["results"]
    return results


def types(results: list[Json]) -> list[str | None]:
    """The errors of results."""
    return [result["error"]["type"] if "error" in result else None for result in results]


def test_each_table_has_its_own_result(client: httpx.Client) -> None:
    """In the order in which they were asked for, as a load of one gives them."""
    client.post("/v1/namespaces", json={"namespace": ["a"]})
    for name in ("one", "two"):
        assert client.post("/v1/namespaces/a/tables", json=create_body(name)).status_code == 200
    asked = [identifier("two"), identifier("none"), identifier("one", "b"), {"name": "x"}, identifier("one")]
    results = load(client, *asked)
    expected = [None, "NoSuchTableException", "NoSuchTableException", "BadRequestException", None]
    assert types(results) == expected
    assert [result["identifier"] for result in results] == asked
    for name, at in (("two", 0), ("one", 4)):
        alone = client.get(f"/v1/namespaces/a/tables/{name}").json()
        assert {key: alone[key] for key in ("metadata", "metadata-location")} == {
            key: results[at][key] for key in ("metadata", "metadata-location")
        }


def test_an_answer_is_bounded(client: httpx.Client) -> None:
    """Whatever metadata is like: the rest is asked for again, and there is always some progress."""
    client.post("/v1/namespaces", json={"namespace": ["a"]})
    names = [f"large{number}" for number in range(4)]
    for name in names:
        body = create_body(name, properties={"filler": "x" * (ANSWER_BYTES_MAX // 2)})
        assert client.post("/v1/namespaces/a/tables", json=body).status_code == 200
    found = list[str]()
    while len(found) < len(names):
        results = load(client, *map(identifier, names[len(found) :]))
        assert 1 <= len(results) <= 2
        found += [result["identifier"]["name"] for result in results if "metadata" in result]
    assert found == names


def test_a_request_is_bounded(client: httpx.Client) -> None:
    """More than one page of names is refused with what to do."""
    body = {"identifiers": [identifier("t")] * (LOADS_MAX + 1)}
    response = client.post("/firn/v1/loads", json=body)
    assert response.status_code == 400
    assert "send several" in response.text
    assert load(client) == []
    for wrong in ({}, {"identifiers": "a.t"}, {"identifiers": [], "deadline-ms": "soon"}):
        assert client.post("/firn/v1/loads", json=wrong).status_code == 400
