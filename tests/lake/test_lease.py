"""How a lease is got, kept and lost, by a thread or by the holder's own renewals."""

import threading
from typing import Any

import pytest

from catalog.model.error_response import CatalogError, unavailable
from lake.errors import RefusedError, UnavailableError
from lake.extras_client import ExtrasClient
from lake.lease import Lease, LeaseTimes, held_lease
from tests.ingest.support.fake_clock import FakeClock
from tests.lake.support.fake_catalog import FakeCatalog
from tests.stack.support.waiting import wait_for

TIMES = LeaseTimes(ttl_s=6.0, renew_every_s=0.01, try_every_s=0.01)


HELD = CatalogError(409, "LeaseHeldException", "another has it")
RAN_OUT = CatalogError(403, "StaleLeaseException", "it ran out")


@pytest.fixture
def control() -> FakeCatalog:
    return FakeCatalog()


def _lease(control: FakeCatalog, **options: Any) -> Lease:
    return Lease(control.client(), "ingest.firn", TIMES, holder="here", **options)


def _held(control: FakeCatalog) -> Lease:
    held = _lease(control, still_s=0.2)
    assert held.acquire(threading.Event())
    return held


def _wait_for_renewals(control: FakeCatalog, count: int) -> None:
    wait_for(lambda: control.asked.count("renew") > count, 10, f"more than {count} renewals")


def test_a_node_whose_main_loop_stands_still_gives_its_lease_up(control: FakeCatalog) -> None:
    """Nobody would take over otherwise, and nothing would be ingested until a person looks."""
    held = _held(control)
    held.check()
    wait_for(lambda: held.lost, 10, "the end of the lease")
    with pytest.raises(UnavailableError, match="stood still"):
        held.check()
    before = control.asked.count("renew")
    threading.Event().wait(0.1)
    assert control.asked.count("renew") == before


@pytest.mark.long
def test_a_node_that_asks_or_has_not_begun_keeps_its_lease(
    control: FakeCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its loop asks once in every turn of the thread, which counts them: however busy the machine is."""
    held, renew = _held(control), ExtrasClient.renew_lease
    _wait_for_renewals(control, 40)  # twice as long as it may stand still

    def renewed_while_asked(*arguments: Any, **options: Any) -> None:
        held.check()
        renew(*arguments, **options)

    monkeypatch.setattr(ExtrasClient, "renew_lease", renewed_while_asked)
    _wait_for_renewals(control, 100)
    assert not held.lost
    held.release()


def test_a_refused_renewal_is_the_end_of_a_lease(control: FakeCatalog) -> None:
    """A catalog that is away for a moment is not. What is lost is not released: it is another's."""
    with _lease(control) as held:
        assert held.acquire(threading.Event())
        control.refuses["renew"] = unavailable("away")
        asked = len(control.asked)
        wait_for(lambda: len(control.asked) > asked + 2, 10, "renewals without an answer")
        held.check()
        control.refuses["renew"] = RAN_OUT
        wait_for(lambda: held.lost, 10, "the end of the lease")
        with pytest.raises(UnavailableError, match=r"lease ingest\.firn is lost \(.* it ran out\)"):
            held.check()
    assert "release" not in control.asked


def test_a_standby_waits_as_long_as_it_is_told(control: FakeCatalog) -> None:
    held = _lease(control)
    control.refuses["acquire"] = HELD
    assert not held.acquire(threading.Event(), wait_s=0.0)
    assert control.asked == ["acquire"]
    assert not held.acquire(threading.Event(), wait_s=0.05)
    assert held.fencing_token is None
    stopping = threading.Event()
    stopping.set()
    assert not held.acquire(stopping)


def test_every_time_has_a_token_of_its_own(control: FakeCatalog) -> None:
    held = _lease(control)
    for token in (1, 2):
        assert held.acquire(threading.Event())
        assert held.fencing_token == f"ingest.firn:{token}"
        held.release()
        assert held.fencing_token is None
    assert control.asked.count("release") == 2


def test_an_act_renews_its_lease_when_that_is_due(control: FakeCatalog) -> None:
    clock = FakeClock()
    with _lease(control, clock=clock) as held:
        held.take()
        for _ in range(3):
            held.renew()
        assert "renew" not in control.asked
        clock.s += 2 * TIMES.renew_every_s
        for _ in range(3):
            held.renew()
        assert control.asked.count("renew") == 1
        control.refuses["renew"] = RAN_OUT
        clock.s += 2 * TIMES.renew_every_s
        with pytest.raises(RefusedError, match="it ran out"):
            held.renew()
    assert control.asked[-1] == "release"


def test_an_act_that_another_does_is_refused_with_a_reason(control: FakeCatalog) -> None:
    control.lease("replay")
    with (
        pytest.raises(RefusedError, match=r"wait for its end \(.* lease replay is held by somebody\)"),
        held_lease(control.client(), "replay", "wait for its end"),
    ):
        pytest.fail("it was done")


def test_where_nobody_has_leases_nobody_waits(control: FakeCatalog) -> None:
    control.has_extras = False
    for nobody in (control.client(), None):
        with Lease(nobody, "optimize", TIMES, holder="here") as held:
            assert held.acquire(threading.Event())
            held.check()
            held.renew()
            assert held.held_after(float("inf"))
            assert held.fencing_token is None
    assert control.asked == []
