"""Spark's own maintenance of tables, one after the other: what Firn is compared with. Argument: JSON with
`tables` and `expire`."""

import sys

import orjson

from lake.settings import OptimizeSettings, StorageSettings
from lake.spark_session import SparkOptions, open_session
from optimize.spark_rewrite import catalog_options


def main() -> None:
    work, settings = orjson.loads(sys.argv[1]), OptimizeSettings.load()
    # Well compiled Java: this side lives in it.
    spark = open_session(
        SparkOptions(
            "procedures",
            jars=settings.spark.jars,
            java_home=settings.spark.java_home,
            java_options="-XX:+UseParallelGC",
        )
    )
    for name, value in catalog_options("lake", settings, StorageSettings.load(), None).items():
        spark.conf.set(name, value)
    for table in work["tables"]:
        spark.sql(
            f"CALL lake.system.rewrite_data_files(table => '{table}', options => map('min-input-files', '2'))"
        ).collect()
        if work["expire"]:
            spark.sql(
                f"CALL lake.system.expire_snapshots(table => '{table}', retain_last => 10, older_than => "
                "TIMESTAMP '2100-01-01 00:00:00')"
            ).collect()
    spark.stop()


if __name__ == "__main__":
    main()
