"""Sessions of people: how long they last, and who renews them."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Condition

import pytest

from ui.login import sessions as under_test
from ui.login.sessions import RETRY_S, UNUSED_S, RenewalFailedError, RenewalRefusedError, Sessions
from ui.login.tokens import Tokens, TokensError, tokens_of

LASTS_S = 3_600.0
BEGIN_S = 1_800_000_000.0
RUNS = 8
PATIENCE_S = 30.0


class Clock:
    """`now_s`: what it says."""

    def __init__(self) -> None:
        self.now_s = BEGIN_S
        self._asked = 0
        self._changes = Condition()

    def __call__(self) -> float:
        with self._changes:
            self._asked += 1
            self._changes.notify_all()
            return self.now_s

    def wait_for(self, asked: int) -> None:
        """Returns when it was asked so often."""
        with self._changes:
            assert self._changes.wait_for(lambda: self._asked >= asked, PATIENCE_S)


class Renewals:
    """An issuer's side. `asked`: the refresh tokens that it got; `fails`: what it does instead of giving
    tokens; `before`: what happens until it answers."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.asked: list[str] = []
        self.fails: Exception | None = None
        self.before: Callable[[], None] = lambda: None

    def __call__(self, tokens: Tokens) -> Tokens:
        self.asked.append(tokens.refresh_token)
        self.before()
        if self.fails is not None:
            raise self.fails
        return given(self._clock.now_s, len(self.asked))


def given(now_s: float, number: int = 0, *, lasts_s: float = LASTS_S) -> Tokens:
    """Tokens of a number."""
    return Tokens(f"bearer-{number}", now_s + lasts_s, "1-ann", "ann", "id", f"refresh-{number}")


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def renewals(clock: Clock) -> Renewals:
    return Renewals(clock)


@pytest.fixture
def sessions(clock: Clock, renewals: Renewals) -> Sessions:
    return Sessions(renewals, clock)


def bearer(sessions: Sessions, session_id: str) -> str:
    tokens = sessions.tokens(session_id)
    return "" if tokens is None else tokens.bearer


@pytest.mark.parametrize(("lasts_s", "before_s"), [(LASTS_S, 60.0), (40.0, 10.0)])
def test_a_token_is_renewed_a_little_before_its_end(
    sessions: Sessions, clock: Clock, renewals: Renewals, lasts_s: float, before_s: float
) -> None:
    """Of a short one a quarter before. The next one by the refresh token that came with it."""
    session_id = sessions.begin(given(BEGIN_S, lasts_s=lasts_s))
    clock.now_s += lasts_s - before_s - 1
    assert bearer(sessions, session_id) == "bearer-0"
    clock.now_s += 1
    assert bearer(sessions, session_id) == "bearer-1"
    clock.now_s += LASTS_S
    assert bearer(sessions, session_id) == "bearer-2"
    assert renewals.asked == ["refresh-0", "refresh-1"]


def test_many_runs_at_once_use_a_refresh_token_once(
    sessions: Sessions, clock: Clock, renewals: Renewals
) -> None:
    """It is good for one time; all get what it gave, however long the issuer takes."""
    session_id = sessions.begin(given(BEGIN_S))
    clock.now_s += LASTS_S
    asked_before = 1

    def all_have_found_it_due() -> None:
        clock.wait_for(asked_before + 2 * RUNS + 1)  # each for the session and its end, one for itself
        clock.now_s += RETRY_S

    renewals.before = all_have_found_it_due
    with ThreadPoolExecutor(RUNS) as threads:
        found = threads.map(lambda _: bearer(sessions, session_id), range(RUNS))
        assert set(found) == {"bearer-1"}
    assert renewals.asked == ["refresh-0"]


def test_a_session_that_the_issuer_renews_no_more_lasts_as_long_as_its_token(
    sessions: Sessions, clock: Clock, renewals: Renewals
) -> None:
    """The issuer is not asked again."""
    renewals.fails = RenewalRefusedError("over")
    session_id = sessions.begin(given(BEGIN_S))
    for _ in range(3):
        clock.now_s += LASTS_S
        assert bearer(sessions, session_id) == "bearer-0"
        assert not sessions.replaces(session_id, "bearer-0")
    assert renewals.asked == ["refresh-0"]


def test_an_issuer_that_is_away_is_asked_again_after_a_moment(
    sessions: Sessions, clock: Clock, renewals: Renewals
) -> None:
    """The session goes on meanwhile."""
    renewals.fails = RenewalFailedError("away")
    session_id = sessions.begin(given(BEGIN_S))
    clock.now_s += LASTS_S - 30
    for _ in range(3):
        assert bearer(sessions, session_id) == "bearer-0"
    renewals.fails = None
    assert bearer(sessions, session_id) == "bearer-0"
    clock.now_s += RETRY_S
    assert bearer(sessions, session_id) == "bearer-2"
    assert len(renewals.asked) == 2


def test_a_token_that_the_api_refuses_is_replaced_once(
    sessions: Sessions, clock: Clock, renewals: Renewals
) -> None:
    """As after a change of the issuer's keys; a second refusal at once ends the session for the person."""
    session_id = sessions.begin(given(BEGIN_S))
    assert sessions.replaces(session_id, "bearer-0")
    assert not sessions.replaces(session_id, "bearer-1")
    assert sessions.replaces(session_id, "bearer-0")  # somebody who still had the first one
    assert len(renewals.asked) == 1
    clock.now_s += RETRY_S
    assert sessions.replaces(session_id, "bearer-1")


def test_a_session_without_a_refresh_token_is_not_renewed(
    sessions: Sessions, clock: Clock, renewals: Renewals
) -> None:
    session_id = sessions.begin(Tokens("bearer", BEGIN_S + LASTS_S, "1-ann", "ann", "id", ""))
    clock.now_s += LASTS_S
    assert bearer(sessions, session_id) == "bearer"
    assert not sessions.replaces(session_id, "bearer")
    assert renewals.asked == []


@pytest.mark.parametrize("forget", [lambda sessions, session_id: sessions.end(session_id), None])
def test_a_session_ends_with_logging_out_or_when_nobody_uses_it(
    sessions: Sessions, clock: Clock, forget: Callable[[Sessions, str], object] | None
) -> None:
    ended, other = sessions.begin(given(BEGIN_S)), sessions.begin(given(BEGIN_S, 7))
    clock.now_s += UNUSED_S / 2
    sessions.tokens(other)
    if forget is not None:
        forget(sessions, ended)
    else:
        clock.now_s += UNUSED_S / 2 + 1
    assert sessions.tokens(ended) is None
    assert not sessions.replaces(ended, "bearer-0")
    assert sessions.tokens(other) is not None


def test_sessions_are_bounded_and_the_longest_unused_goes(
    sessions: Sessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(under_test, "SESSIONS_MAX", 3)
    first, second, third = (sessions.begin(given(BEGIN_S, number)) for number in range(3))
    sessions.tokens(first)
    fourth = sessions.begin(given(BEGIN_S, 3))
    assert [bearer(sessions, each) for each in (first, second, third, fourth)] == [
        "bearer-0",
        "",
        "bearer-2",
        "bearer-3",
    ]


def test_no_name_of_a_session_is_guessed(sessions: Sessions) -> None:
    names = {sessions.begin(given(BEGIN_S)) for _ in range(100)}
    assert len(names) == 100
    assert min(map(len, names)) >= 43
    assert sessions.tokens("") is None


@pytest.mark.parametrize(
    "answer",
    [{}, {"access_token": "a"}, {"id_token": "a"}, {"access_token": 7, "id_token": "a"}],
)
def test_an_answer_without_tokens_is_none(answer: dict[str, object]) -> None:
    with pytest.raises(TokensError):
        tokens_of(answer, "access")


@pytest.mark.parametrize("token", ["", "a", "a.b.c", "a.W10.c", "a.bnVsbA.c"])
def test_a_token_that_says_nothing_is_left_to_the_api(token: str) -> None:
    """It has no end, so nobody renews it; the API refuses it."""
    tokens = tokens_of({"access_token": token, "id_token": token}, "access")
    assert (tokens.bearer, tokens.ends_s, tokens.subject) == (token, float("inf"), "")
