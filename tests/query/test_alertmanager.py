"""A real Alertmanager hears of every alert once, and of its end, also of what came and went while it was
away."""

from pathlib import Path
from typing import Any

import pytest

from lake.clock import SystemClock
from query.alerts.senders import Alertmanager
from tests.query.support.alert_world import Receiver, World, world
from tests.query.support.alertmanager import GROUP_WAIT_S, alertmanager, told_by
from tests.stack.support.waiting import wait_for

pytestmark = pytest.mark.stack
WAIT_S, SHOWN_S = 30.0, 30.0
ERROR = {"severity": "error"}


def rule(name: str) -> dict[str, Any]:
    return {
        "name": name,
        "query": f"severity:error AND service:{name}",
        "condition": {"mode": "count", "over": 0},
        "window": "1m",
        "delay": 0,
        "late": 0,
        "labels": {"team": "payments"},
        "annotations": {"summary": "{{ value }} of {{ rule }}"},
    }


def real_times(lake: World) -> None:
    """Alertmanager lives by the machine's clock, whatever the evaluator's says."""
    senders = {uri: Alertmanager(uri, SystemClock(), 300.0) for uri in lake.alertmanagers}
    lake.evaluator.parts.delivery._alertmanagers = senders


def heard(lake: World, hook: Receiver, *wanted: tuple[str, str]) -> None:
    """Waits until Alertmanager has told all that; time goes on for what is tried again."""

    def is_told() -> bool:
        lake.clock.move(0.1)
        lake.evaluator.step(None)
        return set(wanted) <= set(told_by(hook.bodies()))

    wait_for(is_told, WAIT_S, f"notifications {wanted}; there are {told_by(hook.bodies())}")


def test_it_hears_of_an_alert_and_of_its_end(tmp_path: Path) -> None:
    """With labels, annotations and the link; told again while the alert goes on, it notifies nobody again."""
    with (
        Receiver().running() as hook,
        alertmanager(tmp_path, hook.uri) as real,
        world(tmp_path, alertmanagers=(real.uri,)) as lake,
    ):
        real_times(lake)
        lake.keep(rule("errors"))
        lake.at(0)
        lake.rows({**ERROR, "service": "errors", "at": 30}, {**ERROR, "service": "errors", "at": 90})
        lake.at(60)
        heard(lake, hook, ("firing", "errors"))
        (alert,) = real.alerts()
        assert alert["labels"] == {
            "alertname": "errors",
            "tenant": "acme",
            "stream": "logs",
            "team": "payments",
        }
        assert alert["annotations"] == {"summary": "1 of errors"}
        assert alert["generatorURL"].startswith("https://firn.example.org/?tenant=acme")
        lake.at(120)
        lake.at(180)
        heard(lake, hook, ("resolved", "errors"))
        lake.settled("errors")
    assert told_by(hook.bodies()) == [("firing", "errors"), ("resolved", "errors")]


def test_an_alertmanager_that_was_away_hears_of_everything(tmp_path: Path) -> None:
    """For five minutes, in which one alert comes and goes, and another one comes: nobody is told twice, and
    none is missing. The evaluator dies meanwhile, too."""
    with (
        Receiver().running() as hook,
        alertmanager(tmp_path, hook.uri) as real,
        world(tmp_path, alertmanagers=(real.uri,), shown_s=SHOWN_S) as lake,
    ):
        real_times(lake)
        lake.keep(rule("short"), rule("long"))
        lake.at(0)
        real.kill()
        lake.rows({**ERROR, "service": "short", "at": 30})
        lake.rows(*({**ERROR, "service": "long", "at": at} for at in range(150, 400, 60)))
        for at in range(60, 301, 60):
            lake.at(at)
        lake.again().load()
        real_times(lake)
        lake.at(301)
        assert [each.kind for each in lake.state("short").outbox] == ["firing", "resolved"]
        real.start()
        lake.clock.move(120)  # past the longest pause between two attempts
        lake.lag.complete_until = None
        heard(lake, hook, ("firing", "short"), ("firing", "long"))
        assert ("resolved", "short") not in told_by(hook.bodies())
        lake.clock.move(SHOWN_S + GROUP_WAIT_S)
        heard(lake, hook, ("resolved", "short"))
        lake.settled("short", "long")
        assert [alert["labels"]["alertname"] for alert in real.alerts()] == ["long"]
    assert sorted(told_by(hook.bodies())) == [("firing", "long"), ("firing", "short"), ("resolved", "short")]


def test_what_it_never_takes_is_kept_in_the_history(tmp_path: Path) -> None:
    """An alert that Alertmanager refuses holds up no other."""
    with Receiver().running() as hook, alertmanager(tmp_path, hook.uri) as real:
        with world(tmp_path, alertmanagers=(real.uri,)) as lake:
            real_times(lake)
            lake.keep(rule("good"), rule("bad"))
            lake.at(0)
            lake.rows({**ERROR, "service": "good", "at": 30}, {**ERROR, "service": "bad", "at": 30})
            sender = lake.evaluator.parts.delivery._alertmanagers[real.uri]
            told = sender._alert

            def spoiled(kind: Any, episode: Any, now_s: float) -> dict[str, Any]:
                made = told(kind, episode, now_s)
                return made | ({"labels": {"9": "x"}} if episode.labels["alertname"] == "bad" else {})

            sender._alert = spoiled  # type: ignore[method-assign]
            lake.at(60)
            heard(lake, hook, ("firing", "good"))
            lake.settled("good", "bad")
            (event, *_) = lake.state("bad").history
    assert event["kind"] == "undelivered"
    assert "400" in event["why"]
