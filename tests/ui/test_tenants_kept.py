"""The page of tenants does not ask for all of them at every click."""

import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from time import monotonic

import pytest
from streamlit.testing.v1 import AppTest

from tests.query.support.json_answers import JsonAnswers
from ui.app_pages.tenants import KEPT_S
from ui.settings import API_VARIABLE

RUN_S = 120.0


class Asked(JsonAnswers, BaseHTTPRequestHandler):
    """An API that says for the how manyth time it is asked, and by whom."""

    times = 0

    def do_GET(self) -> None:
        Asked.times += 1
        self.answer({"times": Asked.times, "by": self.headers.get("authorization", "")})


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> Iterator[AppTest]:
    """What a session of the page gets, as its text. A script is `__main__` while it runs, and stays that, for
    whatever the process spawns, unless it is put back."""
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    with ThreadingHTTPServer(("127.0.0.1", 0), Asked) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv(API_VARIABLE, f"http://127.0.0.1:{server.server_port}")
        monkeypatch.setattr(Asked, "times", 0)
        yield AppTest.from_function(_script, default_timeout=RUN_S)
        server.shutdown()


def _script() -> None:
    import streamlit as st

    from ui.app_pages.tenants import known_tenants

    found = known_tenants("", "", anew=st.session_state.pop("anew", False))
    st.text(f"{found['times']} {found['by']}")


def told(page: AppTest) -> str:
    """What it has after another click."""
    return str(page.run().text[0].value).strip()


@pytest.mark.long
def test_a_click_is_answered_by_what_was_seen_a_moment_ago(
    page: AppTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is asked for anew after a change and when it is older, and by every session for itself."""
    now_s = monotonic()
    monkeypatch.setattr("ui.app_pages.tenants.monotonic", lambda: now_s)
    assert (told(page), told(page)) == ("1", "1")
    page.session_state["anew"] = True
    assert (told(page), told(page)) == ("2", "2")
    now_s += KEPT_S + 1
    assert (told(page), told(page)) == ("3", "3")
    assert told(AppTest.from_function(_script, default_timeout=RUN_S)) == "4"


def test_what_one_key_has_seen_is_not_shown_to_another(page: AppTest) -> None:
    """Who signs in anew within the same session sees what the new key reaches."""
    for at, key in enumerate(("firn_one_a", "firn_two_b"), 1):
        page.session_state["key"] = key
        assert told(page) == f"{at} Bearer {key}"
