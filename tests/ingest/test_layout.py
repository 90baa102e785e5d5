"""Records are laid out by columns as the definition lays them out one by one: generated ones, with and
without the core."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ingest.convert.terms import TimeLimits
from ingest.convert.work import ConverterLimits
from lake.log_schema import LogSchema, new_log_schema
from tests.ingest.support.conversion import ANY_TIME, rows_of, without_core
from tests.ingest.support.definition import check

DAY_US = 86_400_000_000
LIMITS = ConverterLimits(depth_max=6, columns_max=24, time=TimeLimits(3 * DAY_US, DAY_US))
PLAIN = new_log_schema()
DECLARED_TYPES = {"d": "long", "n": "double", "b": "timestamptz", "a_b": "boolean", "c": "int", "é": "date"}
DECLARED_FIELDS = [
    {"id": 16 + at, "name": name, "required": False, "type": kind}
    for at, (name, kind) in enumerate(DECLARED_TYPES.items())
]
DECLARED = LogSchema({**PLAIN.json, "fields": [*PLAIN.json["fields"], *DECLARED_FIELDS]})
TS_FIELD = {"id": 16, "name": "ts", "required": False, "type": "string", "doc": "/ts"}
WITH_TS = LogSchema({**PLAIN.json, "fields": [*PLAIN.json["fields"], TS_FIELD]})

BLANKS = st.sampled_from(["", "", "", "", " ", "\n\t"])
TIME_KEYS = ("ts", "time", "timestamp", "@timestamp")
PLAIN_KEYS = [
    "a",
    "a",
    "b",
    "c",
    "d",
    "n",
    *TIME_KEYS,
    "level",
    "severity",
    "priority",
    "msg",
    "message",
    "log",
]
ODD_KEYS = [
    "A",
    "a.b",
    "a_b",
    "é",
    "e\\u0301",
    'q\\"',
    "",
    "_offset",
    "x\\u0001",
    "\\u0061",
    "k\\\\",
    "very/odd~key",
    'n\\":',
]
KEYS = st.sampled_from([*PLAIN_KEYS, *PLAIN_KEYS, *ODD_KEYS])
STRINGS = st.sampled_from(
    [
        "",
        "x",
        "true",
        "null",
        "5",
        "snow ☃",
        "\\n",
        "\\u0000",
        "\\ud800",
        "\\ud83d\\ude00",
        '\\":',
        '{\\"a\\":1}',
        "\\\\",
        '\\\\\\":',
        "2025-11-13T02:13:20Z",
        "2025-11-13",
        "30",
        "err",
        "line\\n",
        "line\\r\\n\\n",
    ]
)
LONG_NUMBERS = ["9223372036854775807", "9223372036854775808", "123456789012345678901234567890"]
NUMBERS = st.sampled_from(["0", "-0", "1", "-1", "1.0", "1.10", "1e5", "1E400", "-0.0", *LONG_NUMBERS])
TIME_TEXTS = [
    "13T02:13:20Z",
    "13T02:13:20.123456789Z",
    "13 02:13:20,5",
    "13T02:13:20+01:00",
    "13",
    "13T02:13",
    "13T25:00:00Z",
    "13T23:59:60Z",
]
TIME_NUMBERS = [
    "1763000000",
    "1763000000000",
    "1763000000.25",
    "1763000000000001",
    "1763000000000000001",
    "1",
    "-1",
    "1.5e9",
    "1.763e12",
]
TIMES = st.sampled_from(
    [
        "1763000000000",
        '"2025-11-13T02:13:20Z"',
        *(f'"2025-11-{text}"' for text in TIME_TEXTS),
        *TIME_NUMBERS,
        '"1763000000"',
        '"soon"',
        "null",
        "true",
        "[1]",
    ]
)
SCALARS = st.one_of(
    STRINGS.map(lambda s: f'"{s}"'), NUMBERS, st.sampled_from(["true", "false", "null", "NaN", "-Infinity"])
)


@st.composite
def _object(draw: st.DrawFn, depth: int) -> str:
    members = []
    for key in draw(st.lists(KEYS, max_size=5)):
        timely = key in ("ts", "time", "timestamp", "@timestamp") and draw(st.booleans())
        value = draw(TIMES) if timely else draw(_value(depth - 1))
        members.append(f'{draw(BLANKS)}"{key}"{draw(BLANKS)}:{draw(BLANKS)}{value}{draw(BLANKS)}')
    return "{" + ",".join(members) + (draw(BLANKS) if not members else "") + "}"


@st.composite
def _array(draw: st.DrawFn, depth: int) -> str:
    return (
        "["
        + ",".join(
            draw(BLANKS) + item + draw(BLANKS) for item in draw(st.lists(_value(depth - 1), max_size=3))
        )
        + "]"
    )


def _value(depth: int) -> st.SearchStrategy[str]:
    return SCALARS if depth <= 0 else st.one_of(SCALARS, SCALARS, _object(depth), _array(depth))


@st.composite
def _record(draw: st.DrawFn) -> str:
    """Mostly a record with a time first."""
    text = draw(_object(3))
    if draw(st.integers(0, 4)) == 0:
        return text
    return f'{{"ts":{draw(TIMES)}' + ("}" if text.strip("{} \n\t") == "" else "," + text[1:])


# Each record comes several times, so that columns have several rows.
RECORDS = st.lists(st.tuples(_record(), st.integers(1, 4)), min_size=1, max_size=6).flatmap(
    lambda many: st.permutations([text for text, times in many for _ in range(times)])
)
TS = '"ts":1763000000000'


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


@pytest.mark.long
@given(RECORDS, st.sampled_from([PLAIN, DECLARED]))
@example([f'{{{TS},"a":1,"a" :2}}'] * 3 + [f'{{{TS},"a":1}}'] * 3, PLAIN)
@example([f'{{{TS},"a":[{{"b":1,"b" :2}}]}}'] * 3, PLAIN)
@example([f'{{{TS},"a":1,"a":1}}', f'{{{TS},"a" :1}}'], PLAIN)
@example([f'{{{TS},"a":"x\\":"}}', f'{{{TS},"a":"x"}}', f'{{{TS},"a":"x","a":"y"}}'] * 3, PLAIN)
@example([f'{{{TS},"a":-0}}', f'{{{TS},"a":0}}', f'{{{TS},"a": -0}}'] * 3, PLAIN)
@example(
    [f'{{{TS},"a":{{}}}}', f'{{{TS},"a":{{"b":1}}}}', f'{{{TS},"a":null}}', f'{{{TS},"a":{{"b":null}}}}'] * 3,
    PLAIN,
)
@example(['{"ts":"soon"}', f'{{"":{{{TS}}},"ts":"soon"}}', '{"":{"ts":"soon"},"ts":1}'], PLAIN)
@example(['{"ts":"soon"}', f'{{"":{{{TS}}},"ts":"soon"}}', '{"":{"ts":"soon"},"ts":1}'], WITH_TS)
def test_records_are_stored_as_defined(records: list[str], schema: LogSchema) -> None:
    """Whole flushes through the converter give, record by record, what the definition says, with the core and
    without it."""
    bodies = [_bytes(text) for text in records]
    by_core = check(bodies, limits=LIMITS, schema=schema)
    with pytest.MonkeyPatch.context() as patch:
        without_core(patch)
        exact = check(bodies, limits=LIMITS, schema=schema)
    assert (
        by_core.new.keys() == exact.new.keys() or len(exact.new) + len(schema.columns) == LIMITS.columns_max
    )


def test_two_times_of_one_record(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two fields that make one name the one that the table's column is from tells the time; where the
    table has no such column the first does, whatever came with the record."""
    first, second = 1_763_000_000_000, 1_763_000_001_000
    record = f'{{"":{{"ts":{first}}},"ts":{second}}}'.encode()
    without_core(monkeypatch)
    for schema, told in ((PLAIN, first), (WITH_TS, second)):
        for flush in ([record], [b'{"ts":"soon"}', record]):
            rows = rows_of(check(flush, limits=ConverterLimits(6, 24, ANY_TIME), schema=schema))
            row = rows[len(flush) - 1, 0]
            assert row["timestamp"].timestamp() * 1000 == told
