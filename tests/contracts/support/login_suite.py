"""What every issuer has to do, for people to log in to the pages."""

from collections.abc import Callable
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from tests.ui.support.door import Door
from tests.ui.support.provider import CLIENT, CLIENT_SECRET
from ui.login.sessions import RenewalRefusedError

ADDRESS = "/search?tenant=Acme-Shop&q=status%3A500+OR+%22two+words%22&from=now-3h&to=now"
PersonLogsIn = Callable[[str], str]


class LoginContract:
    """The suite. A subclass gives the fixtures `door`, the pages' routes at the issuer; `logs_in`, which
    takes the address that the pages send a browser to, has a person log in there, and returns where the
    browser is sent back to; `token_endpoint`; `called`, how the person is called."""

    def test_a_person_comes_back_to_where_they_were_and_the_browser_gets_no_token(
        self, door: Door, logs_in: PersonLogsIn, called: str
    ) -> None:
        """It gets the name of a session."""
        answer = door.back(logs_in(door.begin(ADDRESS)))
        assert (answer.status_code, answer.headers["location"]) == (303, ADDRESS)
        tokens = door.login.sessions.tokens(door.session_id())
        assert tokens is not None
        assert tokens.called == called
        kept = str(dict(door.browser.cookies.items()))
        assert not [each for each in (tokens.bearer, tokens.id_token, tokens.refresh_token) if each in kept]

    def test_a_code_is_worth_nothing_to_whoever_has_not_the_verifier(
        self, door: Door, logs_in: PersonLogsIn, token_endpoint: str
    ) -> None:
        """The issuer refuses another one, and none, though the client's secret is right."""
        for verifier in ({"code_verifier": "x" * 64}, {}):
            back = logs_in(door.begin())
            form = {"grant_type": "authorization_code", "code": parse_qs(urlsplit(back).query)["code"][0]}
            form |= {"redirect_uri": back.partition("?")[0], **verifier}
            answer = httpx.post(token_endpoint, data=form, auth=(CLIENT, CLIENT_SECRET), trust_env=False)
            assert (answer.status_code, answer.json()["error"]) == (400, "invalid_grant")

    def test_a_session_is_renewed_by_a_refresh_token_that_is_good_for_one_time(
        self, door: Door, logs_in: PersonLogsIn
    ) -> None:
        """And a second use of one ends the session at the issuer."""
        door.back(logs_in(door.begin()))
        sessions, session_id = door.login.sessions, door.session_id()
        first = sessions.tokens(session_id)
        assert first is not None
        assert sessions.replaces(session_id, first.bearer)
        second = sessions.tokens(session_id)
        assert second is not None
        assert second.bearer != first.bearer
        assert (second.subject, second.called) == (first.subject, first.called)
        assert second.refresh_token != first.refresh_token
        with pytest.raises(RenewalRefusedError):
            door.login.issuer.renewed(first)
