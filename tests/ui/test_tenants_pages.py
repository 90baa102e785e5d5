"""The page of tenants where there are very many: by pages, and by a part of the name."""

import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

from tests.query.support.json_answers import JsonAnswers
from ui.app_pages.tenants import PAGE_TENANTS
from ui.settings import API_VARIABLE

pytestmark = pytest.mark.long
TENANTS = [f"tenant-{number:03}" for number in range(2 * PAGE_TENANTS + 7)]
RUN_S = 120.0


class Many(JsonAnswers, BaseHTTPRequestHandler):
    """An API with more tenants than two pages have. `asked`: for which tables."""

    asked: list[str]

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        if parts.path == "/v1/tenants/names":
            self.answer({"tenants": TENANTS, "next": None})
        elif parts.path == "/v1/tenants":
            self.answer(self.page(**query))
        else:
            self.answer({"dropped": [], "purged": [], "undo_window_s": None})

    def page(self, limit: str, contains: str = "", after: str = "") -> dict[str, Any]:
        found = [name for name in TENANTS if contains in name and name > after]
        page = found[: int(limit)]
        Many.asked += page
        return {
            "tenants": [_tenant(name) for name in page],
            "next": page[-1] if len(found) > len(page) else None,
        }


def _tenant(name: str) -> dict[str, Any]:
    numbers = {"rows": 10, "files": 1, "bytes": 1_000, "newest_row": None}
    about = {"stream": "logs", "mode": None, "committed_at": None, "columns": 3, "problem": None}
    return {
        "tenant": name,
        **numbers,
        "warnings": [],
        "streams": [{"tenant": name, "table": f"{name}.logs", **about, **numbers}],
    }


def _script() -> None:
    from ui.app_pages import tenants

    tenants.show()


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> Iterator[AppTest]:
    """The page as a session opens it. A script is `__main__` while it runs, and stays that, for whatever the
    process spawns, unless it is put back."""
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    with ThreadingHTTPServer(("127.0.0.1", 0), Many) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv(API_VARIABLE, f"http://127.0.0.1:{server.server_port}")
        monkeypatch.setattr(Many, "asked", [], raising=False)
        st.cache_data.clear()
        yield AppTest.from_function(_script, default_timeout=RUN_S).run()
        server.shutdown()


def _shown(page: AppTest) -> list[str]:
    assert not page.exception
    return list(page.dataframe[0].value["tenant"])


def _button(page: AppTest, label: str) -> Any:
    (button,) = (each for each in page.button if each.label == label)
    return button


def test_pages_are_turned_and_load_their_own_tables_alone(page: AppTest) -> None:
    """Forward to the end and back; what was not shown was not asked for."""
    assert page.metric[0].value == f"{len(TENANTS)}"
    assert _shown(page) == Many.asked == TENANTS[:PAGE_TENANTS]
    assert _button(page, "Previous").disabled
    assert _shown(_button(page, "Next").click().run()) == TENANTS[PAGE_TENANTS : 2 * PAGE_TENANTS]
    assert _shown(_button(page, "Next").click().run()) == TENANTS[2 * PAGE_TENANTS :]
    assert _button(page, "Next").disabled
    assert any(f"{2 * PAGE_TENANTS + 1} to {len(TENANTS)} of" in each.value for each in page.caption)
    assert _shown(_button(page, "Previous").click().run()) == TENANTS[PAGE_TENANTS : 2 * PAGE_TENANTS]


def test_a_filter_finds_a_tenant_of_any_page_and_begins_anew(page: AppTest) -> None:
    """The API looks for it; a page of another filter is not gone on with; what nobody is called says so."""
    _button(page, "Next").click().run()
    page.text_input[0].set_value(TENANTS[-1]).run()
    assert _shown(page) == TENANTS[-1:]
    assert page.metric[0].value == "1"
    assert not [each for each in page.button if each.label == "Next"]
    page.text_input[0].set_value("nobody").run()
    assert any("No tenant has that in its name." in each.value for each in page.markdown)
    page.text_input[0].set_value("").run()
    assert _shown(page) == TENANTS[:PAGE_TENANTS]
