"""What came into tables is noted by day, and told until it is known to be in the topic."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from lake.backfill_mark import committed_ranges
from lake.catalog_client import CatalogClient, TableName
from lake.day_counts import DayCount, counted_day
from lake.errors import UnavailableError
from lake.log_schema import new_log_schema
from lake.snapshot import Totals
from lake.tenant import TableId, TenantId
from lake.usage_row import TABLES, UsageRow
from query.model.search_usage import SearchUsage, Used
from query.model.table_usage import Came, TableUsage
from query.model.table_view import TableView
from query.tables import usage_collector
from query.tables.usage_collector import UsageCollector

NOON = datetime(2026, 11, 26, 12, tzinfo=UTC)
TODAY, TOMORROW = "2026-11-26", "2026-11-27"
HOUR_S = 3_600.0


@dataclass
class World:
    """Tables, each with its properties and bytes, a clock, and a topic that takes rows or does not."""

    folder: Path
    tables: dict[TableId, tuple[Mapping[str, str], int]] = field(default_factory=dict)
    at: datetime = NOON
    takes: bool = True
    sent: list[UsageRow] = field(default_factory=list)
    collector: UsageCollector = field(init=False)

    def __post_init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """A process that has only its files."""
        self.collector = UsageCollector(
            cast("CatalogClient", None),
            TableUsage(self.folder / "tables.db"),
            SearchUsage(self.folder / "usage.db", cast("Any", self)),
            self._send,
            HOUR_S,
            cast("Any", self),
        )

    def now(self) -> datetime:
        return self.at

    def _send(self, rows: Sequence[UsageRow]) -> None:
        self.sent += rows
        if not self.takes:
            raise UnavailableError("no answer")

    def commit(self, table: TableId, records: int, size_bytes: int) -> None:
        """Rows come, of ten bytes for each byte stored."""
        properties, stored = self.tables.get(table, ({}, 0))
        more = counted_day(properties, self.at.date(), DayCount(records, size_bytes))
        self.tables[table] = {**properties, **more}, stored + size_bytes // 10

    def views(self, tenant: TenantId) -> Iterator[TableView]:
        for table, (properties, size_bytes) in self.tables.items():
            if table.tenant == tenant:
                yield TableView(
                    table,
                    TableName(tenant.namespace, table.table),
                    "u",
                    new_log_schema(),
                    True,
                    None,
                    None,
                    None,
                    Totals(size_bytes=size_bytes),
                    committed_ranges({}),
                    properties,
                    {},
                )

    def rows(self) -> dict[tuple[str, str, str, str], UsageRow]:
        """The table as it is after all that was sent."""
        return {(row.day, row.tenant, row.stream, row.source): row for row in self.sent}


ACME, QUIET = TableId(TenantId("Acme"), "logs"), TableId(TenantId("Quiet"), "old")


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    made = World(tmp_path)
    monkeypatch.setattr(usage_collector, "tenants", lambda _: {table.tenant for table in made.tables})
    monkeypatch.setattr(usage_collector, "every_stream", lambda _, tenant: made.views(tenant))
    return made


def test_a_days_figures_are_told_until_it_is_over(world: World) -> None:
    """In steps of the interval, and after midnight at once; what was told before is the same row. Of a table
    into which nothing comes, what is stored of it."""
    world.tables[QUIET] = {}, 70
    world.commit(ACME, 5, 1_000)
    world.collector.searches.add(ACME.tenant.namespace, "logs", Used(2, 0.5, 30))
    assert world.collector.look()
    assert not world.collector.look()
    world.commit(ACME, 1, 200)
    world.at += timedelta(seconds=HOUR_S)
    assert world.collector.look()
    world.at = NOON.replace(hour=23, minute=59)
    assert world.collector.look()
    world.commit(ACME, 1, 100)
    world.at += timedelta(minutes=1)
    world.commit(ACME, 10, 10)
    assert world.collector.look()
    writer, rows = world.collector.tables.writer, world.rows()
    assert rows[TODAY, "Acme", "logs", TABLES] == UsageRow(
        TODAY, "Acme", "logs", TABLES, records=7, bytes_in=1_300, bytes_stored=120
    )
    assert rows[TOMORROW, "Acme", "logs", TABLES].records == 10
    assert rows[TOMORROW, "Acme", "logs", TABLES].bytes_stored == 131
    assert rows[TODAY, "Acme", "logs", writer] == UsageRow(
        TODAY, "Acme", "logs", writer, searches=2, search_seconds=0.5, search_bytes=30
    )
    quiet = {day: row.bytes_stored for (day, tenant, *_), row in rows.items() if tenant == "Quiet"}
    assert quiet == {TODAY: 70, TOMORROW: 70}
    world.at += timedelta(seconds=HOUR_S)
    before = len(world.sent)
    assert world.collector.look()
    assert {row.day for row in world.sent[before:]} == {TOMORROW}


def test_what_is_not_known_to_be_there_is_told_again(world: World) -> None:
    """Also after days in which nobody took it, and by a process that knows only its files: no row is doubled,
    none is missing."""
    world.commit(ACME, 5, 1_000)
    world.takes = False
    for _ in range(3):
        with pytest.raises(UnavailableError):
            world.collector.look()
        world.at += timedelta(days=1)
        world.commit(ACME, 1, 1)
        world.restart()
    world.sent.clear()
    world.takes = True
    assert world.collector.look()
    told = [(row.day, row.records) for row in world.sent]
    days = [(NOON.date() + timedelta(days=at)).isoformat() for at in range(4)]
    assert told == list(zip(days, [5, 1, 1, 1], strict=True))


def test_a_later_look_keeps_what_was_stored_then(tmp_path: Path) -> None:
    """What came on a day may still be counted when it is over; its bytes were those of its last look. A
    process has one name for ever."""
    usage = TableUsage(tmp_path / "t.db")
    usage.note([Came(TODAY, "a", "logs", 1, 10, 100), Came(TODAY, "b", "logs", 1, 1)])
    usage.note([Came(TODAY, "a", "logs", 3, 30)])
    day = date.fromisoformat(TODAY)
    assert list(usage.by_stream("a", day, day)) == [Came(TODAY, "a", "logs", 3, 30, 100)]
    assert len(list(usage.by_stream(None, day, day))) == 2
    name = usage.writer
    usage.close()
    usage = TableUsage(tmp_path / "t.db")
    assert (usage.writer, "-" in name) == (name, True)
    usage.looked(NOON + timedelta(days=500))
    assert list(usage.by_stream(None, day, day)) == []
    usage.close()
    (tmp_path / "t.db").write_bytes(b"no database" * 1_000)
    assert TableUsage(tmp_path / "t.db").looked_at is None
