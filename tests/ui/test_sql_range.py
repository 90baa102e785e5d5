"""A board's range in a statement."""

import pytest
import sqlglot
from hypothesis import given
from hypothesis import strategies as st

from ui.components.sql_range import with_range

STATEMENT = "SELECT 1 FROM logs WHERE timestamp BETWEEN {from} AND {to}"


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("now", "current_timestamp"),
        ("now-24h", "(current_timestamp - INTERVAL '24' HOUR)"),
        ("now+2w", "(current_timestamp + INTERVAL '14' DAY)"),
        ("2026-11-21", "from_iso8601_timestamp('2026-11-21')"),
        ("2026-11-21 10:30", "from_iso8601_timestamp('2026-11-21T10:30')"),
        ("2026-11-21T10:30:00.5+01:00", "from_iso8601_timestamp('2026-11-21T10:30:00.5+01:00')"),
        ("1788256800000", "from_unixtime(1788256800000 / 1000e0)"),
    ],
)
def test_a_time_of_a_search_is_one_of_a_statement(text: str, moment: str) -> None:
    assert with_range(STATEMENT, text, "now") == STATEMENT.replace("{from}", moment).replace(
        "{to}", "current_timestamp"
    )


@given(st.text(alphabet="now-+1hT:. 'Z2\n;)", max_size=20) | st.text(max_size=10))
def test_no_text_becomes_another_statement(text: str) -> None:
    """It is one value in its place, or there is no statement."""
    made = with_range(STATEMENT, text, "now")
    if made is None:
        return
    parsed = sqlglot.parse_one(made, dialect="trino")
    between = parsed.find(sqlglot.exp.Between)
    assert between is not None
    assert made.count("'") in (0, 2)
    assert ";" not in made


def test_a_statement_without_places_stays_as_it_is() -> None:
    assert with_range("SELECT '{x}'", "anything", "at all") == "SELECT '{x}'"
