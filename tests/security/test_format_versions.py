"""Tables that somebody else has upgraded to format version 3, or made in version 1: ingestion goes on, and
every engine reads what it should."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pyiceberg.catalog import load_catalog

from lake.catalog_client import TableName
from lake.commit import new_table_state
from lake.data_file import DataFile
from lake.settings import OptimizeSettings
from lake.tenant import to_identifier
from optimize.explain import verdict
from optimize.ingestion_lag import Share
from optimize.planner import Engine, TableFacts, plan_table
from optimize.table_view import Partition
from tests.catalog.conftest import spark  # noqa: F401 - the session-wide fixture
from tests.catalog.support.engines import spark_catalog
from tests.optimize.support.maintained import FixedClock, maintenance
from tests.stack.support.line import Line
from tests.stack.support.parked import numbered, numbers, table_name
from tests.stack.support.tool_line import ToolLine
from tests.stack.support.waiting import fresh

pytestmark = pytest.mark.finding(13)


def _upgrade(line: Line, tenant: str, version: int) -> None:
    """As any client of the REST catalog may."""
    name = table_name(tenant)
    update = {"action": "upgrade-format-version", "format-version": version}
    line.catalog.post(
        f"/v1/namespaces/{name.namespace}/tables/{name.name}", {"requirements": [], "updates": [update]}
    )


@pytest.mark.stack
def test_a_table_upgraded_to_version_3_takes_rows_with_ids(line: Line, spark: Any) -> None:  # noqa: F811
    """Appends after the upgrade give ids to old and new rows, all different; Spark deletes a row by a
    deletion vector, and the next append keeps it deleted; PyIceberg reads the metadata; nothing is parked. A
    merge leaves the row out and keeps all ids."""
    topic, tenant = line.kafka.topic(), fresh("three-")
    ours = ToolLine(line, topic, flush__interval_s=0.3)
    table = f"three.{to_identifier(tenant)}.logs"
    for name, value in spark_catalog("three", line.stack.address("catalog")).items():
        spark.conf.set(name, value)

    def ids() -> list[tuple[int, int]]:
        return [(int(n), int(row_id)) for n, row_id in spark.sql(f"SELECT n, _row_id FROM {table}").collect()]

    def write(first: int, end: int) -> None:
        line.kafka.produce(topic, numbered(tenant, range(first, end)))
        line.wait_for_rows(ours.ingester, tenant, end)

    try:
        ours.ingester.start()
        write(0, 10)
        _upgrade(line, tenant, 3)
        write(10, 20)
        write(20, 30)
        assert ours.ingester.parked(table_name(tenant)) == {}
        before = dict(ids())
        assert sorted(before) == list(range(30))
        assert sorted(before.values()) == list(range(30))
        spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('write.delete.mode'='merge-on-read')")
        spark.sql(f"DELETE FROM {table} WHERE n = '13'")
        line.kafka.produce(topic, numbered(tenant, range(30, 40)))
        ours.wait_until_stored(topic, {0: 40})
        after = dict(ids())
        assert sorted(after) == [n for n in range(40) if n != 13]
        assert {n: after[n] for n in after if n < 30} == {n: before[n] for n in before if n != 13}, (
            "a row's id never changes"
        )
        assert len(set(after.values())) == 39
        metadata = line.catalog.load_table(table_name(tenant))["metadata"]
        assert (metadata["format-version"], metadata["next-row-id"] > max(after.values())) == (3, True)
        loaded = load_catalog("three", type="rest", uri=line.stack.address("catalog")).load_table(
            f"{to_identifier(tenant)}.logs"
        )
        assert loaded.metadata.format_version == 3
        assert ours.audit() == {}
        closed = FixedClock(datetime.now(UTC) + timedelta(hours=3))
        report = replace(maintenance(line.catalog, [table_name(tenant)]), clock=closed).run()
        assert (report.merged_tables, report.failures) == (1, {})
        assert dict(ids()) == after, "nor in a merge"
        assert len(numbers(line, tenant)) == 39, "Trino reads no deletion vectors, and there are none"
    finally:
        ours.ingester.kill()


@pytest.mark.stack
def test_a_table_of_version_1_takes_rows_and_is_of_version_2_then(line: Line) -> None:
    """It was made before the tenant's first record; its metadata is upgraded in the commit of the first rows,
    and Trino reads it."""
    topic, tenant = line.kafka.topic(), fresh("one-")
    name = TableName(to_identifier(tenant), "logs")
    state = new_table_state(name, tenant, "logs", line.catalog.warehouse or "")
    line.catalog.create_namespace(name.namespace, {})
    body = {
        "name": "logs",
        "schema": state.schema.json,
        "partition-spec": state.spec,
        "properties": {**state.properties, "format-version": "1"},
    }
    line.catalog.post(f"/v1/namespaces/{name.namespace}/tables", body)
    assert line.catalog.load_table(name)["metadata"]["format-version"] == 1
    ours = ToolLine(line, topic, flush__interval_s=0.3)
    try:
        ours.ingester.start()
        for end in (10, 20):
            line.kafka.produce(topic, numbered(tenant, range(end - 10, end)))
            line.wait_for_rows(ours.ingester, tenant, end)
        assert numbers(line, tenant) == list(range(20))
        assert line.catalog.load_table(name)["metadata"]["format-version"] == 2
        assert ours.ingester.parked(table_name(tenant)) == {}
    finally:
        ours.ingester.kill()


def test_rows_of_version_3_are_never_rewritten_by_spark() -> None:
    """Merges of our own keep the ids of rows; what would be too large for them is left alone, and said."""
    files = tuple(DataFile(f"file:///w/{at}.parquet", 1, 10, 100) for at in range(9))
    facts = TableFacts(TableName("a", "logs"), "a", 1, 1, (), has_been_replaced=False, keeps_row_ids=True)
    settings, now_ms = OptimizeSettings(), 10 * 3_600_000_000
    plan = plan_table(facts, [Partition(1, files)], settings, now_ms)
    assert [merge.engine for merge in plan.merges] == [Engine.ARROW]
    large = OptimizeSettings.load(merge__rewrite_bytes_min=500)
    plan = plan_table(facts, [Partition(1, files)], large, now_ms)
    assert plan.merges == ()
    assert "too large" in verdict(plan, None, Share(1.0, ""), now_ms)
