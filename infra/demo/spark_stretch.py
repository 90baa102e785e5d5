"""A stretch of the demo in which Spark ingests: the topics are handed to the other engine and back, and the
sums go on."""

from collections.abc import Iterator
from contextlib import contextmanager

from infra.local.supervisor import Stack

# One task at a time with half the usual heap, beside Kafka and Trino on a small machine.
SPARK = {
    "FIRN_INGEST_ENGINE": "spark",
    "FIRN_INGEST_SPARK__MASTER": "local[1]",
    "FIRN_INGEST_SPARK__DRIVER_MEMORY_MB": "512",
}
LOCAL = {"FIRN_INGEST_ENGINE": "local"}


@contextmanager
def spark_ingests(stack: Stack) -> Iterator[None]:
    """Within it the Spark engine reads the topics, from where the local one stopped; afterwards the local one
    goes on. Raises UnavailableError where one of them does not start."""
    _hand_over(stack, SPARK)
    yield
    _hand_over(stack, LOCAL)


def _hand_over(stack: Stack, environment: dict[str, str]) -> None:
    stack.stop("ingest")  # politely: what is buffered is committed, and the lease is let go
    stack.start("ingest", environment=environment)
