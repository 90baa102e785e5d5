"""Logging in, by the routes that a browser calls: as somebody who does it, and as somebody who tries what
should not work."""

import base64
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.ui.support.door import PAGES, Door, door, login_settings, sent_back
from tests.ui.support.fake_login_issuer import FakeLoginIssuer
from tests.ui.support.provider import CLIENT
from ui.login.sessions import RenewalFailedError, RenewalRefusedError

pytestmark = pytest.mark.long


def logged_in(pages: Door, address: str = "/") -> Any:
    """The answer to a browser that has logged in."""
    answer = pages.back(sent_back(pages.begin(address)))
    assert answer.status_code == 303, answer.text
    return answer


def refused(answer: Any, pages: Door) -> bool:
    """Whether nobody was let in."""
    return answer.status_code == 400 and not pages.session_id()


@pytest.mark.parametrize(
    "address",
    [
        "/",
        "/?tenant=A&q=x",
        "/search?tenant=Acme-Shop&stream=logs&q=a%3A%22b+c%22&from=2026-09-01T10%3A00%3A00Z&to=now",
        "/sql?tenant=%C3%9Cber&q=SELECT+1%0AFROM+%22x%22",
        "/tenants",
    ],
)
def test_who_logs_in_is_back_where_they_were(pages: Door, address: str) -> None:
    assert logged_in(pages, address).headers["location"] == address


@pytest.mark.parametrize(
    "address",
    [
        "https://evil.example/search",
        "//evil.example/search?q=x",
        "/\\evil.example",
        "\\\\evil.example",
        "/search//evil.example",
        "/%2f%2fevil.example",
        "\t//evil.example",
        "javascript:alert(1)",
        "search",
        "/auth/logout",
        "/oauth2callback?code=x",
        "/search#x",
        "/search\r\nset-cookie: a=b",
        "/@evil.example",
        "",
    ],
)
def test_nobody_is_sent_elsewhere_by_logging_in(pages: Door, address: str) -> None:
    assert logged_in(pages, address).headers["location"] == "/"


def test_the_flow_is_that_of_codes_with_pkce_and_a_nonce(pages: Door, issuer: FakeLoginIssuer) -> None:
    """State, nonce and verifier are others each time."""
    for _ in range(2):
        logged_in(pages)
    for asked in issuer.asked_for:
        assert (asked["response_type"], asked["code_challenge_method"]) == ("code", "S256")
        assert len(asked["code_challenge"]) == 43
    for name in ("state", "nonce", "code_challenge"):
        assert issuer.asked_for[0][name] != issuer.asked_for[1][name]


@pytest.mark.parametrize("token", ["access", "id"])
def test_the_browser_sees_no_token_and_no_verifier(issuer: FakeLoginIssuer, token: str) -> None:
    """Neither in a cookie, whatever it is encoded in, nor in an address or a page."""
    pages = door(login_settings(issuer.url, token))
    begun = pages.browser.get("/auth/login?next=/search")
    marked = dict(pages.browser.cookies.items())
    ended = pages.back(sent_back(begun.headers["location"]))
    told = [str(begun.headers), begun.text, str(ended.headers), ended.text]
    for value in (*marked.values(), *pages.browser.cookies.values()):
        told += [value, *(_decoded(part) for part in value.split("."))]
    secret = [each for each in issuer.given[1:] if any(each in text for text in told)]  # but the code itself
    assert secret == []
    assert "code_verifier" not in str(told)
    tokens = pages.login.sessions.tokens(pages.session_id())
    assert tokens is not None
    assert tokens.bearer == issuer.given[1 if token == "access" else 2]


@pytest.mark.parametrize(
    ("address", "name", "secure"),
    [
        ("https://logs.example.org", "__Host-firn_session", True),
        (PAGES, "firn_session", False),
    ],
)
def test_the_cookie_is_for_this_host_and_no_script(
    issuer: FakeLoginIssuer, address: str, name: str, secure: bool
) -> None:
    pages = door(login_settings(issuer.url, pages=address))
    (cookie,) = [each for each in logged_in(pages).headers.get_list("set-cookie") if each.startswith(name)]
    said = {each.strip().lower() for each in cookie.split(";")[1:]}
    assert {"httponly", "samesite=lax", "path=/"} <= said
    assert ("secure" in said) is secure
    assert not any(each.startswith("domain") for each in said)


def test_a_code_brought_by_another_browser_is_not_taken(pages: Door) -> None:
    """An attacker who sends somebody the end of their own login would have them work as the attacker."""
    of_the_attacker = sent_back(pages.begin())
    victim = pages.other_browser()
    assert refused(victim.back(of_the_attacker), victim)
    victim = pages.other_browser()
    victim.begin()
    assert refused(victim.back(of_the_attacker), victim)


def test_a_code_is_taken_once(pages: Door) -> None:
    back = sent_back(pages.begin())
    first = pages.back(back)
    assert first.status_code == 303
    pages.browser.cookies.delete(pages.login.cookie)
    assert refused(pages.back(back), pages)


def test_a_state_that_nobody_gave_is_not_taken(pages: Door) -> None:
    back = sent_back(pages.begin())
    state = parse_qs(urlsplit(back).query)["state"][0]
    assert refused(pages.back(back.replace(state, "x" * len(state))), pages)


@pytest.mark.parametrize(
    "claims",
    [
        {"iss": "https://other.example.org"},
        {"aud": "another-client"},
        {"aud": "another-client", "azp": CLIENT},
        {"nonce": "of-another-login"},
        {"exp": 1_000_000_000},
    ],
)
def test_an_id_token_that_is_not_for_this_login_lets_nobody_in(
    pages: Door, issuer: FakeLoginIssuer, claims: dict[str, Any]
) -> None:
    issuer.in_id_token = claims
    assert refused(pages.back(sent_back(pages.begin())), pages)


def test_an_id_token_by_another_key_lets_nobody_in(pages: Door, issuer: FakeLoginIssuer) -> None:
    """And after the issuer has told of its new key it does."""
    old = issuer.keys
    back = sent_back(pages.begin())
    issuer.rotate("second")
    told, issuer.keys, issuer.signs_by = issuer.keys, old, "second"
    assert refused(pages.back(back), pages)
    issuer.keys = told
    assert logged_in(pages).status_code == 303


def test_what_the_issuer_says_against_it_is_not_shown(pages: Door) -> None:
    """Whoever made the link may have written it; the way back is offered."""
    pages.begin()
    answer = pages.browser.get("/oauth2callback?error=<script>x</script>&error_description=call+555&state=y")
    assert refused(answer, pages)
    assert "script" not in answer.text
    assert "555" not in answer.text
    assert 'href="/auth/login?next=%2F"' in answer.text


def test_whose_login_failed_may_try_again_for_their_page(pages: Door, issuer: FakeLoginIssuer) -> None:
    back = sent_back(pages.begin("/search?q=x"))
    issuer.busy = True
    answer = pages.back(back)
    assert refused(answer, pages)
    assert 'href="/auth/login?next=%2Fsearch%3Fq%3Dx"' in answer.text


def test_an_issuer_that_is_away_is_no_fault_of_the_pages(pages: Door, issuer: FakeLoginIssuer) -> None:
    issuer.is_up = False
    answer = pages.browser.get("/auth/login?next=/search")
    assert (answer.status_code, "Try again" in answer.text) == (400, True)


def test_a_login_begins_a_session_of_a_new_name(pages: Door) -> None:
    """One that somebody planted is no session, and that of a login before is over."""
    pages.browser.cookies.set(pages.login.cookie, "planted", domain="127.0.0.1", path="/")
    logged_in(pages)
    first = pages.session_id()
    logged_in(pages)
    second = pages.session_id()
    assert len({"planted", first, second}) == 3
    found = [pages.login.sessions.tokens(each) is not None for each in ("planted", first, second)]
    assert found == [False, False, True]


def test_logging_out_ends_both_sessions(pages: Door, issuer: FakeLoginIssuer) -> None:
    """What the browser had is worth nothing afterwards; who comes back from there is on the first page."""
    logged_in(pages)
    kept = pages.session_id()
    tokens = pages.login.sessions.tokens(kept)
    assert tokens is not None
    answer = pages.browser.get("/auth/logout")
    to, said = urlsplit(answer.headers["location"]), parse_qs(urlsplit(answer.headers["location"]).query)
    assert (answer.status_code, f"{to.scheme}://{to.netloc}{to.path}") == (303, f"{issuer.url}/end")
    assert said["id_token_hint"] == [tokens.id_token]
    assert not pages.session_id()
    assert pages.login.sessions.tokens(kept) is None
    back = pages.browser.get(f"/oauth2callback?state={said['state'][0]}")
    assert (back.status_code, back.headers["location"]) == (303, "/")
    assert pages.browser.get("/auth/logout").headers["location"] == "/"


def test_the_tokens_of_somebody_else_do_not_renew_a_session(pages: Door, issuer: FakeLoginIssuer) -> None:
    logged_in(pages)
    tokens = pages.login.sessions.tokens(pages.session_id())
    assert tokens is not None
    issuer.person = {"sub": "2-bob", "preferred_username": "bob"}
    with pytest.raises(RenewalRefusedError, match="somebody else"):
        pages.login.issuer.renewed(tokens)


def test_an_issuer_that_does_not_answer_is_asked_again(pages: Door, issuer: FakeLoginIssuer) -> None:
    """One that gives no more refresh tokens has given its last."""
    logged_in(pages)
    tokens = pages.login.sessions.tokens(pages.session_id())
    assert tokens is not None
    issuer.busy = True
    with pytest.raises(RenewalFailedError, match="503"):
        pages.login.issuer.renewed(tokens)
    issuer.busy, issuer.refreshes = False, False
    found = pages.login.issuer.renewed(tokens)
    assert found.refresh_token == tokens.refresh_token
    with pytest.raises(RenewalRefusedError, match="invalid_grant"):
        pages.login.issuer.renewed(found)


@pytest.mark.parametrize("token", ["access", "id"])
def test_an_issuer_that_renews_no_id_tokens_renews_no_session_by_them(
    issuer: FakeLoginIssuer, token: str
) -> None:
    """One by access tokens goes on, and is still whose it was."""
    pages = door(login_settings(issuer.url, token))
    issuer.renews_id_tokens = False
    logged_in(pages)
    tokens = pages.login.sessions.tokens(pages.session_id())
    assert tokens is not None
    if token == "access":
        found = pages.login.issuer.renewed(tokens)
        assert found.bearer != tokens.bearer
        assert (found.id_token, found.called) == (tokens.id_token, tokens.called)
    else:
        with pytest.raises(RenewalRefusedError, match="no other id token"):
            pages.login.issuer.renewed(tokens)


def _decoded(text: str) -> str:
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_").decode(errors="replace")
    except ValueError:
        return ""
