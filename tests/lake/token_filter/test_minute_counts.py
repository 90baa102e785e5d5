"""Rows by minute and level, as they are packed into files."""

import random
import zlib
from collections import Counter
from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lake.severity import LEVELS, SPELLINGS, Level, level_of
from lake.token_filter.minute_counts import COUNTS_MAX, MinuteCounts, added, count, pack, unpack

MOMENTS = st.integers(-70 * 365 * 86_400 * 10**6, 230 * 365 * 86_400 * 10**6).map(
    lambda us: datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=us)
)
SPELLED = st.none() | st.sampled_from(
    [
        "INFO",
        " warn ",
        '"Error"',
        "İnfo",
        "5",
        "0",
        "",
        "odd",
        "FATAL",
        "f",
        *" ".join(SPELLINGS.values()).split(),
    ]
)
KIND = pa.timestamp("us", "UTC")


def expected(rows: list[tuple[datetime, str | None]]) -> Counter[tuple[int, int]]:
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    return Counter(
        ((moment - epoch) // timedelta(minutes=1), LEVELS.index(level_of(spelled)))
        for moment, spelled in rows
    )


def as_counter(counts: MinuteCounts) -> Counter[tuple[int, int]]:
    assert len({(minute, level) for minute, level, _ in counts.tolist()}) == len(counts)
    return Counter({(minute, level): rows for minute, level, rows in counts.tolist()})


@given(st.lists(st.tuples(MOMENTS, SPELLED), max_size=30))
def test_rows_are_counted_by_minute_and_level(rows: list[tuple[datetime, str | None]]) -> None:
    """Whatever the order; packed and unpacked the counts are the same; those of two stretches add up."""
    times = pa.chunked_array([pa.array([moment for moment, _ in rows], KIND)])
    severities = pa.chunked_array([pa.array([spelled for _, spelled in rows], pa.string())])
    counts = count(times, severities)
    assert as_counter(counts) == expected(rows)
    half = len(rows) // 2
    parts = [
        count(times.slice(at, length), severities.slice(at, length)) for at, length in ((0, half), (half, 99))
    ]
    assert added(parts).tolist() == counts.tolist()
    if rows and counts[:, 0].max() - counts[:, 0].min() < 2**29:
        unpacked = unpack(pack(counts))
        assert unpacked is not None
        assert unpacked.tolist() == counts.tolist()


def test_a_file_without_severities_has_one_level() -> None:
    """And so has one in which all are missing."""
    times = pa.chunked_array([pa.array([datetime(2026, 1, 1, tzinfo=UTC)] * 3, KIND)])
    other = LEVELS.index(Level.OTHER)
    for severities in (None, pa.chunked_array([pa.nulls(3, pa.string())])):
        assert count(times, severities)[:, 1:].tolist() == [[other, 3]]


def test_counts_of_a_month_are_small() -> None:
    """Every minute of it with three levels, as a busy table has it: about two bytes for each count."""
    draws = np.random.default_rng(1)
    minutes = np.repeat(np.arange(29_000_000, 29_043_200), 3)
    levels = np.tile([1, 2, 3], 43_200)
    counts = np.stack([minutes, levels, draws.poisson(np.tile([5, 40, 700], 43_200)) + 1], axis=1)
    assert len(pack(counts)) < 2 * len(counts)


def test_what_cannot_be_packed_is_not_kept() -> None:
    """No counts, too many, or minutes so far apart that their difference does not fit."""
    assert pack(np.zeros((0, 3), np.int64)) == b""
    assert unpack(b"") is None
    assert pack(np.array([[0, 0, 1], [2**40, 0, 1]])) == b""
    assert pack(np.ones((COUNTS_MAX + 1, 3), np.int64)) == b""


def test_what_was_never_packed_is_refused() -> None:
    """Cut, damaged, and what would unpack to more than any file has."""
    draw = random.Random(1)
    packed = pack(np.array([[minute, 3, minute % 7 + 1] for minute in range(500)]))
    for end in range(1, len(packed)):
        with pytest.raises(ValueError):
            unpack(packed[:end])
    for _ in range(300):
        raw = bytearray(packed)
        raw[draw.randrange(8, len(raw))] ^= 1 << draw.randrange(8)
        try:
            unpack(bytes(raw))
        except ValueError:
            continue
    with pytest.raises(ValueError):
        unpack(bytes(8) + zlib.compress(bytes(16 * COUNTS_MAX)))


def test_counts_of_no_row_are_refused() -> None:
    """So a file has no more counts than rows: millions of them deflate to nothing."""
    with pytest.raises(ValueError):
        unpack(pack(np.array([[1, 0, 5], [2, 0, 0]])))
