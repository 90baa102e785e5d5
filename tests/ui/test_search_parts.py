"""Parts of the search page without a browser: zones, columns that are kept, the history, what to do where
nothing is found."""

from datetime import UTC, date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
import streamlit as st
from hypothesis import given
from hypothesis import strategies as given_by

from ui.components import kept_columns, reader_zone, search_history, time_range
from ui.components.no_rows import around
from ui.components.wording import short_time
from ui.url_state import SearchState

BERLIN = "Europe/Berlin"
SUMMER, WINTER = datetime(2026, 7, 1, 12, tzinfo=UTC), datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What a browser session keeps."""
    kept: dict[str, Any] = {"columns": ""}
    monkeypatch.setattr(st, "session_state", kept)
    return kept


def test_times_are_shown_as_the_clocks_of_the_zone_show_them(session: dict[str, Any]) -> None:
    """In summer as in winter; without a choice in UTC."""
    assert (reader_zone.name(), reader_zone.wall(SUMMER)) == ("UTC", SUMMER)
    session["zone"] = BERLIN
    assert reader_zone.wall(SUMMER) - SUMMER == timedelta(hours=2)
    assert reader_zone.wall(WINTER) - WINTER == timedelta(hours=1)
    assert short_time("2026-07-01T12:00:00.1234Z", reader_zone.zone()) == "2026-07-01 14:00:00.123"


@given(given_by.integers(631_152_000, 2_082_758_400))
def test_what_was_chosen_in_a_chart_is_the_moment_that_was_meant(epoch_s: int) -> None:
    """But for the hour that clocks show twice."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(st, "session_state", {"zone": BERLIN})
        at = datetime.fromtimestamp(epoch_s, UTC)
        back = reader_zone.moment_of(reader_zone.wall(at))
        assert back == at or (at - back == timedelta(hours=1) and at.month == 10)


def test_yesterday_is_a_day_of_the_readers_clocks() -> None:
    """Also where it is longer than others; today goes on."""
    day = ("2026-10-25T00:00:00+02:00", "2026-10-26T00:00:00+01:00")
    assert time_range.day_of(time_range.YESTERDAY, date(2026, 10, 26), ZoneInfo(BERLIN)) == day
    begun = ("2026-10-26T00:00:00+00:00", "now")
    assert time_range.day_of(time_range.TODAY, date(2026, 10, 26), UTC) == begun


@pytest.mark.parametrize(
    "zone", ["Nowhere/Else", "../../etc/passwd", "/etc/passwd", "Europe", "\0", "a" * 5_000]
)
def test_a_zone_that_nobody_knows_is_utc(session: dict[str, Any], zone: str) -> None:
    """An address may say anything."""
    session["zone"] = zone
    assert (reader_zone.name(), reader_zone.zone()) == ("UTC", UTC)


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("2026-07-01 10:30", "2026-07-01T10:30:00+02:00"),
        ("2026-01-01T10:30:15", "2026-01-01T10:30:15+01:00"),
        ("2026-07-01T10:30:00Z", "2026-07-01T10:30:00Z"),
        ("2026-07-01T10:30:00+05:00", "2026-07-01T10:30:00+05:00"),
        ("2026-07-01", "2026-07-01"),
        ("now-2h", "now-2h"),
        ("", ""),
    ],
)
def test_a_time_that_is_typed_means_the_zone_that_is_shown(
    session: dict[str, Any], typed: str, meant: str
) -> None:
    """One that names its own zone, a whole day, and what is no time go to the API as they are."""
    assert reader_zone.with_zone(typed) == typed
    session["zone"] = BERLIN
    assert reader_zone.with_zone(typed) == meant


def test_columns_are_kept_for_each_stream(session: dict[str, Any]) -> None:
    """Who comes back to a stream finds them; an address that says others holds."""
    kept_columns.keep("a", "logs")
    session["columns"] = "host,status"
    kept_columns.keep("a", "logs")
    kept_columns.keep("a", "access")
    assert session["columns"] == ""
    session["columns"] = "uri"
    kept_columns.keep("a", "access")
    kept_columns.keep("a", "logs")
    assert session["columns"] == "host,status"
    kept_columns.take()
    session["columns"] = "method"
    kept_columns.keep("a", "access")
    assert session["columns"] == "method"


def test_the_history_has_each_question_once_the_newest_first(session: dict[str, Any]) -> None:
    """With the columns it was last shown with, and no more than so many."""
    first, second = SearchState("a", "logs", "one"), SearchState("a", "logs", "two")
    for state in (first, second, SearchState("a", "logs", "one", row="x", columns="host")):
        search_history.remember(state)
    assert session["history"] == [SearchState("a", "logs", "one", columns="host"), second]
    for number in range(2 * search_history.KEPT):
        search_history.remember(SearchState("a", "logs", str(number)))
    assert len(session["history"]) == search_history.KEPT
    assert session["history"][0].query == str(2 * search_history.KEPT - 1)


def test_a_search_of_the_history_is_told_in_one_line() -> None:
    """Its blanks are one each; a long one is cut."""
    told = search_history.said(SearchState("a_b", "logs", "**bold**\n" + "x" * 100, from_="now-7d"))
    assert told.startswith("**bold** xxx")
    assert "…" in told
    assert told.endswith(" · a_b / logs · Last 7 days")
    assert search_history.said(SearchState("a", "logs")) == "every row · a / logs · Last hour"


def test_the_newest_row_lies_in_the_range_that_leads_to_it() -> None:
    """Every row of the hour that ends with it, the row itself included."""
    state = around(SearchState("a", "logs", "x", zone=BERLIN), "2026-07-01T12:00:00.999999Z")
    assert (state.query, state.zone) == ("", BERLIN)
    assert (state.from_, state.to) == ("2026-07-01T11:00:00Z", "2026-07-01T12:00:01Z")
