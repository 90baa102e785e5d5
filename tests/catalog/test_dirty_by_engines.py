"""The dirty-partition index after commits of every engine that Firn's tables meet."""

import os
from collections import Counter
from typing import Any

import pytest

from lake.catalog_client import CatalogClient, TableName
from tests.catalog.support.engines import PyIcebergEngine, spark_catalog
from tests.catalog.support.random_commits import Counts, RandomCommits, truth
from tests.stack.support.line import Line
from tests.stack.support.waiting import fresh

pytestmark = pytest.mark.stack

COMMITS = int(os.environ.get("FIRN_CATALOG_ENGINE_COMMITS", "12"))
SEED = int(os.environ.get("FIRN_TEST_SEED", "1"))


def index(client: CatalogClient, name: TableName) -> Counts:
    found, token = {}, ""
    while token is not None:
        page = client.get("/firn/v1/dirty-partitions", pageToken=token)
        for entry in page["partitions"]:
            if entry["identifier"] == name.to_json():
                found[entry["partition"]] = (
                    entry["data-files"],
                    entry["delete-files"],
                    entry["bytes"],
                    entry["records"],
                )
        token = page["next-page-token"]
    return found


@pytest.mark.timeout(3_600)
def test_index_equals_the_manifests_whoever_commits(line: Line, spark: Any) -> None:
    """After every one of many random commits by PyIceberg, Firn, Spark and Trino the index says what the
    manifests say, without a recount."""
    uri = line.stack.address("catalog")
    for key, value in spark_catalog("live", uri).items():
        spark.conf.set(key, value)
    commits = RandomCommits(PyIcebergEngine(uri).catalog, line.catalog, spark, line.sql, fresh("dirty"), SEED)
    commits.create()
    done: Counter[str] = Counter()
    for number in range(COMMITS):
        kind = commits.one()
        done[kind] += 1
        for name in (commits.logs, commits.plain):
            assert index(line.catalog, name) == truth(commits.table(name)), (
                f"{name} after commit {number}, {kind}"
            )
    assert {kind.partition("_")[0] for kind in done} == {"own", "pyiceberg", "spark", "trino"}
