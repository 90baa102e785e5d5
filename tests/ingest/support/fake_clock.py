"""Time that a test moves."""

from datetime import UTC, datetime, timedelta

START = datetime(2026, 1, 1, tzinfo=UTC)


class FakeClock:
    """Time that passes when it is told to: `s` are the seconds of both clocks."""

    s = 100.0

    def now(self) -> datetime:
        return START + timedelta(seconds=self.s)

    def monotonic_s(self) -> float:
        return self.s
