"""What a tenant may use, by what its namespace and the lake say."""

import pytest

from lake.errors import SettingsError
from lake.limits import Bound, Limit, check_limits, limits_of, parse_limit, spell_limit
from lake.retention import Level
from lake.settings import CatalogSettings
from lake.tenant import SYSTEM_TENANT


@pytest.mark.parametrize(("text", "most"), [("1", 1), (" 5000 ", 5_000), ("None", None)])
def test_it_is_a_whole_number_or_none(text: str, most: int | None) -> None:
    """And what is written of it says the same."""
    assert parse_limit(text) == most
    assert parse_limit(spell_limit(most)) == most


@pytest.mark.parametrize("text", ["0", "-1", "1.5", "1e3", "", "many", "²", "1" * 16])
def test_what_is_unclear_is_refused(text: str) -> None:
    """With the property, and how to write it."""
    with pytest.raises(ValueError, match=r"firn\.limits\.exports: .* write a whole number"):
        check_limits({"firn.limits.exports": text, "other": "x"})


def test_a_limit_that_nothing_knows_is_refused() -> None:
    """It would be believed to be in force; those that there are are named."""
    with pytest.raises(ValueError, match=r"firn\.limits\.export' limits nothing; .*firn\.limits\.exports"):
        check_limits({"firn.limits.export": "3"})


def test_nobody_has_more_than_all_of_the_memory() -> None:
    """Whoever means bytes would have no limit, and believe in one."""
    with pytest.raises(ValueError, match=r"firn\.limits\.memory_percent: 101 percent is more than there is"):
        check_limits({"firn.limits.memory_percent": "101"})
    check_limits({"firn.limits.memory_percent": "100", "firn.limits.exports": "101"})
    check_limits({"firn.limits.memory_percent": "none"})
    with pytest.raises(SettingsError, match="memory_percent"):
        CatalogSettings.load(limits__memory_percent=101)


def test_the_tenants_counts_before_the_lakes() -> None:
    """Also where it says that there is none; what cannot be read says nothing."""
    lake = CatalogSettings.load(limits__exports=5, limits__searches_at_once=2, limits__search_s_per_day=60)
    of_tenant = {"firn.limits.exports": "none", "firn.limits.searches_at_once": "nonsense"}
    assert limits_of("a", of_tenant, lake.limits.properties()) == {
        Limit.EXPORTS: Bound(None, Level.TENANT),
        Limit.SEARCHES_AT_ONCE: Bound(2, Level.LAKE),
        Limit.SEARCH_S_PER_DAY: Bound(60, Level.LAKE),
    }
    assert limits_of("a", {}, {}) == {}
    own = {"firn.limits.exports": "3"}
    assert limits_of(SYSTEM_TENANT.namespace, own, lake.limits.properties()) == {
        Limit.EXPORTS: Bound(3, Level.TENANT)
    }
