"""The evaluator is killed again and again, at any moment and while a receiver has its message but has not
answered: no alert is lost, and none is told twice as another one."""

import random
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from tests.query.support.alert_processes import Lake, lake_of_rules
from tests.query.support.alert_world import Receiver, is_signed
from tests.query.support.alertmanager import alertmanager, told_by
from tests.query.support.processes import Child
from tests.stack.support.waiting import pause, wait_for

pytestmark = pytest.mark.stack
START = datetime(2026, 9, 1, 10, tzinfo=UTC)
WAIT_S = 60.0
AWAY_S = 300.0
RULE: dict[str, Any] = {
    "name": "errors",
    "query": "severity:error",
    "condition": {"mode": "count", "over": 0},
    "every": "1m",
    "window": "1m",
    "delay": 0,
    "late": "3m",
    "group_by": ["service"],
}


class Deadly(Receiver):
    """Has taken a message when its sender is killed, and does not answer."""

    victim: Child | None = None

    def _take(self, request: BaseHTTPRequestHandler) -> None:
        victim, self.victim = self.victim, None
        if victim is not None:
            victim.kill()
        with suppress(OSError):  # nobody is there to be answered
            super()._take(request)


def commit(lake: Lake, minute: int, late: bool) -> None:
    """A minute's rows are in: errors of a service that has none before or after; with `late` some of a minute
    that was looked at, of another service."""
    rows = [
        {
            "timestamp": START + timedelta(minutes=minute, seconds=30),
            "severity": "error",
            "service": f"s{minute}",
        }
    ]
    if late:
        before = START + timedelta(minutes=minute - 1, seconds=10)
        rows.append({"timestamp": before, "severity": "error", "service": f"late{minute}"})
    lake.table.append(rows)
    lake.status.complete_until = START + timedelta(minutes=minute + 1)


@pytest.mark.parametrize("kills", [3, pytest.param(20, marks=pytest.mark.prove)])
@pytest.mark.timeout(900)
def test_an_evaluator_that_is_killed_loses_and_doubles_nothing(
    tmp_path: Path, kills: int, record_property: Callable[[str, object], None]
) -> None:
    """Each minute has its alert, every third one another that came late; of all of them receivers hear twice,
    of the beginning and of the end, under one id each."""
    chance = random.Random(kills)
    with (
        Deadly().running() as hook,
        lake_of_rules(tmp_path, FIRN_QUERY_ALERTS__WEBHOOK_TARGETS=f'["127.0.0.1:{hook.port}"]') as lake,
    ):
        lake.table.append([{"timestamp": START - timedelta(days=1)}])
        lake.status.complete_until = START
        lake.keep({**RULE, "notify": [f"{hook.uri}/hook"]})
        server = lake.server().start()
        wait_for(lambda: lake.state("errors"), WAIT_S, "the first look")
        for kill in range(kills):
            hook.victim = server if kill % 2 else None
            commit(lake, 1 + kill, late=kill % 3 == 2)
            if kill % 2:
                wait_for(lambda: hook.victim is None, WAIT_S, "a message that kills its sender")
            else:
                pause(chance.uniform(0.0, 3.0))
                server.kill()
            server = server.start()
        commit(lake, 1 + kills, late=False)
        lake.status.complete_until = START + timedelta(minutes=kills + 20)

        end_s = (START + timedelta(minutes=kills + 20)).timestamp()

        def is_done() -> bool:
            state = lake.state("errors")
            is_idle = state is not None and not state.outbox and not state.groups
            return is_idle and state is not None and (state.until or 0) >= end_s

        wait_for(is_done, WAIT_S, f"everything told; {lake.state('errors')}")
    wanted = {f"s{minute}" for minute in range(1, kills + 2)}
    wanted |= {f"late{kill + 1}" for kill in range(kills) if kill % 3 == 2}
    told: dict[str, set[tuple[str, str]]] = {}
    for body in hook.bodies():
        told.setdefault(body["labels"]["service"], set()).add((body["kind"], body["alert"]))
    lost = wanted - {service for service, kinds in told.items() if len(kinds) == 2}
    doubled = {service: kinds for service, kinds in told.items() if len({alert for _, alert in kinds}) > 1}
    by_id: dict[str, list[Any]] = {}
    for headers, body in hook.taken:
        assert is_signed(headers)
        by_id.setdefault(headers["Firn-Message-Id"], []).append(body)
    record_property("alerts_lost", len(lost))
    record_property("alerts_doubled", len(doubled))
    record_property("repeated_deliveries", sum(len(bodies) - 1 for bodies in by_id.values()))
    assert lost == set()
    assert doubled == {}
    assert told.keys() == wanted
    assert len(by_id) == 2 * len(wanted)
    assert all(body == bodies[0] for bodies in by_id.values() for body in bodies)


@pytest.mark.prove
@pytest.mark.timeout(900)
def test_an_alertmanager_that_is_away_for_five_minutes_hears_of_everything(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """In real time, over a server of its own that is killed in between."""
    with (
        Receiver().running() as hook,
        alertmanager(tmp_path, hook.uri) as real,
        lake_of_rules(
            tmp_path,
            FIRN_QUERY_ALERTS__ALERTMANAGERS=f'["{real.uri}"]',
            FIRN_QUERY_ALERTS__SHOWN_S="10",
        ) as lake,
    ):
        lake.table.append([{"timestamp": START - timedelta(days=1)}])
        lake.status.complete_until = START
        lake.keep(RULE)
        server = lake.server().start()
        wait_for(lambda: lake.state("errors"), WAIT_S, "the first look")
        real.kill()
        for minute in range(1, 6):
            commit(lake, minute, late=False)
            pause(AWAY_S / 5)
        server.kill()
        server.start()
        real.start()
        lake.status.complete_until = START + timedelta(minutes=20)

        def is_done() -> bool:
            state = lake.state("errors")
            return state is not None and not state.outbox and not state.groups

        wait_for(is_done, 2 * WAIT_S, f"everything told; {lake.state('errors')}")
        wait_for(lambda: len(told_by(hook.bodies())) >= 10, WAIT_S, "ten notifications")
    services = [
        (alert["status"], alert["labels"]["service"]) for body in hook.bodies() for alert in body["alerts"]
    ]
    wanted = sorted((status, f"s{minute}") for status in ("firing", "resolved") for minute in range(1, 6))
    record_property("alerts_lost", len(set(wanted) - set(services)))
    record_property("alerts_doubled", len(services) - len(set(services)))
    assert sorted(services) == wanted
