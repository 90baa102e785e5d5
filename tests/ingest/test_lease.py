"""How the node's lease is kept and lost."""

import threading
from typing import Any, cast

import pytest

from lake import lease
from lake.catalog_client import CatalogClient
from lake.clock import SystemClock
from lake.errors import UnavailableError
from lake.lease import NodeLease
from lake.settings import IngestSettings
from tests.stack.waiting import wait_for


class Control:
    """A catalog that grants every wish and counts them."""

    def __init__(self) -> None:
        self.renewals = 0

    def post(self, path: str, body: dict[str, Any], **_: Any) -> dict[str, Any]:
        self.renewals += path.endswith("/renew")
        return {"token": 1}


@pytest.fixture
def control(monkeypatch: pytest.MonkeyPatch) -> Control:
    monkeypatch.setattr(lease, "RENEW_EVERY_S", 0.01)
    return Control()


def _held(control: Control) -> NodeLease:
    held = NodeLease(cast("CatalogClient", control), IngestSettings(), SystemClock(), "here", still_s=0.2)
    assert held.acquire(threading.Event())
    return held


def _wait_for_renewals(control: Control, count: int) -> None:
    wait_for(lambda: control.renewals > count, 10, f"more than {count} renewals")


def test_a_node_whose_main_loop_stands_still_gives_its_lease_up(control: Control) -> None:
    """Nobody would take over otherwise, and nothing would be ingested until a person looks."""
    held = _held(control)
    held.check()
    wait_for(lambda: held._lost, 10, "the end of the lease")
    with pytest.raises(UnavailableError, match="stood still"):
        held.check()
    renewals = control.renewals
    threading.Event().wait(0.1)
    assert control.renewals == renewals


def test_a_node_that_asks_or_has_not_begun_keeps_its_lease(control: Control) -> None:
    held = _held(control)
    _wait_for_renewals(control, 40)
    for renewals in range(50, 130, 10):
        held.check()
        _wait_for_renewals(control, renewals)
    held.check()
    held.release()
