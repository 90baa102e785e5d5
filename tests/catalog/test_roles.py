"""Each role by each kind of act: what the table says, over HTTP too, and nothing of another tenant's."""

import re
import tomllib
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import orjson
import pytest

from catalog.access import roles
from catalog.access.access import Principal
from catalog.access.roles import LEAST, NOWHERE, Grant, Person, Role
from catalog.access.verbs import Need
from lake.clock import SystemClock
from lake.limits import Limit
from lake.retention import PROPERTY as RETENTION_PROPERTY
from lake.settings import CatalogSettings
from lake.tenant import SYSTEM_TENANT
from tests.catalog.support.fake_issuer import SUBJECT, fake_issuer
from tests.catalog.support.people import LEEWAY_S, People, served
from tests.catalog.support.table_requests import append, create_body

SET_PROPERTY = {"requirements": [], "updates": [{"action": "set-properties", "updates": {"k": "v"}}]}
LIMIT = {"removals": [], "updates": {Limit.EXPORTS.property: "3"}}
# (method, path, body) by what they need; in the tenant `acme`.
ACTS: dict[Need, tuple[str, str, Any]] = {
    Need.READ: ("GET", "/v1/namespaces/acme", None),
    Need.COMMIT: ("POST", "/v1/namespaces/acme/tables/t", SET_PROPERTY),
    Need.WRITE: ("POST", "/v1/namespaces/acme/tables", create_body("new", **{"stage-create": True})),
    Need.ADMINISTER: ("POST", "/v1/namespaces/acme/properties", {"removals": [], "updates": {}}),
    Need.HOLD: ("POST", "/firn/v1/holds", {"namespace": ["acme"], "stream": "gone", "reason": "case 7"}),
    Need.SERVICE: ("GET", "/firn/v1/tenants", None),
    Need.LIMIT: ("POST", "/v1/namespaces/acme/properties", LIMIT),
    Need.ADMIN: ("GET", "/firn/v1/metrics-reports", None),
    Need.KEYS: ("GET", "/firn/v1/keys", None),
}
# What each role may do in its tenant, and where it is for all tenants.
WITHIN = {
    Role.READER: {Need.READ},
    Role.WRITER: {Need.READ, Need.COMMIT, Need.WRITE},
    Role.OPERATOR: {Need.READ, Need.COMMIT, Need.WRITE, Need.ADMINISTER, Need.HOLD},
    Role.ADMINISTRATOR: {Need.READ, Need.COMMIT, Need.WRITE, Need.ADMINISTER, Need.HOLD, Need.KEYS},
}
EVERYWHERE = {
    **WITHIN,
    Role.OPERATOR: WITHIN[Role.OPERATOR] | {Need.SERVICE},
    Role.ADMINISTRATOR: set(ACTS),
}


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Iterator[People]:
    with fake_issuer() as issuer, served(tmp_path_factory.mktemp("people"), issuer) as made:
        yield made


@pytest.mark.parametrize("role", Role)
def test_each_role_does_what_its_row_says_and_nothing_else(people: People, role: Role) -> None:
    """For all tenants, for its own, and in another's."""
    for group, allowed in (
        (role.value, EVERYWHERE[role]),
        (f"{role.value}-acme", WITHIN[role]),
        ("reader-other", set()),
        ("writer-other", set()),
    ):
        token = people.token(group)
        done = {need for need, act in ACTS.items() if people.ask(token, *act).is_success}
        assert done == allowed, group
        refused = {people.ask(token, *ACTS[need]).status_code for need in ACTS if need not in allowed}
        assert refused <= {403}


def test_every_need_has_a_least_role() -> None:
    """And every act above stands for one."""
    assert set(LEAST) == set(Need)
    assert set(ACTS) == set(Need) - {Need.NOTHING, Need.KEY}


def test_the_table_of_roles_is_the_one_that_people_read() -> None:
    """The docstring's lines are what is checked."""
    rows = re.findall(r"^    (\w+) +(\w+) +(a tenant|all) ", str(roles.__doc__), re.MULTILINE)
    told = {Need(need): (Role(role), of == "all") for need, role, of in rows if need != "need"}
    assert told == {need: least for need, least in LEAST.items() if need is not Need.NOTHING}


def test_keys_have_the_rights_that_they_had(people: People) -> None:
    """Beside the roles: a bound write key drops and sets no holds; an unbound one does both."""
    made = {}
    for name, scope, bound in (
        ("bound", "write", ["acme"]),
        ("room", "write", None),
        ("reader", "read", None),
    ):
        body = {"scope": scope, **({"namespace": bound} if bound else {})}
        made[name] = people.ask(people.admin, "POST", "/firn/v1/keys", body).json()["key"]
    done = {
        name: {need for need, act in ACTS.items() if people.ask(key, *act).is_success}
        for name, key in made.items()
    }
    assert done["bound"] == {Need.READ, Need.COMMIT, Need.WRITE, Need.ADMINISTER}
    assert done["room"] == set(ACTS) - {Need.ADMIN, Need.KEYS}
    assert done["reader"] == {Need.READ}


def test_a_person_of_several_tenants_sees_these_and_no_other(people: People) -> None:
    """In lists, in batches, and with different roles in each."""
    token = people.token("operator-acme", "reader-other")
    assert people.ask(token, "GET", "/v1/namespaces").json()["namespaces"] == [["acme"], ["other"]]
    loads = {"identifiers": [{"namespace": [name], "name": "t"} for name in ("acme", "other", "third")]}
    found = people.ask(token, "POST", "/firn/v1/loads", loads).json()["results"]
    assert ["error" in each for each in found] == [False, False, True]
    assert people.ask(token, "POST", "/v1/namespaces/other/tables/t", SET_PROPERTY).status_code == 403
    rename = {
        "source": {"namespace": ["acme"], "name": "t"},
        "destination": {"namespace": ["other"], "name": "u"},
    }
    assert people.ask(token, "POST", "/v1/tables/rename", rename).status_code == 403
    hold = {"namespace": ["other"], "reason": "case 7"}
    assert people.ask(token, "POST", "/firn/v1/holds", hold).status_code == 403
    assert people.ask(token, "GET", "/v1/namespaces/third").status_code == 403


def test_whoami_tells_a_persons_roles(people: People) -> None:
    said = people.ask(people.token("operator-acme", "reader-other"), "GET", "/firn/v1/whoami").json()
    assert said["key-id"] == f"{people.issuer.url}#{SUBJECT}"
    assert (said["name"], said["issuer"], said["scope"]) == ("ann", people.issuer.url, None)
    assert said["namespaces"] == [["acme"], ["other"]]
    assert said["roles"] == [
        {"role": "operator", "namespace": ["acme"]},
        {"role": "reader", "namespace": ["other"]},
    ]
    of_all = people.ask(people.token("reader"), "GET", "/firn/v1/whoami").json()
    assert (of_all["namespaces"], of_all["roles"]) == (None, [{"role": "reader", "namespace": None}])
    of_key = people.ask(people.admin, "GET", "/firn/v1/whoami").json()
    assert (of_key["scope"], of_key["namespaces"]) == ("admin", None)
    assert "roles" not in of_key


def test_the_catalog_says_whether_somebody_may(people: People) -> None:
    """For the search API, which asks before it acts."""
    token = people.token("operator-acme")
    for need, namespace, status in (
        ("hold", "acme", 204),
        ("hold", "other", 403),
        ("limit", "acme", 403),
        ("everything", "acme", 400),
    ):
        path = f"/firn/v1/permission?need={need}&namespace={namespace}"
        assert people.ask(token, "GET", path).status_code == status


def test_who_has_no_role_may_nothing_and_is_told_so(people: People) -> None:
    answer = people.ask(people.token("unknown"), "GET", "/v1/config")
    assert answer.status_code == 403
    assert "ann has no role" in answer.json()["error"]["message"]


def test_what_firn_keeps_of_who_did_what_is_for_administrators_of_all(people: People) -> None:
    """Whatever else a role reaches."""
    path = f"/v1/namespaces/{SYSTEM_TENANT.namespace}"
    people.ask(people.admin, "POST", "/v1/namespaces", {"namespace": [SYSTEM_TENANT.namespace]})
    assert people.ask(people.token("administrator"), "GET", path).status_code == 200
    assert people.ask(people.token("operator", "administrator-acme"), "GET", path).status_code == 403


def test_a_writer_of_one_tenant_commits_its_own_files_alone(people: People) -> None:
    """As with a key that is bound: places and files of others are refused."""
    token = people.token("writer-acme")
    elsewhere = create_body("there", location="file:///elsewhere")
    assert people.ask(token, "POST", "/v1/namespaces/acme/tables", elsewhere).status_code in (400, 403)
    foreign = {"requirements": [], "updates": append(None, 1, folder="file:///elsewhere")}
    assert people.ask(token, "POST", "/v1/namespaces/acme/tables/t", foreign).status_code == 403


def test_a_writer_leaves_retention_and_types_as_they_are(people: People) -> None:
    """By a commit too; a role of an operator elsewhere does not help."""
    keep = {"action": "set-properties", "updates": {RETENTION_PROPERTY: "30d"}}
    commit = {"requirements": [], "updates": [keep]}
    for groups, tenant, status in (
        (("writer-acme",), "acme", 403),
        (("operator-acme", "writer-other"), "other", 403),
        (("operator-acme",), "acme", 200),
        (("operator",), "other", 200),
    ):
        path = f"/v1/namespaces/{tenant}/tables/t"
        assert people.ask(people.token(*groups), "POST", path, commit).status_code == status


def test_a_session_ends_with_its_token_though_it_was_known(people: People) -> None:
    """And the sentence says what to do."""
    token = people.token("reader")
    assert people.ask(token, "GET", "/v1/config").status_code == 200
    services = people.client.app.state.services  # type: ignore[attr-defined]

    class Later(SystemClock):
        def now(self) -> datetime:
            return super().now() + timedelta(seconds=600 + LEEWAY_S)

    services.clock, clock = Later(), services.clock
    try:
        answer = people.ask(token, "GET", "/v1/config")
    finally:
        services.clock = clock
    assert answer.status_code == 401
    assert "ann expired on" in answer.json()["error"]["message"]
    assert "log in again" in answer.json()["error"]["message"]


def test_an_issuer_that_is_away_is_no_refusal(people: People) -> None:
    """503, and keys go on."""
    people.issuer.rotate("never seen", keep=True)
    people.issuer.is_up = False
    try:
        answer = people.ask(people.token("reader"), "GET", "/v1/config")
        assert answer.status_code == 503
        assert people.issuer.url in answer.json()["error"]["message"]
        assert people.ask(people.admin, "GET", "/v1/config").status_code == 200
    finally:
        people.issuer.is_up = True
    assert people.ask(people.token("reader"), "GET", "/v1/config").status_code == 200


def test_the_audit_trail_names_the_person(tmp_path: Path) -> None:
    """By issuer and subject, with the name and the roles of that moment; the token goes nowhere."""
    audit = {"enabled": True, "uri": "http://127.0.0.1:9", "folder": str(tmp_path / "audit")}
    with fake_issuer() as issuer, served(tmp_path, issuer, audit=audit) as people:
        token = people.token("operator-acme")
        assert people.ask(token, *ACTS[Need.HOLD]).is_success
    text = "".join(file.read_text() for file in (tmp_path / "audit").glob("*/*.ndjson"))
    events = [event for event in map(orjson.loads, text.splitlines()) if event["event.action"] == "hold.set"]
    assert [event["event.type"] for event in events] == ["start", "end"]
    for event in events:
        assert event["user.id"] == f"{issuer.url}#{SUBJECT}"
        assert (event["user.name"], event["user.domain"]) == ("ann", issuer.url)
        assert (event["user.roles"], event["firn.key_namespace"]) == ("operator:acme", "acme")
    assert "by ann (" in events[1]["message"]
    assert token.split(".")[2] not in text


def test_what_a_key_has_of_its_own_reaches_nothing_of_a_persons() -> None:
    """Whoever asks a person as if it were a key finds nothing open."""
    ann = Person("x#1", grants=(Grant(Role.ADMINISTRATOR),))
    as_key = Principal(ann.key_id, ann.scope, ann.namespace)
    assert not [
        need for need in Need if need not in (Need.NOTHING, Need.KEY) and as_key.allowed(need, "acme")
    ]
    assert ann.bound_to(Need.COMMIT, "acme") is None
    assert Person("x#1", grants=(Grant(Role.READER),)).bound_to(Need.COMMIT, "acme") == NOWHERE


def test_the_docs_show_the_settings_as_they_are_read() -> None:
    """The example of the page is one that the catalog takes."""
    page = (Path(__file__).parents[2] / "docs" / "people-and-roles.md").read_text()
    (example,) = re.findall(r"```toml\n(\[catalog\.oidc\].*?)```", page, re.DOTALL)
    read = CatalogSettings.model_validate(tomllib.loads(example)["catalog"])
    assert read.oidc.issuer in page
