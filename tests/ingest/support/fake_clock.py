"""Time that a test moves."""

from datetime import UTC, datetime


class FakeClock:
    """Time that passes when it is told to."""

    s = 100.0

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic_s(self) -> float:
        return self.s
