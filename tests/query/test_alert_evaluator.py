"""Rules are looked at when everything is in, tell of what they find exactly once, and forget nothing that was
written, whenever an evaluator dies."""

from pathlib import Path
from typing import Any

import pytest
from prometheus_client import REGISTRY

from lake.limits import Bound, Limit
from lake.retention import Level
from query.alerts.evaluator import NOT_TOLD, RULES_READ_EVERY_S
from tests.query.support.alert_world import START, TENANT, Receiver, firing, is_signed, world
from tests.stack.support.waiting import wait_for

RULE = {
    "name": "errors",
    "query": "severity:error",
    "condition": {"mode": "count", "over": 2},
    "every": "1m",
    "window": "1m",
    "delay": 0,
    "late": "5m",
    "annotations": {"summary": "{{ value }} errors since {{ start }}"},
}
ERROR = {"severity": "error", "message": "refused"}


def rule(to: Receiver, **changes: Any) -> dict[str, Any]:
    return {**RULE, "notify": [f"{to.uri}/hook"], **changes}


def told(metric: str, **labels: str) -> float | None:
    """What a metric of alerts says now."""
    return REGISTRY.get_sample_value(f"firn_query_alert_{metric}", labels)


def targets(receiver: Receiver) -> tuple[str, ...]:
    return (f"127.0.0.1:{receiver.port}",)


def test_an_alert_is_told_once_with_a_signature_and_a_link_that_pins_its_rows(tmp_path: Path) -> None:
    """It begins and it ends, and each is one message."""
    with Receiver().running() as hook, world(tmp_path, webhook_targets=targets(hook)) as lake:
        lake.keep(rule(hook))
        lake.at(0)
        lake.rows(*({**ERROR, "at": 10 + at} for at in range(5)))
        lake.at(60)
        (fired,) = lake.told(1, hook)
        lake.at(120)
        lake.at(180)
        bodies = lake.told(2, hook)
        lake.settled("errors")
    assert firing(bodies) == [("firing", fired["alert"]), ("resolved", fired["alert"])]
    assert fired["annotations"] == {"summary": "5 errors since 2026-05-01T10:00:00Z"}
    assert fired["labels"] == {"alertname": "errors", "tenant": "acme", "stream": "logs"}
    assert fired["link"].startswith("https://firn.example.org/?tenant=acme&stream=logs&q=severity%3Aerror&")
    assert "&pin=" in fired["link"]
    assert all(is_signed(headers) for headers, _ in hook.taken)
    assert len({headers["Firn-Message-Id"] for headers, _ in hook.taken}) == 2


def test_nothing_is_looked_at_before_everything_is_in(tmp_path: Path) -> None:
    """While ingestion is behind, or says nothing, a rule waits, so that absence is no alert; and it says
    so."""
    with Receiver().running() as hook, world(tmp_path, webhook_targets=targets(hook)) as lake:
        lake.keep(rule(hook, name="silent", query="", condition={"mode": "absence"}))
        lake.rows({"at": -30})
        lake.at(0)
        lake.lag.complete_until = None
        lake.clock.move(600)
        assert lake.evaluator.step(None) == 0
        assert lake.state("silent").health.waits == NOT_TOLD
        lake.rows(*({"at": at} for at in range(30, 601, 60)))
        lake.at(600)
        assert lake.state("silent").until is not None
        assert not lake.state("silent").history
        lake.lag.parked_reason = "too_many_columns"
        lake.at(900)
        assert "parked" in str(lake.state("silent").health.waits)
        assert not hook.taken


def test_late_rows_raise_what_was_missed_once(tmp_path: Path) -> None:
    """Rows that come when their window was looked at: it is looked at once more, and what it has now is told;
    of rows that add to an alert that was told nobody hears again."""
    with Receiver().running() as hook, world(tmp_path, webhook_targets=targets(hook)) as lake:
        lake.keep(rule(hook))
        lake.at(0)
        lake.rows(*({**ERROR, "at": 70 + at} for at in range(4)))
        lake.at(120)
        lake.told(1, hook)
        lake.rows(
            *({**ERROR, "at": 75 + at} for at in range(3)), *({**ERROR, "at": 190 + at} for at in range(4))
        )
        lake.at(180)
        lake.rows(*({**ERROR, "at": 140 + at} for at in range(4)))
        for at in range(240, 1_200, 60):
            lake.at(at)
        bodies = lake.told(4, hook)
        lake.settled("errors")
        assert not lake.state("errors").looked[0].end < 900
    # The rows between the two alerts join them, so there was one alert less to tell than runs of windows.
    assert [kind for kind, _ in firing(bodies)] == ["firing", "resolved", "firing", "resolved"]
    assert len({alert for _, alert in firing(bodies)}) == 2


def test_a_window_that_was_missed_alone_is_told(tmp_path: Path) -> None:
    """Nothing fired around it when its late rows came."""
    with Receiver().running() as hook, world(tmp_path, webhook_targets=targets(hook)) as lake:
        lake.keep(rule(hook))
        for at in range(0, 301, 60):
            lake.at(at)
        lake.rows(*({**ERROR, "at": 70 + at} for at in range(4)))
        for at in range(360, 1_200, 60):
            lake.at(at)
        bodies = lake.told(2, hook)
        lake.settled("errors")
    assert [body["kind"] for body in bodies] == ["firing", "resolved"]
    assert {body["fired"] for body in bodies} == {"2026-05-01T10:02:00Z"}


def test_an_evaluator_that_dies_before_it_writes_has_not_looked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next one looks at the same window and tells the same; one that dies after it has written leaves its
    messages to the next."""
    with Receiver(status=503).running() as hook, world(tmp_path, webhook_targets=targets(hook)) as lake:
        lake.keep(rule(hook))
        lake.at(0)
        lake.rows(*({**ERROR, "at": 10 + at} for at in range(5)))

        def die(*_: object) -> list[int | None]:
            raise KeyboardInterrupt

        monkeypatch.setattr(lake.store, "save", die)
        with pytest.raises(KeyboardInterrupt):
            lake.at(60)
        monkeypatch.undo()
        lake.again().load()
        lake.at(61)
        assert len(lake.state("errors").outbox) == 1
        lake.again().load()
        hook.status = 200
        lake.told(1, hook)
        lake.settled("errors")
        lake.again().load()
        lake.at(62)
        # A request of the dead one may have been on its way: it comes under the same id.
        assert len({headers["Firn-Message-Id"] for headers, _ in hook.taken}) == 1


def test_a_message_whose_answer_was_lost_comes_again_under_its_id(tmp_path: Path) -> None:
    """The receiver has it and the evaluator dies before it notes that."""
    with Receiver().running() as hook, world(tmp_path, webhook_targets=targets(hook)) as lake:
        lake.keep(rule(hook))
        lake.at(0)
        lake.rows(*({**ERROR, "at": 10 + at} for at in range(5)))
        lake.evaluator._note_outcomes = lambda: None  # type: ignore[method-assign]
        lake.at(60)
        lake.told(1, hook)
        lake.again().load()
        lake.told(2, hook)
        lake.settled("errors")
    assert len({headers["Firn-Message-Id"] for headers, _ in hook.taken}) == 1
    assert hook.bodies()[0] == hook.bodies()[1]


def test_a_rule_that_goes_resolves_what_it_told(tmp_path: Path) -> None:
    """And leaves nothing behind."""
    with Receiver().running() as hook, world(tmp_path, webhook_targets=targets(hook)) as lake:
        lake.keep(rule(hook))
        lake.at(0)
        lake.rows(*({**ERROR, "at": 10 + at} for at in range(5)))
        lake.at(60)
        lake.told(1, hook)
        lake.store.drop(next(iter(lake.store.rules())).tenant, "errors")
        lake.evaluator.wake()
        bodies = lake.told(2, hook)
        assert [body["kind"] for body in bodies] == ["firing", "resolved"]
        lake.at(62)

        def is_gone() -> bool:
            """Once it is told here that the message was taken."""
            lake.evaluator.step(lake.lease)
            return not list(lake.store.states())

        wait_for(is_gone, 20.0, "its state being gone")


def test_a_rule_that_is_changed_begins_anew(tmp_path: Path) -> None:
    """What it told ends, and other annotations alone end nothing."""
    with Receiver().running() as hook, world(tmp_path, webhook_targets=targets(hook)) as lake:
        lake.keep(rule(hook))
        lake.at(0)
        lake.rows(*({**ERROR, "at": 10 + at} for at in range(5)))
        lake.at(60)
        lake.told(1, hook)
        lake.keep(rule(hook, annotations={"summary": "other words"}))
        lake.evaluator.wake()
        lake.at(61)
        lake.settled("errors")
        assert len(hook.taken) == 1
        lake.keep(rule(hook, condition={"mode": "count", "over": 100}))
        lake.evaluator.wake()
        bodies = lake.told(2, hook)
        assert [body["kind"] for body in bodies] == ["firing", "resolved"]


def test_a_tenant_that_has_used_its_day_is_looked_at_tomorrow(tmp_path: Path) -> None:
    """Counting is a search of the tenant's; its windows wait and none is passed over."""
    with Receiver().running() as hook, world(tmp_path, webhook_targets=targets(hook)) as lake:
        lake.keep(rule(hook))
        lake.at(0)
        assert lake.usage.today("acme").searches == 0 or lake.usage.today("acme").size_bytes >= 0
        lake.rows(*({**ERROR, "at": 10 + at} for at in range(5)))
        lake.limits = {Limit.SEARCH_BYTES_PER_DAY: Bound(0, Level.TENANT)}
        lake.at(60)
        assert "search_bytes_per_day" in str(lake.state("errors").health.problem)
        lake.limits = {}
        lake.at(180)
        assert [body["kind"] for body in lake.told(2, hook)] == ["firing", "resolved"]
        assert lake.usage.today("acme").size_bytes > 0


@pytest.mark.long
def test_after_a_long_outage_old_windows_are_passed_over_and_that_is_told(tmp_path: Path) -> None:
    """The history says how many."""
    with Receiver().running() as hook, world(tmp_path, webhook_targets=targets(hook)) as lake:
        lake.keep(rule(hook))
        lake.at(0)
        lake.at(2 * 86_400)
        state = lake.state("errors")
    assert state.skipped == 1_439
    assert state.history[0]["kind"] == "skipped"
    assert state.until == int(lake.clock.now().timestamp())


def test_one_rule_with_a_fault_leaves_the_others_alone(tmp_path: Path) -> None:
    """A stream that is not there, and too many groups, are problems of their rules."""
    with Receiver().running() as hook, world(tmp_path, webhook_targets=targets(hook)) as lake:
        lake.keep(
            rule(hook),
            rule(hook, name="nowhere", stream="nowhere"),
            rule(hook, name="crowd", condition={"mode": "count", "over": 0}, group_by=["host"]),
        )
        lake.at(0)
        lake.rows(*({**ERROR, "at": 10 + at % 40, "host": f"h{at}"} for at in range(60)))
        lake.at(60)
        lake.told(1, hook)
        assert "no stream 'nowhere'" in str(lake.state("nowhere").health.problem)
        assert "60 groups" in str(lake.state("crowd").health.problem)
        assert lake.state("errors").health.problem is None
        assert told("rules_failing", cause="rule") == 2
        assert told("rules_failing", cause="service") == 0
        for name in ("nowhere", "crowd"):
            lake.store.drop(TENANT, name)
        lake.at(60 + RULES_READ_EVERY_S)
        assert told("rules_failing", cause="rule") == 0


def test_a_file_that_cannot_be_read_is_a_fault_of_no_rule(tmp_path: Path) -> None:
    """It is for whoever operates Firn, as the metric says."""
    with Receiver().running() as hook, world(tmp_path, webhook_targets=targets(hook)) as lake:
        lake.keep(rule(hook))
        lake.at(0)
        lake.rows({**ERROR, "at": 10})
        for file in tmp_path.rglob("*.parquet"):
            file.unlink()
        lake.at(60)
        assert lake.state("errors").health.problem is not None
        assert told("rules_failing", cause="service") == 1
        assert told("rules_failing", cause="rule") == 0


def test_metrics_say_when_it_last_looked_and_who_does_not_take_messages(tmp_path: Path) -> None:
    """A message counts from its first attempt that failed until its receiver has it. A step in which nothing
    is due is a round as well, one that cannot write is none."""
    with Receiver(status=503).running() as hook, world(tmp_path, webhook_targets=targets(hook)) as lake:
        lake.keep(rule(hook))
        lake.at(0)
        lake.rows(*({**ERROR, "at": 10 + at} for at in range(5)))
        lake.at(60)
        assert told("last_round_timestamp_seconds") == lake.clock.now().timestamp()

        def has_failed() -> bool:
            lake.evaluator.step(None)
            return lake.state("errors").outbox[0].failures > 0

        wait_for(has_failed, 20.0, "the answer")
        lake.at(80)
        assert told("messages_waiting", receiver="webhook") == 1
        assert told("messages_waiting", receiver="alertmanager") == 0
        assert told("last_round_timestamp_seconds") == lake.clock.now().timestamp()
        hook.status = 200

        def is_taken() -> bool:
            lake.clock.move(1.0)  # until the next attempt is due
            lake.evaluator.step(lake.lease)
            return bool(hook.taken)

        wait_for(is_taken, 20.0, "the message being taken")
        lake.settled("errors")
        lake.at((lake.clock.now() - START).total_seconds() + 20)
        assert told("messages_waiting", receiver="webhook") == 0
        looked_at = lake.clock.now()
        assert told("last_round_timestamp_seconds") == looked_at.timestamp()
        lake.lease = "query.alerts:1"
        with pytest.raises(Exception, match="not in force"):
            lake.at((looked_at - START).total_seconds() + 80)
        assert told("last_round_timestamp_seconds") == looked_at.timestamp()


def test_the_lease_decides_who_writes(tmp_path: Path) -> None:
    """An evaluator whose lease has passed to another changes nothing."""
    with Receiver().running() as hook, world(tmp_path, webhook_targets=targets(hook)) as lake:
        lake.lease = lake.catalog.lease("query.alerts")
        lake.keep(rule(hook))
        lake.at(0)
        before = dict(lake.catalog.tasks)
        lake.catalog.lease("query.alerts")
        with pytest.raises(Exception, match="not in force"):
            lake.at(60)
        assert lake.catalog.tasks == before
