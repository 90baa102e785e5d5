"""Each shape looks like the logs it stands for."""

import re
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infra.demo.draws import Draws
from infra.demo.generators.audit import ERAS_MAX, Audit
from infra.demo.profiles import EVENT_SHAPES, LINE_SHAPES, LineShape
from lake.clock import epoch_ms

AT_MS = epoch_ms(datetime(2026, 11, 21, 15, 28, 29, 123_000, tzinfo=UTC))
SEEDS = st.integers(min_value=0, max_value=10**9)
MOMENTS = st.integers(min_value=0, max_value=4_000_000_000_000)

COMBINED = re.compile(
    r'^(\S+) \S+ (\S+) \[(\d\d/[A-Z][a-z]{2}/\d{4}:\d\d:\d\d:\d\d \+0000)\] "([A-Z]+) (\S+) HTTP/[\d.]+" '
    r'(\d{3}) (\d+|-) "([^"]*)" "([^"]*)"$'
)
# RFC 5424, section 6: header, structured data (values with escaped quote, backslash and bracket), message.
PARAMETER = r' [^\s="\]]{1,32}="(?:[^"\\\]]|\\["\\\]])*"'
SYSLOG = re.compile(
    rf"^<(\d{{1,3}})>1 (\S+) (\S{{1,255}}) (\S{{1,48}}) (\S{{1,128}}) (\S{{1,32}}) "
    rf"(-|(?:\[[^\s=\"\]]{{1,32}}(?:{PARAMETER})*\])+) (.+)$"
)
TIME_FIELD = {
    "nginx_json": "time",
    "audit": "timestamp",
    "application": "timestamp",
    "kubernetes": "@timestamp",
}


@pytest.mark.long
@settings(deadline=None, max_examples=30)
@given(seed=SEEDS, at_ms=MOMENTS)
def test_combined_lines_match_the_format_of_apache(seed: int, at_ms: int) -> None:
    """Every combined line matches the format's expression and carries its moment cut to seconds."""
    match = COMBINED.match(_combined(seed).line(at_ms))
    assert match is not None
    assert datetime.strptime(match[3], "%d/%b/%Y:%H:%M:%S %z") == datetime.fromtimestamp(at_ms // 1000, UTC)
    assert 200 <= int(match[6]) < 600


@settings(deadline=None, max_examples=30)
@given(seed=SEEDS, at_ms=MOMENTS)
def test_syslog_lines_parse_after_rfc_5424(seed: int, at_ms: int) -> None:
    """Every syslog line has a valid priority, moment, ASCII host, structured data and message."""
    match = SYSLOG.match(_syslog(seed).line(at_ms))
    assert match is not None
    assert 0 <= int(match[1]) <= 191
    assert epoch_ms(datetime.fromisoformat(match[2])) == at_ms
    assert match[3].isascii()


def test_most_syslog_lines_carry_structured_data() -> None:
    """Structured data is the rule, and its absence occurs."""
    shape = _syslog(1)
    with_data = sum("@32473 " in shape.line(AT_MS) for _ in range(1_000))
    assert 700 < with_data < 1_000


@pytest.mark.parametrize("name", sorted(EVENT_SHAPES))
def test_events_carry_their_moment(name: str) -> None:
    """The time field of each JSON shape is RFC 3339 with a zone and means the moment asked for, at the
    shape's own precision."""
    shape = EVENT_SHAPES[name](Draws(name), "acme.example")
    for step_ms in range(0, 3_000, 7):
        value = str(shape.event(AT_MS + step_ms)[TIME_FIELD[name]])
        cut = re.sub(r"(\.\d{6})\d+", r"\1", value)
        assert abs(epoch_ms(datetime.fromisoformat(cut)) - (AT_MS + step_ms)) < 1_000
        assert datetime.fromisoformat(cut).tzinfo is not None


@pytest.mark.parametrize("name", sorted(EVENT_SHAPES))
def test_no_event_holds_two_names_that_fold_to_one_column(name: str) -> None:
    """Flattened with `_` and in lower case, the names inside one event are all different, so that good
    records give no errors."""
    shape = EVENT_SHAPES[name](Draws(name), "acme.example")
    for _ in range(3_000):
        columns = [column.lower() for column in _columns(shape.event(AT_MS))]
        assert len(columns) == len(set(columns))
        assert not any(column.startswith("_") for column in columns)


def test_a_twentieth_of_application_events_hold_a_stack_trace_at_most() -> None:
    """Errors carry a Java stack trace of many lines inside `message`, and are few."""
    shape = EVENT_SHAPES["application"](Draws("trace"), "acme.example")
    messages = [str(shape.event(AT_MS)["message"]) for _ in range(5_000)]
    traces = [message for message in messages if "\n\tat shop." in message]
    assert 50 < len(traces) < 250
    assert any("\nCaused by: " in trace for trace in traces)


@pytest.mark.long
def test_audit_events_drift() -> None:
    """New fields keep appearing, and a field's type changes from one era to a later one; the number of
    columns stays below 1,000."""
    shape = Audit(Draws("drift"), "acme.example", events_per_era=150)
    seen_at: dict[int, int] = {}
    kinds: dict[str, set[type]] = {}
    columns: set[str] = set()
    for era in range(ERAS_MAX + 2):
        for _ in range(150):
            event = shape.event(AT_MS)
            columns |= {column.lower() for column in _columns(event)}
            parameters = event["requestParameters"]
            if isinstance(parameters, dict):
                for name, value in parameters.items():
                    kinds.setdefault(name, set()).add(type(value))
        seen_at[era] = len(columns)
    assert all(seen_at[era] < seen_at[era + 1] for era in range(ERAS_MAX))
    assert kinds["tags"] == {dict, list}
    assert kinds["maxResults"] == {int, str}
    assert kinds["dryRun"] == {bool, dict}
    assert len(columns) < 1_000


@pytest.mark.long
@settings(deadline=None, max_examples=30)
@given(seed=SEEDS)
def test_a_shape_is_decided_by_its_seed(seed: int) -> None:
    """Two generators with one seed write the same bytes."""
    first, second = _syslog(seed), _syslog(seed)
    assert [first.line(AT_MS + n) for n in range(20)] == [second.line(AT_MS + n) for n in range(20)]


def test_zipf_pools_prefer_the_first_and_hold_all() -> None:
    """In a Zipf pool every item occurs, and the first about twice as often as the second."""
    pool = Draws("zipf").zipf_pool(range(50), 1.0)
    assert set(pool) == set(range(50))
    assert 1.5 < pool.count(0) / pool.count(1) < 2.6


def _columns(value: object, prefix: str = "") -> list[str]:
    if not isinstance(value, dict) or not value:
        return [prefix]
    return [
        column
        for name, inner in value.items()
        for column in _columns(inner, f"{prefix}_{name}" if prefix else name)
    ]


def _combined(seed: int) -> LineShape:
    return LINE_SHAPES["access_combined"](Draws(str(seed)), "münchen.example")


def _syslog(seed: int) -> LineShape:
    return LINE_SHAPES["syslog_5424"](Draws(str(seed)), "münchen.example")
