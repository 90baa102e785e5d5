"""The code of today opens what every release has left behind."""

import tomllib
from collections import Counter
from pathlib import Path

import orjson
import pytest

from infra.local.jvm_parts import REPOSITORY
from infra.local.supervisor import Stack
from lake.catalog_client import CatalogClient, TableName
from tests.drills.support.scene import DEAD_LETTERS, GROUP, REST_S, TOPIC
from tests.environment import without_settings
from tests.faults.crash.identities import compare, dead, rows
from tests.query.support.processes import Child, run
from tests.releases.release import ADDRESS, EXPECTED, PLACE, SEARCH, STACK, archive, unpack, versions
from tests.stack.support.kafka_topics import KafkaTopics
from tests.stack.support.plain_http import http
from tests.stack.support.waiting import wait_for

ARCHIVE_BYTES_MAX = 500_000


def test_the_version_of_today_is_kept() -> None:
    """Small, so that all of them may stay in the repository."""
    version = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["version"]
    assert version in versions()
    assert all(archive(each).stat().st_size < ARCHIVE_BYTES_MAX for each in versions())


@pytest.mark.stack
@pytest.mark.prove
@pytest.mark.parametrize("version", versions())
def test_todays_code_goes_on_from_a_release(version: str, tmp_path: Path) -> None:
    """Catalog, tables with their marks, group offsets, a parked table with its records, dead letters, a saved
    search and an export: every record is where it belongs, once, and the audit is clean."""
    unpack(version)
    expected = orjson.loads((PLACE / EXPECTED).read_bytes())
    good = {TableName(*name.split(".")): set(map(tuple, places)) for name, places in expected["good"].items()}
    with Stack(PLACE / STACK, tied=True) as stack:
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
        _search_goes_on(stack, tmp_path)


def _nothing_parked(stack: Stack) -> bool:
    status = http.get(f"{stack.address('ingest')}/v1/status", timeout=10.0).json()
    return status["role"] == "active" and not status["parked"]


def _search_goes_on(stack: Stack, folder: Path) -> None:
    """The saved search is there, and the export can be fetched."""
    variables = {**stack.environment(), "FIRN_QUERY_STATE": str(PLACE / STACK / "query")}
    api = Child("query", folder, variables).start()
    try:
        saved = http.get(f"{api.address}/v1/saved-searches", timeout=30.0).json()["searches"]
        assert saved[SEARCH]["address"] == ADDRESS
        (export,) = http.get(f"{api.address}/v1/exports", timeout=30.0).json()["exports"]
        fetched = http.get(f"{api.address}/v1/exports/{export['id']}/file", timeout=30.0).content
        assert fetched.count(b"\n") == export["rows"] > 0
    finally:
        api.kill()
