"""How the demo's shapes spell a moment. The part up to the second is kept, because a load asks for each
second many times."""

from datetime import UTC, datetime
from functools import lru_cache

_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


@lru_cache(maxsize=16_384)
def _second(epoch_s: int) -> str:
    return datetime.fromtimestamp(epoch_s, UTC).strftime("%Y-%m-%dT%H:%M:%S")


@lru_cache(maxsize=16_384)
def common_log_format(epoch_s: int) -> str:
    """`21/Nov/2026:15:28:29 +0000`; month names do not follow the machine's locale."""
    moment = datetime.fromtimestamp(epoch_s, UTC)
    return f"{moment.day:02}/{_MONTHS[moment.month - 1]}/{moment:%Y:%H:%M:%S} +0000"


def rfc3339_seconds(at_ms: int) -> str:
    """`2026-11-21T15:28:29Z`."""
    return _second(at_ms // 1000) + "Z"


def rfc3339_offset(at_ms: int) -> str:
    """`2026-11-21T15:28:29+00:00`, as nginx writes `$time_iso8601`."""
    return _second(at_ms // 1000) + "+00:00"


def rfc3339_millis(at_ms: int) -> str:
    """`2026-11-21T15:28:29.123Z`."""
    return f"{_second(at_ms // 1000)}.{at_ms % 1000:03}Z"


def rfc3339_nanos(at_ms: int, nanos_below_ms: int) -> str:
    """`2026-11-21T15:28:29.123456789Z`, as container runtimes write it."""
    return f"{_second(at_ms // 1000)}.{at_ms % 1000:03}{nanos_below_ms:06}Z"


def plain_micros(at_us: int) -> str:
    """`2026-11-21 15:28:29.123456`, as SQL spells it; `at_us`: microseconds since the epoch."""
    return f"{_second(at_us // 1_000_000).replace('T', ' ')}.{at_us % 1_000_000:06}"
