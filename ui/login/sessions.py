"""Who has logged in. Sessions lie in this process's memory, with their tokens: who restarts the pages ends
them, and nobody finds a token on a disk or in a browser.

A token is renewed a little before its end, by whichever run of a page comes first: a refresh token may be
good for one time only, so one at a time asks, and the next takes what it got.
"""

import logging
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from threading import Lock

from ui.login.tokens import Tokens

log = logging.getLogger(__name__)
RENEW_BEFORE_S = 60.0
RENEW_SHARE = 0.25  # of a token's time, where that is shorter
RETRY_S = 5.0  # between two questions to the issuer, of one session
UNUSED_S = 12 * 3_600.0  # a session that no page has asked for is forgotten
SESSIONS_MAX = 10_000
Renew = Callable[[Tokens], Tokens]


class RenewalRefusedError(Exception):
    """The issuer does not renew this session any more."""


class RenewalFailedError(Exception):
    """The issuer did not answer; it may later."""


@dataclass(slots=True)
class Session:
    """One login. `renew_s`: when its tokens are due, s since 1970."""

    tokens: Tokens
    renew_s: float
    used_s: float
    tried_s: float = 0.0
    renewing: Lock = field(default_factory=Lock)


class Sessions:
    """All of them, by the text that the browser has. Thread-safe. `renew` raises RenewalRefusedError or
    RenewalFailedError; `now_s`: s since 1970."""

    def __init__(self, renew: Renew, now_s: Callable[[], float] = time.time) -> None:
        self._renew = renew
        self._now_s = now_s
        self._lock = Lock()
        self._sessions: OrderedDict[str, Session] = OrderedDict()

    def begin(self, tokens: Tokens) -> str:
        """Keeps a login; returns the text that names it, which nobody can guess."""
        now_s, session_id = self._now_s(), secrets.token_urlsafe(32)
        with self._lock:
            self._forget(now_s)
            self._sessions[session_id] = Session(tokens, _due_s(tokens, now_s), now_s)
        return session_id

    def tokens(self, session_id: str) -> Tokens | None:
        """The tokens of a session, renewed where they are about to end; None where there is no such session.
        Those that nobody renews are given beyond their end: the API says then that it is over."""
        session = self._find(session_id)
        if session is None:
            return None
        if self._now_s() >= session.renew_s:
            self._renew_once(session, session.tokens)
        return session.tokens

    def replaces(self, session_id: str, refused: str) -> bool:
        """Returns whether there is another token than the one that the API refused, asked for if need be."""
        session = self._find(session_id)
        if session is None:
            return False
        if session.tokens.bearer == refused:
            self._renew_once(session, session.tokens)
        return session.tokens.bearer != refused

    def end(self, session_id: str) -> Tokens | None:
        """Forgets a session; returns the tokens that it had."""
        with self._lock:
            session = self._sessions.pop(session_id, None)
        return None if session is None else session.tokens

    def _find(self, session_id: str) -> Session | None:
        now_s = self._now_s()
        with self._lock:
            session = self._sessions.get(session_id)
            if session is None:
                return None
            if now_s - session.used_s > UNUSED_S:
                del self._sessions[session_id]
                return None
            session.used_s = now_s
            self._sessions.move_to_end(session_id)
            return session

    def _forget(self, now_s: float) -> None:
        """Drops what nobody has used for long, and the longest unused of too many."""
        while self._sessions:
            session_id, oldest = next(iter(self._sessions.items()))
            if len(self._sessions) < SESSIONS_MAX and now_s - oldest.used_s <= UNUSED_S:
                return
            del self._sessions[session_id]

    def _renew_once(self, session: Session, tokens: Tokens) -> None:
        """Renews these tokens, unless somebody else just has, or has just tried."""
        with session.renewing:
            now_s = self._now_s()
            if session.tokens is not tokens or not tokens.refresh_token or now_s < session.tried_s + RETRY_S:
                return
            session.tried_s = now_s
            try:
                session.tokens = self._renew(tokens)
            except RenewalRefusedError as error:
                log.info("the issuer renews a session no more: %s", error)
                session.tokens = replace(tokens, refresh_token="")
            except RenewalFailedError as error:
                log.warning("a session could not be renewed: %s", error)
                return
            session.renew_s = _due_s(session.tokens, now_s)


def _due_s(tokens: Tokens, now_s: float) -> float:
    return tokens.ends_s - min(RENEW_BEFORE_S, max(0.0, tokens.ends_s - now_s) * RENEW_SHARE)
