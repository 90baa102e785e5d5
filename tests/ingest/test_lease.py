"""How the node's lease is kept and lost."""

import threading
from typing import Any, cast

import pytest

from lake.catalog_client import CatalogClient
from lake.errors import UnavailableError
from lake.lease import Lease, LeaseTimes
from tests.stack.waiting import wait_for

TIMES = LeaseTimes(ttl_s=6.0, renew_every_s=0.01, try_every_s=0.01)


class Control:
    """A catalog that grants every wish and counts them."""

    has_extras = True

    def __init__(self) -> None:
        self.renewals = 0

    def post(self, path: str, body: dict[str, Any], **_: Any) -> dict[str, Any]:
        self.renewals += path.endswith("/renew")
        return {"token": 1}


@pytest.fixture
def control() -> Control:
    return Control()


def _held(control: Control) -> Lease:
    held = Lease(cast("CatalogClient", control), "ingest.firn", TIMES, holder="here", still_s=0.2)
    assert held.acquire(threading.Event())
    return held


def _wait_for_renewals(control: Control, count: int) -> None:
    wait_for(lambda: control.renewals > count, 10, f"more than {count} renewals")


def test_a_node_whose_main_loop_stands_still_gives_its_lease_up(control: Control) -> None:
    """Nobody would take over otherwise, and nothing would be ingested until a person looks."""
    held = _held(control)
    held.check()
    wait_for(lambda: held.lost, 10, "the end of the lease")
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
