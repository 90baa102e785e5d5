"""Numbers and times as people read them."""

from datetime import UTC, datetime


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


def short_time(moment: str) -> str:
    """A time to the millisecond, UTC."""
    return datetime.fromisoformat(moment).astimezone(UTC).isoformat(sep=" ", timespec="milliseconds").removesuffix("+00:00")


def count(number: int, one: str, many: str | None = None) -> str:
    """`1 row`, `2 rows`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"
