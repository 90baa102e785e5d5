"""A stream that is deleted through the API: its files go when the time for undo is over, not before, and undo
brings all of it back."""

from collections.abc import Iterator
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from infra.local.supervisor import Stack
from lake.catalog_client import CatalogClient
from lake.storage import local_path
from optimize.maintenance_tasks import MaintenanceTasks
from tests.optimize.support.maintained import maintenance
from tests.query.support.guarded import START, Guarded
from tests.query.support.log_table import LogTable
from tests.query.support.processes import Child
from ui.components.stream_detail import what_follows

pytestmark = pytest.mark.finding(11)
STREAM = "to-be-deleted"


@pytest.fixture(scope="module")
def three_days_later(
    stack: Stack, keyed: Guarded, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[CatalogClient]:
    """The same catalog with the undo window over at once, as it would be over later."""
    environment = {**stack.environment(), "FIRN_CATALOG_UNDO_WINDOW_S": "0"}
    server = Child("catalog", tmp_path_factory.mktemp("later"), environment).start()
    with closing(CatalogClient(server.address, token=keyed.keys["admin"])) as client:
        yield client
    server.kill()


@pytest.mark.stack
def test_a_deleted_stream_comes_back_until_its_files_go_for_good(
    keyed: Guarded, catalog_client: CatalogClient, three_days_later: CatalogClient
) -> None:
    """Deleted: maintenance leaves the files for three days. Undone: every row is there. Deleted again, after
    the window: no file is left."""
    table = LogTable(catalog_client, keyed.mine.tenant, STREAM)
    table.append([{"timestamp": START + timedelta(seconds=at), "message": f"row {at}"} for at in range(20)])
    folder = local_path(str(catalog_client.load_table(table.name)["metadata"]["location"]))
    where = {"tenant": table.tenant, "stream": STREAM}
    before, files = everything(keyed, where), files_of(folder)
    assert files
    assert len(before) == 20

    assert keyed.ask("DELETE", "/v1/streams", "mine", params=where).json()["purge_due"]
    (dropped,) = keyed.ask("GET", "/v1/streams/dropped", "reader", params={"tenant": table.tenant}).json()[
        "dropped"
    ]
    assert moment(dropped["purge_due"]) == moment(dropped["dropped_at"]) + timedelta(days=3)
    with closing(CatalogClient(keyed.catalog.address, token=keyed.keys["admin"])) as now:
        purge(now)
    assert files_of(folder) == files
    assert keyed.ask("POST", "/v1/streams/undo", "mine", json=where).is_success
    assert everything(keyed, where) == before

    assert keyed.ask("DELETE", "/v1/streams", "mine", params=where).is_success
    purge(three_days_later)
    assert files_of(folder) == []
    assert keyed.ask("POST", "/v1/streams/undo", "mine", json=where).status_code == 404


def purge(catalog: CatalogClient) -> None:
    """Maintenance's daily task."""
    list(MaintenanceTasks(maintenance(catalog, retention__purge_after_s=0)).purge())


def files_of(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def everything(keyed: Guarded, where: dict[str, str]) -> list[str]:
    body = {**where, "from": START.isoformat(), "to": (START + timedelta(hours=1)).isoformat(), "limit": 100}
    return [row["message"] for row in keyed.ask("POST", "/v1/search", "reader", json=body).json()["rows"]]


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


@pytest.mark.parametrize(
    ("window_s", "said"),
    [
        (3 * 86_400.0, "brought back for **3 days**"),
        (5_400.0, "brought back for **90 minutes**"),
        (0.0, "for **0 seconds**"),
        (None, "**no undo**"),
    ],
)
def test_the_page_tells_how_long_undo_works_and_what_becomes_of_the_files(
    window_s: float | None, said: str
) -> None:
    """The catalog's own window, not a number of the page's."""
    assert said in what_follows(window_s)
    assert ("removes its files **for good**" in what_follows(window_s)) == (window_s is not None)
