"""The ingester on Spark: the node is the local engine's, but for its worker, which is the driver of a Spark
cluster whose executors read and write."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from ingest.node.engines.local import LocalEngine
from ingest.node.engines.spark_cluster import check_installed
from ingest.node.engines.spark_worker import run_spark_worker


@dataclass
class SparkEngine(LocalEngine):
    """One node and one driver. Raises PrerequisiteError where Spark is not installed."""

    worker_body: ClassVar[Callable[..., None]] = staticmethod(run_spark_worker)

    def __post_init__(self) -> None:
        check_installed()
        self.settings = self.settings.changed(workers=1)  # the driver is all there is to tell things to
        super().__post_init__()
