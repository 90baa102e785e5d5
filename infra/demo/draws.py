"""Seeded draws with the distributions that logs have: Zipf over names, log-normal over latencies and sizes.

Distributions are drawn once into pools; a record then costs one uniform draw per value.
"""

import random
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")

POOL_SIZE = 4_096


class Draws:
    """Pools and picks over one seeded generator. The same seed and the same calls give the same values on
    every machine."""

    def __init__(self, seed: str) -> None:
        self._random = random.Random(seed)
        self.uniform = self._random.random

    def pick(self, pool: Sequence[T]) -> T:
        """One element, all equally likely."""
        return pool[int(self.uniform() * len(pool))]

    def below(self, limit: int) -> int:
        """A whole number in `[0, limit)`."""
        return int(self.uniform() * limit)

    def hex(self, digits: int) -> str:
        """That many random hexadecimal digits."""
        return f"{self._random.getrandbits(4 * digits):0{digits}x}"

    def normal(self, mean: float, deviation: float) -> float:
        return self._random.gauss(mean, deviation)

    def zipf_pool(self, items: Sequence[T], exponent: float = 1.1) -> list[T]:
        """A pool in which item `i` is `1 / (i + 1) ** exponent` as frequent as the first, but there at least
        once."""
        weights = zipf_weights(len(items), exponent)
        return [*items, *self._random.choices(items, weights, k=max(0, POOL_SIZE - len(items)))]

    def weighted_pool(self, items: Sequence[tuple[T, float]]) -> list[T]:
        """A pool of `(item, weight)` pairs by their weights; every item is there at least once."""
        names = [item for item, _ in items]
        return [
            *names,
            *self._random.choices(names, [weight for _, weight in items], k=POOL_SIZE - len(names)),
        ]

    def log_normal_pool(self, median: float, sigma: float) -> list[float]:
        """Values around `median` with a long tail to the right, as latencies and sizes have."""
        return [median * self._random.lognormvariate(0.0, sigma) for _ in range(POOL_SIZE)]

    def shuffled(self, items: Sequence[T]) -> list[T]:
        return self._random.sample(items, len(items))


def zipf_weights(count: int, exponent: float) -> list[float]:
    """Weights of ranks 1..count; the sum is 1."""
    raw = [1.0 / (rank**exponent) for rank in range(1, count + 1)]
    total = sum(raw)
    return [weight / total for weight in raw]
