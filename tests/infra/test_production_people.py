"""What `python -m infra doctor --production` says of an issuer: its description, keys, clock and claims."""

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from joserfc import jwk

from infra.production import people
from infra.production.finding import Finding, Verdict
from infra.production.rooms import Rooms
from lake.settings.oidc import OidcSettings
from tests.catalog.support.fake_issuer import FakeIssuer, fake_issuer

NOW = datetime(2026, 11, 26, 8, 0, tzinfo=UTC)
ISSUER, KEYS = "https://id.example.org", "https://id.example.org/keys"
ALGORITHMS = "id_token_signing_alg_values_supported"
GRANTS = {"team": {"role": "reader", "tenants": "all"}}
CLAIMED = {"team": {"role": "reader", "tenants": "claimed"}}
RSA, EC, WEAK, SECRET = (
    jwk.RSAKey.generate_key(2_048).as_dict(private=False),
    jwk.ECKey.generate_key("P-256").as_dict(private=False),
    jwk.RSAKey.generate_key(1_024).as_dict(private=False),
    jwk.OctKey.generate_key(256).as_dict(private=True),
)


def oidc(**given: Any) -> OidcSettings:
    """Settings for an issuer."""
    return OidcSettings.model_validate({"issuer": ISSUER, "audiences": ["x"], "grants": GRANTS, **given})


def clock(seconds: float, **given: Any) -> Finding:
    """Of an issuer whose clock is so many seconds away."""
    told = f"{NOW + timedelta(seconds=seconds):%a, %d %b %Y %H:%M:%S} GMT"
    return people.judge_clock(oidc(**given), told, NOW)


@pytest.mark.parametrize(
    ("finding", "verdict", "words"),
    [
        (people.judge_issuer(ISSUER, {"issuer": ISSUER}), "ok", "calls itself so"),
        (people.judge_issuer(ISSUER, {"issuer": f"{ISSUER}/"}), "unsafe", "letter by letter"),
        (people.judge_issuer(ISSUER, {}), "unsafe", "calls itself None"),
        (
            people.judge_issuer(ISSUER, {"issuer": ISSUER, "code_challenge_methods_supported": ["plain"]}),
            "warning",
            "PKCE by S256",
        ),
        (
            people.judge_issuer(ISSUER, {"issuer": ISSUER, "code_challenge_methods_supported": ["S256"]}),
            "ok",
            "answers",
        ),
        (
            people.judge_algorithms({"id_token_signing_alg_values_supported": ["RS256", "HS256"]}),
            "ok",
            "RS256",
        ),
        (
            people.judge_algorithms({ALGORITHMS: ["HS256", "none"]}),
            "unsafe",
            "signs by HS256, none",
        ),
        (people.judge_algorithms({}), "unsafe", "does not say"),
        (people.judge_keys(KEYS, [{**RSA, "kid": "a"}, {**EC, "kid": "b"}]), "ok", "2 keys"),
        (people.judge_keys(KEYS, [RSA]), "ok", "1 keys"),
        (people.judge_keys(KEYS, [RSA, EC]), "warning", "have no id"),
        (people.judge_keys(KEYS, [WEAK, SECRET, {**RSA, "use": "enc"}, "x"]), "unsafe", "of 4 keys"),
        (people.judge_keys(KEYS, [{"kty": "RSA", "n": "ä"}]), "unsafe", "of 1 keys"),
        (people.judge_keys(KEYS, []), "unsafe", "of 0 keys"),
        (people.judge_keys("http://id.example.org/keys", None), "unsafe", "have no https address"),
        (clock(14), "ok", "agree"),
        (clock(-16), "warning", "16 s away"),
        (clock(31), "unsafe", "run NTP"),
        (clock(1, leeway_s=0), "ok", "agree"),
        (clock(2, leeway_s=0), "unsafe", "2 s away"),
        (people.judge_clock(oidc(), None, NOW), "unknown", "by hand"),
        (people.judge_claims(oidc(), {"claims_supported": ["sub", "groups"]}), "ok", "lists groups"),
        (people.judge_claims(oidc(), {"claims_supported": ["sub"]}), "warning", "roles_claim = groups"),
        (people.judge_claims(oidc(), {}), "unknown", "whoami"),
        (
            people.judge_claims(
                oidc(roles_claim="realm_access.roles"), {"claims_supported": ["realm_access"]}
            ),
            "ok",
            "realm_access.roles",
        ),
        (
            people.judge_claims(
                oidc(grants=CLAIMED, tenants_claim="firn_tenants"), {"claims_supported": ["groups"]}
            ),
            "warning",
            "tenants_claim = firn_tenants",
        ),
        (people.judge_redirect("https://logs.example.org/oauth2callback"), "ok", "https"),
        (people.judge_redirect("http://127.0.0.1:8501/oauth2callback"), "ok", "this machine"),
        (people.judge_redirect("http://logs.example.org/oauth2callback"), "unsafe", "https address"),
        (people.judge_redirect("https://logs.example.org/"), "unsafe", "/oauth2callback"),
    ],
)
def test_a_check_says_what_facts_mean(finding: Finding, verdict: str, words: str) -> None:
    """By one word, and a sentence that names what to do."""
    assert (str(finding.verdict), words in finding.sentence) == (verdict, True), finding


@pytest.fixture
def issuer(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeIssuer]:
    """One that the settings of this process name."""
    monkeypatch.setenv("FIRN_CONFIG", "")
    with fake_issuer() as running:
        monkeypatch.setenv("FIRN_CATALOG_OIDC__ISSUER", running.url)
        monkeypatch.setenv("FIRN_CATALOG_OIDC__AUDIENCES", '["x"]')
        monkeypatch.setenv("FIRN_CATALOG_OIDC__GRANTS", json.dumps(GRANTS))
        yield running


def verdicts() -> list[str]:
    return [str(each.verdict) for each in people.look(Rooms.load())]


def test_an_issuer_is_asked_for_its_description_and_its_keys(
    issuer: FakeIssuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And looked at by its clock; this one says neither how it signs nor what it tells."""
    assert verdicts() == ["ok", "unsafe", "ok", "unknown", "ok"]
    assert issuer.asked == 1
    monkeypatch.setenv(people.REDIRECT_VARIABLE, "http://logs.example.org/oauth2callback")
    assert verdicts()[0] == "unsafe"


@pytest.mark.parametrize(
    ("becomes", "verdict", "words"),
    [
        (lambda issuer: setattr(issuer, "is_up", False), "unknown", "answers 502"),
        (lambda issuer: setattr(issuer, "called", "https://other.example.org"), "unsafe", "letter by letter"),
        (lambda issuer: issuer.keys.clear(), "unsafe", "of 0 keys"),
    ],
)
def test_what_is_wrong_with_an_issuer_is_found(
    issuer: FakeIssuer, becomes: Callable[[FakeIssuer], None], verdict: str, words: str
) -> None:
    becomes(issuer)
    found = [each for each in people.look(Rooms.load()) if words in each.sentence]
    assert [str(each.verdict) for each in found] == [verdict]


def test_without_an_issuer_nobody_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FIRN_CONFIG", "")
    (only,) = people.look(Rooms.load())
    assert (only.verdict, "API keys alone" in only.sentence) == (Verdict.OK, True)
