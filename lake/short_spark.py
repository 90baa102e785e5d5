"""`python -m lake.short_spark JAVA_OPTIONS JAVA_HOME JARS`: starts Spark, has it do a little, and waits for
the end of its JVM, for the sake of what Java keeps when it ends."""

import sys
from pathlib import Path

from lake.spark_session import JAVA_OPTIONS, SparkOptions, open_session


def main(java_options: str, java_home: str, jars: str) -> None:
    """`java_options` come behind the usual ones. Raises as `open_session`."""
    options = SparkOptions(
        app="firn-short",
        jars=Path(jars),
        java_home=Path(java_home),
        java_options=f"{JAVA_OPTIONS} {java_options}",
    )
    session = open_session(options)
    gateway = session.sparkContext._gateway
    session.range(2).rdd.map(str).collect()
    session.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
