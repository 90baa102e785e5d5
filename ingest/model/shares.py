"""Which partitions of the input a node reads, and which worker of it."""

from dataclasses import dataclass
from zlib import crc32


@dataclass(frozen=True, slots=True)
class Shares:
    """The shares of the input that a node holds, of so many. Partitions of a topic that follow each other are
    of different shares."""

    held: tuple[int, ...] = (0,)
    total: int = 1

    @property
    def are_all(self) -> bool:
        """Whether no other node reads anything."""
        return len(self.held) == self.total

    def worker_of(self, topic: str, partition: int, workers: int) -> int | None:
        """The index of the worker that reads a partition; None where it is in another share."""
        number = crc32(topic.encode()) + partition
        if (share := number % self.total) not in self.held:
            return None
        among_own = number // self.total * len(self.held) + self.held.index(share)
        return among_own % workers


ALL_SHARES = Shares()
