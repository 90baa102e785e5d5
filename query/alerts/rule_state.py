"""What is known of a rule: until where it was looked at, which groups alert, who is still to be told, and
what came before. Kept in the catalog's work list as one document, which changes as a whole or not at all.

An alert is known by its rule and the values of its group; an episode of it by the window in which it began. A
change of an episode and the messages about it are one write, so that a process that dies between the two does
not exist; a message leaves the document when its receiver has acknowledged it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from query.alerts.runs import Run, Runs

HISTORY_MAX = 100
Kind = Literal["firing", "resolved"]


@dataclass(frozen=True, slots=True)
class Episode:
    """One time of firing. `first`: the window in which it fired; `began`: in which the condition began to
    hold; `last`: the last window of it, None while it fires. `labels`, `annotations`, `link`: as it was
    told."""

    id: str
    first: int
    began: int
    last: int | None
    value: float
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    link: str = ""

    def touches(self, run: Run) -> bool:
        """Whether it shares a window with a run."""
        return self.first <= run[1] and (self.last is None or run[0] <= self.last)

    def to_json(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "first": self.first,
            "began": self.began,
            "last": self.last,
            "value": self.value,
            "labels": dict(self.labels),
            "annotations": dict(self.annotations),
            "link": self.link,
        }


@dataclass(frozen=True, slots=True)
class AlertGroup:
    """One alert of a rule. `values`: of the fields that tell it apart, None where the rows have none;
    `runs`: when its condition held; `value`: what was counted at the last of them."""

    values: tuple[str | None, ...]
    runs: Runs = ()
    episodes: tuple[Episode, ...] = ()
    value: float = 0.0

    @property
    def firing(self) -> Episode | None:
        """The episode that goes on."""
        return next((each for each in self.episodes if each.last is None), None)

    def to_json(self) -> dict[str, Any]:
        return {
            "values": list(self.values),
            "runs": [list(run) for run in self.runs],
            "episodes": [each.to_json() for each in self.episodes],
            "value": self.value,
        }


@dataclass(frozen=True, slots=True)
class Message:
    """Something a receiver is to be told. `id` is the same however often it is sent; `to`: Alertmanager's
    address, or that of a webhook; `after_s`: not before (seconds since 1970)."""

    id: str
    to: str
    kind: Kind
    key: str
    episode: Episode
    after_s: float = 0.0
    failures: int = 0

    def to_json(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "to": self.to,
            "kind": self.kind,
            "key": self.key,
            "episode": self.episode.to_json(),
            "after_s": self.after_s,
            "failures": self.failures,
        }


@dataclass(frozen=True, slots=True)
class Looked:
    """A window that is to be looked at once more where rows came for it: its end, and the table's snapshot
    and newest files (by sequence number) when it was looked at first."""

    end: int
    snapshot_id: int | None
    sequence: int


@dataclass(frozen=True, slots=True)
class Health:
    """How the last look went. `problem`: why there was none, None where all is well; `by_rule`: it is one for
    whoever wrote the rule, and for nobody who operates Firn; `took_s`: its share of the round."""

    at_s: float = 0.0
    took_s: float = 0.0
    problem: str | None = None
    waits: str | None = None
    by_rule: bool = False


@dataclass(frozen=True, slots=True)
class RuleState:
    """`revision`: of the rule that it is about; `until`: the end of the last window that was looked at;
    `checked`: windows up to it are not looked at any more. `seen`: groups with the first and last window in
    which they had rows, for conditions that need to know; None before anybody looked. `receivers`: who was
    told last, and hears of the end where the rule goes."""

    revision: str
    until: int | None = None
    checked: int | None = None
    looked: tuple[Looked, ...] = ()
    groups: Mapping[str, AlertGroup] = field(default_factory=dict)
    seen: Mapping[str, Run] | None = None
    outbox: tuple[Message, ...] = ()
    history: tuple[Mapping[str, Any], ...] = ()
    health: Health = Health()
    skipped: int = 0
    receivers: tuple[str, ...] = ()

    def noted(self, **event: Any) -> "RuleState":
        """With one more event, the last one first."""
        return replace(self, history=(event, *self.history)[:HISTORY_MAX])

    def to_json(self) -> dict[str, Any]:
        return {
            "revision": self.revision,
            "until": self.until,
            "checked": self.checked,
            "looked": [[each.end, each.snapshot_id, each.sequence] for each in self.looked],
            "groups": {key: each.to_json() for key, each in self.groups.items()},
            "seen": None if self.seen is None else {key: list(run) for key, run in self.seen.items()},
            "outbox": [each.to_json() for each in self.outbox],
            "history": [dict(each) for each in self.history],
            "health": {
                "at_s": self.health.at_s,
                "took_s": self.health.took_s,
                "problem": self.health.problem,
                "waits": self.health.waits,
                "by_rule": self.health.by_rule,
            },
            "skipped": self.skipped,
            "receivers": list(self.receivers),
        }


def rule_state_of(record: Mapping[str, Any]) -> RuleState:
    """The state that a document holds. Raises KeyError, TypeError, ValueError where it is none."""
    seen = record["seen"]
    return RuleState(
        revision=str(record["revision"]),
        until=record["until"],
        checked=record["checked"],
        looked=tuple(Looked(*each) for each in record["looked"]),
        groups={key: _group_of(each) for key, each in record["groups"].items()},
        seen=None if seen is None else {key: _run_of(run) for key, run in seen.items()},
        outbox=tuple(_message_of(each) for each in record["outbox"]),
        history=tuple(record["history"]),
        health=Health(**record["health"]),
        skipped=int(record["skipped"]),
        receivers=tuple(record["receivers"]),
    )


def _run_of(pair: Any) -> Run:
    first, last = pair
    return int(first), int(last)


def _group_of(record: Mapping[str, Any]) -> AlertGroup:
    return AlertGroup(
        tuple(record["values"]),
        tuple(_run_of(run) for run in record["runs"]),
        tuple(Episode(**each) for each in record["episodes"]),
        float(record["value"]),
    )


def _message_of(record: Mapping[str, Any]) -> Message:
    return Message(**{**record, "episode": Episode(**record["episode"])})
