"""The spellings of time that records use."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ingest.decode.event_time import Instant, clf_to_iso, instant_text, parse_instant, syslog_to_iso

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MOMENTS = st.datetimes(timezones=st.just(UTC)).filter(lambda moment: 1 < moment.year < 9999)
ZONES = st.integers(-14 * 60 + 1, 14 * 60 - 1).map(lambda minutes: timezone(timedelta(minutes=minutes)))
NOON = 1_763_726_400_000_000  # 2025-11-21T12:00:00Z


def _us(moment: datetime) -> int:
    return (moment - EPOCH) // timedelta(microseconds=1)


@pytest.mark.parametrize(
    ("text", "us", "exact"),
    [
        ("2025-11-21T12:00:00Z", NOON, True),
        ("2025-11-21t12:00:00z", NOON, True),
        ("2025-11-21 12:00:00", NOON, True),
        ("2025-11-21T12:00Z", NOON, True),
        ("2025-11-21T12:00:00.5Z", NOON + 500_000, True),
        ("2025-11-21T12:00:00,25Z", NOON + 250_000, True),
        ("2025-11-21T12:00:00.000001Z", NOON + 1, True),
        ("2025-11-21T12:00:00.000001000Z", NOON + 1, True),
        ("2025-11-21T12:00:00.123456789Z", NOON + 123_456, False),
        ("2025-11-21T13:00:00+01:00", NOON, True),
        ("2025-11-21T13:00:00 +0100", NOON, True),
        ("2025-11-21T06:30:00-05:30", NOON, True),
        ("2025-11-21T12+00:00", NOON, True),
        ("1763726400", NOON, True),
        ("1763726400.25", NOON + 250_000, True),
        ("1763726400000", NOON, True),
        ("1763726400000000", NOON, True),
        ("1763726400000000000", NOON, True),
        ("1763726400000000001", NOON, False),
        ("1763726399.9999999999999999999999999999", NOON - 1, False),
        ("1.7637264e9", NOON, True),
        ("+1763726400", NOON, True),
        ("-1", -1_000_000, True),
        ("0", 0, True),
        ("-0.5", -500_000, True),
        ("0001-01-01T00:00:00Z", _us(datetime(1, 1, 1, tzinfo=UTC)), True),
        ("9999-12-31T23:59:59.999999Z", _us(datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)), True),
    ],
)
def test_spellings_are_read(text: str, us: int, exact: bool) -> None:
    """RFC 3339 and its near relations, and the four units of epoch time, told apart by size."""
    assert parse_instant(text) == Instant(us, exact)


NO_DATES = [
    "2025-11-21",
    "12:00:00",
    "2025-13-01T00:00:00Z",
    "2025-02-29T00:00:00Z",
    "2025-11-21T24:30:00Z",
    "2025-11-21T12:00:61Z",
    "21/Nov/2025",
]
NEARLY = [
    "2025-11-21T12:00:00.1234567890Z",
    "2025-11-21T12:00:00+25:00",
    " 2025-11-21T12:00:00Z",
    "1763726400\n",
    "٢٠٢٥-11-21T12:00:00Z",
]
NO_NUMBERS = [
    "",
    " ",
    "now",
    "1_763",
    "0x10",
    "1e999",
    "NaN",
    "Infinity",
    "--1",
    "1" * 21,
    "12345678901234567890123",
]


@pytest.mark.parametrize("text", [*NO_DATES, *NEARLY, *NO_NUMBERS])
def test_what_is_no_time_is_none(text: str) -> None:
    """A text that only looks like a time is not guessed at."""
    assert parse_instant(text) is None


@given(MOMENTS, ZONES)
def test_rfc_3339_agrees_with_datetime(moment: datetime, zone: timezone) -> None:
    """Any moment in any zone, as isoformat spells it, is read to the microsecond."""
    aware = moment.replace(tzinfo=zone)
    assert parse_instant(aware.isoformat()) == Instant(_us(aware), True)


@given(st.integers(631_152_000 * 10**6, 7_258_118_400 * 10**6))
def test_units_of_epoch_time_agree(us: int) -> None:
    """The same moment in seconds with decimals, microseconds and nanoseconds is the same instant."""
    for text in (f"{us // 10**6}.{us % 10**6:06d}", str(us), str(us * 1000)):
        assert parse_instant(text) == Instant(us, True), text
    assert parse_instant(str(us // 1000)) == Instant(us // 1000 * 1000, True)


@given(st.text(max_size=30))
def test_any_text_is_read_or_refused(text: str) -> None:
    """No text makes the parser fail."""
    instant = parse_instant(text)
    assert instant is None or isinstance(instant.us, int)


@given(st.integers(-(2**62), 2**62))
def test_any_instant_can_be_told(us: int) -> None:
    """Messages name any moment, also one that no calendar has."""
    assert instant_text(us)


MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
CLOCKS = st.builds("{:02}:{:02}:{:02}".format, st.integers(0, 25), st.integers(0, 61), st.integers(0, 61))
STAMPS = st.builds("{} {:>2} {}".format, st.sampled_from([*MONTHS, "Foo"]), st.integers(0, 32), CLOCKS)


def _plainly_nearest(text: str, near_us: int) -> str | None:
    """Of the years around, the one that brings a time of syslog nearest."""
    near, found = EPOCH + timedelta(microseconds=near_us), []
    for year in (near.year - 1, near.year, near.year + 1):
        try:
            found.append(datetime.strptime(f"{year:04} {text} +0000", "%Y %b %d %H:%M:%S %z"))
        except ValueError:
            continue
    return min(found, key=lambda moment: abs(moment - near)).isoformat() if found else None


@given(STAMPS, st.integers(-(10**15), 4 * 10**15))
@example("Feb 29 12:00:00", 1_740_000_000_000_000)
@example("Jul  1 00:00:00", 1_767_225_600_000_000)  # half a year away
@example("Dec 31 23:59:59", 1_767_225_600_000_000)
def test_time_without_a_year_gets_the_nearest_one(text: str, near_us: int) -> None:
    """As if every year were tried and measured to the microsecond."""
    assert syslog_to_iso(text, near_us, UTC) == _plainly_nearest(text, near_us)


@given(
    st.integers(0, 32),
    st.sampled_from([*MONTHS, "may"]),
    st.integers(0, 9999),
    CLOCKS,
    st.integers(-2500, 2500),
)
@example(1, "Jan", 1, "00:00:00", 500)
@example(31, "Dec", 9999, "23:59:59", -1)
def test_time_of_an_access_log_is_that_of_the_calendar(
    day: int, month: str, year: int, clock: str, zone: int
) -> None:
    """It becomes RFC 3339 where there is such a moment, and nothing where there is none."""
    sign, minutes = "-" if zone < 0 else "+", abs(zone)
    text = f"{day:02}/{month}/{year:04}:{clock} {sign}{minutes:04}"
    try:
        expected = datetime.strptime(text, "%d/%b/%Y:%H:%M:%S %z") if month in MONTHS else None
        moment = None if expected is None else expected - EPOCH  # the zone may lead out of the calendar
    except (ValueError, OverflowError):
        moment = None
    iso = clf_to_iso(text)
    assert (None if iso is None else datetime.fromisoformat(iso) - EPOCH) == moment
