"""Listings of tenants by pages: asked for once, with the first page."""

from collections.abc import Iterator

from lake.tenant import TenantId
from query.tables.reached_tenants import CALLERS_MAX, KEPT_S, ReachedTenants
from tests.ingest.support.fake_clock import FakeClock


class Catalog:
    """Tenants, and how often somebody has asked for all of them."""

    def __init__(self, *names: str) -> None:
        self.names, self.asked = [*names], 0

    def __call__(self) -> Iterator[TenantId]:
        self.asked += 1
        return map(TenantId, self.names)


def _listed(reached: ReachedTenants, catalog: Catalog, limit: int, key: str | None = None) -> list[str]:
    """All names, page by page."""
    names, after = list[str](), ""
    while True:
        page, following = reached.of(key, catalog, anew=not after).page(after, limit)
        names += [tenant.name for tenant in page]
        if following is None:
            return names
        after = following


def test_a_listing_asks_once_however_many_pages_it_has() -> None:
    """In the order of the namespaces, each once; the next listing sees what is new."""
    reached, catalog = ReachedTenants(FakeClock()), Catalog("c", "a", "e", "b", "d")
    for limit in (1, 2, 3, 5, 100):
        before = catalog.asked
        assert _listed(reached, catalog, limit) == ["a", "b", "c", "d", "e"]
        assert catalog.asked == before + 1
    catalog.names.append("ab")
    assert _listed(reached, catalog, 2) == ["a", "ab", "b", "c", "d", "e"]


def test_a_listing_by_a_part_of_the_name_has_pages_of_its_own() -> None:
    """In any case of letters; the page that ends with the last match says so."""
    reached, catalog = ReachedTenants(FakeClock()), Catalog("Shop-1", "bank", "shop-2", "SHOP-3", "workshop")
    found, names, after = reached.of(None, catalog, anew=True), list[list[str]](), ""
    while True:
        page, following = found.page(after, 2, "sHop")
        names.append([tenant.name for tenant in page])
        if following is None:
            break
        after = following
    assert [len(each) for each in names] == [2, 2]
    assert sorted(name for each in names for name in each) == ["SHOP-3", "Shop-1", "shop-2", "workshop"]
    assert found.page("", 10, "nobody") == ([], None)


def test_names_are_compared_with_all_that_the_key_reaches() -> None:
    """Also with those of other pages."""
    reached, catalog = ReachedTenants(FakeClock()), Catalog("acme", "zeta", "Acme")
    found = reached.of(None, catalog, anew=True)
    assert set(found.warnings) == {"acme", "Acme"}


def test_what_one_key_reaches_is_not_told_to_another() -> None:
    """Nor kept for longer than a listing takes, nor of very many callers."""
    clock = FakeClock()
    reached, theirs, ours = ReachedTenants(clock), Catalog("theirs"), Catalog("ours", "ours2")
    assert _listed(reached, theirs, 1, "their key") == ["theirs"]
    page, _ = reached.of("our key", ours, anew=False).page("", 1)
    assert [tenant.name for tenant in page] == ["ours"]
    clock.s += KEPT_S
    reached.of("our key", ours, anew=False)
    assert ours.asked == 2
    for number in range(CALLERS_MAX + 1):
        reached.of(f"key {number}", ours, anew=True)
    assert len(reached._kept) == CALLERS_MAX
