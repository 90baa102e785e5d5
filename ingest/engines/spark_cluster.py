"""The Spark session of the engine, and one job on it: a frame of task numbers, `mapInArrow`, what the successful attempt of each task gives back."""

import pickle
from collections.abc import Callable, Iterable, Iterator
from importlib.util import find_spec
from typing import Any

import pyarrow as pa

from ingest.engines.spark_order import TaskResult
from lake.errors import PrerequisiteError, UnavailableError
from lake.settings import IngestSettings
from lake.spark_session import SparkOptions, open_session

ERROR_CHARACTERS = 500
RunTasks = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def check_installed() -> None:
    """Raises PrerequisiteError where Spark's Python packages are missing: the image of the local engine has none."""
    missing = [name for name in ("pyspark", "pandas") if find_spec(name) is None]
    if missing:
        raise PrerequisiteError(f"--engine spark needs {' and '.join(missing)}; install with: pip install --require-hashes -r requirements/ingest-spark.txt")


class SparkCluster:
    """Spark, started by the first call. Its driver is this process, which a JVM stands beside."""

    def __init__(self, settings: IngestSettings) -> None:
        options = SparkOptions(
            app=f"firn-ingest-{settings.group}",
            master=settings.spark_master,
            driver_memory_mb=settings.spark_driver_memory_mb,
            java_home=settings.java_home,
            packages=("lake", "ingest"),
            more={"spark.task.maxFailures": "4", **settings.spark_options},
        )
        self._session = open_session(options)

    @property
    def slots(self) -> int:
        """Tasks that run at the same time."""
        return max(1, int(self._session.sparkContext.defaultParallelism))

    @property
    def host(self) -> str:
        """This machine, as executors reach it."""
        return str(self._session.sparkContext.getConf().get("spark.driver.host"))

    def run(self, tasks: int, body: RunTasks) -> list[TaskResult]:
        """Runs so many tasks and waits for all of them. Raises UnavailableError where one has failed too often."""
        from py4j.protocol import Py4JError  # type: ignore[import-untyped]
        from pyspark.errors import PySparkException

        frame = self._session.range(0, tasks, 1, tasks).mapInArrow(body, "result binary")
        try:
            collected: list[Any] = frame.collect()
        except (PySparkException, Py4JError) as error:
            raise UnavailableError(f"Spark could not do a job: {str(error)[:ERROR_CHARACTERS]}") from error
        return [pickle.loads(row.result) for row in collected]  # noqa: S301 - made by our own task

    def close(self) -> None:
        self._session.stop()
