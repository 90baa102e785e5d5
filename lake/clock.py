"""Time as something that is passed in, so that tests can hold it still."""

import time
from datetime import UTC, datetime, timedelta
from typing import Protocol


class Clock(Protocol):
    """Wall time in UTC and a monotonic counter, both injectable."""

    def now(self) -> datetime:
        """The time of day, timezone-aware, UTC."""

    def monotonic_s(self) -> float:
        """Seconds since an arbitrary start; never goes back."""


class SystemClock:
    """The machine's clock."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic_s(self) -> float:
        return time.monotonic()


# What is used where nobody passes another one.
SYSTEM_CLOCK = SystemClock()


def epoch_ms(moment: datetime) -> int:
    """Milliseconds since 1970-01-01T00:00Z of a timezone-aware moment, rounded down (Iceberg's
    `timestamp-ms`)."""
    return epoch_us(moment) // 1000


def epoch_us(moment: datetime) -> int:
    """Microseconds since 1970-01-01T00:00Z of a timezone-aware moment, exact (floats are not)."""
    delta = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return (delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds


def moment_of(ms: int) -> datetime:
    """The moment of milliseconds since 1970-01-01T00:00Z; the nearest there is where no calendar has it:
    others' timestamps are of any size."""
    try:
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)
    except OverflowError:
        return datetime.max.replace(tzinfo=UTC) if ms > 0 else datetime.min.replace(tzinfo=UTC)
