"""From what was counted in a window to alerts: pure, so that a rule's tests, its dry run over the past and
the evaluator do the same.

A window is looked at when it is complete, and perhaps once more when rows came for it later. Both do the
same: they say for which groups the condition held, and then each group's episodes are compared with its
runs. So what late rows show is told where nobody told it, and never twice.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import orjson

from query.alerts.rule import NAMED, NewValueCondition, Rule, label_of
from query.alerts.rule_state import AlertGroup, Episode, Kind, Message, RuleState
from query.alerts.runs import Run, firing, since, with_window, without_window
from query.alerts.windows import time_text

Key = tuple[str | None, ...]
# Gives the link to the rows of a group in the window with this end.
Link = Callable[[Key, int], str]


@dataclass(frozen=True, slots=True)
class RuleName:
    """A rule of a tenant."""

    tenant: str
    rule: str


def key_text(values: Key) -> str:
    """A group as a key of a JSON object."""
    return orjson.dumps(list(values)).decode()


def key_of(text: str) -> Key:
    """The group that a key stands for."""
    return tuple(orjson.loads(text))


def after_window(
    state: RuleState,
    name: RuleName,
    rule: Rule,
    end: int,
    met: Mapping[Key, float],
    receivers: tuple[str, ...],
    link: Link,
) -> RuleState:
    """The state after the window with this end was looked at, for the first time or once more. `met`: the
    groups whose condition held, with what was counted; all others' did not. `receivers`: whom messages go
    to."""
    groups = dict(state.groups)
    for values in met:
        groups.setdefault(key_text(values), AlertGroup(values))
    held = {key_text(values): value for values, value in met.items()}
    latest = end if state.until is None else max(end, state.until)
    state = replace(state, until=latest)
    for key, group in groups.items():
        if key in held:
            runs = with_window(group.runs, end, rule.every)
            groups[key] = replace(group, runs=runs, value=held[key] if end == latest else group.value)
        else:
            groups[key] = replace(group, runs=without_window(group.runs, end, rule.every))
    return settled(replace(state, groups=groups), name, rule, receivers, link)


def settled(
    state: RuleState, name: RuleName, rule: Rule, receivers: tuple[str, ...], link: Link
) -> RuleState:
    """The state with every group's episodes as its runs have them, and messages for what changed."""
    groups, told, latest = dict[str, AlertGroup](), list[tuple[str, Kind, Episode]](), state.until or 0
    for key, group in state.groups.items():
        found = _Comparison(name, rule, latest, state.checked, link)
        compared = found.of(key, group)
        told += [(key, kind, episode) for kind, episode in found.told]
        kept = _trimmed(compared, latest - horizon_s(rule))
        if kept.runs or kept.episodes:
            groups[key] = kept
    state = replace(state, groups=groups)
    for key, kind, episode in told:
        state = _told(state, key, kind, episode, receivers)
    return state


def ended(state: RuleState, receivers: tuple[str, ...], why: str) -> RuleState:
    """The state after the rule has gone or looks for something else: what fires is resolved."""
    for key, group in state.groups.items():
        if (episode := group.firing) is not None:
            over = replace(episode, last=max(episode.first, state.until or episode.first))
            state = _told(state, key, "resolved", over, receivers)
            state = replace(state, history=({**state.history[0], "why": why}, *state.history[1:]))
    return replace(state, groups={}, seen=None, looked=(), checked=None, until=None)


def horizon_s(rule: Rule) -> int:
    """How far back runs and episodes are kept: as far as a window may still change."""
    return rule.late + rule.delay + rule.window + rule.pending_windows_s + 4 * rule.every


@dataclass(slots=True)
class _Comparison:
    """One group's episodes beside its runs."""

    name: RuleName
    rule: Rule
    latest: int
    checked: int | None
    link: Link

    told: list[tuple[Kind, Episode]] = field(default_factory=list)

    def of(self, key: str, group: AlertGroup) -> AlertGroup:
        fires = firing(group.runs, self.rule.pending_windows_s)
        now = next((run for run in fires if run[1] == self.latest), None)
        episodes = [self._ended(each, fires, now) for each in group.episodes]
        for run in fires:
            if run is now:
                continue
            if not self._is_told(episodes, run) and self._is_over(run):
                missed = self._episode(key, group, run, last=run[1])
                episodes.append(missed)
                self.told += [("firing", replace(missed, last=None)), ("resolved", missed)]
        if now is not None and not any(each.last is None for each in episodes):
            first = self.latest if any(each.touches(now) for each in episodes) else now[0]
            if not self._is_told_once(episodes):
                begun = self._episode(key, group, (first, now[1]), last=None)
                episodes.append(begun)
                self.told.append(("firing", begun))
        return replace(group, episodes=tuple(sorted(episodes, key=lambda each: each.first)))

    def _ended(self, episode: Episode, fires: tuple[Run, ...], now: Run | None) -> Episode:
        if episode.last is not None or now is not None:
            return episode
        touched = [run[1] for run in fires if episode.touches(run)]
        over = replace(episode, last=max([episode.first, *touched]))
        self.told.append(("resolved", over))
        return over

    def _is_told(self, episodes: list[Episode], run: Run) -> bool:
        return any(each.touches(run) for each in episodes) or self._is_told_once(episodes)

    def _is_told_once(self, episodes: list[Episode]) -> bool:
        """A value is new once, in whichever window it was found first."""
        return isinstance(self.rule.condition, NewValueCondition) and bool(episodes)

    def _is_over(self, run: Run) -> bool:
        """Whether late rows of the windows behind it cannot make it part of an episode that was told."""
        return self.checked is not None and self.checked >= run[1] + self.rule.every

    def _episode(self, key: str, group: AlertGroup, run: Run, *, last: int | None) -> Episode:
        whole = next(each for each in group.runs if each[0] <= run[1] <= each[1])
        named = _named(self.name, self.rule, group, run[1])
        return Episode(
            _id(self.name.tenant, self.name.rule, key, str(run[0])),
            run[0],
            whole[0],
            last,
            group.value,
            labels_of(self.name, self.rule, group.values),
            {label: _filled(text, named) for label, text in self.rule.annotations.items()},
            self.link(group.values, run[1]),
        )


def labels_of(name: RuleName, rule: Rule, values: Key) -> dict[str, str]:
    """The labels of a group's alert. An empty label is none to Alertmanager, so a value that is empty says
    so."""
    own = {"alertname": name.rule, "tenant": name.tenant, "stream": rule.stream}
    of_group = {
        label_of(each): value or "(empty)"
        for each, value in zip(rule.groups, values, strict=True)
        if value is not None
    }
    return {**rule.labels, **of_group, **own}


def _named(name: RuleName, rule: Rule, group: AlertGroup, end: int) -> dict[str, str]:
    fields = {each: value or "" for each, value in zip(rule.groups, group.values, strict=True)}
    return {
        **fields,
        "value": f"{group.value:g}",
        "rule": name.rule,
        "tenant": name.tenant,
        "stream": rule.stream,
        "start": time_text(end - rule.window),
        "end": time_text(end),
    }


def _filled(text: str, named: Mapping[str, str]) -> str:
    return NAMED.sub(lambda match: named.get(match[1], ""), text)


def _told(state: RuleState, key: str, kind: Kind, episode: Episode, receivers: tuple[str, ...]) -> RuleState:
    messages = tuple(
        Message(_id(episode.id, kind, to), to, kind, key, episode) for to in dict.fromkeys(receivers)
    )
    at = episode.first if kind == "firing" else episode.last
    state = state.noted(
        window=at,
        kind=kind,
        values=list(key_of(key)),
        value=episode.value,
        episode=episode.id,
        link=episode.link,
    )
    return replace(state, outbox=(*state.outbox, *messages))


def _trimmed(group: AlertGroup, before: int) -> AlertGroup:
    runs = since(group.runs, before)
    # An episode stays for as long as a run that it is of: without it, that would be told anew.
    episodes = tuple(
        each
        for each in group.episodes
        if each.last is None or each.last >= before or any(each.touches(run) for run in runs)
    )
    return replace(group, runs=runs, episodes=episodes)


def _id(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:24]


def firing_of(state: RuleState) -> Iterator[tuple[str, Episode]]:
    """What fires now, by group."""
    return ((key, episode) for key, each in state.groups.items() if (episode := each.firing) is not None)


def pending_of(state: RuleState, rule: Rule) -> Iterator[tuple[AlertGroup, int]]:
    """The groups whose condition holds and has not held for long enough, and since which window."""
    for group in state.groups.values():
        for first, last in group.runs:
            if last == state.until and last - first < rule.pending_windows_s:
                yield group, first
