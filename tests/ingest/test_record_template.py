"""Records cut out along a template are stored as the exact path stores them, whatever their values do to its
quotes."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.convert import record_template
from ingest.convert.columnar import Decoded, Terms
from ingest.convert.row import Columns, TimeLimits
from ingest.convert.shape import Shapes
from lake.log_schema import LogSchema, new_log_schema
from tests.ingest.test_fast_path import DECLARED, KAFKA_MS, NUMBERS, PLAIN, RECORDS, STRINGS, TIMES, _check

TERMS = Terms(Columns(new_log_schema(), 1_000), TimeLimits(None, None), 100)
KEYS = st.sampled_from(["a", "b", "c", "d", "n", "é", "A", "level", "message", "x y"])
BLANKS = st.sampled_from(["", "", " ", "\t"])  # a line end would make several records of one that is broken
TEXTS = STRINGS.map(lambda text: f'"{text}"')
LITERALS = st.one_of(
    NUMBERS, st.sampled_from(["true", "false", "null", "NaN", "01", "", "1,2", "[1]", "{}", '"x"'])
)
Frame = list[tuple[str, Any]]  # bytes, and what values go behind them


@pytest.fixture(autouse=True)
def from_the_first_row() -> Iterator[None]:
    """Templates are used however few rows there are."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(record_template, "ROWS_MIN", 1)
        yield


@st.composite
def _frame(draw: st.DrawFn, depth: int = 2) -> Frame:
    """What the records of one line of code share."""
    parts: Frame = [("{", None)]
    for at, key in enumerate(draw(st.lists(KEYS, min_size=1, max_size=4))):
        parts.append((f'{"," if at else ""}{draw(BLANKS)}"{key}"{draw(BLANKS)}:{draw(BLANKS)}', None))
        if depth and draw(st.integers(0, 3)) == 0:
            parts += draw(_frame(depth - 1))
        else:
            parts.append(("", draw(st.sampled_from([TEXTS, TEXTS, LITERALS]))))
    return [*parts, (draw(BLANKS) + "}", None)]


@st.composite
def _one_layout(draw: st.DrawFn) -> list[str]:
    frame, timed = draw(_frame()), draw(st.booleans())
    return [
        "{"
        + (f'"ts":{draw(TIMES)},' if timed else "")
        + "".join(text + (draw(kind) if kind is not None else "") for text, kind in frame)[1:]
        for _ in range(draw(st.integers(1, 8)))
    ]


@given(_one_layout(), st.sampled_from([PLAIN, DECLARED]))
def test_records_of_one_layout_are_stored_as_the_exact_path_stores_them(
    records: list[str], schema: LogSchema
) -> None:
    """Records of one layout with all kinds of values, also such that break it."""
    _check([record.encode("utf-8", "surrogatepass") for record in records], schema, Shapes())


@given(RECORDS)
def test_records_of_any_layout_are_stored_as_the_exact_path_stores_them(records: list[str]) -> None:
    """Records that have nothing in common lose nothing by having been compared."""
    _check([record.encode("utf-8", "surrogatepass") for record in records], PLAIN, Shapes())


def _decoded(records: list[bytes]) -> list[Decoded]:
    return list(record_template.decode_by_template(records, pa.array([KAFKA_MS] * len(records)), TERMS))


def test_two_layouts_in_one_chunk_are_cut_by_two_templates() -> None:
    """Interleaved records of two layouts give one result each, and nothing is left over."""
    records = [
        b'{"ts":"2025-11-13T02:13:20Z","a":"x%d"}' % at
        if at % 3
        else b'{"ts":"2025-11-13T02:13:20Z","n":%d,"o":{"p":null}}' % at
        for at in range(30)
    ]
    first, second, rest = _decoded(records)
    assert rest.fallback == [at for at in range(30) if not at % 3], (
        "nothing but null in an object is for the exact path"
    )
    assert first.ordinals == []
    assert second.ordinals == [at for at in range(30) if at % 3]
    assert second.columns["a"].to_pylist() == [f"x{at}" for at in second.ordinals]


@pytest.mark.parametrize(
    "departing",
    [
        b'{"ts":"2025-11-13T02:13:20Z","a":"x\\"y"}',
        b'{"ts":"2025-11-13T02:13:20Z","a":"x\ny"}',
        b'{"ts":"2025-11-13T02:13:20Z","b":"xy"}',
        b'{"ts":"2025-11-13T02:13:20Z","a":"xy"} ',
        b'{"ts":"2025-11-13T02:13:20Z", "a":"xy"}',
        b'{"ts":"2025-11-13T02:13:20Z","a":"x"}{"b":"y"}',
        b'{"ts":"2025-11-13T02:13:20Z","a":"xy"\x00',
    ],
)
def test_a_record_that_departs_from_the_template_is_left_over(departing: bytes) -> None:
    """One record among its likes with an escape, a control character, another key, blanks or something behind
    it is for another path."""
    plain = b'{"ts":"2025-11-13T02:13:20Z","a":"xy"}'
    decoded = _decoded([plain, plain, departing, plain])
    cut = {ordinal for one in decoded for ordinal in one.ordinals}
    assert {0, 1, 3} <= cut
    assert all("b" not in one.columns for one in decoded if 0 in one.ordinals)
    if 2 in cut:  # a layout of its own
        assert not any({0, 2} <= set(one.ordinals) for one in decoded)


def test_a_chunk_that_is_not_utf_8_is_left_over_whole() -> None:
    """Which record it is only the other paths find out."""
    (rest,) = _decoded(
        [b'{"ts":"2025-11-13T02:13:20Z","a":"xy"}', b'{"ts":"2025-11-13T02:13:20Z","a":"x\xff"}']
    )
    assert rest.fallback == [0, 1]
