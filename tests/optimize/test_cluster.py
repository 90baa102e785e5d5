"""The same program on a Spark standalone cluster of one master and two workers."""

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import orjson
import pyspark
import pytest

from infra.local import java
from infra.local.ports import LOOPBACK, reserve_free
from lake.storage import open_storage
from tests.optimize.conftest import Optimizer
from tests.optimize.live_files import live_files, missing_files
from tests.optimize.small_files import SmallFiles, this_hour
from tests.stack.line import Line
from tests.stack.waiting import fresh, wait_for

pytestmark = [pytest.mark.stack, pytest.mark.prove]
START_S = 120.0


@pytest.fixture
def spark_master(tmp_path: Path) -> Iterator[str]:
    """`spark://host:port` of a master with two workers of one core each, all killed after the test."""
    jdk = java.find(java.CLASSIC)
    assert jdk is not None
    spark_home = Path(pyspark.__file__).parent
    variables = {**os.environ, "JAVA_HOME": str(jdk.java.parents[1]), "SPARK_LOCAL_IP": LOOPBACK, "SPARK_HOME": str(spark_home)}
    variables |= {"SPARK_WORKER_DIR": str(tmp_path), "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC", "SPARK_DAEMON_MEMORY": "256m"}
    port, log = reserve_free(), tmp_path / "cluster.log"
    address = f"spark://{LOOPBACK}:{port}"
    place = ("--host", LOOPBACK, "--webui-port", "0")
    commands: list[tuple[str, ...]] = [("org.apache.spark.deploy.master.Master", *place, "--port", str(port))]
    commands += [("org.apache.spark.deploy.worker.Worker", *place, "--cores", "1", "--memory", "512m", address)] * 2
    with ExitStack() as ends, log.open("ab") as output:
        for name, *arguments in commands:
            command = (str(spark_home / "bin/spark-class"), name, *arguments)
            process = subprocess.Popen(command, env=variables, stdout=output, stderr=output)
            ends.callback(process.wait)
            ends.callback(process.kill)
        wait_for(lambda: log.read_text(errors="replace").count("Registering worker") >= 2, START_S, "two workers")
        yield address


def test_two_workers_merge_the_tables(line: Line, optimizer: Callable[..., Optimizer], spark_master: str) -> None:
    """On a standalone cluster the tables are merged by the workers' Python and rewritten by their JVMs, with our packages and jars shipped to them."""
    tables = [SmallFiles(line.catalog, open_storage(), fresh("cluster")) for _ in range(4)]
    for table in tables:
        table.append(this_hour() - 3, 10, times=6)
    deleted = tables[0]
    line.sql(f'DELETE FROM "{deleted.name.namespace}"."logs" WHERE _offset % 10 = 1')
    names = [part for table in tables for part in ("--table", f"{table.name.namespace}.{table.name.name}")]
    options = {"spark.executor.memory": "512m", "spark.driver.host": LOOPBACK, "spark.driver.bindAddress": LOOPBACK, "spark.default.parallelism": "2"}
    log = optimizer(spark_master=spark_master, spark_options=orjson.dumps(options).decode()).run("run", "--once", *names)
    assert '"action": "rewrite"' in log
    assert line.sql(f'SELECT count(*) FROM "{deleted.name.namespace}"."logs"') == [(54,)]
    for table in tables:
        assert live_files(line.catalog, table.storage, table.name) == {this_hour() - 3: 1}
        assert missing_files(line.catalog, table.storage, table.name) == []
