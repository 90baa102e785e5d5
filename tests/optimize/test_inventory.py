"""What a round looks at: tables that changed, and not those that had nothing to do the last time."""

from collections.abc import Iterator
from typing import Any

import pytest

from lake.settings import OptimizeSettings
from lake.table_layout import partition_path
from optimize.cold_hours import ColdHours
from optimize.inventory import ASKED_AGAIN_MS, DirtyPartitions
from optimize.lone_files import BEHIND_MS, ID, OVERLAP_MS, LoneFiles
from tests.lake.support.fake_catalog import FakeCatalog

HOUR_MS = 3_600_000
HOUR = 500_000  # since 1970, and closed
MEBIBYTE = 1 << 20


class Lake:
    """A leader's inventory over a catalog's index, at a time that is moved by hand."""

    def __init__(self) -> None:
        self.catalog = FakeCatalog()
        self.now_ms = (HOUR + 48) * HOUR_MS
        client, settings = self.catalog.client(), OptimizeSettings()
        self.inventory = DirtyPartitions(
            client, settings, lambda: self.now_ms, LoneFiles(client, MEBIBYTE), ColdHours(client, settings)
        )

    def put(self, table: str, files: int, hour: int = HOUR, *, size: int = 1_000) -> None:
        """A partition as it is now, instead of what was there."""
        name, path = {"namespace": [table], "name": "logs"}, partition_path(hour)
        left = [
            row for row in self.catalog.partitions if (row["identifier"], row["partition"]) != (name, path)
        ]
        row: dict[str, Any] = {
            "identifier": name,
            "table-uuid": table,
            "table-id": 1,
            "partition": path,
            "data-files": files,
            "delete-files": 0,
            "bytes": size,
            "records": 1,
            "changed-ms": self.now_ms,
        }
        self.catalog.partitions = [*left, row]

    def round(self, resting: dict[str, int | None] | None = None, *failing: str) -> list[str]:
        """The tables that a round looks at; `resting`: those of them that have nothing to do, until when."""
        found = [each.table.namespace for each in self.inventory.candidates()]
        names = {f"{table}.logs": until for table, until in (resting or {}).items()}
        self.inventory.settle({f"{table}.logs" for table in failing}, names)
        return found


@pytest.fixture
def lake() -> Iterator[Lake]:
    return Lake()


def test_a_table_that_had_nothing_to_do_is_not_looked_at_until_it_changes(lake: Lake) -> None:
    """However many partitions of several files it keeps; another one of it, or another file, is a change."""
    lake.put("rests", 3)
    lake.put("merges", 3)
    assert lake.round({"rests": None}) == ["merges", "rests"]
    assert lake.round() == ["merges"]
    lake.put("rests", 4)
    assert lake.round({"rests": None}) == ["merges", "rests"]
    assert lake.round() == ["merges"]
    lake.put("rests", 2, HOUR + 1)
    assert lake.round() == ["merges", "rests"]


def test_a_table_rests_no_longer_than_was_foretold(lake: Lake) -> None:
    """Nor for more than a day, as a property of it may have changed."""
    lake.put("cools", 2)
    lake.put("never", 2)
    ends_ms = lake.now_ms + 2 * HOUR_MS
    assert lake.round({"cools": ends_ms, "never": None}) == ["cools", "never"]
    lake.now_ms = ends_ms - 1
    assert lake.round() == []
    lake.now_ms = ends_ms
    assert lake.round() == ["cools"]
    lake.now_ms += ASKED_AGAIN_MS
    assert lake.round() == ["cools", "never"]


def test_a_table_that_failed_or_is_gone_does_not_rest(lake: Lake) -> None:
    """What failed is looked at in the next round; of what nobody asks for any more nothing is remembered."""
    lake.put("fails", 2)
    lake.put("merged", 2)
    lake.round({"fails": None, "merged": None}, "fails")
    lake.put("merged", 1)
    assert lake.round() == ["fails"]
    assert lake.inventory._resting == {}


def test_lone_files_are_asked_of_the_catalog_by_what_they_are(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Small ones and crowded hours do not come over the network: nearly all that changes is one of these."""
    listed, told = lake.catalog._list_partitions, list[list[str]]()

    def listing(asked: dict[str, Any]) -> dict[str, Any]:
        page = listed(asked)
        told.append([row["table-uuid"] for row in page["partitions"]])
        return page

    monkeypatch.setattr(lake.catalog, "_list_partitions", listing)
    lake.put("large", 1, size=2 * MEBIBYTE)
    lake.put("small", 1, size=100)
    lake.put("crowded", 2, size=2 * MEBIBYTE)
    assert lake.round() == ["crowded", "large"]
    assert told == [["crowded"], ["large"]]


def test_one_table_that_fails_for_ever_does_not_hold_the_mark_up(lake: Lake) -> None:
    """For a day it is found again; then each round would look at all changes since it began to fail."""
    lake.put("broken", 1, size=2 * MEBIBYTE)
    begun_ms = lake.now_ms
    assert lake.round(None, "broken") == ["broken"]
    assert lake.round(None, "broken") == ["broken"]
    lake.now_ms = begun_ms + BEHIND_MS + OVERLAP_MS
    assert lake.round(None, "broken") == ["broken"]
    assert int(lake.catalog.tasks[ID]["record"]["at-ms"]) == lake.now_ms - BEHIND_MS
    assert lake.round(None, "broken") == []


def test_an_hour_that_is_open_holds_the_mark_up_as_long_as_it_is(lake: Lake) -> None:
    """It has nothing to do before it is closed, and is found then."""
    open_hour = lake.now_ms // HOUR_MS
    lake.put("open", 1, open_hour, size=2 * MEBIBYTE)
    assert lake.round() == []
    lake.now_ms += 2 * HOUR_MS
    assert lake.round() == ["open"]
