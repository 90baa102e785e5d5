"""Tokens of an issuer: who is let in by which, and what happens while it changes its keys or is away."""

import asyncio
import base64
import hmac
from collections.abc import Iterator
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from joserfc import jwk, jwt

from catalog.access.roles import Grant, Person, Role
from catalog.access.tokens import TokenVerifier, is_token
from catalog.model.error_response import CatalogError
from lake.settings.oidc import OidcSettings
from tests.catalog.support.fake_issuer import AUDIENCE, SUBJECT, FakeIssuer, fake_issuer
from tests.ingest.support.fake_clock import FakeClock

GRANTS = {
    "team": {"role": "operator", "tenants": ["Acme"]},
    "everybody": {"role": "reader", "tenants": "all"},
    "customers": {"role": "writer", "tenants": "claimed"},
}
LEEWAY_S, KEPT_S, INTERVAL_S = 30, 300, 10


class Door:
    """A verifier with its issuer and a clock that the test moves."""

    def __init__(self, issuer: FakeIssuer, **changed: Any) -> None:
        self.issuer = issuer
        self.clock = FakeClock()
        given = {"issuer": issuer.url, "audiences": [AUDIENCE], "grants": GRANTS, "leeway_s": LEEWAY_S}
        given |= {
            "tenants_claim": "tenants",
            "keys_kept_s": KEPT_S,
            "fetch_interval_s": INTERVAL_S,
            **changed,
        }
        self.verifier = TokenVerifier(OidcSettings.model_validate(given), self.clock)

    @property
    def now_s(self) -> float:
        return self.clock.now().timestamp()

    def token(self, **changed: Any) -> str:
        return self.issuer.token(self.now_s, **changed)

    def person(self, token: str) -> Person:
        return asyncio.run(self.verifier.person(token))

    def refusal(self, token: str) -> CatalogError:
        """Why nobody is let in by it."""
        with pytest.raises(CatalogError) as refused:
            self.person(token)
        return refused.value

    def status(self, token: str) -> int:
        return self.refusal(token).status


@pytest.fixture
def door() -> Iterator[Door]:
    with fake_issuer() as issuer:
        made = Door(issuer)
        yield made
        made.verifier.close()


def test_a_good_token_says_who_it_is_and_what_they_may(door: Door) -> None:
    """Issuer and subject name the person; the name is what others see; roles come by the settings."""
    ann = door.person(door.token(groups=["everybody", "team", "unknown"]))
    assert (ann.key_id, ann.name, ann.issuer) == (f"{door.issuer.url}#{SUBJECT}", "ann", door.issuer.url)
    assert set(ann.grants) == {Grant(Role.READER), Grant(Role.OPERATOR, "_41cme")}
    assert ann.expires_ms == (int(door.now_s) + 600 + LEEWAY_S) * 1_000


@pytest.mark.parametrize("kind", ["RSA", "EC", "OKP"])
def test_keys_of_each_kind_prove(door: Door, kind: str) -> None:
    door.issuer.rotate("other", kind)
    assert door.person(door.token()).name == "ann"


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"iss": "https://elsewhere.example"}, "'iss'"),
        ({"iss": None}, "iss"),
        ({"aud": "another"}, "'aud'"),
        ({"aud": ["another", "third"]}, "'aud'"),
        ({"aud": None}, "aud"),
        ({"sub": None}, "sub"),
        ({"sub": 7}, "sub"),
        ({"sub": "x" * 256}, "subject"),
        ({"exp": None}, "exp"),
        ({"exp": "soon"}, "exp"),
        ({"exp": float("inf")}, "exp"),
        ({"exp": 10**30}, "exp"),
        ({"exp": True}, "exp"),
        ({"nbf": float("nan")}, "nbf"),
        ({"cnf": {"jkt": "x"}}, "bound to a key"),
    ],
)
@pytest.mark.long
def test_a_claim_that_does_not_hold_lets_nobody_in(door: Door, changed: dict[str, Any], says: str) -> None:
    """However well the token is signed."""
    refusal = door.refusal(door.token(**changed))
    assert refusal.status == 401
    assert says in refusal.message


def test_one_of_several_audiences_is_enough(door: Door) -> None:
    assert door.person(door.token(aud=["account", AUDIENCE])).name == "ann"


def test_clocks_may_differ_by_the_leeway_and_no_more(door: Door) -> None:
    """Of the end, the beginning, and the moment of issue."""
    now_s = int(door.now_s)
    for claim, within, beyond in (
        ("exp", now_s - LEEWAY_S + 1, now_s - LEEWAY_S),
        ("nbf", now_s + LEEWAY_S, now_s + LEEWAY_S + 1),
        ("iat", now_s + LEEWAY_S, now_s + LEEWAY_S + 1),
    ):
        assert door.person(door.token(**{claim: within})).name == "ann"
        assert door.status(door.token(**{claim: beyond})) == 401
    assert "log in again" in door.refusal(door.token(exp=now_s - 3_600)).message


def _unsigned(header: dict[str, Any], claims: dict[str, Any], signature: bytes = b"") -> str:
    parts = (orjson.dumps(header), orjson.dumps(claims), signature)
    return ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts)


def test_only_the_issuers_own_keys_prove_anything(door: Door) -> None:
    """No signature, one by the public key as a secret, one by another's key, one by a key that the token
    brings along, one that was changed."""
    door.issuer.rotate("rsa", "RSA")
    claims, public = door.issuer.claims(door.now_s), jwk.RSAKey.import_key(door.issuer.keys["rsa"])
    assert door.status(_unsigned({"alg": "none"}, claims)) == 401
    assert door.status(_unsigned({"alg": "none", "kid": "rsa"}, claims)) == 401
    for secret in (public.as_pem(private=False), orjson.dumps(door.issuer.keys["rsa"])):
        unsigned = _unsigned({"alg": "HS256", "kid": "rsa"}, claims).rpartition(".")[0]
        proof = hmac.digest(secret, unsigned.encode(), "sha256")
        signature = base64.urlsafe_b64encode(proof).rstrip(b"=").decode()
        assert door.status(f"{unsigned}.{signature}") == 401
    stranger = jwk.generate_key("RSA", 2_048)
    brought = {"jwk": stranger.as_dict(private=False), "jku": f"{door.issuer.url}/mine"}
    for extra in ({}, brought):
        forged = jwt.encode({"alg": "RS256", "kid": "rsa", **extra}, claims, stranger, ["RS256"])
        assert "signature" in door.refusal(forged).message
    good = door.token()
    head, body, signature = good.split(".")
    raised = _unsigned({}, {**claims, "groups": ["everybody"]}).split(".")[1]
    assert door.status(f"{head}.{raised}.{signature}") == 401
    assert door.status(f"{head}.{body}.") == 401
    assert door.person(good).name == "ann"


def test_keys_that_prove_nothing_are_left_out(door: Door) -> None:
    """Secrets, keys for encryption, and RSA keys that are too short."""
    short = jwk.generate_key("RSA", 1_024)
    door.issuer.rotate("secret", use="enc")
    door.issuer.keys["oct"] = {**jwk.OctKey.generate_key(256).as_dict(), "kid": "oct"}
    door.issuer.keys["short"] = {**short.as_dict(private=False), "kid": "short"}
    door.issuer.rotate("good", keep=True)
    claims = door.issuer.claims(door.now_s)
    assert door.person(door.issuer.sign(claims, kid="good")).name == "ann"
    assert door.status(door.issuer.sign(claims, kid="secret")) == 401
    assert door.status(jwt.encode({"alg": "RS256", "kid": "short"}, claims, short, ["RS256"])) == 401


def test_a_key_for_one_algorithm_proves_no_other(door: Door) -> None:
    """Where the issuer says which it is for."""
    door.issuer.rotate("rsa", "RSA", alg="PS256")
    claims = door.issuer.claims(door.now_s)
    assert door.person(door.issuer.sign(claims, algorithm="PS256")).name == "ann"
    assert door.status(door.issuer.sign(claims, algorithm="RS256")) == 401


@pytest.mark.parametrize(
    "header", [{"typ": "logout+jwt"}, {"typ": 7}, {"crit": ["b64"], "b64": True}, {"kid": 7}, {"kid": None}]
)
def test_a_token_of_another_kind_is_none(door: Door, header: dict[str, Any]) -> None:
    """Though the issuer has signed it, by a key that is known."""
    door.issuer.rotate("rsa", "RSA")
    door.issuer.rotate("second", keep=True)
    claims = door.issuer.claims(door.now_s)
    good = {"alg": "RS256", "kid": "rsa", "typ": "at+jwt"}
    assert door.person(door.issuer.sign_by_hand(good, claims)).name == "ann"
    assert door.status(door.issuer.sign_by_hand({**good, **header}, claims)) == 401


def test_a_huge_token_is_not_looked_into(door: Door) -> None:
    """Nobody is asked about it either."""
    assert "16,384 bytes" in door.refusal(door.token(more="x" * 16_384)).message
    assert door.issuer.asked == 0


def test_a_new_key_of_the_issuer_is_taken_at_once_and_a_withdrawn_one_no_longer(door: Door) -> None:
    """As soon as a token names it; the old one's tokens until the keys are asked for again."""
    old = door.token()
    door.person(old)
    door.issuer.rotate("second", keep=True)
    door.clock.s += INTERVAL_S
    assert door.person(door.token()).name == "ann"
    assert door.person(old).name == "ann"
    door.issuer.rotate("third")
    door.clock.s += KEPT_S
    assert door.person(door.token()).name == "ann"
    assert door.status(old) == 401


def test_a_withdrawn_key_ends_without_any_new_one_being_named(door: Door) -> None:
    """By its age alone."""
    old = door.token(exp=int(door.now_s) + 10_000)
    assert door.person(old).name == "ann"
    door.issuer.rotate("second")
    door.clock.s += KEPT_S - 1
    assert door.person(old).name == "ann"
    door.clock.s += 1
    assert door.status(old) == 401


def test_whatever_keys_tokens_name_the_issuer_is_asked_once_in_a_while(door: Door) -> None:
    """A stranger who makes up ids cannot have it asked for each."""
    door.person(door.token())
    asked = door.issuer.asked
    door.clock.s += INTERVAL_S
    for at in range(50):
        forged = _unsigned({"alg": "ES256", "kid": f"made-up-{at}"}, {}, b"x" * 64)
        assert door.status(forged) == 401
    assert door.issuer.asked == asked + 1


def test_an_issuer_that_is_away_keeps_nobody_out_whose_key_is_known(door: Door) -> None:
    """Others get 503 and are told why, for their token may be good."""
    known = door.token(exp=int(door.now_s) + 10_000)
    door.person(known)
    door.issuer.is_up = False
    door.issuer.rotate("second")
    door.clock.s += KEPT_S
    assert door.person(known).name == "ann"
    refusal = door.refusal(door.token())
    assert refusal.status == 503
    assert door.issuer.url in refusal.message
    door.issuer.is_up = True
    door.clock.s += INTERVAL_S
    assert door.person(door.token()).name == "ann"


def test_an_issuer_that_never_answered_is_no_refusal(door: Door) -> None:
    """503 from the first token on, and the next ones do not wait for it again."""
    door.issuer.is_up = False
    assert door.status(door.token()) == 503
    door.issuer.is_up = True
    assert door.status(door.token()) == 503
    door.clock.s += INTERVAL_S
    assert door.person(door.token()).name == "ann"


def test_whoever_calls_itself_otherwise_is_not_the_issuer(door: Door) -> None:
    door.issuer.called = "https://elsewhere.example"
    assert door.status(door.issuer.sign(door.issuer.claims(door.now_s, iss=door.issuer.url))) == 503


@pytest.mark.parametrize(
    ("changed", "claims", "expected"),
    [
        ({}, {"groups": ["customers"]}, ()),
        ({}, {"groups": []}, ()),
        ({}, {"groups": {"team": 1}}, ()),
        ({}, {"groups": "everybody other"}, (Grant(Role.READER),)),
        ({"roles_claim": "realm.roles"}, {"realm": {"roles": ["team"]}}, (Grant(Role.OPERATOR, "_41cme"),)),
        ({"roles_claim": "https://x.y/r"}, {"https://x.y/r": ["team"]}, (Grant(Role.OPERATOR, "_41cme"),)),
        (
            {"tenants_claim": "shops"},
            {"groups": ["customers"], "shops": ["a", "b", "system", 7, "x" * 101, "a"]},
            (Grant(Role.WRITER, "a"), Grant(Role.WRITER, "b")),
        ),
        (
            {"tenants_claim": "shops"},
            {"groups": ["customers"], "shops": "my shop"},
            (Grant(Role.WRITER, "my_20shop"),),
        ),
    ],
)
def test_claims_become_roles_by_the_settings(
    changed: dict[str, Any], claims: dict[str, Any], expected: tuple[Grant, ...]
) -> None:
    """What no grant knows, and what can be no tenant or is Firn's own, becomes none."""
    with fake_issuer() as issuer:
        door = Door(issuer, **changed)
        assert door.person(door.token(**claims)).grants == expected


@pytest.fixture(scope="module")
def silent_door() -> Iterator[Door]:
    with fake_issuer() as issuer:
        issuer.is_up = False
        made = Door(issuer)
        yield made
        made.verifier.close()


@given(st.text(max_size=60), st.integers(0, 2), st.binary(max_size=40))
@settings(max_examples=60, deadline=None)
def test_nothing_but_a_token_is_one(silent_door: Door, text: str, part: int, raw: bytes) -> None:
    """Whatever stands in the place of a part is refused, and nothing else happens."""
    parts = silent_door.token().split(".")
    for broken in (text, base64.urlsafe_b64encode(raw).decode(), ""):
        changed = [*parts[:part], broken, *parts[part + 1 :]]
        assert silent_door.status(".".join(changed)) in (401, 503)


def test_keys_and_bought_tokens_never_look_like_one() -> None:
    assert is_token("eyJh.eyJp.c2ln")
    assert not is_token("firn_0123456789ab_secret")
    assert not is_token("firntoken_a.b.c")


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"issuer": "http://id.example.org"}, "https"),
        ({"issuer": "https://id.example.org/?x=1"}, "https"),
        ({"audiences": []}, "audiences"),
        ({"grants": {}}, "grants"),
        ({"grants": {"a": {"role": "reader", "tenants": "claimed"}}}, "tenants_claim"),
        ({"grants": {"a": {"role": "reader", "tenants": []}}}, "at least one"),
        ({"grants": {"a": {"role": "reader", "tenants": ["system"]}}}, "administrators"),
        ({"grants": {"a": {"role": "owner", "tenants": "all"}}}, "reader"),
    ],
)
def test_settings_that_let_the_wrong_ones_in_are_refused(changed: dict[str, Any], says: str) -> None:
    good = {"issuer": "https://id.example.org", "audiences": ["firn"], "grants": {"a": GRANTS["team"]}}
    OidcSettings.model_validate(good)
    with pytest.raises(ValueError, match=says):
        OidcSettings.model_validate({**good, **changed})
