"""Which windows of a rule are due: they end at multiples of its interval, and not before everything is in
that reached Kafka until then. Seconds since 1970 throughout."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from query.alerts.rule import Rule
from query.alerts.rule_state import Looked, RuleState
from query.model.instant import rfc3339
from query.model.table_view import EPOCH


@dataclass(frozen=True, slots=True)
class Due:
    """A window to look at. `again`: what it was when it was looked at first; None: it was not. `skipped`: how
    many windows before it nobody looks at any more."""

    end: int
    again: Looked | None = None
    skipped: int = 0


def moment(seconds: float) -> datetime:
    """Seconds since 1970 as a time."""
    return EPOCH + timedelta(seconds=seconds)


def time_text(seconds: int) -> str:
    """The same as text."""
    return rfc3339(moment(seconds))


def latest_end(rule: Rule, complete_s: float) -> int:
    """The end of the newest window of which everything is in."""
    return int(complete_s - rule.delay) // rule.every * rule.every


def due(rule: Rule, state: RuleState, complete_s: float, catch_up_s: float) -> Due | None:
    """The window that is next, the oldest first; a rule's first one is the newest there is. What is older
    than `catch_up_s` is passed over. None: nothing is due."""
    latest = latest_end(rule, complete_s)
    if state.until is None:
        return Due(latest)
    following = state.until + rule.every
    oldest = latest - int(catch_up_s) // rule.every * rule.every
    if following < oldest:
        return Due(oldest, skipped=(oldest - following) // rule.every)
    return Due(following) if following <= latest else None


def due_again(rule: Rule, state: RuleState, complete_s: float) -> Due | None:
    """The window whose second look is next; None: none is due."""
    if state.looked and state.looked[0].end + rule.late <= complete_s - rule.delay:
        return Due(state.looked[0].end, again=state.looked[0])
    return None
