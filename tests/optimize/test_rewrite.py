"""Hours with position deletes: merged by PyArrow, or, where they are large, by Spark's rewrite_data_files,
the second executor."""

import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from infra.local.services.optimize import environment
from lake.catalog_client import TableName
from lake.settings import OptimizeSettings
from lake.storage import open_storage
from optimize.replacement import REWRITE_BRANCH
from optimize.spark_executor import SparkExecutor
from optimize.table_view import Partition, load_view
from tests.optimize.conftest import Optimizer
from tests.optimize.support.live_files import live_files, missing_files
from tests.optimize.support.maintained import maintenance
from tests.optimize.support.small_files import SmallFiles, this_hour
from tests.stack.support.line import Line
from tests.stack.support.waiting import fresh

pytestmark = [pytest.mark.stack, pytest.mark.prove]


def partitions_of(table: SmallFiles) -> Mapping[int, Partition]:
    view = load_view(table.catalog, table.storage, table.name)
    assert view is not None
    return {at: found for at, found in view.partitions().items() if isinstance(at, int)}


def delete_files(table: SmallFiles) -> int:
    view = load_view(table.catalog, table.storage, table.name)
    assert view is not None
    assert REWRITE_BRANCH not in view.metadata["refs"]
    return sum(len(files) for files in view.delete_files().values())


def test_rows_deleted_by_trino_stay_deleted_through_merges(
    line: Line, optimizer: Callable[..., Optimizer]
) -> None:
    """Rows that Trino's DELETE took stay away through a merge, one with late data, and a second DELETE with
    its merge.

    After each round no delete file is left, every hour is one file, and no other row is lost.
    """
    table = SmallFiles(line.catalog, open_storage(), fresh("del"))
    touched, other = this_hour() - 3, this_hour() - 4
    table.append(
        touched, 10, {"it's `odd`\\": [f"{at}" for at in range(10)]}, times=4
    )  # a field's name is any text
    table.append(other, 10, times=4)
    sql_name, name = f'"{table.name.namespace}"."logs"', f"{table.name.namespace}.{table.name.name}"

    def round_leaves(wanted: set[int]) -> None:
        optimizer(merge__late_cooldown_s=0).run("run", "--once", "--table", name)
        assert [offset for (offset,) in line.sql(f"SELECT _offset FROM {sql_name} ORDER BY 1")] == sorted(
            wanted
        )
        assert live_files(line.catalog, table.storage, table.name) == {touched: 1, other: 1}
        assert missing_files(line.catalog, table.storage, table.name) == []
        assert delete_files(table) == 0

    line.sql(f"DELETE FROM {sql_name} WHERE _offset < 40 AND _offset % 4 = 1")
    assert delete_files(table) > 0
    kept = {offset for offset in range(80) if offset >= 40 or offset % 4 != 1}
    round_leaves(kept)
    table.reload()
    table.append(touched, 10, times=2)
    kept |= set(range(80, 100))
    round_leaves(kept)
    line.sql(f"DELETE FROM {sql_name} WHERE _offset % 10 = 2")
    round_leaves({offset for offset in kept if offset % 10 != 2})


class Unfaithful(SparkExecutor):
    """Spark whose rewrite ends with rows other than it began with: `faults` are statements on the branch
    after the CALL."""

    def __init__(self, settings: OptimizeSettings) -> None:
        super().__init__(settings)
        self.faults: Sequence[str] = ()

    def rewrite(
        self,
        table: TableName,
        hours: Sequence[int],
        *,
        branch: str,
        sort_by: Sequence[str],
        target_bytes: int,
    ) -> Mapping[str, Any]:
        counts = super().rewrite(table, hours, branch=branch, sort_by=sort_by, target_bytes=target_bytes)
        session, spark_catalog = self._session()
        for fault in self.faults:
            session.sql(
                fault.format(f"{spark_catalog}.`{table.namespace}`.`{table.name}`.`branch_{branch}`")
            ).collect()
        return counts


FAULTS = {
    "a row is missing": ("DELETE FROM {} WHERE _offset = 7",),
    "a value is another": ("UPDATE {} SET message = 'message 8 of hour 1' WHERE _offset = 7",),
    "a row is there twice in place of another": (
        "UPDATE {} SET _offset = 8, message = 'message 8' WHERE _offset = 7",
    ),
    "two rows have each other's value": (
        (
            "UPDATE {} SET severity = CASE severity WHEN 'info' THEN 'warn' ELSE 'info' END WHERE _offset IN "
            "(6, "
            "7)"
        ),
    ),
}


def test_rewrite_that_changes_a_row_is_refused(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    """What Spark wrote is read again before it counts: a row dropped, changed, doubled or mixed up on the
    branch is refused, the table pauses.

    Without a fault the same hour is rewritten.
    """
    monkeypatch.setenv("JAVA_HOME", environment()["FIRN_OPTIMIZE_SPARK__JAVA_HOME"])
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    table, hour = SmallFiles(line.catalog, open_storage(), fresh("wrong")), this_hour() - 3
    table.append(hour, 10, times=4)
    line.sql(f'DELETE FROM "{table.name.namespace}"."logs" WHERE _offset % 4 = 1')
    kept = [offset for offset in range(40) if offset % 4 != 1]
    jars = Path(environment()["FIRN_OPTIMIZE_SPARK__JARS"])
    with Unfaithful(OptimizeSettings.load(catalog__uri=line.catalog.uri, spark__jars=jars)) as spark:
        for what, spark.faults in FAULTS.items():
            m = maintenance(line.catalog, [table.name], executor=spark, merge__rewrite_bytes_min=1)
            report = m.run()
            assert "read differently" in report.failures[str(table.name)], what
            assert report.refused == {str(table.name)}
            m.states.forget(table.name)
            assert live_files(line.catalog, table.storage, table.name) == {hour: 4}
            assert missing_files(line.catalog, table.storage, table.name) == []
        spark.faults = ()
        faithful = maintenance(line.catalog, [table.name], executor=spark, merge__rewrite_bytes_min=1)
        assert faithful.run().failures == {}
    assert live_files(line.catalog, table.storage, table.name) == {hour: 1}
    assert [
        offset for (offset,) in line.sql(f'SELECT _offset FROM "{table.name.namespace}"."logs" ORDER BY 1')
    ] == kept


def test_renamed_column_and_its_successor_stay_two_through_both_executors(
    line: Line, optimizer: Callable[..., Optimizer]
) -> None:
    """A later type for `status` renames it to `status__string` and adds a number: Trino reads each value in
    its own column after every merge.

    One hour is merged by PyArrow, one by Spark because it is large; a row of it was deleted.
    """
    table = SmallFiles(line.catalog, open_storage(), fresh("renamed"))
    by_arrow, by_spark = this_hour() - 3, this_hour() - 4
    sql_name = f'"{table.name.namespace}"."logs"'
    for hour, padding in ((by_arrow, []), (by_spark, [f"{at * 7_919}" for at in range(3_000)])):
        text = " ".join(padding)
        table.append(hour, 2, {"status": ["200", "ok"], "padding": [text, text]}, times=2)
    line.sql(f"ALTER TABLE {sql_name} RENAME COLUMN status TO status__string")
    line.sql(f"ALTER TABLE {sql_name} ADD COLUMN status bigint")
    for hour in (by_arrow, by_spark):
        moment = f"TIMESTAMP '{datetime.fromtimestamp(hour * 3_600, UTC):%Y-%m-%d %H:%M:%S} UTC'"
        columns = (
            "timestamp, observed_timestamp, _topic, _topic_id, _topic_partition, _offset, _index, status"
        )
        line.sql(
            f"INSERT INTO {sql_name} ({columns}) VALUES ({moment}, {moment}, 'logs', 'topic-id', 1, {hour}, "
            "0, 404)"
        )
    line.sql(f"DELETE FROM {sql_name} WHERE _offset = 4")
    everything = f"SELECT _topic_partition, _offset, status__string, status FROM {sql_name} ORDER BY 1, 2"
    before = line.sql(everything)
    assert [row[2:] for row in before] == [
        ("200", None),
        ("ok", None),
        ("200", None),
        ("ok", None),
        ("ok", None),
        *[("200", None), ("ok", None)],
    ] + [(None, 404)] * 2
    large = sum(file.size_bytes for file in partitions_of(table)[by_spark].files)
    assert sum(file.size_bytes for file in partitions_of(table)[by_arrow].files) < large
    log = optimizer(merge__rewrite_bytes_min=large).run("run", "--once", "--table", str(table.name))
    assert '"action": "rewrite"' in log
    assert '"action": "merge"' in log
    assert live_files(line.catalog, table.storage, table.name) == {by_arrow: 1, by_spark: 1}
    assert line.sql(everything) == before


def test_rewrite_is_committed_although_ingestion_never_stops(
    line: Line, optimizer: Callable[..., Optimizer]
) -> None:
    """While Spark rewrites an hour on its branch, a writer adds files to the same hour all the time: the
    rewrite lands, no row is lost or comes back."""
    table = SmallFiles(line.catalog, open_storage(), fresh("busy"))
    hour, sql_name = this_hour() - 3, f'"{table.name.namespace}"."logs"'
    table.append(hour, 10, times=4)
    line.sql(f"DELETE FROM {sql_name} WHERE _offset % 5 = 0")
    stop = threading.Event()

    def append_on() -> None:
        while not stop.wait(0.2):
            table.append(hour, 5)

    writer = threading.Thread(target=append_on)
    writer.start()
    try:
        log = optimizer(merge__late_cooldown_s=0, merge__rewrite_bytes_min=1).run(
            "run", "--once", "--table", f"{table.name.namespace}.{table.name.name}"
        )
    finally:
        stop.set()
        writer.join()
    assert "optimize.rewritten" in log
    assert '"action": "rewrite"' in log
    assert table.offset > 45
    rows = {offset for (offset,) in line.sql(f"SELECT _offset FROM {sql_name}")}
    assert rows == {offset for offset in range(table.offset) if offset >= 40 or offset % 5 != 0}
    assert delete_files(table) == 0
    assert missing_files(line.catalog, table.storage, table.name) == []
