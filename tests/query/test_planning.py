"""Planning without a service: slices, buckets, times, pins, cursors."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lake.backfill_mark import CommittedRanges
from lake.clock import epoch_us
from lake.marks import Range, TopicPartition
from lake.topic_fill import join
from query.facets.buckets import BUCKETS_WANTED, bucket_width_s
from query.files.file_index import LiveFile
from query.model.instant import parse_instant, parse_period
from query.model.point_in_time import PointInTime, fingerprint, parse_point_in_time
from query.model.problem import BadRequestError
from query.search.file_planner import Effort, Plan, slices
from query.search.results import Cursor, parse_cursor

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
START_US = epoch_us(NOW)


def file(at: int, first: int, length: int, rows: int) -> LiveFile:
    return LiveFile(
        f"file:///{at}", rows, rows * 10, START_US + first, START_US + first + length, None, None, None, None
    )


FILES = st.lists(
    st.tuples(st.integers(0, 10_000), st.integers(0, 3_000), st.integers(1, 200_000)), max_size=40
).map(lambda drawn: tuple(file(at, *each) for at, each in enumerate(drawn)))


@given(FILES, st.booleans(), st.integers(1, 100_000))
def test_slices_are_disjoint_in_time_and_hold_every_file_once(
    files: tuple[LiveFile, ...], newest_first: bool, first_rows: int
) -> None:
    """Each row time of a file lies in its slice, so that a page which a slice fills needs no later one."""
    plan = Plan(files, NOW, NOW + timedelta(microseconds=20_000), Effort(), Effort(), has_deletes=False)
    cut = list(slices(plan, newest_first=newest_first, first_rows=first_rows))
    assert sorted(each.uri for piece in cut for each in piece.files) == sorted(each.uri for each in files)
    for piece in cut:
        assert all(
            epoch_us(piece.start) <= each.first_us and each.last_us < epoch_us(piece.end)
            for each in piece.files
        )
    ordered = cut if newest_first else list(reversed(cut))
    assert all(later.start == earlier.end for later, earlier in pairwise(ordered))


@given(st.integers(1, 10**9))
def test_a_histogram_has_at_most_the_wanted_number_of_buckets(seconds: int) -> None:
    """The width grows with the range and stays readable."""
    width = bucket_width_s(NOW, NOW + timedelta(seconds=seconds))
    assert seconds / width <= BUCKETS_WANTED * 1.5
    assert width == 1 or seconds / width > 10 or width >= 2_592_000


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("now", NOW),
        ("now-15m", NOW - timedelta(minutes=15)),
        ("now + 2d", NOW + timedelta(days=2)),
        ("2026-11-21", datetime(2026, 11, 21, tzinfo=UTC)),
        ("2026-11-21 10:30", datetime(2026, 11, 21, 10, 30, tzinfo=UTC)),
        ("2026-11-21T10:30:00.123456+02:00", datetime(2026, 11, 21, 8, 30, 0, 123456, tzinfo=UTC)),
        ("1795262400000", NOW),
    ],
)
def test_times_are_read_as_people_write_them(text: str, moment: datetime) -> None:
    """Instants, dates, offsets from now, milliseconds."""
    assert parse_instant(text, NOW, what="from") == moment


def test_a_written_time_is_as_long_as_it_is_exact() -> None:
    """A month, a day, a minute, a microsecond."""
    lengths = [
        parse_period(text) for text in ("2026-02", "2026-11-21", "2026-11-21T10:30", "2026-11-21T10:30:00.5Z")
    ]
    assert [period.end - period.start for period in lengths if period] == [
        timedelta(days=28),
        timedelta(days=1),
        timedelta(minutes=1),
        timedelta(microseconds=1),
    ]
    assert parse_period("2026-13-01") is None


PLACES = st.tuples(st.text(max_size=10), st.integers(0, 100)).map(lambda p: TopicPartition(*p))
STRETCHES = st.lists(
    st.tuples(st.just(0) | st.integers(0, 2**61), st.integers(1, 2**61)).map(
        lambda p: Range(p[0], p[0] + p[1])
    ),
    min_size=1,
    max_size=4,
)
COMMITTED = st.dictionaries(PLACES, STRETCHES.map(join), max_size=8)


@given(COMMITTED, st.none() | st.integers(0, 10**12))
def test_a_pin_survives_its_text(committed: CommittedRanges, rows: int | None) -> None:
    """What a link carries is read back as it was; a cut-off one is refused."""
    pin = PointInTime("uuid", committed, rows, "" if rows is None else fingerprint("a b", NOW, NOW))
    assert parse_point_in_time(pin.to_text()) == pin
    with pytest.raises(BadRequestError):
        parse_point_in_time(pin.to_text()[:-9])


@given(st.text(max_size=60))
def test_any_text_as_pin_or_cursor_is_read_or_refused(text: str) -> None:
    """They come from links: nothing else may happen."""
    for read in (parse_point_in_time, parse_cursor):
        try:
            read(text)
        except BadRequestError as error:
            assert error.problem.message  # noqa: PT017 - both outcomes are right


@given(
    st.builds(
        Cursor,
        st.integers(-(2**62), 2**62),
        st.text(max_size=20),
        st.integers(0, 100),
        st.integers(0, 2**62),
        st.integers(0, 9),
    )
)
def test_a_cursor_survives_its_text(cursor: Cursor) -> None:
    """The place where a page ended."""
    assert parse_cursor(cursor.to_text()) == cursor
