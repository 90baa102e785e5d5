"""Dropped tables with real rows: undo brings them back, and the purge of one never touches another."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from lake.catalog_client import CatalogClient, TableName
from tests.catalog.conftest import Server
from tests.catalog.support.log_tables import STORAGE, append_rows, offsets_and_marks

pytestmark = pytest.mark.stack

NAME = TableName("a", "t")
PATH = "/v1/namespaces/a/tables/t"


@pytest.fixture
def hasty(database_url: str, tmp_path: Path) -> Iterator[Server]:
    """A live catalog whose dropped tables may be purged at once."""
    server = Server(tmp_path, database_url, environment={"FIRN_CATALOG_UNDO_WINDOW_S": "0"})
    try:
        yield server.start()
    finally:
        server.stop()


@pytest.fixture
def catalog(hasty: Server) -> Iterator[CatalogClient]:
    """A client of it that commits."""
    with closing(CatalogClient(hasty.url)) as client:
        yield client


@pytest.fixture
def requests(hasty: Server) -> Iterator[httpx.Client]:
    """A client of it that asks anything."""
    with hasty.client() as client:
        yield client


def drop(requests: httpx.Client) -> int:
    """Drops the table with a purge; returns the id it has among the dropped ones."""
    assert requests.delete(f"{PATH}?purgeRequested=true").status_code == 204
    dropped_id: int = requests.get("/firn/v1/dropped-tables").json()["dropped-tables"][-1]["id"]
    return dropped_id


def test_undo_brings_back_rows_marks_and_index(
    hasty: Server, catalog: CatalogClient, requests: httpx.Client
) -> None:
    """A dropped table comes back with every row, its marks and its partitions, and goes on from there."""
    append_rows(catalog, NAME, 7)
    before, partitions = offsets_and_marks(hasty.url), requests.get("/firn/v1/dirty-partitions").json()
    drop(requests)
    assert offsets_and_marks(hasty.url) == {}
    assert requests.get("/firn/v1/dirty-partitions").json()["partitions"] == []
    assert (
        requests.post("/firn/v1/dropped-tables/undo", json={"identifier": NAME.to_json()}).status_code == 200
    )
    assert offsets_and_marks(hasty.url) == before
    assert requests.get("/firn/v1/dirty-partitions").json() == partitions
    append_rows(catalog, NAME, 2)
    assert offsets_and_marks(hasty.url)["a.t"][0] == list(range(9))


def test_the_purge_of_a_name_spares_who_has_it_now(
    hasty: Server, catalog: CatalogClient, requests: httpx.Client
) -> None:
    """A table re-created under a dropped one's name lies elsewhere; when all files of the old one are
    deleted, the new one has its rows."""
    append_rows(catalog, NAME, 5)
    old = requests.get(PATH).json()["metadata"]["location"]
    dropped_id = drop(requests)
    append_rows(catalog, NAME, 8, recreate=True)
    assert not requests.get(PATH).json()["metadata"]["location"].startswith(old)
    start = requests.post(f"/firn/v1/dropped-tables/{dropped_id}/purge-started").json()
    assert (start["location"], start["location-shared"]) == (old, False)
    assert requests.post("/firn/v1/dropped-tables/undo", json={"id": dropped_id}).status_code == 409
    files = [item.uri for item in STORAGE.list(old)]
    assert len(files) >= 4
    STORAGE.delete(files)
    assert requests.delete(f"/firn/v1/dropped-tables/{dropped_id}").status_code == 204
    assert offsets_and_marks(hasty.url)["a.t"][0] == list(range(8))
    append_rows(catalog, NAME, 1)


def test_a_table_lives_under_one_name(hasty: Server, catalog: CatalogClient, requests: httpx.Client) -> None:
    """A living table's metadata cannot be registered under a second name, nor under that of another table,
    and an undo does not bring a second one."""
    append_rows(catalog, NAME, 5)
    append_rows(catalog, TableName("a", "other"), 3)
    body = {"name": "again", "metadata-location": requests.get(PATH).json()["metadata-location"]}
    refused = requests.post("/v1/namespaces/a/register", json=body)
    assert (refused.status_code, "a.t; rename it" in refused.text) == (409, True)
    assert (
        requests.post(
            "/v1/namespaces/a/register", json={**body, "name": "other", "overwrite": True}
        ).status_code
        == 409
    )
    assert (
        requests.post("/v1/namespaces/a/register", json={**body, "name": "t", "overwrite": True}).status_code
        == 200
    )
    dropped_id = drop(requests)
    assert requests.post("/v1/namespaces/a/register", json=body).status_code == 200
    assert requests.post("/firn/v1/dropped-tables/undo", json={"id": dropped_id}).status_code == 409
    assert {name: len(offsets) for name, (offsets, _) in offsets_and_marks(hasty.url).items()} == {
        "a.again": 5,
        "a.other": 3,
    }


def test_a_shared_location_is_said_before_a_purge(
    hasty: Server, catalog: CatalogClient, requests: httpx.Client
) -> None:
    """Where a dropped table's files are a living table's too, because it was registered again, the list and
    the purge say so."""
    append_rows(catalog, NAME, 5)
    location = requests.get(PATH).json()["metadata-location"]
    dropped_id = drop(requests)
    assert (
        requests.post(
            "/v1/namespaces/a/register", json={"name": "again", "metadata-location": location}
        ).status_code
        == 200
    )
    (listed,) = requests.get("/firn/v1/dropped-tables", params={"purgeable": "true"}).json()["dropped-tables"]
    assert listed["location-shared"] is True
    assert (
        requests.post(f"/firn/v1/dropped-tables/{dropped_id}/purge-started").json()["location-shared"] is True
    )
