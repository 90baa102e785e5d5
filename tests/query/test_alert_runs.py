"""Runs of windows, and what is told of them: held against the plain definition, whatever comes in which
order."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import groupby, pairwise

from hypothesis import given
from hypothesis import strategies as st

from query.alerts.outbox import acknowledged, failed, given_up, ready
from query.alerts.rule import Rule
from query.alerts.rule_state import AlertGroup, Episode, Looked, Message, RuleState, rule_state_of
from query.alerts.runs import Runs, firing, with_window, without_window
from query.alerts.transitions import RuleName, after_window, settled
from query.alerts.windows import Due, due, due_again

EVERY = 60
NAME = RuleName("acme", "r")
ENDS = st.integers(1, 30)


def runs_of(held: set[int]) -> Runs:
    """Windows as runs, by definition."""
    found = []
    for _, group in groupby(enumerate(sorted(held)), key=lambda pair: pair[1] - pair[0]):
        listed = [end for _, end in group]
        found.append((listed[0] * EVERY, listed[-1] * EVERY))
    return tuple(found)


@given(st.lists(st.tuples(ENDS, st.booleans()), max_size=40))
def test_runs_are_those_of_the_windows_that_held(steps: list[tuple[int, bool]]) -> None:
    """Whatever is added and taken away, in any order."""
    runs, held = Runs(), set[int]()
    for end, holds in steps:
        runs = (with_window if holds else without_window)(runs, end * EVERY, EVERY)
        held = held | {end} if holds else held - {end}
    assert runs == runs_of(held)
    assert firing(runs, 2 * EVERY) == tuple(
        (a + 2 * EVERY, b) for a, b in runs_of(held) if b - a >= 2 * EVERY
    )


def rule(pending: int, late: int) -> Rule:
    return Rule.model_validate(
        {
            "name": "r",
            "condition": {"mode": "count", "over": 0},
            "window": EVERY,
            "for": pending * EVERY,
            "late": late * EVERY,
        }
    )


def step(state: RuleState, written: Rule, end: int, holds: bool, *, again: bool) -> RuleState:
    """A window's look, or its second one."""
    met: Mapping[tuple[str | None, ...], float] = {(): 1.0} if holds else {}
    state = after_window(state, NAME, written, end * EVERY, met, ("hook",), lambda *_: "")
    if again:
        state = settled(replace(state, checked=end * EVERY), NAME, written, ("hook",), lambda *_: "")
    return state


@given(
    st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=30),
    st.integers(0, 3),
    st.integers(1, 8),
)
def test_whatever_comes_late_every_firing_run_is_told_and_none_twice(
    looks: list[tuple[bool, bool]], pending: int, late: int
) -> None:
    """`looks`: what a window has when it is looked at first, and when it is looked at again. In the end each
    run of the truth that is long enough has an episode that touches it, no two episodes share a window, and
    each was told to begin and to end once. An episode of nothing is one that was true at the first looks."""
    written, state = rule(pending, late), RuleState("")
    quiet = [(False, False)] * (late + pending + 3)
    whole = looks + quiet
    for at in range(len(whole) + late):
        if at < len(whole):
            state = step(state, written, at + 1, whole[at][0], again=False)
        if at >= late:
            state = step(state, written, at - late + 1, whole[at - late][1], again=True)
    events = list(reversed(state.history))
    begun = {event["episode"]: event["window"] for event in events if event["kind"] == "firing"}
    over = {event["episode"]: event["window"] for event in events if event["kind"] == "resolved"}
    episodes = sorted((first, over[each]) for each, first in begun.items())
    truth = firing(runs_of({at + 1 for at, (_, last) in enumerate(whole) if last}), pending * EVERY)
    assert len(events) == 2 * len(episodes)
    assert all(before[1] < after[0] for before, after in pairwise(episodes))
    assert all(any(first <= b and a <= last for first, last in episodes) for a, b in truth)
    ids = [message.id for message in state.outbox]
    assert len(ids) == len(set(ids)) == 2 * len(episodes)


def test_a_state_comes_back_as_it_was_written() -> None:
    """From the document that the catalog keeps."""
    state = step(RuleState("x"), rule(0, 5), 7, True, again=False)
    state = replace(
        state, looked=(Looked(420, 5, 9),), seen={"[]": (60, 420)}, skipped=3, receivers=("hook",)
    )
    assert rule_state_of(state.to_json()) == replace(state)


def test_a_message_waits_for_the_one_before_it_and_is_tried_again_later() -> None:
    """Of one alert and receiver; others go their own way."""
    state = step(RuleState("x"), rule(0, 5), 7, True, again=False)
    state = step(state, rule(0, 5), 8, False, again=False)
    first, second = state.outbox
    other = replace(first, id="other", to="elsewhere")
    state = replace(state, outbox=(*state.outbox, other))
    assert [each.id for each in ready(state, 0.0)] == [first.id, "other"]
    state = failed(state, first.id, 0.0)
    assert [each.id for each in ready(state, 0.5)] == ["other"]
    assert [each.id for each in ready(state, 1.0)] == [first.id, "other"]
    state = acknowledged(state, first.id, 10.0, shown_s=60.0)
    assert [each.id for each in ready(state, 69.0)] == ["other"]
    assert [each.id for each in ready(state, 70.0)] == [second.id, "other"]
    lost = given_up(state, second.id, "it is refused")
    assert lost.history[0]["kind"] == "undelivered"
    assert lost.history[0]["why"] == "it is refused"


def test_an_end_that_waits_does_not_hold_up_the_next_beginning() -> None:
    """It is told at once when something comes behind it."""
    episode = Episode("e", 60, 60, 120, 1.0, {}, {})
    end = Message("end", "hook", "resolved", "[]", episode, after_s=500.0)
    begin = Message("begin", "hook", "firing", "[]", replace(episode, id="f", last=None))
    state = RuleState("x", groups={"[]": AlertGroup(())}, outbox=(end, begin))
    assert [each.id for each in ready(state, 0.0)] == ["end"]
    assert [each.id for each in ready(replace(state, outbox=(end,)), 0.0)] == []


def test_windows_are_due_in_order_and_the_oldest_are_passed_over() -> None:
    """The first one is the newest there is; a second look comes when its time is over."""
    written = rule(0, 5)
    written = written.model_copy(update={"delay": 30})
    assert due(written, RuleState("x"), 629.0, 1e9) == Due(540)
    assert due(written, RuleState("x", until=540), 629.0, 1e9) is None
    assert due(written, RuleState("x", until=540), 630.0, 1e9) == Due(600)
    assert due(written, RuleState("x", until=60), 630.0, 120.0) == Due(480, skipped=6)
    waiting = RuleState("x", until=600, looked=(Looked(300, 1, 1), Looked(360, 1, 1)))
    assert due_again(written, waiting, 629.0) is None
    assert due_again(written, waiting, 630.0) == Due(300, again=Looked(300, 1, 1))
