"""Group offsets whose records lie durably elsewhere: which of them may be stored."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

import structlog

from ingest.kafka.offsets import Offsets

log = structlog.get_logger()


class Sent(Protocol):
    """Records that were sent to a topic of Firn's own, and are acknowledged later."""

    def mark(self) -> int:
        """A mark behind all records so far, for `reached`."""

    def reached(self, mark: int, timeout_s: float, /) -> bool:
        """Whether all records before a mark are acknowledged, at the latest when the time is over."""


class Stand(NamedTuple):
    """Group offsets, and a mark in each of the topics that they stand on."""

    low: Mapping[int, int]
    marks: Sequence[int]


class AcknowledgedOffsets:
    """Lets offsets be stored once all dead letters and parked messages below them are acknowledged."""

    def __init__(self, offsets: Offsets, topics: Sequence[Sent]) -> None:
        self._offsets = offsets
        self._topics = topics
        self._oldest: Stand | None = None  # of those that were not acknowledged in time

    def moved(self, low: Mapping[int, int], now_s: float, wait_s: float) -> dict[int, int]:
        """Offsets by source number that have moved, and that a restart may read from.

        Acknowledgements are waited for so long: else records of others waited for dead letters that are none
        of theirs. What is acknowledged later counts by the offsets that were found before it was sent.

        Args:
            low: the lowest offset of each source that is neither committed nor sent.
            now_s: the monotonic clock.
            wait_s: how long to wait at most for acknowledgements.
        """
        if not self._offsets.to_store(low, now_s):
            return {}
        stand = self._acknowledged(Stand(low, [topic.mark() for topic in self._topics]), wait_s)
        return {} if stand is None else self._offsets.to_store(stand.low, now_s)

    def _acknowledged(self, newest: Stand, wait_s: float) -> Stand | None:
        before, self._oldest = self._oldest, None
        if self._is_acknowledged(newest, wait_s):
            return newest
        self._oldest = newest
        if before is None or self._is_acknowledged(before, 0.0):
            return before
        self._oldest = before
        log.warning("offsets.wait", reason="dead letters or parked messages are not acknowledged yet")
        return None

    def _is_acknowledged(self, stand: Stand, wait_s: float) -> bool:
        return all(topic.reached(mark, wait_s) for topic, mark in zip(self._topics, stand.marks, strict=True))
