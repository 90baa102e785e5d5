"""The engines of this stack read a table of hours, days and a month alike, whatever is deleted or late."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

import httpx
import pytest

from lake.span import Span
from optimize.table_view import load_view
from tests.catalog.conftest import spark  # noqa: F401 - the session-wide fixture
from tests.optimize.support.maintained import FixedClock, maintenance, utc
from tests.query.support.four_engines import READ_RIGHT, readers, right, upgrade, with_catalog
from tests.query.support.log_table import LogTable, fresh_tenant
from tests.stack.support.line import Line

pytestmark = pytest.mark.stack

FIRST = utc(2026, 3, 30)
HOURS = 72
NOW = utc(2026, 4, 8, 12)  # March is cold, half a day later the first of April as well
STEP = timedelta(minutes=30)


def records(numbers: Iterable[int]) -> list[dict[str, Any]]:
    return [{"timestamp": FIRST + STEP * n, "n": n, "severity": "info"} for n in numbers]


@pytest.fixture
def session(spark: Any, line: Line) -> Any:  # noqa: F811
    return with_catalog(spark, line.stack.address("catalog"))


@pytest.mark.prove
@pytest.mark.parametrize("version", [2, 3])
def test_engines_read_hours_days_and_months_alike(
    version: int, line: Line, session: Any, api: httpx.Client
) -> None:
    """All rows, those of a range that cuts a month and a day, and the rest after rows are deleted in the
    files of spans and late ones came; histograms count each row in its bucket."""
    table = LogTable(line.catalog, fresh_tenant(f"cold-{version}"), types={"n": "long"})
    alive = set(range(HOURS * 2))
    table.append(records(alive), rows_per_file=1)
    upgrade(line.catalog, table.name, version)
    table.append(records([200]))  # the third of April has a file of that version
    alive.add(200)
    where = {"tenant": table.tenant, "from": FIRST.isoformat(), "to": (FIRST + timedelta(days=9)).isoformat()}
    engines = readers(line, session, api, where, table.name, ["n"])
    everybody = READ_RIGHT[2]  # while no row is deleted

    def all_right() -> list[str]:
        return right(engines, [(n,) for n in alive])

    def maintain(now: datetime) -> list[str]:
        assert maintenance(line.catalog, [table.name], clock=FixedClock(now)).run().failures == {}
        view = load_view(line.catalog, table.storage, table.name)
        assert view is not None
        return [str(at) for at in view.partitions() if isinstance(at, Span)]

    assert maintain(NOW) == ["2026-03"]
    assert sorted(maintain(NOW + timedelta(hours=12))) == ["2026-03", "2026-04-01"]
    assert all_right() == everybody
    _check_ranges(api, line, session, table, alive)

    name = f"deletes.{table.name.namespace}.{table.name.name}"
    deleted = {3, 40, 100, 130}
    session.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('write.delete.mode' = 'merge-on-read')")
    session.sql(f"DELETE FROM {name} WHERE n IN ({', '.join(map(str, deleted))})")
    alive -= deleted
    late = [7, 101]
    table.append([{**each, "n": each["n"] + 1_000} for each in records(late)])
    alive |= {n + 1_000 for n in late}
    assert all_right() == READ_RIGHT[version]
    assert sorted(maintain(NOW + timedelta(days=3))) == ["2026-03", "2026-04-01", "2026-04-03"]
    assert all_right() == everybody
    view = load_view(line.catalog, table.storage, table.name)
    assert view is not None
    assert view.delete_files() == {}
    assert {len(found.files) for found in view.partitions().values()} == {1}
    _check_ranges(api, line, session, table, alive)


def _check_ranges(api: httpx.Client, line: Line, session: Any, table: LogTable, alive: set[int]) -> None:
    """Ranges that cut files, in the search, Trino and Spark; and a histogram by the hour."""
    start, end = FIRST + 7 * STEP, FIRST + 110 * STEP
    wanted = sorted(n for n in alive if 7 <= n % 1_000 < 110)
    times = {"tenant": table.tenant, "from": start.isoformat(), "to": end.isoformat()}
    answer = api.post("/v1/search", json={**times, "engine": "duckdb", "limit": 1_000}).json()
    assert sorted(row["fields"]["n"] for row in answer["rows"]) == wanted
    within = (
        f"timestamp >= TIMESTAMP '{start:%Y-%m-%d %H:%M:%S} UTC' AND "
        f"timestamp < TIMESTAMP '{end:%Y-%m-%d %H:%M:%S} UTC'"
    )
    name = f"{table.name.namespace}.{table.name.name}"
    found = session.sql(f"SELECT n FROM deletes.{name} WHERE {within}").collect()
    assert sorted(row[0] for row in found) == wanted
    if _version(table) == 2:
        assert sorted(n for (n,) in line.sql(f"SELECT n FROM {name} WHERE {within}")) == wanted
    told = api.post("/v1/histogram", json={**times, "width_s": 3_600}).json()
    counted = {bucket["start"]: bucket["rows"] for bucket in told["buckets"]}
    by_hour: dict[str, int] = {}
    for n in wanted:
        hour = (FIRST + STEP * (n % 1_000)).replace(minute=0)
        by_hour[hour.isoformat()] = by_hour.get(hour.isoformat(), 0) + 1
    assert {datetime.fromisoformat(at).isoformat(): rows for at, rows in counted.items()} == by_hour


def _version(table: LogTable) -> int:
    return int(table.catalog.load_table(table.name)["metadata"]["format-version"])
