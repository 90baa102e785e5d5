"""What had reached Kafka when somebody asked, and whether it is in the tables by now."""

from collections.abc import Sequence
from dataclasses import dataclass

from query.search.ingest_gateway import IngestGateway


@dataclass(frozen=True, slots=True)
class Awaited:
    """A partition of an input topic that is not in up to `offset`."""

    topic: str
    topic_id: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition} below offset {self.offset}"


def awaited_now(ingest: IngestGateway) -> tuple[Awaited, ...]:
    """The partitions of which something reached Kafka that is not in yet. Raises UnavailableError,
    RefusedError."""
    found = ingest.durable()
    return tuple(
        Awaited(each["topic"], each["topic_id"], each["partition"], each["reached"])
        for each in found
        if each["offset"] < each["reached"]
    )


def still_awaited(ingest: IngestGateway, awaited: Sequence[Awaited]) -> tuple[Awaited, ...]:
    """Those that are not in yet; one whose topic was re-created or is gone will never be. Raises
    UnavailableError, RefusedError."""
    offsets = (
        {
            (each["topic"], each["topic_id"], each["partition"]): int(each["offset"])
            for each in ingest.durable()
        }
        if awaited
        else {}
    )
    return tuple(
        each for each in awaited if offsets.get((each.topic, each.topic_id, each.partition), -1) < each.offset
    )
