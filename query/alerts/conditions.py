"""What a rule has counted in a window, and for which groups its condition held. Pure: counting is done by
whoever has rows.

A condition asks for counts of rows by group: of the window, and of what it compares it with. It says what
they mean; what it has to remember of windows before are the groups that had rows.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from query.alerts.rule import (
    AbsenceCondition,
    CountCondition,
    ErrorShareCondition,
    NewValueCondition,
    RateCondition,
    Rule,
)
from query.alerts.runs import Run
from query.alerts.transitions import Key, key_of, key_text

Counts = Mapping[Key, int]
Seen = Mapping[str, Run]
ALL: Key = ()
# Of groups that a condition remembers; a rule of more has a problem instead of a document without end.
SEEN_MAX = 2_000


class TooManyGroupsError(Exception):
    """A rule has more groups than it may."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A count of the rows in `[start, end)` (seconds since 1970) that match a query, by the values of
    fields."""

    start: int
    end: int
    query: str
    groups: tuple[str, ...]


def remembers(rule: Rule) -> bool:
    """Whether a rule has to know which groups had rows before."""
    match rule.condition:
        case NewValueCondition():
            return True
        case AbsenceCondition() | CountCondition(under=float()):
            return bool(rule.groups)
        case _:
            return False


def wanted_before(rule: Rule, end: int) -> Wanted:
    """What a rule that remembers asks before its first window: who was there in the time before that."""
    start = end - rule.window
    return Wanted(start - lookback_s(rule), start, rule.query, rule.groups)


def lookback_s(rule: Rule) -> int:
    """How long a rule remembers a group."""
    return int(getattr(rule.condition, "lookback", 0))


def wanted_in(rule: Rule, end: int) -> tuple[Wanted, ...]:
    """The counts that a rule asks for of the window with this end."""
    window = Wanted(end - rule.window, end, rule.query, rule.groups)
    match rule.condition:
        case ErrorShareCondition(errors=errors):
            return window, Wanted(window.start, window.end, both(rule.query, errors), rule.groups)
        case RateCondition(against=against):
            return window, Wanted(window.start - against, window.end - against, rule.query, rule.groups)
        case _:
            return (window,)


def both(first: str, second: str) -> str:
    """A query for rows that match two."""
    return " AND ".join(f"({query})" for query in (first, second) if query.strip())


def met_by(rule: Rule, end: int, counts: Sequence[Counts], seen: Seen) -> dict[Key, float]:
    """The groups for which the condition holds, with the value that it has; `counts` in the order in which
    they were wanted. `seen`: who had rows until then, this window included."""
    found = counts[0]
    match rule.condition:
        case CountCondition() as condition:
            values = dict.fromkeys(_remembered(rule, end, seen), 0) | _whole(rule, found)
            return {key: count for key, count in values.items() if condition.is_met(count)}
        case AbsenceCondition():
            if not rule.groups:
                return {} if found.get(ALL) else {ALL: 0.0}
            return dict.fromkeys((key for key in _remembered(rule, end, seen) if not found.get(key)), 0.0)
        case NewValueCondition():
            start = end - rule.window
            new = (key for key, count in found.items() if count and seen[key_text(key)][0] > start)
            return {key: float(found[key]) for key in new if key[-1] is not None}
        case ErrorShareCondition() as condition:
            shares = {
                key: counts[1].get(key, 0) / count
                for key, count in found.items()
                if count >= condition.at_least
            }
            return {key: share for key, share in shares.items() if condition.is_met(share)}
        case RateCondition() as condition:
            return _rates(condition, found, counts[1])


def _rates(condition: RateCondition, now: Counts, then: Counts) -> dict[Key, float]:
    rates = {
        key: now.get(key, 0) / max(1, then.get(key, 0))
        for key in {*now, *then}
        if max(now.get(key, 0), then.get(key, 0)) >= condition.at_least
    }
    return {key: rate for key, rate in rates.items() if condition.is_met(rate)}


def _whole(rule: Rule, found: Counts) -> dict[Key, int]:
    """Without groups there is a count even where there are no rows."""
    return dict(found) if rule.groups else {ALL: found.get(ALL, 0)}


def _remembered(rule: Rule, end: int, seen: Seen) -> list[Key]:
    """The groups that had rows before a window and not too long ago."""
    if not remembers(rule):
        return []
    oldest = end - rule.window - lookback_s(rule)
    return [key_of(text) for text, (first, last) in seen.items() if first <= end and last >= oldest]


def seen_after(rule: Rule, seen: Seen, found: Counts, end: int) -> dict[str, Run]:
    """Who had rows, with those of a window; groups that were not seen for longer than the rule remembers are
    forgotten. Raises TooManyGroupsError."""
    now = dict(seen)
    for key, count in found.items():
        if count:
            first, last = now.get(text := key_text(key), (end, end))
            now[text] = min(first, end), max(last, end)
    oldest = (
        max((last for _, last in now.values()), default=0) - lookback_s(rule) - rule.late - 2 * rule.window
    )
    now = {text: run for text, run in now.items() if run[1] >= oldest}
    if len(now) > SEEN_MAX:
        raise TooManyGroupsError(
            f"its fields have more than {SEEN_MAX:,} values within {lookback_s(rule):,} s; a rule of this "
            "mode remembers no more: narrow its query, or look back less"
        )
    return now
