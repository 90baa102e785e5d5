"""Legal holds as a namespace's property tells them."""

from datetime import UTC, datetime, timedelta

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lake.clock import epoch_us
from lake.holds import EVERYTHING, PROPERTY, Hold, TableHolds, moment_of, parse_holds, spell_holds
from lake.table_layout import US_PER_HOUR

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
moments = st.none() | st.integers(-(10**6), 10**6).map(lambda at: EPOCH + timedelta(minutes=at))
FULL = Hold("a1", "Logs", EPOCH, EPOCH + timedelta(hours=1), "case 7", "key-1", "2026-11-21T10:00:00+00:00")


def test_holds_come_back_as_they_were_written() -> None:
    """Streams, open ends and texts of any kind; none is no text's worth."""
    holds = (FULL, Hold("b2", reason='in "re" Ünïcode'))
    assert parse_holds(spell_holds(holds)) == holds
    assert parse_holds(None) == parse_holds("") == parse_holds("[]") == ()


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "{}x",
        '"text"',
        "[1]",
        "[{}]",
        "null",
        orjson.dumps([{**FULL.to_json(), "stream": 7}]).decode(),
        orjson.dumps([{**FULL.to_json(), "from": "yesterday"}]).decode(),
        orjson.dumps([{**FULL.to_json(), "until": "2026-11-21T10:00:00"}]).decode(),
        orjson.dumps([{**FULL.to_json(), "until": "0001-01-01T00:00:00+14:00"}]).decode(),
    ],
)
def test_what_nobody_can_read_holds_everything(text: str) -> None:
    """Whatever else stands beside it."""
    holds = TableHolds.of("any", {PROPERTY: text})
    assert holds.holds == (EVERYTHING,)
    assert holds.on_hours(range(5, 6)) == EVERYTHING
    assert "cannot be read" in str(EVERYTHING)


def test_a_hold_is_about_the_stream_as_records_name_it() -> None:
    """Not about another one that differs in case alone; without a stream it is about all."""
    assert FULL.is_about("_4cogs")
    assert not FULL.is_about("logs")
    assert Hold("b").is_about("logs")
    holds = TableHolds.of("logs", {PROPERTY: spell_holds([FULL, Hold("b")])})
    assert [hold.id for hold in holds.holds] == ["b"]
    assert holds.text == spell_holds([FULL, Hold("b")])


@given(moments, moments, st.integers(-20_000, 20_000), st.integers(1, 50))
def test_an_hour_is_held_that_has_any_held_moment(
    start: datetime | None, end: datetime | None, first: int, count: int
) -> None:
    """By microseconds, at both ends; the end itself is not held."""
    begins, ends = first * US_PER_HOUR, (first + count) * US_PER_HOUR
    low = begins if start is None else max(begins, epoch_us(start))
    high = ends if end is None else min(ends, epoch_us(end))
    is_held = low < high
    if start is not None and end is not None and end <= start:
        return  # no hold is set like that
    assert Hold("h", start=start, end=end).has_hours(range(first, first + count)) == is_held
    asked = (EPOCH + timedelta(hours=first), EPOCH + timedelta(hours=first + count))
    assert Hold("h", start=start, end=end).overlaps(*asked) == is_held


def test_open_ranges_meet_wherever_neither_ends_before_the_other_begins() -> None:
    """None is open on either side."""
    assert FULL.overlaps(None, None)
    assert FULL.overlaps(None, EPOCH + timedelta(microseconds=1))
    assert not FULL.overlaps(None, EPOCH)
    assert not FULL.overlaps(EPOCH + timedelta(hours=1), None)
    assert Hold("h").overlaps(EPOCH, None)


def test_a_time_without_a_zone_is_refused() -> None:
    """Nobody knows which hours it would hold."""
    assert moment_of("2026-11-21T12:00:00+02:00") == datetime(2026, 11, 21, 10, tzinfo=UTC)
    assert moment_of(None) is None
    for text in ("2026-11-21T12:00:00", "soon", 7):
        with pytest.raises(ValueError, match="no time with a zone"):
            moment_of(text)
