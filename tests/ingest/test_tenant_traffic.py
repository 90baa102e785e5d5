"""Metrics of tenants: the busiest have series of their own, and there are never more."""

import pytest

from ingest.node.tenant_traffic import OTHERS, WINDOW_S, TenantTraffic
from lake import metrics
from tests.ingest.support.fake_clock import FakeClock


def told(gauge: object = metrics.TENANT_RECORDS) -> dict[str, float]:
    (family,) = gauge.collect()  # type: ignore[attr-defined]
    return {sample.labels["tenant"]: sample.value for sample in family.samples}


@pytest.fixture(autouse=True)
def nothing_told() -> None:
    for gauge in (metrics.TENANT_RECORDS, metrics.TENANT_BYTES):
        gauge.clear()


def test_the_busiest_are_told_by_name() -> None:
    """By the bytes of ten minutes; all others are one, also where others were the busiest before."""
    clock = FakeClock()
    traffic = TenantTraffic(clock, 2)
    for _ in range(2):
        traffic.add({"a": 1, "b": 2, "c": 30, "d": 4}, {"a": 100, "b": 50, "c": 20, "d": 10})
    assert told() == {}
    clock.s += WINDOW_S
    traffic.add({"e": 9}, {"e": 9})
    assert told() == {"a": 2, "b": 4, OTHERS: 68}
    assert told(metrics.TENANT_BYTES) == {"a": 200, "b": 100, OTHERS: 60}
    clock.s += WINDOW_S
    traffic.add({}, {})
    assert told() == {"e": 9, OTHERS: 0}


def test_no_tenant_is_named_where_none_is_wanted() -> None:
    """Nor counted."""
    clock = FakeClock()
    traffic = TenantTraffic(clock, 0)
    traffic.add({"a": 1}, {"a": 1})
    clock.s += WINDOW_S
    traffic.add({"a": 1}, {"a": 1})
    assert told() == {}
