"""`python -m tests.ingest.support.core_of_tasks SETTINGS`: what two tasks of the Spark engine say of the
native core, with settings given as JSON."""

import json
import sys
from collections.abc import Iterable, Iterator

from ingest.node.engines.spark_cluster import SparkCluster
from ingest.node.engines.spark_task_spec import TaskResult, TaskSetup
from lake.settings import IngestSettings, StorageSettings


def main() -> None:
    """Runs them, and prints as JSON of each which core it has, and why it is without that of the driver."""
    settings = IngestSettings.load(**json.loads(sys.argv[1]))
    cluster = SparkCluster(settings)
    setup = TaskSetup(
        settings, StorageSettings.load(), "file:///nowhere", ("127.0.0.1", 1), b"", cluster.core
    )

    def body(tasks: Iterable[int]) -> Iterator[TaskResult]:
        from ingest.node.engines.spark_task import use_core, without_core
        from lake import native_core

        for _ in tasks:
            use_core(setup)
            yield TaskResult(without_core=without_core(setup), refused=native_core.told())

    try:
        results = cluster.run(2, body)
    finally:
        cluster.close()
    sys.stdout.write(json.dumps({"told": [(each.refused, each.without_core) for each in results]}) + "\n")


if __name__ == "__main__":
    main()
