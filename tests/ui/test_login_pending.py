"""Logins that have begun: they lie sealed in the browsers that began them, and nothing of them lies here."""

import asyncio
import gc
import random
import string
import tracemalloc
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import Request

from tests.ui.support.door import PAGES, Door, door, login_settings, sent_back
from tests.ui.support.fake_login_issuer import FakeLoginIssuer
from ui.login.pending import COOKIE_CHARACTERS_MAX, LASTS_S, PendingLogin, Seals

BEGIN_S = 1_800_000_000.0
TEXTS = st.dictionaries(st.text(max_size=60), st.text(max_size=300), max_size=4)
FLOOD, FEW = 100_000, 1_000
CACHED = 300  # more addresses than libraries remember of those that they have taken apart


class Clock:
    """`now_s`: what it says."""

    now_s = BEGIN_S

    def __call__(self) -> float:
        return self.now_s


def cookie(pages: Door) -> str:
    """What the browser has of its login."""
    return str(pages.browser.cookies.get(pages.login.pending_cookie, ""))


def bring(pages: Door, value: str) -> None:
    """Puts something else in its place."""
    pages.browser.cookies.delete(pages.login.pending_cookie)
    pages.browser.cookies.set(pages.login.pending_cookie, value, domain="127.0.0.1", path="/")


def is_in(pages: Door, back: str) -> bool:
    """Whether the browser that comes back is let in."""
    answer = pages.back(back)
    assert answer.status_code == (303 if pages.session_id() else 400)
    assert not cookie(pages)
    return bool(pages.session_id())


@given(st.text(max_size=100), TEXTS)
def test_a_login_comes_back_as_it_was(address: str, texts: dict[str, str]) -> None:
    """For half an hour, and not a moment longer."""
    clock = Clock()
    seals = Seals(clock)
    sealed = seals.seal(PendingLogin(address, texts))
    clock.now_s += LASTS_S - 1
    found = seals.open(sealed)
    assert found is not None
    assert (found.address, found.texts) == (address, texts)
    clock.now_s += 1
    assert seals.open(sealed) is None


@given(st.text(max_size=200))
def test_what_somebody_made_up_is_no_login(text: str) -> None:
    """Nor is it an error."""
    seals = Seals()
    assert seals.open(text) is None
    header = seals.seal(PendingLogin("/")).partition(".")[0]
    assert seals.open(f"{header}.{text}") is None
    assert seals.open(f"{header}..{text}.{text}.{text}") is None


def test_an_altered_login_is_none() -> None:
    """Whichever character it is; and one that another process has sealed."""
    seals = Seals()
    sealed = seals.seal(PendingLogin("/search", {"a": "b"}))
    for at, each in enumerate(sealed):
        other = "A" if each != "A" else "Q"  # differ in bits that base64 does not pad away
        assert seals.open(f"{sealed[:at]}{other}{sealed[at + 1 :]}") is None
    assert Seals().open(sealed) is None
    assert seals.open(sealed) is not None


def test_a_long_address_loses_its_search_and_not_the_login() -> None:
    """A long statement has room; what no cookie has room for leads to its page."""
    seals, texts = Seals(), {"_state": "s" * 43, "_verifier": "v" * 300}
    statement = f"/sql?{urlencode({'q': 'SELECT severity, count(*) FROM logs WHERE n > 7 ' * 100})}"
    noise = "".join(random.Random(7).choices(string.ascii_letters + string.digits, k=7_000))
    unpressed = f"/sql?q={noise}"
    for address, kept in ((statement, statement), (unpressed, "/sql")):
        sealed = seals.seal(PendingLogin(address, texts))
        found = seals.open(sealed)
        assert found is not None
        assert (found.address, found.texts) == (kept, texts)
        assert len(sealed) <= COOKIE_CHARACTERS_MAX


@pytest.mark.parametrize(
    ("address", "name", "secure"),
    [("https://logs.example.org", "__Host-firn_login", True), (PAGES, "firn_login", False)],
)
def test_the_cookie_of_a_login_is_for_this_host_and_no_script(
    issuer: FakeLoginIssuer, address: str, name: str, secure: bool
) -> None:
    pages = door(login_settings(issuer.url, pages=address))
    answer = pages.browser.get("/auth/login?next=/search")
    (found,) = [each for each in answer.headers.get_list("set-cookie") if each.startswith(name)]
    said = {each.strip().lower() for each in found.split(";")[1:]}
    assert {"httponly", "samesite=lax", "path=/", f"max-age={LASTS_S}"} <= said
    assert ("secure" in said) is secure
    assert len(found) < 4_096
    assert "search" not in found


def test_a_login_is_of_the_browser_that_began_it(pages: Door) -> None:
    """Its sealed part does not make it another's; and without that part it is over."""
    back = sent_back(pages.begin("/search"))
    other = pages.other_browser()
    bring(other, cookie(pages))
    assert not is_in(other, back)
    other = pages.other_browser()
    other.begin()
    bring(other, cookie(pages))
    assert not is_in(other, back)
    kept = cookie(pages)
    pages.browser.cookies.delete(pages.login.pending_cookie)
    assert not is_in(pages, back)
    back = sent_back(pages.begin())
    bring(pages, kept)  # of this browser's own login before
    assert not is_in(pages, back)


@pytest.mark.parametrize("spoil", ["altered", "old", "sealed elsewhere"])
def test_a_spoilt_login_lets_nobody_in(issuer: FakeLoginIssuer, spoil: str) -> None:
    """The way back is offered."""
    pages = door(login_settings(issuer.url))
    clock = Clock()
    pages.login.seals = Seals(clock)
    back = sent_back(pages.begin())
    if spoil == "altered":
        value = cookie(pages)
        bring(pages, f"{value[:-1]}{'A' if value[-1] != 'A' else 'Q'}")
    elif spoil == "old":
        clock.now_s += LASTS_S
    else:
        pages.login.seals = Seals(clock)
    answer = pages.back(back)
    assert (answer.status_code, pages.session_id()) == (400, "")
    assert 'href="/auth/login?next=%2F"' in answer.text
    assert is_in(pages, sent_back(pages.begin()))


def _begin_elsewhere(pages: Door, number: int) -> None:
    """Logins begun by browsers that never come back; each is sent to the issuer."""

    async def begin() -> None:
        for _ in range(number):
            answer = await pages.login._begin(_request())
            state = parse_qs(urlsplit(answer.headers["location"]).query)["state"][0]
            assert len(state) == 43

    asyncio.run(begin())


def _request() -> Request:
    scope: dict[str, Any] = {"type": "http", "method": "GET", "path": "/auth/login", "headers": []}
    return Request({**scope, "query_string": b"next=/search", "session": {}})


@pytest.fixture
def known(pages: Door, issuer: FakeLoginIssuer, monkeypatch: pytest.MonkeyPatch) -> Door:
    """Pages that know what the issuer says of itself, so that a test asks it once and not a hundred thousand
    times."""
    about, made = issuer.about(), pages.login.issuer._client

    def client(*given: Any) -> Any:
        found = made(*given)
        found.server_metadata = {**about, "_loaded_at": BEGIN_S}
        return found

    monkeypatch.setattr(pages.login.issuer, "_client", client)
    return pages


@pytest.mark.long
def test_logins_that_nobody_finishes_leave_nothing_behind(known: Door) -> None:
    """No memory, however many there are."""
    tracemalloc.start()
    try:
        _begin_elsewhere(known, CACHED)
        gc.collect()
        before, _ = tracemalloc.get_traced_memory()
        _begin_elsewhere(known, FEW)
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < FEW * 20  # bytes; a state alone has 43


@pytest.mark.prove
def test_a_flood_of_logins_pushes_nobody_out(known: Door) -> None:
    """Who began first finishes after a hundred thousand others have begun."""
    back = sent_back(known.begin("/search?q=x"))
    _begin_elsewhere(known, FLOOD)
    answer = known.back(back)
    assert (answer.status_code, answer.headers["location"]) == (303, "/search?q=x")
    assert known.session_id()
