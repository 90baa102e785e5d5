"""Legal holds in the catalog: who sets and lifts them, and what is refused while they are in force."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from threading import Thread
from typing import Any

import httpx
import pytest

from lake.catalog_client import CatalogClient
from lake.extras_client import ExtrasClient
from lake.holds import parse_holds
from tests.catalog.conftest import ON_SQLITE
from tests.catalog.support.guarded import Guarded, guarded_server
from tests.catalog.support.table_requests import SCHEMA, append, create_body

pytestmark = pytest.mark.stack
Json = dict[str, Any]


@pytest.fixture
def guarded(database_url: str, tmp_path: Path) -> Iterator[Guarded]:
    with guarded_server(database_url, tmp_path) as found:
        yield found


def refusal(answer: httpx.Response, hold: str) -> str:
    """What is said of a hold that refuses something."""
    assert answer.status_code == 403, answer.text
    error = answer.json()["error"]
    assert error["type"] == "LegalHoldException"
    assert hold in error["message"]
    assert "case 7" in error["message"]
    return str(error["message"])


@ON_SQLITE
def test_keys_bound_to_a_tenant_neither_set_nor_lift_nor_forge_holds(guarded: Guarded) -> None:
    """By no route and no property; but they may read them. The catalog notes who has set one, and when."""
    hold = guarded.held(stream="t")
    before = guarded.holds()
    assert before is not None
    assert '"set-by":"' in before
    assert guarded.hold("mine").status_code == guarded.hold("reader").status_code == 403
    assert guarded.lift(hold, "mine").status_code == 403
    properties = "/v1/namespaces/acme/properties"
    for body in (
        {"removals": ["firn.holds"], "updates": {}},
        {"removals": [], "updates": {"firn.holds": "[]"}},
    ):
        for key in ("mine", "admin"):
            answer = guarded.ask("POST", properties, key, json=body)
            assert answer.status_code == 403
            assert "/firn/v1/holds" in answer.json()["error"]["message"]
    given = {"firn.holds": "[]"}
    new = {"namespace": ["acme", "below"], "properties": given}
    assert guarded.ask("POST", "/v1/namespaces", "mine", json=new).status_code == 403
    create = {
        "identifier": {"namespace": ["acme", "deep"], "name": "x"},
        "create": create_body("x"),
        "create-namespace-properties": given,
    }
    batch = guarded.ask("POST", "/firn/v1/commits", "mine", json={"commits": [create]})
    assert batch.json()["results"][0]["status"] == "invalid"
    assert guarded.holds() == before
    assert guarded.lift(hold).json()["reason"] == "case 7"
    assert guarded.holds() is None
    assert guarded.lift(hold).status_code == 404


@pytest.mark.parametrize(
    "fields",
    [
        {"reason": " "},
        {"reason": "x" * 1_001},
        {"from": "2026-01-02T00:00:00Z", "until": "2026-01-02T00:00:00Z"},
        {"from": "yesterday"},
        {"until": "2026-01-02T00:00:00"},
        {"stream": ""},
        {"stream": 7},
    ],
)
@ON_SQLITE
def test_a_hold_that_says_nothing_clear_is_refused(guarded: Guarded, fields: Json) -> None:
    """With a sentence, and none is set."""
    answer = guarded.hold(**fields)
    assert answer.status_code == 400
    assert answer.json()["error"]["message"]
    assert guarded.holds() is None
    assert guarded.hold(namespace=["nobody"]).status_code == 404


@ON_SQLITE
def test_a_held_table_keeps_its_name_whoever_asks(guarded: Guarded) -> None:
    """No drop, no purge, no other name, no other table in its place; others of the tenant go. Lifted, it
    goes."""
    hold = guarded.held(stream="t", **{"from": "2026-01-01T00:00:00Z", "until": "2026-01-02T00:00:00Z"})
    table = "/v1/namespaces/acme/tables/t"
    for key in ("mine", "admin"):
        for purge in ("true", "false"):
            said = refusal(guarded.ask("DELETE", f"{table}?purgeRequested={purge}", key), hold)
            assert said.startswith("acme.t is not dropped: legal hold")
        for to in ({"namespace": ["acme"], "name": "v"}, {"namespace": ["other"], "name": "t"}):
            if key == "admin" or to["namespace"] == ["acme"]:
                body = {"source": {"namespace": ["acme"], "name": "t"}, "destination": to}
                refusal(guarded.ask("POST", "/v1/tables/rename", key, json=body), hold)
    other = guarded.ask("GET", "/v1/namespaces/acme/tables/u", "reader").json()["metadata-location"]
    assert guarded.ask("DELETE", "/v1/namespaces/acme/tables/u", "mine").status_code == 204
    place = {"name": "t", "metadata-location": other, "overwrite": True}
    refusal(guarded.ask("POST", "/v1/namespaces/acme/register", "admin", json=place), hold)
    assert guarded.lift(hold).is_success
    assert guarded.ask("DELETE", table, "mine").status_code == 204


@ON_SQLITE
def test_a_table_under_its_tenants_hold_may_change_its_name_within_the_tenant(guarded: Guarded) -> None:
    """It is held as before; not out of the tenant, also not by coming back from a drop."""
    assert guarded.ask("DELETE", "/v1/namespaces/acme/tables/u", "mine").status_code == 204
    hold = guarded.held()
    inside = {
        "source": {"namespace": ["acme"], "name": "t"},
        "destination": {"namespace": ["acme"], "name": "w"},
    }
    assert guarded.ask("POST", "/v1/tables/rename", "mine", json=inside).status_code == 204
    outside = {"source": inside["destination"], "destination": {"namespace": ["other"], "name": "t"}}
    refusal(guarded.ask("POST", "/v1/tables/rename", "admin", json=outside), hold)
    undo = {"identifier": {"namespace": ["acme"], "name": "u"}}
    elsewhere = {**undo, "new-identifier": {"namespace": ["other"], "name": "u"}}
    refusal(guarded.ask("POST", "/firn/v1/dropped-tables/undo", "admin", json=elsewhere), hold)
    assert guarded.ask("POST", "/firn/v1/dropped-tables/undo", "mine", json=undo).is_success


@ON_SQLITE
def test_what_was_dropped_before_is_not_purged_and_its_namespace_stays(guarded: Guarded) -> None:
    """Nor is a purge that has begun gone on with. The list names the hold; overlapping ones are lifted one by
    one."""
    for name in ("t", "u"):
        path = f"/v1/namespaces/acme/tables/{name}?purgeRequested=true"
        assert guarded.ask("DELETE", path, "mine").status_code == 204
    due = "/firn/v1/dropped-tables?purgeable=true"
    listed = guarded.ask("GET", due, "room").json()["dropped-tables"]
    ids = {each["identifier"]["name"]: each["id"] for each in listed}
    assert [each["held-by"] for each in listed] == [None, None]
    begin = f"/firn/v1/dropped-tables/{ids['t']}/purge-started"
    assert guarded.ask("POST", begin, "room").is_success
    first, second = guarded.held(stream="t"), guarded.held()
    assert [
        first in str(each["held-by"]) for each in guarded.ask("GET", due, "room").json()["dropped-tables"]
    ] == [
        True,
        False,
    ]
    refusal(guarded.ask("POST", begin, "room"), first)
    asked = f"/firn/v1/dropped-tables/{ids['t']}/purge?atOnce=true"
    refusal(guarded.ask("POST", asked, "admin"), first)
    assert guarded.lift(first).is_success
    refusal(guarded.ask("POST", begin, "room"), second)
    refusal(guarded.ask("DELETE", "/v1/namespaces/acme", "mine"), second)
    refusal(guarded.ask("DELETE", "/v1/namespaces/acme", "admin"), second)
    assert guarded.lift(second).is_success
    assert guarded.ask("POST", begin, "room").is_success
    assert guarded.ask("DELETE", "/v1/namespaces/acme", "mine").status_code == 204


@ON_SQLITE
def test_a_bound_key_takes_no_row_and_no_column_of_a_held_table(guarded: Guarded) -> None:
    """Nothing that changes snapshots, alone or among others, and no schema without a column; its properties
    it may set, and columns come. Keys that are not bound go on writing."""
    hold = guarded.held(stream="t")
    less = {**SCHEMA, "fields": SCHEMA["fields"][:2]}
    more = {
        **SCHEMA,
        "fields": [*SCHEMA["fields"], {"id": 5, "name": "n", "type": "long", "required": False}],
    }

    def schema_of(schema: Json) -> list[Json]:
        return [
            {"action": "add-schema", "schema": schema},
            {"action": "set-current-schema", "schema-id": -1},
        ]

    sets = {"action": "set-properties", "updates": {"k": "v"}}
    refusal(guarded.commit("mine", schema_of(less)), hold)
    assert guarded.commit("mine", schema_of(more)).is_success
    assert guarded.commit("mine", [sets]).is_success
    first = append(None, 1)
    second = append(first[1]["snapshot-id"], 2)
    assert guarded.commit("admin", first).is_success
    assert guarded.commit("admin", second).is_success
    gone = {"action": "remove-snapshots", "snapshot-ids": [first[1]["snapshot-id"]]}
    unnamed = {"action": "remove-snapshot-ref", "ref-name": "main"}
    takes: list[list[Json]] = [[gone], [unnamed], [sets, unnamed], [first[1]]]
    for updates in takes:
        refusal(guarded.commit("mine", updates), hold)
        both = {
            "table-changes": [
                {"identifier": {"namespace": ["acme"], "name": "t"}, "requirements": [], "updates": updates}
            ]
        }
        refusal(guarded.ask("POST", "/v1/transactions/commit", "mine", json=both), hold)
        batch = {"commits": [{"identifier": {"namespace": ["acme"], "name": "t"}, "updates": updates}]}
        (result,) = guarded.ask("POST", "/firn/v1/commits", "mine", json=batch).json()["results"]
        assert (result["status"], result["error"]["type"]) == ("invalid", "LegalHoldException")
    assert guarded.commit("mine", [sets], table="u").is_success
    assert guarded.lift(hold).is_success
    assert guarded.commit("mine", [unnamed]).is_success


def test_a_commit_that_relies_on_the_holds_is_refused_when_they_have_changed(guarded: Guarded) -> None:
    """Set, or lifted, since; what it would change stays."""
    sets = [{"action": "set-properties", "updates": {"k": "v"}}]

    def relying(text: str | None) -> httpx.Response:
        return guarded.commit("room", sets, requirements=[{"type": "assert-firn-holds", "holds": text}])

    hold = guarded.held()
    assert "have changed" in relying(None).json()["error"]["message"]
    assert (
        "k" not in guarded.ask("GET", "/v1/namespaces/acme/tables/t", "room").json()["metadata"]["properties"]
    )
    text = guarded.holds()
    assert guarded.lift(hold).is_success
    assert relying(text).status_code == 403
    assert relying(None).is_success
    bad = guarded.commit("room", sets, requirements=[{"type": "assert-firn-holds", "holds": 7}])
    assert bad.status_code == 400


@ON_SQLITE
def test_what_all_namespaces_say_is_one_question(guarded: Guarded) -> None:
    """Of those that say anything of retention or holds, and nothing else that they say; page by page."""
    hold = guarded.held()
    properties = {"removals": [], "updates": {"firn.retention": "30d", "note": "theirs"}}
    assert guarded.ask("POST", "/v1/namespaces/other/properties", "room", json=properties).is_success
    assert guarded.ask("POST", "/v1/namespaces", "room", json={"namespace": ["silent"]}).is_success
    with closing(CatalogClient(guarded.server.url, token=guarded.keys["room"])) as catalog:
        told = ExtrasClient(catalog).policies()
    assert told.keys() == {None, "acme", "other"}
    assert told["other"] == {"firn.retention": "30d"}
    assert [each.id for each in parse_holds(told["acme"]["firn.holds"])] == [hold]
    page = guarded.ask("GET", "/firn/v1/policies?pageSize=1", "room").json()
    assert [each["namespace"] for each in page["namespaces"]] == [["acme"]]
    more = guarded.ask(
        "GET", f"/firn/v1/policies?pageSize=1&pageToken={page['next-page-token']}", "room"
    ).json()
    assert [each["namespace"] for each in more["namespaces"]] == [["other"]]
    assert guarded.ask("GET", "/firn/v1/policies", "mine").status_code == 403


def test_holds_that_are_set_at_once_are_all_there(guarded: Guarded) -> None:
    """None takes another one's place; and the catalog knows them after a restart."""
    threads = [Thread(target=lambda at=at: guarded.held(stream=f"s{at}")) for at in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    text = guarded.holds()
    assert text is not None
    assert all(f'"stream":"s{at}"' in text for at in range(8))
