"""What a browser calls to log in and out. Streamlit has routes of the same names, which these go before: they
would put the tokens into cookies, renew nothing, and lead to the first page whatever page was open."""

import logging
import secrets
from html import escape
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from ui.login.issuer import Issuer, LoginError
from ui.login.pending import LASTS_S, PendingLogin, Seals
from ui.login.sessions import Sessions
from ui.settings import CALLBACK, LoginSettings
from ui.url_state import FIRST_PAGE, page_address

log = logging.getLogger(__name__)
LOGIN, LOGOUT = "/auth/login", "/auth/logout"
FAILED = (
    '<!doctype html><html lang="en"><meta charset="utf-8"><title>Firn</title><p>Logging in did not work. '
    '<a href="{}">Try again</a>; if it stays so, the log of these pages says why.</p></html>'
)


class Login:
    """Logging in at one issuer: routes for browsers, and who is in."""

    def __init__(self, settings: LoginSettings) -> None:
        self.issuer = Issuer(settings)
        self.sessions = Sessions(self.issuer.renewed)
        self.seals = Seals()
        self._is_https = settings.redirect_uri.startswith("https:")
        # The prefix has browsers take it from this host alone, so no neighbour's page can set one.
        prefix = "__Host-" if self._is_https else ""
        self.cookie, self.pending_cookie = f"{prefix}firn_session", f"{prefix}firn_login"

    def routes(self) -> list[Route]:
        """The routes, for the front end's application."""
        return [
            Route(LOGIN, self._begin, methods=["GET"]),
            Route(CALLBACK, self._finish, methods=["GET"]),
            Route(LOGOUT, self._end, methods=["GET"]),
        ]

    async def _begin(self, request: Request) -> Response:
        pending = PendingLogin(page_address(request.query_params.get("next", "")))
        try:
            answer = await self.issuer.sends_to(request, secrets.token_urlsafe(32), pending)
        except LoginError as error:
            return _failed(error, pending.address)
        self._set(answer, self.pending_cookie, self.seals.seal(pending), LASTS_S)
        return answer

    async def _finish(self, request: Request) -> Response:
        """A browser comes back from the issuer: with a code, or with an error, or logged out."""
        asked = request.query_params
        if "code" not in asked and "error" not in asked:
            return RedirectResponse(FIRST_PAGE, status_code=303)
        answer = await self._finished(request)
        self._delete(answer, self.pending_cookie)
        return answer

    async def _finished(self, request: Request) -> Response:
        pending = self.seals.open(request.cookies.get(self.pending_cookie, "")) or PendingLogin(FIRST_PAGE)
        try:
            tokens = await self.issuer.takes(request, pending)
        except LoginError as error:
            return _failed(error, pending.address)
        self.sessions.end(self._session_id(request))
        answer = RedirectResponse(pending.address, status_code=303)
        self._set(answer, self.cookie, self.sessions.begin(tokens))
        return answer

    async def _end(self, request: Request) -> Response:
        tokens = self.sessions.end(self._session_id(request))
        uri = None if tokens is None else await self.issuer.logout_uri(tokens)
        answer = RedirectResponse(uri or FIRST_PAGE, status_code=303)
        self._delete(answer, self.cookie)
        return answer

    def _set(self, answer: Response, name: str, value: str, lasts_s: int | None = None) -> None:
        """Gives the browser a cookie for no script and no other host, for so long, or for its session."""
        answer.set_cookie(
            name, value, max_age=lasts_s, path="/", secure=self._is_https, httponly=True, samesite="lax"
        )

    def _delete(self, answer: Response, name: str) -> None:
        answer.delete_cookie(name, path="/", secure=self._is_https, httponly=True, samesite="lax")

    def _session_id(self, request: Request) -> str:
        return request.cookies.get(self.cookie, "")


def login_link(address: str) -> str:
    """Where a page sends a person to log in and to come back to `address`."""
    return f"{LOGIN}?{urlencode({'next': address})}"


def _failed(error: LoginError, address: str) -> Response:
    """Says so without the issuer's words, which whoever made the link may have chosen."""
    log.warning("nobody was logged in: %s", error)
    return HTMLResponse(FAILED.format(escape(login_link(address))), status_code=400)
