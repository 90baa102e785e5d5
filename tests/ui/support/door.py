"""The routes by which people log in, in the test's process, and a browser that is a client of them alone: the
issuer's part is done by the test."""

from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode, urlsplit

import httpx
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.sessions import SessionMiddleware
from starlette.testclient import TestClient

from tests.ui.support.provider import CLIENT, CLIENT_SECRET
from ui.login.routes import Login
from ui.settings import CALLBACK, LoginSettings

PAGES = "http://127.0.0.1:9"


def login_settings(issuer: str, token: str = "access", pages: str = PAGES) -> LoginSettings:
    """Settings for the pages at an issuer."""
    return LoginSettings(issuer, CLIENT, CLIENT_SECRET, f"{pages}{CALLBACK}", token, "openid profile")


@dataclass(frozen=True)
class Door:
    """`login`: what is tested. `browser`: keeps cookies, follows nothing."""

    login: Login
    browser: TestClient

    def begin(self, address: str = "/") -> str:
        """Where the browser is sent that wants to log in."""
        answer = self.browser.get(f"/auth/login?{urlencode({'next': address})}")
        assert answer.status_code == 302, answer.text
        return str(answer.headers["location"])

    def back(self, location: str) -> Any:
        """What the pages answer to the browser that the issuer sends back."""
        parts = urlsplit(location)
        return self.browser.get(f"{parts.path}?{parts.query}")

    def other_browser(self) -> "Door":
        """The same pages in a browser that knows nothing of this one."""
        return Door(self.login, _browser(self.browser.app, str(self.browser.base_url)))

    def session_id(self) -> str:
        """By what the browser is known."""
        return str(self.browser.cookies.get(self.login.cookie, ""))


def door(settings: LoginSettings) -> Door:
    """The routes with what Streamlit puts around them."""
    login = Login(settings)
    around = [Middleware(SessionMiddleware, secret_key="of-this-test", same_site="lax")]
    pages = settings.redirect_uri.removesuffix(CALLBACK)
    app = Starlette(routes=login.routes(), middleware=around)
    return Door(login, _browser(app, pages))


def sent_back(authorize: str) -> str:
    """Where an issuer that asks nobody anything sends a browser."""
    return str(httpx.get(authorize, trust_env=False).headers["location"])


def _browser(app: Any, pages: str) -> TestClient:
    return TestClient(app, base_url=pages, follow_redirects=False)
