"""A storage that takes requests and never answers: what does not need it goes on."""

import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import uuid4

import httpx
import pytest

from catalog.store.database import Database, tables
from tests.catalog.conftest import Server
from tests.catalog.support.table_requests import create_body

pytestmark = pytest.mark.stack

CHANGES = 20
PATIENCE_S = 2.0
STORAGE_TIMEOUT_S = 20


@pytest.fixture
def stuck(database_url: str, tmp_path: Path) -> Iterator[Server]:
    """A live catalog whose warehouse is an S3 bucket that never answers. There is a name in its database: of
    an empty one only the storage could say whether it was lost."""
    before = Server(tmp_path, database_url).start()
    with before.client() as client:
        client.post("/v1/namespaces", json={"namespace": ["before"]})
    before.stop()
    with socket.create_server(("127.0.0.1", 0), backlog=1_000) as silent:
        s3 = {
            "FIRN_STORAGE_S3__ENDPOINT": f"http://127.0.0.1:{silent.getsockname()[1]}",
            "FIRN_STORAGE_S3__ACCESS_KEY_ID": "id",
            "FIRN_STORAGE_S3__SECRET_ACCESS_KEY": "secret",
            "FIRN_STORAGE_REQUEST_TIMEOUT_S": str(STORAGE_TIMEOUT_S),
        }
        server = Server(tmp_path, database_url, environment=s3, elsewhere="s3://bucket/warehouse")
        try:
            yield server.start()
        finally:
            server.kill()


@pytest.mark.parametrize("database_kind", ["sqlite", pytest.param("postgres", marks=pytest.mark.prove)])
def test_leases_live_while_the_storage_hangs(stuck: Server) -> None:
    """While changes of names and commits wait for a storage that hangs, leases are renewed and parked records
    changed at once."""

    def wait_for_the_storage(number: int) -> None:
        with httpx.Client(base_url=stuck.url, timeout=PATIENCE_S) as client:
            for path, body in (
                ("/v1/namespaces", {"namespace": [f"n{number}"]}),
                (f"/v1/namespaces/n{number}/tables", create_body("t")),
            ):
                with pytest.raises(httpx.ReadTimeout):
                    client.post(path, json=body)

    with ThreadPoolExecutor(CHANGES) as pool, stuck.client() as client:
        waiting = [pool.submit(wait_for_the_storage, number) for number in range(CHANGES)]
        token = client.post("/firn/v1/leases/ingest/acquire", json={"holder": "h", "ttl-ms": 6_000}).json()[
            "token"
        ]
        answered_meanwhile = 0
        while not all(one.done() for one in waiting):
            assert (
                client.post(
                    "/firn/v1/leases/ingest/renew", json={"token": token, "ttl-ms": 6_000}
                ).status_code
                == 200
            )
            parked = {"lease": f"ingest:{token}", "changes": []}
            assert client.post("/firn/v1/parked", json=parked).status_code == 200
            answered_meanwhile += not all(one.done() for one in waiting)
        for one in waiting:
            one.result()
    # Whoever waited for the storage as well would have no answer before all the others have given up.
    assert answered_meanwhile > 0


def test_a_load_of_many_waits_no_longer_than_it_is_to(stuck: Server) -> None:
    """One table's storage hangs: what is known of the others is told at the deadline."""
    place = "s3://bucket/warehouse/t"
    row = {"ident": "a\x1ft", "namespace": "a", "name": "t", "kind": "table", "uuid": str(uuid4())}
    moments = {"created_ms": 0, "changed_ms": 0}
    database = Database(stuck.database_url)
    with database.write() as connection:
        metadata = f"{place}/metadata/00000-x.metadata.json"
        connection.execute(
            tables.insert(), {**row, "location": place, "metadata_location": metadata, **moments}
        )
    database.close()
    names = [{"namespace": ["a"], "name": name} for name in ("t", "none")]
    with httpx.Client(base_url=stuck.url, timeout=PATIENCE_S) as client:
        body = {"identifiers": names, "deadline-ms": 300}
        slow, missing = client.post("/firn/v1/loads", json=body).json()["results"]
    assert "in time" in slow["error"]["message"]
    assert missing["error"]["type"] == "NoSuchTableException"
