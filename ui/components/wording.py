"""Numbers and times as people read them."""

from datetime import UTC, datetime, tzinfo


def size(size_bytes: int) -> str:
    """Bytes with a unit."""
    amount, unit = float(size_bytes), "B"
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if amount < 1000 or unit == "TB":
            break
        amount /= 1000
    return f"{amount:.0f} {unit}" if unit == "B" or amount >= 100 else f"{amount:.1f} {unit}"


def age(moment: str | None, now: datetime | None = None) -> str:
    """How long ago a time was."""
    if not moment:
        return "never"
    seconds = int(((now or datetime.now(UTC)) - datetime.fromisoformat(moment)).total_seconds())
    if seconds < 0:
        return "ahead of now"
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length} {unit} ago"
    return f"{seconds} s ago"


def period(length_s: float) -> str:
    """A length of time in the largest unit that it is two or more of: `3 days`, `90 minutes`, `1 second`."""
    for name, unit_s in (("day", 86_400), ("hour", 3_600), ("minute", 60)):
        if length_s >= 2 * unit_s:
            return f"{length_s / unit_s:.3g} {name}s"
    return f"{length_s:.3g} second" + ("" if length_s == 1 else "s")


def short_time(moment: str, zone: tzinfo = UTC) -> str:
    """A time to the millisecond, as clocks of the zone show it."""
    shown = datetime.fromisoformat(moment).astimezone(zone).replace(tzinfo=None)
    return shown.isoformat(sep=" ", timespec="milliseconds")


def count(number: int, one: str, many: str | None = None) -> str:
    """`1 row`, `2 rows`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"
