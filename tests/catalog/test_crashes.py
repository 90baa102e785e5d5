"""Crashes and races: what was acknowledged is there, what was refused is not, nothing happens by halves."""

import os
import random
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import orjson
import pytest

from tests.catalog.conftest import Server
from tests.catalog.support.table_requests import append, create_body, main_is
from tests.stack.support.waiting import wait_for

pytestmark = pytest.mark.stack

Json = dict[str, Any]
KILLS = int(os.environ.get("FIRN_CATALOG_KILLS", "3"))
RACE_S = float(os.environ.get("FIRN_CATALOG_RACE_S", "1"))
TABLES = 6


def create_tables(server: Server, count: int) -> None:
    with server.client() as client:
        client.post("/v1/namespaces", json={"namespace": ["a"]})
        for number in range(count):
            assert client.post("/v1/namespaces/a/tables", json=create_body(f"t{number}")).status_code == 200


def snapshots_of(client: httpx.Client, number: int) -> list[Json]:
    metadata = client.get(f"/v1/namespaces/a/tables/t{number}").json()["metadata"]
    found: list[Json] = metadata["snapshots"]
    return found


def writer(
    server: Server,
    stop: threading.Event,
    atomic: bool,
    seed: int,
    log: list[tuple[str, list[tuple[int, int]]]],
) -> None:
    """Appends to all tables until it is stopped; notes for each request (acknowledged | refused | lost,
    [(table, snapshot id)])."""
    chance = random.Random(seed)
    while not stop.is_set():
        changes, written = [], []
        for number in chance.sample(range(TABLES), 3):
            updates = append(None, chance.randrange(1, 2**40), snapshot_id=chance.getrandbits(62))
            changes.append(
                {
                    "identifier": {"namespace": ["a"], "name": f"t{number}"},
                    "requirements": [],
                    "updates": updates,
                }
            )
            written.append((number, updates[0]["snapshot"]["snapshot-id"]))
        try:
            with server.client() as client:
                if atomic:
                    response = client.post("/v1/transactions/commit", json={"table-changes": changes})
                    log.append(
                        (
                            "acknowledged"
                            if response.status_code == 204
                            else "refused"
                            if response.status_code < 500
                            else "lost",
                            written,
                        )
                    )
                else:
                    results = client.post("/firn/v1/commits", json={"commits": changes}).json()["results"]
                    for result, one in zip(results, written, strict=True):
                        log.append(("acknowledged" if result["status"] == "committed" else "refused", [one]))
        except (httpx.HTTPError, orjson.JSONDecodeError):
            log.append(("lost" if atomic else "lost-each", written))


def test_killed_servers_break_no_promise(own_server: Server) -> None:
    """SIGKILL at random moments: transactions are in whole or not at all, each table of a batch is, and no
    answer is contradicted."""
    create_tables(own_server, TABLES)
    logs: list[list[tuple[str, list[tuple[int, int]]]]] = [[] for _ in range(4)]
    chance = random.Random(11)
    for round_number in range(KILLS):
        stop = threading.Event()
        threads = [
            threading.Thread(
                target=writer, args=(own_server, stop, at % 2 == 0, round_number * 10 + at, logs[at])
            )
            for at in range(4)
        ]
        for thread in threads:
            thread.start()
        stop.wait(chance.uniform(0.05, 0.5))
        if round_number == KILLS - 1:  # a busy machine may not have come to answer anything yet
            wait_for(lambda: "acknowledged" in outcomes(logs), 120.0, "an answer")
        own_server.kill()
        stop.set()
        for thread in threads:
            thread.join()
        own_server.start()
    with own_server.client() as client:
        wait_for_the_database(client)
        present = {
            number: {snapshot["snapshot-id"] for snapshot in snapshots_of(client, number)}
            for number in range(TABLES)
        }
    for outcome, written in (entry for log in logs for entry in log):
        there = [snapshot_id in present[number] for number, snapshot_id in written]
        allowed = {
            "acknowledged": all(there),
            "refused": not any(there),
            "lost": all(there) or not any(there),
            "lost-each": True,
        }
        assert allowed[outcome], f"a commit was {outcome}, of its tables these hold it: {there}; {written}"


def outcomes(logs: list[list[tuple[str, list[tuple[int, int]]]]]) -> set[str]:
    """What became of requests so far."""
    return {outcome for log in logs for outcome, _ in log}


def wait_for_the_database(client: httpx.Client) -> None:
    """A commit to all tables waits for every transaction that PostgreSQL is still ending for servers that
    were killed."""
    update = {"action": "set-properties", "updates": {"last": "1"}}
    changes = [
        {"identifier": {"namespace": ["a"], "name": f"t{number}"}, "requirements": [], "updates": [update]}
        for number in range(TABLES)
    ]
    assert client.post("/v1/transactions/commit", json={"table-changes": changes}).status_code == 204


def test_racing_clients_make_one_chain(server: Server) -> None:
    """Eight clients on one table: every acknowledged commit is in the one parent chain."""
    race_on_one_table(server, RACE_S)


def race_on_one_table(server: Server, seconds: float) -> None:
    """Eight clients commit to one table for a while; afterwards its snapshots are one chain of exactly what
    was acknowledged."""
    create_tables(server, 1)
    acknowledged: list[int] = []
    stop = threading.Event()

    def race(_: int) -> None:
        with server.client() as client:
            while not stop.is_set():
                metadata = client.get("/v1/namespaces/a/tables/t0").json()["metadata"]
                head, number = metadata.get("current-snapshot-id"), metadata["last-sequence-number"] + 1
                updates = append(head, number)
                response = client.post(
                    "/v1/namespaces/a/tables/t0", json={"requirements": [main_is(head)], "updates": updates}
                )
                assert response.status_code in (200, 409), response.text
                if response.status_code == 200:
                    acknowledged.append(updates[0]["snapshot"]["snapshot-id"])

    with ThreadPoolExecutor(8) as pool:
        running = [pool.submit(race, at) for at in range(8)]
        stop.wait(seconds)
        stop.set()
        for one in running:
            one.result()
    with server.client() as client:
        snapshots = snapshots_of(client, 0)
    parents = [snapshot.get("parent-snapshot-id") for snapshot in snapshots]
    assert len(parents) == len(set(parents))
    assert acknowledged
    assert sorted(acknowledged) == sorted(snapshot["snapshot-id"] for snapshot in snapshots)
