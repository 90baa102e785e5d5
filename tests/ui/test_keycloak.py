"""People who log in at a Keycloak: by the pages' own client and in a browser, with claims that become roles
and tenants, tokens that end and are renewed, and an issuer that comes back with other keys."""

import json
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest
from playwright.sync_api import Page, expect

from infra.local.supervisor import Stack
from tests.contracts.support.login_suite import LoginContract, PersonLogsIn
from tests.query.support.guarded import SECRET, START, Guarded, start_guarded
from tests.stack.support.waiting import wait_for
from tests.ui.support.door import PAGES, Door, door, login_settings
from tests.ui.support.front_end import start_front_end
from tests.ui.support.keycloak import AUDIENCE, LASTS_S, Keycloak, Person, keycloak
from tests.ui.support.provider import CLIENT, CLIENT_SECRET

pytestmark = [pytest.mark.stack, pytest.mark.prove, pytest.mark.timeout(1800)]

OURS, THEIRS = "Larch", "Maple"
PEOPLE = (
    Person("ann", groups=["shop-team", "everybody"]),
    Person("bob", groups=["customers"], tenants=[THEIRS]),
    Person("cleo", groups=["everybody"], tenants=[OURS, THEIRS]),
)
GRANTS = {
    "shop-team": {"role": "operator", "tenants": [OURS]},
    "customers": {"role": "reader", "tenants": "claimed"},
}
RANGE = {"from": START.isoformat(), "to": START.replace(hour=11).isoformat()}
KEYS_KEPT_S = 2


@pytest.fixture(scope="module")
def server() -> Iterator[Keycloak]:
    with keycloak() as running:
        yield running


@pytest.fixture(scope="module")
def guarded(
    stack: Stack, catalog_client: Any, server: Keycloak, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Guarded]:
    """A catalog that takes the realm's tokens, an API on it, two tenants."""
    access = {
        "FIRN_CATALOG_OIDC__ISSUER": server.url,
        "FIRN_CATALOG_OIDC__AUDIENCES": json.dumps([AUDIENCE]),
        "FIRN_CATALOG_OIDC__TENANTS_CLAIM": "firn_tenants",
        "FIRN_CATALOG_OIDC__GRANTS": json.dumps(GRANTS),
        "FIRN_CATALOG_OIDC__LEEWAY_S": "1",
        "FIRN_CATALOG_OIDC__KEYS_KEPT_S": str(KEYS_KEPT_S),
        "FIRN_CATALOG_OIDC__FETCH_INTERVAL_S": "1",
    }
    folder = tmp_path_factory.mktemp("keycloak")
    guarded = start_guarded(stack, catalog_client, folder, (OURS, THEIRS), access=access)
    yield guarded
    guarded.end()


@pytest.fixture(scope="module")
def pages(guarded: Guarded, server: Keycloak) -> Iterator[str]:
    """The front end on that API, known to the realm."""
    secret = guarded.folder / "client-secret"
    secret.write_text(CLIENT_SECRET)

    def login(address: str) -> Mapping[str, str]:
        return {
            "FIRN_UI_OIDC_ISSUER": server.url,
            "FIRN_UI_OIDC_CLIENT_ID": CLIENT,
            "FIRN_UI_OIDC_CLIENT_SECRET_FILE": str(secret),
            "FIRN_UI_OIDC_REDIRECT_URI": f"{address}/oauth2callback",
        }

    child = start_front_end(guarded.api.address, guarded.folder, login)
    server.fill(PEOPLE, [PAGES, child.address])
    yield child.address
    child.kill()


def token_of(server: Keycloak, person: str) -> str:
    """An access token, by the pages' own client."""
    ours = door(login_settings(server.url))
    answer = ours.back(server.logs_in(ours.begin(), person))
    assert answer.status_code == 303, answer.text
    tokens = ours.login.sessions.tokens(ours.session_id())
    assert tokens is not None
    return tokens.bearer


def names(answer: httpx.Response) -> list[str]:
    assert answer.status_code == 200, answer.text
    return sorted(answer.json()["tenants"])


def search(pages: str, query: str) -> str:
    """The address of a search."""
    return f"{pages}/?{urlencode({'tenant': OURS, 'stream': 'logs', 'q': query, **RANGE})}"


def has_ended(guarded: Guarded, token: str) -> bool:
    """Whether the API says of a token that its time is over."""
    answer = guarded.ask("GET", "/v1/tenants/names", token)
    return answer.status_code == 401 and "expired" in answer.text


def log_in(page: Page, person: str) -> None:
    """From the page's own link on."""
    page.get_by_role("link", name="Log in", exact=True).click()
    page.locator("#username").fill(person)
    page.locator("#password").fill(person)
    page.locator("#kc-login").click()


@pytest.mark.usefixtures("pages")
class TestKeycloak(LoginContract):
    """The contract of logging in, of which the fake one is a part."""

    @pytest.fixture
    def door(self, server: Keycloak) -> Door:
        return door(login_settings(server.url))

    @pytest.fixture
    def logs_in(self, server: Keycloak) -> PersonLogsIn:
        return lambda authorize: server.logs_in(authorize, "ann")

    @pytest.fixture
    def token_endpoint(self, server: Keycloak) -> str:
        return server.token_endpoint

    @pytest.fixture
    def called(self) -> str:
        return "ann"


@pytest.mark.usefixtures("pages")
def test_claims_become_roles_and_tenants(guarded: Guarded, server: Keycloak) -> None:
    """By groups of the settings, and by tenants that the token names; without a group of the settings the
    latter count for nothing."""
    ann, bob, cleo = (token_of(server, person.name) for person in PEOPLE)
    assert names(guarded.ask("GET", "/v1/tenants/names", ann)) == [OURS]
    assert names(guarded.ask("GET", "/v1/tenants/names", bob)) == [THEIRS]
    refused = guarded.ask("GET", "/v1/tenants/names", cleo)
    assert (refused.status_code, "cleo has no role" in refused.text) == (403, True)
    for token, tenant, status in ((ann, OURS, 200), (ann, THEIRS, 403), (bob, THEIRS, 200), (bob, OURS, 403)):
        answer = guarded.ask("POST", "/v1/search", token, json={"tenant": tenant, "stream": "logs", **RANGE})
        assert answer.status_code == status, answer.text
        assert (SECRET in answer.text) == (tenant == THEIRS and status == 200)
    for token, tenant, status in ((ann, OURS, 200), (ann, THEIRS, 403), (bob, THEIRS, 403)):
        keep = {"tenant": tenant, "stream": "logs", "retention": "3650d"}
        assert guarded.ask("POST", "/v1/streams/retention", token, json=keep).status_code == status


def test_a_session_outlives_its_tokens_and_who_comes_by_a_link_lands_on_it(
    page: Page, pages: str, guarded: Guarded, server: Keycloak
) -> None:
    """A token lasts for seconds here; the page goes on by others, of which the browser has none."""
    address = search(pages, 'message:"of Mine 7"')
    page.goto(address)
    log_in(page, "ann")
    expect(page.get_by_text("1 row", exact=True)).to_be_visible()
    assert page.url == address
    later = token_of(server, "ann")
    wait_for(lambda: has_ended(guarded, later), 6.0 * LASTS_S, "a token that is younger to end")
    page.get_by_test_id("stBaseButton-primary").click()
    expect(page.get_by_text("1 row", exact=True)).to_be_visible()
    page.goto(address)
    expect(page.get_by_text("1 row", exact=True)).to_be_visible()
    expect(page.get_by_text("logged in as ann")).to_be_attached()
    kept = [each["value"] for each in page.context.cookies(pages)]
    assert [value for value in kept if "eyJhbG" in value] == []


def test_an_issuer_that_comes_back_with_other_keys_is_believed_by_those_alone(
    page: Page, pages: str, guarded: Guarded, server: Keycloak
) -> None:
    """A token by the old one is taken no more. Whose session was lost with it is told so, and is back on the
    page after logging in."""
    address = search(pages, 'message:"of Mine 9"')
    page.goto(address)
    log_in(page, "ann")
    expect(page.get_by_text("1 row", exact=True)).to_be_visible()
    old = token_of(server, "ann")
    assert names(guarded.ask("GET", "/v1/tenants/names", old)) == [OURS]
    server.stop()
    server.start()
    server.fill(PEOPLE, [PAGES, pages])
    new = token_of(server, "ann")
    wait_for(
        lambda: guarded.ask("GET", "/v1/tenants/names", new).status_code == 200,
        10.0 * KEYS_KEPT_S,
        "the new key to be believed",
    )
    refused = guarded.ask("GET", "/v1/tenants/names", old)
    assert (refused.status_code, "a key that its issuer does not have" in refused.text) == (401, True)
    page.get_by_test_id("stBaseButton-primary").click()
    expect(page.get_by_text("Your session has ended")).to_be_visible()
    log_in(page, "ann")
    expect(page.get_by_text("1 row", exact=True)).to_be_visible()
    assert page.url == address
