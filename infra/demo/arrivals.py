"""When records arrive: a rate that follows the hour of the day, over a window that ends at a given moment."""

import math
import random
from collections.abc import Iterator

_MINUTE_MS = 60_000
_DAY_MINUTES = 1_440
_BUSIEST_MINUTE = 14 * 60
_SWING = 0.6


def relative_rate(epoch_ms: int) -> float:
    """Records per time relative to the day's mean: 1.6 at 14:00 UTC, 0.4 at 02:00 UTC."""
    minute = epoch_ms / _MINUTE_MS % _DAY_MINUTES
    return 1.0 + _SWING * math.cos(2 * math.pi * (minute - _BUSIEST_MINUTE) / _DAY_MINUTES)


def arrival_times_ms(records: int, start_ms: int, end_ms: int, seed: str) -> Iterator[int]:
    """`records` ascending moments in `[start_ms, end_ms)`, dense where the day is busy. Milliseconds since
    the epoch."""
    uniform = random.Random(seed).random
    buckets = max(1, (end_ms - start_ms) // _MINUTE_MS)
    width_ms = (end_ms - start_ms) / buckets
    rates = [relative_rate(int(start_ms + (bucket + 0.5) * width_ms)) for bucket in range(buckets)]
    per_record = sum(rates) / max(1, records)
    bucket, below = 0, 0.0
    for index in range(records):
        target = (index + uniform()) * per_record
        while bucket < buckets - 1 and below + rates[bucket] <= target:
            below += rates[bucket]
            bucket += 1
        offset_ms = (bucket + min(1.0, (target - below) / rates[bucket])) * width_ms
        yield min(end_ms - 1, start_ms + int(offset_ms))
