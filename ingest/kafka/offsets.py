"""Group offsets: from where a restart reads. A hint, never the truth; the truth are the tables' marks."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

# Kafka forgets a group's offsets after a week without a commit.
RECOMMIT_S = 3_600.0


class Waiting(Protocol):
    """Messages that are not durable yet."""

    @property
    def first_offsets(self) -> Mapping[int, int]:
        """The lowest of them per source."""


@dataclass
class Offsets:
    """What this process has routed and stored, per source number."""

    routed: dict[int, int] = field(default_factory=dict)  # the offset after the last message fully routed
    stored: dict[int, int] = field(default_factory=dict)
    stored_at_s: float = 0.0
    low: dict[int, int] = field(default_factory=dict)  # as `lowest` last found it

    def lowest(self, waiting: Iterable[Waiting]) -> dict[int, int]:
        """Per source the lowest offset still waiting in a buffer; with none of that the routed position,
        never the consumer's."""
        low = dict(self.routed)
        for buffer in waiting:
            for source, offset in buffer.first_offsets.items():
                low[source] = min(low[source], offset)
        self.low = low
        return low

    def behind(self, records_max: int) -> list[int]:
        """Sources that are routed further than this beyond their oldest waiting record."""
        return [source for source, offset in self.low.items() if self.routed[source] - offset > records_max]

    def to_store(self, low: Mapping[int, int], now_s: float) -> dict[int, int]:
        """Those that have moved; once an hour all of them."""
        return (
            dict(low)
            if now_s - self.stored_at_s >= RECOMMIT_S
            else {n: offset for n, offset in low.items() if self.stored.get(n) != offset}
        )

    def note_stored(self, offsets: Mapping[int, int], now_s: float) -> None:
        self.stored.update(offsets)
        self.stored_at_s = now_s
