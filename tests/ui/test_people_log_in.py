"""People who log in at a provider that is not ours: what their tokens reach through the API, and the way
through the browser."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import httpx
import pytest
from playwright.sync_api import Page, expect

from infra.local.supervisor import Stack
from lake.clock import SystemClock
from tests.query.support.guarded import SECRET, START, Guarded, start_guarded
from tests.query.support.processes import run
from tests.ui.support.front_end import start_front_end
from tests.ui.support.provider import CLIENT, CLIENT_SECRET, Provider, provider

pytestmark = pytest.mark.stack

OURS, THEIRS = "Cedar", "Dogwood"
PEOPLE = {
    "1-ann": {"preferred_username": "ann", "groups": ["ours-operator", "theirs-reader"]},
    "2-bob": {"preferred_username": "bob", "groups": ["ours-reader"]},
    "3-cleo": {"preferred_username": "cleo", "groups": ["canteen"]},
    "4-dora": {"preferred_username": "dora", "groups": ["ours-reader"]},
}
GRANTS = {
    "ours-operator": {"role": "operator", "tenants": [OURS]},
    "ours-reader": {"role": "reader", "tenants": [OURS]},
    "theirs-reader": {"role": "reader", "tenants": [THEIRS]},
}
LEEWAY_S = 5
RANGE = {"from": START.isoformat(), "to": START.replace(hour=11).isoformat()}


@pytest.fixture(scope="module")
def issuer() -> Iterator[Provider]:
    with provider(PEOPLE) as running:
        yield running


@pytest.fixture(scope="module")
def guarded(
    stack: Stack, catalog_client: Any, issuer: Provider, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Guarded]:
    """A catalog that takes the provider's tokens, an API on it, two tenants."""
    access = {
        "FIRN_CATALOG_OIDC__ISSUER": issuer.url,
        "FIRN_CATALOG_OIDC__AUDIENCES": json.dumps([CLIENT]),
        "FIRN_CATALOG_OIDC__GRANTS": json.dumps(GRANTS),
        "FIRN_CATALOG_OIDC__LEEWAY_S": str(LEEWAY_S),
    }
    folder = tmp_path_factory.mktemp("people")
    guarded = start_guarded(stack, catalog_client, folder, (OURS, THEIRS), access=access)
    yield guarded
    guarded.end()


@pytest.fixture(scope="module")
def pages(guarded: Guarded, issuer: Provider) -> Iterator[str]:
    """The front end on that API, which sends people to the provider."""
    secret = guarded.folder / "client-secret"
    secret.write_text(CLIENT_SECRET)

    def login(address: str) -> Mapping[str, str]:
        return {
            "FIRN_UI_OIDC_ISSUER": issuer.url,
            "FIRN_UI_OIDC_CLIENT_ID": CLIENT,
            "FIRN_UI_OIDC_CLIENT_SECRET_FILE": str(secret),
            "FIRN_UI_OIDC_REDIRECT_URI": f"{address}/oauth2callback",
            "FIRN_UI_OIDC_TOKEN": "id",
        }

    child = start_front_end(guarded.api.address, guarded.folder, login)
    yield child.address
    child.kill()


def names(answer: httpx.Response) -> list[str]:
    assert answer.status_code == 200, answer.text
    return sorted(answer.json()["tenants"])


def test_a_person_reaches_the_tenants_of_their_roles_and_no_other(guarded: Guarded, issuer: Provider) -> None:
    """In lists, searches and SQL; one with roles in two tenants sees both."""
    ann, bob = issuer.token("1-ann"), issuer.token("2-bob")
    assert names(guarded.ask("GET", "/v1/tenants/names", ann)) == [OURS, THEIRS]
    assert names(guarded.ask("GET", "/v1/tenants/names", bob)) == [OURS]
    for token, tenant, status in ((ann, OURS, 200), (ann, THEIRS, 200), (bob, OURS, 200), (bob, THEIRS, 403)):
        answer = guarded.ask("POST", "/v1/search", token, json={"tenant": tenant, "stream": "logs", **RANGE})
        assert answer.status_code == status, answer.text
        assert (SECRET in answer.text) == (tenant == THEIRS and status == 200)


def test_roles_say_what_a_person_may_do_there(guarded: Guarded, issuer: Provider) -> None:
    """Operators set holds and retention in their own tenant, readers do not, and neither sets limits."""
    ann, bob = issuer.token("1-ann"), issuer.token("2-bob")
    for token, tenant, status in ((ann, OURS, 200), (ann, THEIRS, 403), (bob, OURS, 403)):
        hold = {"tenant": tenant, "stream": "gone", "reason": "case 7"}
        assert guarded.ask("POST", "/v1/holds", token, json=hold).status_code == status
        keep = {"tenant": tenant, "stream": "logs", "retention": "3650d"}
        assert guarded.ask("POST", "/v1/streams/retention", token, json=keep).status_code == status
        limits = {"tenant": tenant, "limits": {"exports": 3}}
        assert guarded.ask("POST", "/v1/tenants/limits", token, json=limits).status_code == 403
        assert guarded.ask("GET", "/v1/dead-letters", token).status_code == 403


def test_who_has_no_role_is_told_so(guarded: Guarded, issuer: Provider) -> None:
    answer = guarded.ask("GET", "/v1/tenants/names", issuer.token("3-cleo"))
    assert answer.status_code == 403
    assert "cleo has no role" in answer.text


def test_what_a_person_keeps_is_theirs_with_the_next_token_too(guarded: Guarded, issuer: Provider) -> None:
    """And nobody else's."""
    kept = {"address": {"tenant": OURS, "q": "x"}}
    assert guarded.ask("PUT", "/v1/saved-searches/mine", issuer.token("1-ann"), json=kept).status_code == 204
    found = [guarded.ask("GET", "/v1/saved-searches", issuer.token(who)).json() for who in ("1-ann", "2-bob")]
    assert [list(each["searches"]) for each in found] == [["mine"], []]


def log_in(page: Page, person: str) -> None:
    """By the button of the provider's that bears the person's name."""
    page.get_by_role("link", name="Log in", exact=True).click()
    page.get_by_role("button", name=person).first.click()


def test_a_person_logs_in_by_the_code_flow_and_out_again(page: Page, pages: str) -> None:
    """With PKCE; the rows of their tenant are there, and afterwards the way in. No cookie holds a token."""
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(pages)
    log_in(page, "2-bob")
    expect(page.get_by_text("logged in as bob")).to_be_attached()
    (authorize,) = [url for url in asked if urlsplit(url).path == "/oauth2/authorize" and "?" in url][:1]
    told = parse_qs(urlsplit(authorize).query)
    assert (told["response_type"], told["code_challenge_method"]) == (["code"], ["S256"])
    assert len(told["code_challenge"][0]) == 43
    page.get_by_role("combobox", name="Tenant").click()
    expect(page.get_by_role("option")).to_have_text([OURS])
    page.keyboard.press("Escape")
    ours = {each["name"]: each for each in page.context.cookies(pages)}
    assert len(ours["firn_session"]["value"]) == 43
    assert ours["firn_session"]["httpOnly"]
    assert [name for name, each in ours.items() if "eyJhbG" in each["value"]] == []
    page.get_by_text("Log out").evaluate("each => each.click()")
    page.wait_for_url("**/oauth2/end_session?**")
    page.goto(pages)
    expect(page.get_by_role("link", name="Log in", exact=True)).to_be_visible()


def test_who_opens_a_link_and_has_to_log_in_lands_on_it(page: Page, pages: str) -> None:
    """On exactly that address, with its search done."""
    params = {"tenant": OURS, "stream": "logs", "q": 'message:"of Mine 7"', **RANGE}
    address = f"{pages}/?{urlencode(params)}"
    page.goto(address)
    log_in(page, "2-bob")
    expect(page.get_by_text("1 row", exact=True)).to_be_visible()
    assert page.url == address


def test_whose_session_has_ended_is_told_so_and_loses_nothing_by_logging_in_again(
    page: Page, pages: str, issuer: Provider
) -> None:
    """As soon as the token's time is over by the catalog's clock; the statement that they wrote is there
    again."""
    statement = "SELECT 'written at three in the morning'\nFROM logs"
    address = f"{pages}/sql?{urlencode({'tenant': OURS, 'q': statement})}"
    now_s = int(SystemClock().now().timestamp())
    issuer.knows("4-dora", {**PEOPLE["4-dora"], "exp": now_s - 10 * LEEWAY_S})
    page.goto(address)
    log_in(page, "4-dora")
    expect(page.get_by_text("Your session has ended")).to_be_visible()
    issuer.knows("4-dora", {**PEOPLE["4-dora"], "exp": now_s + 3_600})
    log_in(page, "4-dora")
    expect(page.get_by_role("textbox", name="Statement")).to_have_value(statement)
    assert page.url == address


@pytest.mark.parametrize(
    ("variables", "says"),
    [
        ({}, "FIRN_UI_OIDC_CLIENT_ID"),
        ({"FIRN_UI_OIDC_CLIENT_SECRET_FILE": "/nowhere"}, "cannot be read"),
        ({"FIRN_UI_OIDC_REDIRECT_URI": "http://127.0.0.1:1/"}, "/oauth2callback"),
        ({"FIRN_UI_OIDC_REDIRECT_URI": "http://logs.example.org/oauth2callback"}, "https"),
        ({"FIRN_UI_OIDC_ISSUER": "http://id.example.org"}, "https"),
        ({"FIRN_UI_OIDC_TOKEN": "refresh"}, "`access` or `id`"),
        ({"FIRN_UI_OIDC_SCOPE": "profile email"}, "`openid`"),
    ],
)
def test_what_cannot_work_is_said_at_the_start(
    variables: Mapping[str, str], says: str, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.write_text(CLIENT_SECRET)
    good = {
        "FIRN_UI_OIDC_CLIENT_ID": CLIENT,
        "FIRN_UI_OIDC_CLIENT_SECRET_FILE": str(secret),
        "FIRN_UI_OIDC_REDIRECT_URI": "http://127.0.0.1:1/oauth2callback",
    }
    given = {**good, **variables} if variables else {}
    done = run("ui", {"FIRN_UI_OIDC_ISSUER": "https://id.example.org", **given}, "serve", "--port", "1")
    assert done.returncode == 2
    assert says in done.stderr
