"""The button that exports all rows: what the API refuses is said where it was asked for, once."""

import sys
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from ui.api_client import ApiError
from ui.components import export

pytestmark = pytest.mark.long


class RefusingApi:
    """Refuses the exports of one stream, and has none to tell of."""

    def __init__(self) -> None:
        self.posted: list[dict[str, Any]] = []

    def post(self, _: str, body: dict[str, Any]) -> None:
        self.posted.append(body)
        if body["stream"] == "full":
            raise ApiError(429, "acme has 3 exports already", suggestion="delete one")

    def get(self, _: str, **__: Any) -> dict[str, Any]:
        return {"exports": []}


def _script() -> None:
    from ui.components import export

    export.show([{"tenant": "acme", "stream": name} for name in ("full", "logs")])


def test_a_refusal_is_said_once_and_the_other_streams_are_exported(monkeypatch: pytest.MonkeyPatch) -> None:
    api = RefusingApi()
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    monkeypatch.setattr(export, "api", lambda: api)
    page = AppTest.from_function(_script, default_timeout=120.0).run()
    page.button[0].click().run()
    (error,) = page.error
    assert "3 exports already" in error.value
    assert [body["stream"] for body in api.posted] == ["full", "logs"]
    assert {body["format"] for body in api.posted} == {"ndjson"}
    page.run()
    assert not page.error
    assert len(api.posted) == 2
