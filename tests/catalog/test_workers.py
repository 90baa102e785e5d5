"""Several processes that serve one PostgreSQL: what one did, the others see at once."""

import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import psutil
import pytest

from tests.catalog.conftest import Postgres, Server, empty_database, wait_until
from tests.catalog.support.table_requests import append, create_body
from tests.catalog.test_crashes import race_on_one_table

pytestmark = pytest.mark.stack

WORKERS = 3
CONNECTIONS = 12


@pytest.fixture(scope="module")
def shared_crowd(postgres: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A catalog of three processes."""
    arguments = ["--anonymous", "--workers", str(WORKERS)]
    server = Server(
        tmp_path_factory.mktemp("crowd"), postgres.new_database(f"crowd{os.urandom(6).hex()}"), arguments
    )
    try:
        yield server.start()
    finally:
        server.stop()


@pytest.fixture
def crowd(shared_crowd: Server) -> Server:
    """The same with nothing in it."""
    empty_database(shared_crowd)
    return shared_crowd


@pytest.fixture
def clients(crowd: Server) -> Iterator[list[httpx.Client]]:
    """Clients with a connection each, spread over the workers."""
    made = [crowd.client() for _ in range(CONNECTIONS)]
    with ThreadPoolExecutor(CONNECTIONS) as pool:
        list(pool.map(lambda client: client.get("/v1/config"), made))
    yield made
    for client in made:
        client.close()


def workers_of(server: Server) -> list[psutil.Process]:
    assert server.process is not None
    return list(psutil.Process(server.process.pid).children())


def serves(worker: psutil.Process, port: int) -> bool:
    """Whether a worker has taken connections."""
    return any(
        one.status == psutil.CONN_ESTABLISHED and one.laddr.port == port for one in worker.net_connections()
    )


def test_workers_see_each_others_changes_at_once(crowd: Server, clients: list[httpx.Client]) -> None:
    """A commit, rename or drop through one connection is what every other connection gets next, whichever
    worker holds it in memory."""
    assert sum(serves(worker, crowd.port) for worker in workers_of(crowd)) > 1
    clients[0].post("/v1/namespaces", json={"namespace": ["a"]})
    clients[1].post("/v1/namespaces/a/tables", json=create_body("t0"))
    for number, client in enumerate(clients):
        change = {
            "requirements": [],
            "updates": [{"action": "set-properties", "updates": {"n": str(number)}}],
        }
        location = client.post(f"/v1/namespaces/a/tables/t{number}", json=change).json()["metadata-location"]
        loaded = [other.get(f"/v1/namespaces/a/tables/t{number}").json() for other in clients]
        assert {answer["metadata-location"] for answer in loaded} == {location}
        assert {answer["metadata"]["properties"]["n"] for answer in loaded} == {str(number)}
        rename = {
            "source": {"namespace": ["a"], "name": f"t{number}"},
            "destination": {"namespace": ["a"], "name": f"t{number + 1}"},
        }
        assert client.post("/v1/tables/rename", json=rename).status_code == 204
        assert {other.head(f"/v1/namespaces/a/tables/t{number}").status_code for other in clients} == {404}
    last = f"/v1/namespaces/a/tables/t{CONNECTIONS}"
    assert clients[0].delete(last).status_code == 204
    assert {other.get(last).status_code for other in clients} == {404}
    assert {len(other.get("/firn/v1/dropped-tables").json()["dropped-tables"]) for other in clients} == {1}


def send_from_all(clients: list[httpx.Client], path: str, body: Any, key: str) -> list[httpx.Response]:
    """The answers to one request that all clients send at the same time."""
    with ThreadPoolExecutor(CONNECTIONS) as pool:
        return list(
            pool.map(lambda client: client.post(path, json=body, headers={"Idempotency-Key": key}), clients)
        )


def test_the_same_request_to_many_workers_is_done_once(clients: list[httpx.Client]) -> None:
    """A request that arrives at several workers at the same time under one Idempotency-Key is done by one;
    all give its answer."""
    clients[0].post("/v1/namespaces", json={"namespace": ["a"]})
    clients[0].post("/v1/namespaces/a/tables", json=create_body("t"))
    for number in range(5):
        commit = {"requirements": [], "updates": append(None, number + 1)}
        for path, body in (
            ("/v1/namespaces", {"namespace": [f"b{number}"]}),
            ("/v1/namespaces/a/tables/t", commit),
        ):
            answers = send_from_all(clients, path, body, f"{path}-{number}")
            assert {answer.status_code for answer in answers} == {200}
            assert len({answer.content for answer in answers}) == 1
    assert len(clients[0].get("/v1/namespaces/a/tables/t").json()["metadata"]["snapshots"]) == 5


def test_metrics_count_all_workers(clients: list[httpx.Client]) -> None:
    """Whichever worker is asked for its metrics tells the requests of all of them."""

    def counted(client: httpx.Client) -> float:
        line = next(
            line
            for line in client.get("/metrics").text.splitlines()
            if line.startswith('firn_catalog_requests_total{operation="list_namespaces"')
        )
        return float(line.split()[-1])

    clients[0].get("/v1/namespaces")
    before = counted(clients[0])
    for client in clients:
        client.get("/v1/namespaces")
    assert {counted(client) for client in clients} == {before + CONNECTIONS}


def test_workers_race_on_one_table(crowd: Server) -> None:
    """Eight clients on one table over several workers: every acknowledged commit is in the one parent
    chain."""
    race_on_one_table(crowd, 3)


def test_a_worker_that_dies_is_replaced(crowd: Server) -> None:
    """After the death of a worker there are as many as before, and the catalog answers; after the parent's
    death none is left."""
    wait_until(lambda: len(workers_of(crowd)) == WORKERS, "the start of every worker")
    first = workers_of(crowd)
    first[0].send_signal(signal.SIGKILL)
    wait_until(
        lambda: (
            first[0].pid not in {worker.pid for worker in workers_of(crowd)}
            and len(workers_of(crowd)) == WORKERS
        ),
        "a new worker",
    )
    with crowd.client() as client:
        wait_until(lambda: client.get("/readyz").status_code == 200, "an answer")
    left = workers_of(crowd)
    crowd.kill()  # the last test on it
    wait_until(
        lambda: not any(worker.is_running() and worker.status() != psutil.STATUS_ZOMBIE for worker in left),
        "the end of the workers",
    )
