"""Keys of some streams and verbs against a server: they are told of nothing else, whatever they try."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest

from tests.catalog.conftest import ON_SQLITE, wait_until
from tests.catalog.support.guarded import Guarded, guarded_server
from tests.catalog.support.table_requests import create_body

pytestmark = pytest.mark.stack
Json = dict[str, Any]
TABLES = "/v1/namespaces/acme/tables"
# There; not there; and what looks like a stream that the key reaches.
OUTSIDE, ABSENT, TWIN = "b", "c", "_57eb"


@contextmanager
def narrowed_server(database_url: str, tmp_path: Path) -> Iterator[Guarded]:
    """Tenants `acme` and `other`, of whom `acme` has the tables `t`, `u`, `b`, `web1` and `_57eb` (the stream
    `Web`). Keys `some` (writes the streams `web*`), `rows` (only reads and writes), `two` (reads both
    tenants)."""
    with guarded_server(database_url, tmp_path) as found:
        for name in (OUTSIDE, TWIN, "web1"):
            assert found.ask("POST", TABLES, "mine", json=create_body(name)).is_success
        assert found.ask("POST", "/v1/namespaces", "admin", json={"namespace": ["acme", "below"]}).is_success
        for name, body in (
            ("some", {"scope": "write", "namespace": ["acme"], "streams": ["web*"]}),
            ("rows", {"scope": "write", "namespace": ["acme"], "verbs": ["read", "write"]}),
            ("two", {"scope": "read", "namespaces": [["acme"], ["other"]]}),
        ):
            answer = found.ask("POST", "/firn/v1/keys", "admin", json=body)
            assert answer.is_success, answer.text
            found.keys[name] = answer.json()["key"]
        yield found


@pytest.fixture
def narrowed(tmp_path: Path) -> Iterator[Guarded]:
    """Such a server on SQLite: what a key may is decided before the database is asked."""
    with narrowed_server(f"sqlite:///{tmp_path}/catalog.db", tmp_path) as found:
        yield found


@pytest.fixture
def narrowed_on_either(database_url: str, tmp_path: Path) -> Iterator[Guarded]:
    """Such a server on SQLite, and on PostgreSQL."""
    with narrowed_server(database_url, tmp_path) as found:
        yield found


def named(name: str, namespace: str = "acme") -> Json:
    return {"namespace": [namespace], "name": name}


def attempts(name: str) -> Iterator[tuple[str, str, Json]]:
    """Requests that would tell of a table or change it."""
    path, set_it = f"{TABLES}/{name}", [{"action": "set-properties", "updates": {"a": "b"}}]
    commit = {"identifier": named(name), "requirements": [], "updates": set_it}
    own = {**commit, "identifier": named("web1")}
    creation = {**commit, "requirements": [{"type": "assert-create"}]}
    for method in ("GET", "HEAD", "DELETE"):
        yield method, path, {}
        yield method, f"/v1/namespaces/acme/views/{name}", {}
    yield "POST", path, {"json": {"requirements": [], "updates": set_it}}
    yield "POST", path, {"json": {"requirements": [{"type": "assert-create"}], "updates": set_it}}
    yield "POST", f"{path}/metrics", {"json": {"report-type": "scan-report"}}
    yield "POST", TABLES, {"json": create_body(name)}
    yield "POST", TABLES, {"json": create_body(name, **{"stage-create": True})}
    for source, destination in ((name, "web9"), ("web1", name), (name, name)):
        for kind in ("tables", "views"):
            body = {"source": named(source), "destination": named(destination)}
            yield "POST", f"/v1/{kind}/rename", {"json": body}
    for changes in ([commit], [own, commit], [commit, own], [creation]):
        yield "POST", "/v1/transactions/commit", {"json": {"table-changes": changes}}
    for each in (commit, creation, {**commit, "create": create_body(name)}):
        yield "POST", "/firn/v1/commits", {"json": {"commits": [each]}}
    yield "POST", "/firn/v1/loads", {"json": {"identifiers": [named(name), named("web8")]}}
    yield "POST", "/firn/v1/dropped-tables/undo", {"json": {"identifier": named(name)}}
    undo = {"identifier": named("web8"), "new-identifier": named(name)}
    yield "POST", "/firn/v1/dropped-tables/undo", {"json": undo}
    for call in ("register", "register-view"):
        registration = {"name": name, "metadata-location": "file:///nowhere/m.json"}
        yield "POST", f"/v1/namespaces/acme/{call}", {"json": registration}


def said(answer: httpx.Response, name: str) -> tuple[int, str]:
    """An answer without the name that was asked for."""
    return answer.status_code, answer.text.replace(f"acme.{name}", "?").replace(f'"{name}"', "?")


def test_a_stream_outside_is_as_one_that_is_not_there(narrowed: Guarded) -> None:
    """Every request gets the same answer for a table that is there, one that is not, and a twin; nothing of
    them comes with any list; and afterwards they are as they were."""
    before = narrowed.ask("GET", f"{TABLES}/{OUTSIDE}", "mine").text
    for (method, path, options), absent, twin in zip(*map(attempts, (OUTSIDE, ABSENT, TWIN)), strict=True):
        answer = narrowed.ask(method, path, "some", **options)
        for (other_method, other_path, other), name in ((absent, ABSENT), (twin, TWIN)):
            other_answer = narrowed.ask(other_method, other_path, "some", **other)
            assert said(answer, OUTSIDE) == said(other_answer, name), (method, path, options)
        is_batch = path in ("/firn/v1/commits", "/firn/v1/loads")
        assert answer.status_code in ((200,) if is_batch else (403, 404)), (method, path, answer.text)
        assert '"committed"' not in answer.text
        assert "table-uuid" not in answer.text
    assert narrowed.ask("GET", f"{TABLES}/{OUTSIDE}", "mine").text == before
    assert narrowed.ask("DELETE", f"{TABLES}/{OUTSIDE}", "mine").is_success
    for undo in ({}, {"new-identifier": named("web7")}):
        answers = [
            said(
                narrowed.ask(
                    "POST", "/firn/v1/dropped-tables/undo", "some", json={"identifier": named(name), **undo}
                ),
                name,
            )
            for name in (OUTSIDE, ABSENT)
        ]
        assert (answers[0], answers[0][0]) == (answers[1], 403)
    for options in ({}, {"params": {"pageSize": "1"}}):
        answer = narrowed.ask("GET", TABLES, "some", **options)
        assert [each["name"] for each in answer.json()["identifiers"]] == ["web1"], answer.text
    after = narrowed.ask("GET", TABLES, "some", params={"pageSize": "1"}).json()["next-page-token"]
    last = narrowed.ask("GET", TABLES, "some", params={"pageToken": after}).json()
    assert (last["identifiers"], last["next-page-token"]) == ([], None)
    assert narrowed.ask("GET", "/v1/namespaces/acme/views", "some").json()["identifiers"] == []
    assert narrowed.ask("GET", "/v1/namespaces", "some").json()["namespaces"] == [["acme"]]
    below = narrowed.ask("GET", "/v1/namespaces", "some", params={"parent": "acme"})
    assert below.json()["namespaces"] == []
    for child in ("below", "nothing"):
        assert narrowed.ask("GET", f"/v1/namespaces/acme%1F{child}", "some").status_code == 403


def test_a_key_of_some_streams_has_these(narrowed: Guarded) -> None:
    """Loads, commits, makes, renames among them, drops, brings back; but nothing that is of the whole tenant,
    and of its legal holds it knows those that are on them."""
    narrowed.held(stream=OUTSIDE)
    on_all = narrowed.held(stream=None, until="2020-01-01T00:00:00Z")
    told = narrowed.ask("GET", "/v1/namespaces/acme", "some").json()["properties"]["firn.holds"]
    assert (on_all in told, f'"{OUTSIDE}"' in told) == (True, False)
    assert f'"{OUTSIDE}"' in str(narrowed.holds())
    narrowed.lift(on_all)
    assert narrowed.ask("GET", f"{TABLES}/web1", "some").is_success
    assert narrowed.commit("some", [{"action": "set-properties", "updates": {"a": "1"}}], "web1").is_success
    assert narrowed.ask("POST", TABLES, "some", json=create_body("web2")).is_success
    body = {"source": named("web2"), "destination": named("web3")}
    assert narrowed.ask("POST", "/v1/tables/rename", "some", json=body).is_success
    assert narrowed.ask("DELETE", f"{TABLES}/web3", "some").is_success
    undo = {"identifier": named("web3"), "new-identifier": named("web4")}
    assert narrowed.ask("POST", "/firn/v1/dropped-tables/undo", "some", json=undo).is_success
    properties: Json
    for properties in ({"firn.stream": OUTSIDE}, {"firn.stream": "web1x", "firn.tenant": "other"}):
        made = create_body("web5", properties={"firn.tenant": "acme"})
        narrowed.ask("POST", TABLES, "some", json=made)
        answer = narrowed.commit("some", [{"action": "set-properties", "updates": properties}], "web5")
        assert (answer.status_code, "is not for the property" in answer.text) == (403, True)
    warehouse = narrowed.ask("GET", "/v1/config", "some").json()["overrides"]["firn.warehouse"]
    for place in (f"{warehouse}/acme/{OUTSIDE}", f"{warehouse}/acme/{ABSENT}"):
        answer = narrowed.ask("POST", TABLES, "some", json=create_body("web6", location=place))
        assert (answer.status_code, "of some streams" in answer.text) == (403, True)
    for method, path, options in (
        ("POST", "/v1/namespaces/acme/properties", {"removals": [], "updates": {"firn.retention": "1d"}}),
        ("DELETE", "/v1/namespaces/acme", None),
        ("POST", "/v1/namespaces", {"namespace": ["acme", "web"]}),
        ("POST", "/v1/namespaces", {"namespace": ["acme"]}),
        ("GET", "/firn/v1/tenants", None),
        ("GET", "/firn/v1/parked", None),
        ("GET", "/firn/v1/tasks", None),
        ("GET", "/firn/v1/dirty-partitions", None),
        ("GET", "/firn/v1/keys", None),
    ):
        answer = narrowed.ask(method, path, "some", **({} if options is None else {"json": options}))
        assert answer.status_code == 403, (path, answer.text)
    asked: Json = {"removals": [], "updates": {}}  # by the search API, whether it may
    assert narrowed.ask("POST", "/v1/namespaces/acme/properties", "some", json=asked).is_success


def test_verbs_and_several_tenants(narrowed: Guarded) -> None:
    """Who was made to read and write drops, renames and keeps nothing; a key of two tenants lists both and no
    other; the key itself says what it is."""
    commit = [{"action": "set-properties", "updates": {"a": "1"}}]
    assert narrowed.commit("rows", commit).is_success
    assert narrowed.ask("POST", TABLES, "rows", json=create_body("new")).is_success
    keep = [{"action": "set-properties", "updates": {"firn.retention": "1d"}}]
    assert narrowed.commit("mine", keep).is_success
    for updates in (
        [{"action": "set-properties", "updates": {"firn.retention": "2d"}}],
        [{"action": "remove-properties", "removals": ["firn.retention"]}],
        [{"action": "set-properties", "updates": {"firn.declared-types": "{}"}}],
    ):
        assert narrowed.commit("rows", updates).status_code == 403
    rename = {"source": named("t"), "destination": named("t2")}
    for method, path, body in (
        ("DELETE", f"{TABLES}/t", None),
        ("POST", "/v1/tables/rename", rename),
        ("POST", "/v1/namespaces/acme/properties", {"removals": [], "updates": {}}),
        ("DELETE", "/v1/namespaces/acme", None),
    ):
        answer = narrowed.ask(method, path, "rows", **({} if body is None else {"json": body}))
        assert (answer.status_code, "made for read, write alone" in answer.text) == (403, True)
    narrowed.ask("POST", "/v1/namespaces", "admin", json={"namespace": ["third"]})
    assert narrowed.ask("GET", "/v1/namespaces", "two").json()["namespaces"] == [["acme"], ["other"]]
    reached = [
        narrowed.ask("GET", f"/v1/namespaces/{name}", "two").status_code for name in ("other", "third")
    ]
    assert reached == [200, 403]
    assert [narrowed.ask("GET", "/firn/v1/whoami", name).json()["verbs"] for name in ("rows", "reader")] == [
        ["read", "write"],
        ["read"],
    ]
    who = narrowed.ask("GET", "/firn/v1/whoami", "some").json()
    assert (who["namespaces"], who["streams"]) == ([["acme"]], ["web*"])


@ON_SQLITE
def test_a_rotation_over_http_and_the_last_use(narrowed_on_either: Guarded) -> None:
    """Both secrets are the key; a rotation that is repeated under its Idempotency-Key shows no secret; the
    former one is refused when it ends; and a server that stops has written who used it."""
    narrowed = narrowed_on_either
    key_id, former = narrowed.keys["some"].split("_")[1], narrowed.keys["some"]
    path, once = f"/firn/v1/keys/{key_id}/rotate", {"Idempotency-Key": "0190f2a0-0000-7000-8000-000000000001"}
    headers = {"Authorization": f"Bearer {narrowed.keys['admin']}", **once}
    made = narrowed.client.post(path, json={"overlap": "1h"}, headers=headers)
    assert made.is_success, made.text
    again = narrowed.client.post(path, json={"overlap": "1h"}, headers=headers)
    assert (again.status_code, "firn_" in again.text) == (409, False)
    narrowed.keys["new"] = made.json()["key"]
    for name in ("some", "new"):
        assert narrowed.ask("GET", "/firn/v1/whoami", name).json()["key-id"] == key_id
    assert narrowed.ask("POST", path, "mine", json={}).status_code == 403
    listed = {key["id"]: key for key in narrowed.ask("GET", "/firn/v1/keys", "admin").json()["keys"]}
    assert listed[key_id]["state"] == "in force with two secrets"
    narrowed.keys["newest"] = narrowed.ask("POST", path, "admin", json={"overlap": "0"}).json()["key"]

    def refused() -> httpx.Response | None:
        answers = [narrowed.ask("GET", "/v1/namespaces", name) for name in ("some", "new")]
        return answers[1] if {each.status_code for each in answers} == {401} else None

    told = wait_until(refused, "the end of the former secrets")
    assert f"the former secret of key {key_id} expired on" in told.text
    assert narrowed.ask("GET", "/v1/namespaces", "newest").is_success
    stranger = narrowed.client.get("/v1/namespaces", headers={"Authorization": f"Bearer firn_{key_id}_x"})
    assert (stranger.status_code, "expired on" in stranger.text) == (401, False)
    narrowed.server.stop()
    assert former.split("_", 2)[2] not in narrowed.server.log()
    lines = narrowed.server.run("key", "list", "--json").stdout.splitlines()
    used = {key["id"]: key["last-used-ms"] for key in map(orjson.loads, lines)}
    assert used[key_id] >= listed[key_id]["created-ms"]
    assert used[narrowed.keys["two"].split("_")[1]] is None
