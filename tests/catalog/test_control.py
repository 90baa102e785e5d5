"""`python -m catalog serve --control`: what ingestion and erasures need beside another catalog, and
nothing else."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from lake.catalog_client import CatalogClient, TableName
from lake.erasure_work import ErasureAnswer, ErasureRequest, ErasureWork, work_list_of
from lake.errors import RefusedError
from lake.settings import ControlSettings
from tests.catalog.conftest import Server

pytestmark = pytest.mark.stack

TABLE = {"namespace": ["a"], "name": "t"}


@pytest.fixture
def control(database_url: str, tmp_path: Path) -> Iterator[Server]:
    """A control service without a warehouse."""
    server = Server(tmp_path, database_url, arguments=["--anonymous", "--control"])
    try:
        yield server.start()
    finally:
        server.stop()


def test_leases_and_parked_records_need_no_warehouse(control: Server) -> None:
    """Leases and parked records work and survive a restart; a lease taken again has a higher token, and the
    older one changes nothing."""
    with control.client() as client:
        first = client.post(
            "/firn/v1/leases/ingest/acquire", json={"holder": "one", "ttl-ms": 60_000}
        ).json()["token"]
        change = {
            "lease": f"ingest:{first}",
            "changes": [{"identifier": TABLE, "version": 0, "reason": "storage", "record": {"from": 7}}],
        }
        assert client.post("/firn/v1/parked", json=change).json()["results"][0]["version"] == 1
    control.stop()
    with control.start().client() as client:
        assert client.get("/firn/v1/parked/a/t").json()["record"] == {"from": 7}
        assert (
            client.post(
                "/firn/v1/leases/ingest/acquire", json={"holder": "two", "ttl-ms": 60_000}
            ).status_code
            == 409
        )
        assert (
            client.post("/firn/v1/leases/ingest/renew", json={"token": first, "ttl-ms": 60_000}).status_code
            == 200
        )
        second = client.post(
            "/firn/v1/leases/ingest/acquire", json={"holder": "one", "ttl-ms": 60_000}
        ).json()["token"]
        assert second > first
        assert client.post("/firn/v1/parked", json={**change, "changes": []}).status_code == 403


def test_erasures_are_asked_for_and_answered_there(control: Server) -> None:
    """With the address that settings name as `control.uri`; a lease of the catalog beside it means nothing
    to it."""
    with closing(CatalogClient("http://127.0.0.1:9")) as catalog:
        work_list = work_list_of(catalog, ControlSettings(uri=control.url))
        assert work_list_of(catalog, ControlSettings()) is catalog
    with closing(work_list):
        work = ErasureWork(work_list)
        request = ErasureRequest("x", TableName("a", "t"), "uuid", {}, 0)
        work.ask(request)
        assert [ErasureRequest.of(task) for task in work.requests()] == [request]
        first = ErasureAnswer("x")
        version = work.save(first)
        work.save(replace(first, state="done", version=version))
        with pytest.raises(RefusedError, match="somebody else"):
            work.save(replace(first, version=version))
        work.drop_request("x")
        assert work.answer("x") == ErasureAnswer("x", "done")
        assert not work.has_request("x")


def test_it_is_no_catalog(control: Server) -> None:
    """Nobody can take it for an Iceberg catalog: the protocol's routes are not there, and its document does
    not name them."""
    with control.client() as client:
        for path in ("/v1/config", "/v1/namespaces", "/firn/v1/dirty-partitions", "/firn/v1/deletions"):
            assert client.get(path).status_code == 404
        assert client.post("/firn/v1/commits", json={"commits": []}).status_code == 404
        paths = set(client.get("/openapi.json").json()["paths"])
        assert {path.split("/")[3] for path in paths if path.startswith("/firn/v1/")} == {
            "leases",
            "parked",
            "tasks",
            "keys",
            "whoami",
            "permission",
        }
        assert not any(path.startswith("/v1/") and path != "/v1/oauth/tokens" for path in paths)
        assert client.get("/readyz").status_code == 200
        assert "firn_catalog_requests_total" in client.get("/metrics").text
