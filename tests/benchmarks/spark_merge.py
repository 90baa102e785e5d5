"""The same changes by Spark's MERGE INTO, a minute at a time, and the same rows freshly written: what keyed
tables of Firn are compared with.

Argument: a JSON file with `tables`, `sampled` (by mode of the merge: the table that it is tried on, and
Parquet files with the changes of one minute each), `catalog_pid`, and where the `answer` is to be.
"""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson
import psutil

from lake.settings import OptimizeSettings, StorageSettings
from lake.spark_session import SparkOptions, open_session
from optimize.spark_rewrite import catalog_options

# What of a message is read: as much as Firn reads of it.
_PAYLOAD = """
    STRUCT<payload: STRUCT<op: STRING, before: STRUCT<id: BIGINT>, after: STRUCT<
    id: BIGINT, customer: STRING, status: STRING, amount: STRING, quantity: INT, is_paid: BOOLEAN,
    placed: BIGINT, changed: STRING, note: STRING>>>
"""
# The last change of each key, with the types of the table.
_LAST = f"""
    SELECT op, id, customer, status, amount, quantity, is_paid, placed, changed, note FROM (
      SELECT p.op, coalesce(p.after.id, p.before.id) AS id, p.after.customer, p.after.status,
        CAST(CAST(conv(hex(unbase64(p.after.amount)), 16, 10) AS DECIMAL(20, 0)) / 100 AS DECIMAL(12, 2))
          AS amount,
        p.after.quantity, p.after.is_paid, CAST(timestamp_micros(p.after.placed) AS TIMESTAMP_NTZ) AS placed,
        CAST(p.after.changed AS TIMESTAMP) AS changed, p.after.note,
        row_number() OVER (PARTITION BY coalesce(p.after.id, p.before.id) ORDER BY offset DESC) AS newest
      FROM (SELECT offset, from_json(value, '{_PAYLOAD}').payload AS p FROM changes)
    ) WHERE newest = 1
"""
# Minutes that do not count.
WARM_UP = 2
_COLUMNS = "id, customer, status, amount, quantity, is_paid, placed, changed, note"


class Cpu:
    """CPU seconds of this process, its JVM, and the catalog."""

    def __init__(self, catalog_pid: int) -> None:
        self._catalog = psutil.Process(catalog_pid)

    def seconds(self) -> float:
        me = psutil.Process()
        return sum(
            times.user + times.system
            for times in (p.cpu_times() for p in (me, *me.children(recursive=True), self._catalog))
        )


def fresh_bytes(spark: Any, tables: Sequence[str]) -> int:
    """Bytes of the tables' rows as one new data file each."""
    spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.fresh")
    total = 0
    for number, table in enumerate(tables):
        name = f"lake.fresh.table_{number}"
        rows = spark.table(f"lake.{table}").coalesce(1)
        rows.writeTo(name).using("iceberg").tableProperty("write.parquet.compression-codec", "zstd").create()
        total += spark.sql(f"SELECT sum(file_size_in_bytes) FROM {name}.files").collect()[0][0]
        spark.sql(f"DROP TABLE {name} PURGE")
    return total


def merge(spark: Any, cpu: Cpu, mode: str, table: str, minutes: Sequence[str]) -> Mapping[str, Any]:
    """Merges minute after minute into a copy of a table; the first ones, in which Java is not compiled yet,
    do not count. Says whether the copy then equals the table, as it should."""
    name = f"lake.merged.{mode.replace('-', '_')}"
    spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.merged")
    copy = spark.sql(f"SELECT {_COLUMNS} FROM lake.{table}").coalesce(1).writeTo(name).using("iceberg")
    copy.tableProperty("write.merge.mode", mode).tableProperty("format-version", "2").create()
    changes, spent_s = 0, 0.0
    for number, minute in enumerate(minutes):
        before_s = cpu.seconds()
        spark.read.parquet(minute).createOrReplaceTempView("changes")
        spark.sql(
            f"MERGE INTO {name} t USING ({_LAST}) s ON t.id = s.id WHEN MATCHED AND s.op = 'd' THEN DELETE "
            "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED AND s.op <> 'd' THEN INSERT *"
        )
        if number >= WARM_UP:
            spent_s += cpu.seconds() - before_s
            changes += spark.read.parquet(minute).count()
    left = spark.sql(
        f"SELECT count(*) FROM (SELECT {_COLUMNS} FROM {name} EXCEPT SELECT {_COLUMNS} FROM lake.{table})"
    ).collect()[0][0]
    rows = [spark.table(of).count() for of in (name, f"lake.{table}")]
    return {
        "changes": changes,
        "cpu_s": spent_s,
        "is_equal": left == 0 and rows[0] == rows[1],
    }


def main() -> None:
    work, settings = orjson.loads(Path(sys.argv[1]).read_bytes()), OptimizeSettings.load()
    spark = open_session(
        SparkOptions(
            "merge",
            jars=settings.spark.jars,
            java_home=settings.spark.java_home,
            driver_memory_mb=2_048,
            java_options="-XX:+UseParallelGC",
            # A shuffle of 200 parts would be most of what a merge of this size costs.
            more={"spark.sql.shuffle.partitions": "2", "spark.sql.session.timeZone": "UTC"},
        )
    )
    for name, value in catalog_options("lake", settings, StorageSettings.load(), None).items():
        spark.conf.set(name, value)
    cpu = Cpu(work["catalog_pid"])
    answer = {
        "fresh_bytes": fresh_bytes(spark, work["tables"]),
        "merged": {
            mode: merge(spark, cpu, mode, sample["table"], sample["minutes"])
            for mode, sample in work["sampled"].items()
        },
    }
    Path(work["answer"]).write_bytes(orjson.dumps(answer))
    spark.stop()


if __name__ == "__main__":
    main()
