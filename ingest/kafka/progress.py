"""How far a worker is in its partitions, whatever engine it belongs to."""

from collections.abc import Mapping
from typing import Protocol

import structlog

from ingest.kafka.consumer import Assignment
from ingest.kafka.offsets import Offsets
from ingest.model.fault_point import reach
from ingest.model.link import Partition
from lake.errors import UnavailableError

log = structlog.get_logger()


class Topics(Protocol):
    """The input topics as far as offsets go; `InputTopics` is the one."""

    @property
    def assignment(self) -> Assignment: ...

    def commit_group(self, offsets: Mapping[int, int], checkpoint: str) -> None: ...

    def end(self, number: int) -> int: ...


def store_offsets(
    topics: Topics, offsets: Offsets, moved: Mapping[int, int], checkpoint: str, now_s: float
) -> None:
    """Stores group offsets; where Kafka does not take them now, later ones will do."""
    try:
        topics.commit_group(moved, checkpoint)  # 4
    except UnavailableError as error:
        log.warning("offsets.not_stored", reason=str(error))
        return
    reach("offsets_stored")
    offsets.note_stored(moved, now_s)


def progress(topics: Topics, offsets: Offsets) -> list[Partition]:
    """Per partition the offsets routed, stored and at the end."""
    return [
        Partition(
            source.topic,
            source.partition,
            offsets.routed[number],
            offsets.stored.get(number),
            topics.end(number),
        )
        for number, source in enumerate(topics.assignment.sources)
    ]
