"""Which tenants got rows lately, from the catalog's index of changed partitions."""

from datetime import UTC, datetime, timedelta

import pytest

from ingest.serve import freshness
from ingest.serve.freshness import Freshness
from lake.tenant import to_identifier
from tests.ingest.support.fake_clock import FakeClock
from tests.lake.support.fake_catalog import FakeCatalog

NOW = datetime(2026, 9, 1, 12, tzinfo=UTC)


class Partitions:
    """A catalog of one tenant's partitions."""

    def __init__(self) -> None:
        self.catalog = FakeCatalog()

    def change(self, hour: int, records: int, at: datetime) -> None:
        """A partition has so many rows now."""
        others = [row for row in self.catalog.partitions if row["partition"] != f"{hour}"]
        row = {
            "identifier": {"namespace": [to_identifier("acme")], "name": "logs"},
            "table-uuid": "7d6f",
            "table-id": 7,
            "partition": f"{hour}",
            "data-files": 1,
            "delete-files": 0,
            "bytes": 1_000,
            "records": records,
            "changed-ms": int(at.timestamp() * 1000),
        }
        self.catalog.partitions = [*others, row]


class StoppedClock(FakeClock):
    """Stands still at `NOW`."""

    def now(self) -> datetime:
        return NOW


def _ages(fresh: Freshness) -> dict[str, timedelta]:
    found = fresh.last_commits()
    assert found is not None
    return {tenant: NOW - at for tenant, at in found.items()}


def test_a_merge_is_no_sign_of_life() -> None:
    """A partition that changed and has no more rows than before was maintained; rows that come make the
    tenant fresh."""
    partitions = Partitions()
    fresh = Freshness(partitions.catalog.client(), StoppedClock())
    for hour in (1, 2):
        partitions.change(hour, 100, NOW - timedelta(minutes=30 - hour))
    assert _ages(fresh) == {"acme": timedelta(minutes=28)}
    partitions.change(1, 100, NOW - timedelta(minutes=9))  # merged
    partitions.change(2, 80, NOW - timedelta(minutes=8))  # some erased
    assert _ages(fresh) == {"acme": timedelta(minutes=28)}
    partitions.change(2, 81, NOW - timedelta(minutes=7))
    assert _ages(fresh) == {"acme": timedelta(minutes=7)}


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The partition that changed longest ago is forgotten first: its next merge is taken for rows, that of
    another is not."""
    monkeypatch.setattr(freshness, "PARTITIONS_MAX", 2)
    partitions = Partitions()
    fresh = Freshness(partitions.catalog.client(), StoppedClock())
    for hour in (1, 2, 3):
        partitions.change(hour, 100, NOW - timedelta(minutes=30 - hour))
    assert _ages(fresh) == {"acme": timedelta(minutes=27)}
    partitions.change(2, 100, NOW - timedelta(minutes=9))
    assert _ages(fresh) == {"acme": timedelta(minutes=27)}
    partitions.change(1, 100, NOW - timedelta(minutes=8))
    assert _ages(fresh) == {"acme": timedelta(minutes=8)}
