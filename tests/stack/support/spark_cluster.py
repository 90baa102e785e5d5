"""A Spark standalone cluster on this machine: a master and two workers of one core each."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import pyspark

from infra.local import java
from infra.local.ports import LOOPBACK, reserve_free
from tests.stack.support.waiting import wait_for

START_S = 120.0
# Settings of the session: executors small enough for a worker, and an address of the driver that needs no
# name service.
OPTIONS = {
    "spark.executor.memory": "512m",
    "spark.driver.host": LOOPBACK,
    "spark.driver.bindAddress": LOOPBACK,
    "spark.default.parallelism": "2",
}


@dataclass(frozen=True)
class SparkMachines:
    """`master`: as the setting spark.master takes it."""

    master: str
    workers: list[int]

    def kill_worker_of(self, pid: int) -> None:
        """SIGKILL of the worker that has started a process, and of all that it has started, as when its
        machine dies."""
        for worker in map(psutil.Process, self.workers):
            tree = [worker, *worker.children(recursive=True)]
            if pid in {process.pid for process in tree}:
                for process in tree:
                    process.kill()
                return
        raise AssertionError(f"process {pid} is of none of the workers {self.workers}")


@contextmanager
def spark_machines(folder: Path) -> Iterator[SparkMachines]:
    """Starts all three; they are killed in the end."""
    jdk = java.find(java.CLASSIC)
    assert jdk is not None
    spark_home = Path(pyspark.__file__).parent
    variables = {
        **os.environ,
        "JAVA_HOME": str(jdk.java.parents[1]),
        "SPARK_LOCAL_IP": LOOPBACK,
        "SPARK_HOME": str(spark_home),
    }
    variables |= {
        "SPARK_WORKER_DIR": str(folder),
        "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "SPARK_DAEMON_MEMORY": "256m",
    }
    port, log = reserve_free(), folder / "cluster.log"
    address = f"spark://{LOOPBACK}:{port}"
    quiet = ("--webui-port", "0")
    commands: list[tuple[str, ...]] = [
        ("org.apache.spark.deploy.master.Master", "--host", LOOPBACK, *quiet, "--port", str(port))
    ]
    # Two names of one machine: Spark runs no twin of a task on the same host.
    share = ("--cores", "1", "--memory", "512m", address)
    commands += [
        ("org.apache.spark.deploy.worker.Worker", "--host", host, *quiet, *share)
        for host in (LOOPBACK, "localhost")
    ]
    processes = []
    with ExitStack() as ends, log.open("ab") as output:
        for name, *arguments in commands:
            command = (str(spark_home / "bin/spark-class"), name, *arguments)
            process = subprocess.Popen(command, env=variables, stdout=output, stderr=output)
            ends.callback(process.wait)
            ends.callback(process.kill)
            processes.append(process.pid)
        wait_for(
            lambda: log.read_text(errors="replace").count("Registering worker") >= 2, START_S, "two workers"
        )
        yield SparkMachines(address, processes[1:])
