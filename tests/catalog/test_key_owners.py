"""Keys that an administrator of single tenants has: those of these tenants, and nobody else's, however they
are asked for."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.catalog.support.fake_issuer import fake_issuer
from tests.catalog.support.people import People, served

KEYS = "/firn/v1/keys"
ACME, OTHER = {"namespace": ["acme"]}, {"namespace": ["other"]}
BOTH = {"namespaces": [["acme"], ["other"]]}


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Iterator[People]:
    with fake_issuer() as issuer, served(tmp_path_factory.mktemp("keys"), issuer) as made:
        yield made


@pytest.fixture
def ann(people: People) -> str:
    """The token of an administrator of acme, who reads other."""
    return people.token("administrator-acme", "reader-other")


def made(people: People, bearer: str, **body: Any) -> str:
    """The id of a key that somebody makes."""
    answer = people.ask(bearer, "POST", KEYS, {"scope": "write", **body})
    assert answer.status_code == 200, answer.text
    return str(answer.json()["key"])


def id_of(key: str) -> str:
    return key.split("_")[1]


def listed(people: People, bearer: str) -> set[str]:
    return {key["id"] for key in people.ask(bearer, "GET", KEYS).json()["keys"]}


def test_they_make_list_rotate_and_end_keys_of_their_tenant(people: People, ann: str) -> None:
    """Which do what such keys do."""
    key = made(people, ann, **ACME, note="the shop")
    assert id_of(key) in listed(people, ann)
    assert people.ask(key, "GET", "/v1/namespaces/acme").is_success
    assert people.ask(key, "GET", "/v1/namespaces/other").status_code == 403
    rotated = people.ask(ann, "POST", f"{KEYS}/{id_of(key)}/rotate", {"overlap": "0", "expires": "30d"})
    assert rotated.is_success, rotated.text
    assert people.ask(rotated.json()["key"], "GET", "/v1/namespaces/acme").is_success
    assert people.ask(ann, "DELETE", f"{KEYS}/{id_of(key)}").status_code == 204
    states = {each["id"]: each["state"] for each in people.ask(ann, "GET", KEYS).json()["keys"]}
    assert states[id_of(key)] == "revoked"


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"scope": "read", **OTHER}, 403),  # which they may read
        ({"scope": "read", "namespace": ["third"]}, 403),
        ({"scope": "read", **BOTH}, 403),
        ({"scope": "read", "namespaces": [["acme"], ["third"]]}, 403),
        ({"scope": "read", "namespace": ["acm"]}, 403),
        ({"scope": "read", "namespace": ["acmex"]}, 403),
        ({"scope": "read", "namespace": ["_73ystem"]}, 403),
        ({"scope": "read"}, 403),
        ({"scope": "write"}, 403),
        ({"scope": "admin"}, 403),
        ({"scope": "maintenance"}, 403),
        ({"scope": "admin", **ACME}, 400),
        ({"scope": "maintenance", **ACME}, 400),
        ({"scope": "write", **ACME, "verbs": ["keys"]}, 400),
        ({"scope": "write", **ACME, "expires": "never"}, 400),
        ({"scope": "write", **ACME, "expires": "366d"}, 400),
    ],
)
def test_they_make_no_key_that_is_wider_than_they_are(
    people: People, ann: str, body: dict[str, Any], status: int
) -> None:
    """Of other tenants, of all, of those beside their own, of scopes that are for all; none that stays."""
    before = listed(people, people.admin)
    answer = people.ask(ann, "POST", KEYS, body)
    assert (answer.status_code, "firn_" in answer.text) == (status, False)
    assert listed(people, people.admin) == before


def test_keys_that_reach_others_are_not_there_for_them(people: People, ann: str) -> None:
    """They are neither listed nor given another secret nor ended, and look like none."""
    foreign = [made(people, people.admin, **each) for each in (OTHER, BOTH, {})]
    foreign.append(made(people, people.admin, scope="admin"))
    assert not {id_of(key) for key in foreign} & listed(people, ann)
    nobody = people.ask(ann, "DELETE", f"{KEYS}/0123456789ab")
    for key in foreign:
        rotated = people.ask(ann, "POST", f"{KEYS}/{id_of(key)}/rotate", {})
        ended = people.ask(ann, "DELETE", f"{KEYS}/{id_of(key)}")
        assert rotated.status_code == ended.status_code == nobody.status_code == 404
        told = nobody.json()["error"]["message"].replace("0123456789ab", id_of(key))
        assert ended.json()["error"]["message"] == rotated.json()["error"]["message"] == told
        assert people.ask(key, "GET", "/v1/config").is_success


def test_a_rotation_gives_no_key_that_stays(people: People, ann: str) -> None:
    """Nor does it take the end of one away."""
    key = made(people, ann, **ACME)
    for expires in ("never", "366d"):
        answer = people.ask(ann, "POST", f"{KEYS}/{id_of(key)}/rotate", {"expires": expires})
        assert (answer.status_code, "expires within 365 days" in answer.text) == (400, True)
    assert people.ask(key, "GET", "/v1/config").is_success


def test_a_key_is_no_administrator_of_its_tenant(people: People, ann: str) -> None:
    """What they make makes no keys itself."""
    key = made(people, ann, **ACME)
    for method, path, body in (("GET", KEYS, None), ("POST", KEYS, {"scope": "read", **ACME})):
        assert people.ask(key, method, path, body).status_code == 403


@pytest.mark.parametrize("role", ["reader", "writer", "operator"])
def test_lesser_roles_have_no_keys(people: People, role: str) -> None:
    """Of all tenants neither, nor with an administrator's role elsewhere."""
    for groups in ((role,), (f"{role}-acme",)):
        token = people.token(*groups)
        assert people.ask(token, "GET", KEYS).status_code == 403
        assert people.ask(token, "POST", KEYS, {"scope": "read", **ACME}).status_code == 403
    both = people.token("administrator-acme", "writer-other")
    assert people.ask(both, "POST", KEYS, {"scope": "read", **OTHER}).status_code == 403


def test_administrators_of_all_have_all_keys(people: People) -> None:
    """Also ones that stay."""
    token = people.token("administrator")
    keys = [made(people, token, **each) for each in (OTHER, BOTH, {}, {**ACME, "expires": "never"})]
    assert {id_of(key) for key in keys} <= listed(people, token)
    for key in keys:
        assert people.ask(token, "DELETE", f"{KEYS}/{id_of(key)}").status_code == 204
