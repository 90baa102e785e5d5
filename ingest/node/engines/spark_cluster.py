"""Spark as the engine uses it: jobs of task numbers, and what the successful attempt of each task gives back,
or hands on to others.

Jobs are those of the optimizer's kind, `mapPartitions` over an RDD: a data frame would start Spark's SQL,
which takes twenty seconds of a busy machine after every restart and a second for every job, to carry results
that are neither columns nor many.
"""

from collections.abc import Callable, Iterable, Iterator
from importlib.util import find_spec
from typing import Any

from ingest.node.engines.spark_task_spec import TaskResult
from lake import native_core
from lake.errors import PrerequisiteError, UnavailableError
from lake.settings import IngestSettings
from lake.spark_session import SparkOptions, open_context

ERROR_CHARACTERS = 500
RunTasks = Callable[[Iterable[int]], Iterator[TaskResult]]
HandOn = Callable[
    [Iterable[int]], Iterator[tuple[int, Any]]
]  # with the number of the task that is to have it
WriteOn = Callable[[Iterable[tuple[int, Any]]], Iterator[TaskResult]]


def check_installed() -> None:
    """Raises PrerequisiteError where Spark's Python packages are missing: the image of the local engine has
    none."""
    if find_spec("pyspark") is None:
        raise PrerequisiteError(
            "--engine spark needs pyspark; install with: pip install --require-hashes -r "
            "requirements/ingest-spark.txt"
        )


class SparkCluster:
    """Spark, started by the first call. Its driver is this process, which a JVM stands beside."""

    def __init__(self, settings: IngestSettings) -> None:
        core = native_core.load()
        libraries = [] if isinstance(core, native_core.Absent) else [core.path.absolute()]
        self.core = "".join(library.name for library in libraries)  # as `TaskSetup` has it
        options = SparkOptions(
            app=f"firn-ingest-{settings.kafka.group}",
            master=settings.spark.master,
            driver_memory_mb=settings.spark.driver_memory_mb,
            java_home=settings.spark.java_home,
            packages=("lake", "ingest"),
            files=libraries,
            more={"spark.task.maxFailures": "4", **settings.spark.options},
        )
        self._context = open_context(options)

    @property
    def slots(self) -> int:
        """Tasks that run at the same time."""
        return max(1, int(self._context.defaultParallelism))

    @property
    def host(self) -> str:
        """This machine, as executors reach it."""
        return str(self._context.getConf().get("spark.driver.host"))

    def run(self, tasks: int, body: RunTasks) -> list[TaskResult]:
        """Runs so many tasks and waits for all of them. Raises UnavailableError where one has failed too
        often."""
        return self._collected(self._context.parallelize(range(tasks), tasks).mapPartitions(body))

    def run_in_two(self, tasks: int, body: HandOn, then: WriteOn) -> list[TaskResult]:
        """The same, with as many tasks again that get what the first ones hand on, when all of these are
        done."""
        handed_on = self._context.parallelize(range(tasks), tasks).mapPartitions(body).partitionBy(tasks, int)
        return self._collected(handed_on.mapPartitions(then))

    def _collected(self, results: Any) -> list[TaskResult]:
        from py4j.protocol import Py4JError  # type: ignore[import-untyped]
        from pyspark.errors import PySparkException

        try:
            return list(results.collect())
        except (PySparkException, Py4JError) as error:
            raise UnavailableError(f"Spark could not do a job: {str(error)[:ERROR_CHARACTERS]}") from error

    def close(self) -> None:
        self._context.stop()
