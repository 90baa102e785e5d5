"""Whether maintenance is behind, and by how much, is told: by the health of the line, and by a metric of the
catalog, which runs while maintenance does not."""

from datetime import UTC, datetime, timedelta

import httpx
import pytest

from catalog.http.services import ROUND_TASK
from lake.catalog_client import CatalogClient, TableName
from lake.extras_client import ChangedPartition
from lake.table_layout import bucket_path, partition_path
from optimize.maintenance_tasks import KIND, ROUND, MaintenanceTasks
from query.tables.maintenance_debt import LISTED_MAX, MANY_IN_BUCKET, MaintenanceDebt, is_waiting
from tests.optimize.support.maintained import maintenance
from tests.query.support.guarded import Guarded

pytestmark = pytest.mark.finding(17)

NOW = datetime(2026, 9, 1, 12, 0, tzinfo=UTC)


def _debt(
    leader: str | None = "host/1",
    ago: timedelta | None = timedelta(minutes=5),
    waiting: int = 0,
    since: timedelta | None = None,
) -> MaintenanceDebt:
    return MaintenanceDebt(
        leader, None if ago is None else NOW - ago, waiting, waiting, None if since is None else NOW - since
    )


def test_what_is_behind_is_said_with_how_much() -> None:
    """Rounds that do not end, nobody who runs them, hours that nobody merges; a young stack and a busy one
    are not behind."""
    assert _debt().problem(NOW) == ""
    assert _debt().says(NOW) == "keeps up: its last round ended 5 min ago"
    assert _debt(ago=None).says(NOW) == "its first round runs"
    assert (
        _debt(leader=None, ago=None).says(NOW)
        == "behind: nobody has ever run it: start `python -m optimize run`"
    )
    assert (
        _debt(leader=None, ago=timedelta(days=3)).says(NOW)
        == "behind: its last round ended 3 d ago and nobody runs it now"
    )
    assert _debt(ago=timedelta(hours=5)).says(NOW) == "behind: its last round ended 5 h ago"
    assert _debt(leader=None).problem(NOW) == ""  # rounds by a timer of the machine
    assert _debt(waiting=7, since=timedelta(hours=11)).problem(NOW) == ""
    late = _debt(waiting=LISTED_MAX, since=timedelta(days=4))
    assert late.says(NOW) == "behind: 1,000 or more hours of tables wait to be merged, the longest for 4 d"


def test_a_bucket_rests_with_files_of_unlike_sizes() -> None:
    """Delete files among them; an hour with three small files waits."""

    def waits(path: str, files: int) -> bool:
        changed_ms = int((NOW - timedelta(days=2)).timestamp() * 1000)
        return is_waiting(ChangedPartition(TableName("a", "b"), 1, path, files, 1_000, 1, changed_ms), NOW)

    assert waits(partition_path(490_000), 3)
    assert not waits(bucket_path(0), MANY_IN_BUCKET - 1)
    assert waits(bucket_path(0), MANY_IN_BUCKET)


@pytest.mark.stack
def test_health_tells_how_long_ago_the_last_round_ended(
    keyed: Guarded, catalog_client: CatalogClient
) -> None:
    """Nobody leads here. What an earlier round has noted counts, by its age; the catalog's metric reads the
    same note."""
    assert f"{KIND}:{ROUND}" == ROUND_TASK

    def noted(at: datetime) -> None:
        tasks = catalog_client.get("/firn/v1/tasks", kind=KIND)["tasks"]
        version = next((task["version"] for task in tasks if task["id"] == ROUND_TASK), 0)
        task = {
            "id": ROUND_TASK,
            "kind": KIND,
            "state": "done",
            "version": version,
            "record": {"at-ms": int(at.timestamp() * 1000)},
        }
        catalog_client.post("/firn/v1/tasks", {"tasks": [task]})

    def health() -> httpx.Response:
        return keyed.ask("GET", "/v1/health", "admin")

    noted(datetime.now(UTC) - timedelta(days=3, minutes=1))
    behind = health().json()
    assert behind["maintenance"]["behind"] is True
    assert "its last round ended 3 d ago" in behind["maintenance"]["says"]
    assert [service["up"] for service in behind["services"] if service["name"] == "maintenance"] == [False]
    MaintenanceTasks(maintenance(catalog_client)).note_round()
    after = health().json()["maintenance"]
    assert "last round" not in after["says"] or "keeps up" in after["says"]
    assert datetime.fromisoformat(after["last_round"]) > datetime.fromisoformat(
        behind["maintenance"]["last_round"]
    )
