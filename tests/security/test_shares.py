"""Finding 8: whose turn a request takes, whatever it asks about."""

from collections.abc import Iterator

import pytest

from lake.catalog_client import CatalogClient
from lake.tenant import TenantId
from query.access.access import Caller, Who
from query.api.turns import payer_of, shares_of
from query.model.lane import Lane

pytestmark = pytest.mark.finding(8)
MINE, THEIRS = TenantId("a"), TenantId("b")
CATALOG = CatalogClient("http://127.0.0.1:1")  # nobody is asked


@pytest.fixture
def lane() -> Iterator[Lane]:
    made = Lane("test", 8, 2, 1.0)
    yield made
    made.threads.shutdown()


@pytest.mark.parametrize("asked", [MINE, THEIRS, None])
def test_a_bound_key_takes_turns_of_its_own_tenant_alone(lane: Lane, asked: TenantId | None) -> None:
    """A request that names the other tenant holds none of its turns, also while it is being refused."""
    caller = Caller("key", CATALOG, Who("k1", MINE.namespace))
    (share,) = shares_of(caller, payer_of(caller, asked), lane)
    assert (share.name, share.at_once) == (f"namespace {MINE.namespace}", 2)


def test_a_key_that_reaches_all_takes_turns_of_the_tenant_and_its_own(lane: Lane) -> None:
    """It has half of all turns at the most, whichever tenants it asks about."""
    caller = Caller("key", CATALOG, Who("k2"))
    about, own = shares_of(caller, payer_of(caller, THEIRS), lane)
    assert (about.name, about.at_once) == (f"namespace {THEIRS.namespace}", 2)
    assert (own.name, own.at_once) == ("key k2", 4)
    assert shares_of(caller, None, lane) == (own,)


def test_callers_without_a_key_are_one(lane: Lane) -> None:
    """Where the catalog asks for no key, they share half of the turns."""
    (share,) = shares_of(Caller(None, CATALOG), None, lane)
    assert (share.name, share.at_once) == ("callers without a key", 4)
