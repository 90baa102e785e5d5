"""Stretches of time that rows are counted in: how wide they are, which one a time is in, and counts put
together as buckets."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from lake.severity import Level
from query.files.file_index import LiveFile
from query.model.table_view import EPOCH

US = 1_000_000
# Widths people can read off an axis, seconds.
WIDTHS_S = (
    1,
    2,
    5,
    10,
    15,
    30,
    60,
    120,
    300,
    600,
    900,
    1_800,
    3_600,
    7_200,
    10_800,
    21_600,
    43_200,
    86_400,
    172_800,
    604_800,
    2_592_000,
    7_776_000,
    31_536_000,
)
BUCKETS_WANTED = 60
BUCKETS_MAX = 2_000


@dataclass(frozen=True, slots=True)
class Bucket:
    """Rows in `[start, start + width)`; `levels` only where the counts know them."""

    start: datetime
    rows: int
    levels: dict[Level, int] = field(default_factory=dict)


def bucket_width_s(start: datetime, end: datetime, wanted: int = BUCKETS_WANTED) -> int:
    """The narrowest readable width that cuts `[start, end)` into at most `wanted` buckets."""
    span_s = max(1.0, (end - start).total_seconds())
    return next(
        (width for width in WIDTHS_S if span_s / width <= wanted),
        WIDTHS_S[-1] * max(1, round(span_s / WIDTHS_S[-1] / wanted)),
    )


def bucket_of(moment_us: int, width_s: int) -> int:
    """The number of the bucket a time is in; buckets are counted from 1970, so that neighbouring searches
    agree on their edges."""
    return moment_us // (width_s * US)


def fits_one_bucket(file: LiveFile, width_s: int) -> bool:
    """Whether all rows of a file count for one bucket, so that its manifest entry tells all."""
    return bucket_of(file.first_us, width_s) == bucket_of(file.last_us, width_s)


def to_buckets(counts: Iterable[tuple[int, Level, int]], width_s: int, *, by_level: bool) -> list[Bucket]:
    """Buckets in order of time from (bucket, level, rows); empty ones are left out."""
    rows: dict[int, int] = {}
    levels: dict[int, dict[Level, int]] = {}
    for at, level, count in counts:
        rows[at] = rows.get(at, 0) + count
        if by_level:
            split = levels.setdefault(at, {})
            split[level] = split.get(level, 0) + count
    return [
        Bucket(EPOCH + timedelta(seconds=at * width_s), rows[at], levels.get(at, {})) for at in sorted(rows)
    ]
