"""The code of today opens what every release has left behind."""

import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest

from infra.local.jvm_parts import REPOSITORY
from infra.local.supervisor import Stack
from lake.catalog_client import CatalogClient, TableName
from tests.changes.support.shop import Shop
from tests.drills.support.scene import DEAD_LETTERS, GROUP, REST_S, TOPIC
from tests.environment import without_settings
from tests.faults.crash.identities import compare, dead, rows
from tests.query.support.processes import Child, run
from tests.releases import database_dump, orders
from tests.releases.release import ADDRESS, EXPECTED, PLACE, SEARCH, STACK, archive, name_of, names, unpack
from tests.stack.support.kafka_topics import KafkaTopics
from tests.stack.support.plain_http import http
from tests.stack.support.waiting import wait_for

ARCHIVE_BYTES_MAX = 500_000


def test_the_version_of_today_is_kept() -> None:
    """On either database; small, so that all of them may stay in the repository."""
    version = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["version"]
    assert {name_of(version, each) for each in ("sqlite", "postgres")} <= set(names())
    assert all(archive(each).stat().st_size < ARCHIVE_BYTES_MAX for each in names())


@pytest.mark.stack
@pytest.mark.prove
@pytest.mark.parametrize("name", names())
def test_todays_code_goes_on_from_a_release(name: str, tmp_path: Path) -> None:
    """Catalog, tables with their marks, a table with a key and its history, group offsets, a parked table
    with its records, dead letters, a saved search and an export: every record is where it belongs, once, and
    the audit is clean."""
    unpack(name)
    expected = orjson.loads((PLACE / EXPECTED).read_bytes())
    good = {TableName(*name.split(".")): set(map(tuple, places)) for name, places in expected["good"].items()}
    with Stack(PLACE / STACK, tied=True) as stack:
        if (PLACE / database_dump.FILE).exists():
            database_dump.restore(stack, PLACE)
        stack.start("kafka", "catalog")
        assert len(CatalogClient(stack.address("catalog")).get("/firn/v1/parked")["parked"]) == 1
        stack.start("ingest")
        kafka = KafkaTopics(stack.address("kafka"))
        ends = kafka.ends(TOPIC)
        wait_for(lambda: _nothing_parked(stack), REST_S, "the parked table being released")
        wait_for(lambda: kafka.group_offsets(GROUP, TOPIC) == ends, REST_S, f"group offsets at {ends}")
        catalog, topic_id = CatalogClient(stack.address("catalog")), kafka.topic_id(TOPIC)
        found = {name: Counter(rows(catalog, name, topic_id)) for name in good}
        verdict = compare(good, set(map(tuple, expected["bad"])), found, dead(kafka, DEAD_LETTERS))
        assert (verdict.lost, verdict.doubled) == (0, 0), verdict.details
        variables = {**without_settings(), **stack.environment(), **stack.read().record("ingest").environment}
        audited = run("ingest", variables, "audit")
        assert audited.returncode == 0, audited.stdout + audited.stderr
        with _search(stack, tmp_path) as address:
            _search_goes_on(address)
            if "orders" in expected:  # the first archive has none
                _orders_go_on(kafka, address, expected["orders"])


def _nothing_parked(stack: Stack) -> bool:
    status = http.get(f"{stack.address('ingest')}/v1/status", timeout=10.0).json()
    return status["role"] == "active" and not status["parked"]


@contextmanager
def _search(stack: Stack, folder: Path) -> Iterator[str]:
    """The address of the API over what the release has kept."""
    variables = {**stack.environment(), "FIRN_QUERY_STATE": str(PLACE / STACK / "query")}
    api = Child("query", folder, variables).start()
    try:
        yield api.address
    finally:
        api.kill()


def _search_goes_on(address: str) -> None:
    """The saved search is there, and the export can be fetched."""
    saved = http.get(f"{address}/v1/saved-searches", timeout=30.0).json()["searches"]
    assert saved[SEARCH]["address"] == ADDRESS
    (export,) = http.get(f"{address}/v1/exports", timeout=30.0).json()["exports"]
    fetched = http.get(f"{address}/v1/exports/{export['id']}/file", timeout=30.0).content
    assert fetched.count(b"\n") == export["rows"] > 0


def _orders_go_on(kafka: KafkaTopics, address: str, expected: Mapping[str, Any]) -> None:
    """The table has each order that was not deleted, as it was last, the history every change; further ones
    are taken as if nobody had stopped."""
    kept = [tuple(row) for row in expected["rows"]]
    assert (orders.searched(address), orders.searched_history(address)) == (kept, expected["history"])
    shop = Shop(orders.TENANT)
    shop.rows = {at: {"id": at, "name": name, "amount": amount} for at, name, amount in kept}
    records = orders.further_changes(shop)
    kafka.produce(orders.TOPIC, records)
    wait_for(lambda: orders.searched(address) == orders.rows(shop), REST_S, "the further changes")
    every = expected["history"] + orders.recorded(records)
    wait_for(lambda: orders.searched_history(address) == every, REST_S, "the history of them")
