"""How many rows have a field: by one look at each file, and by each field's own."""

from collections.abc import Mapping
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from lake.log_schema import Column, new_log_schema
from query.facets.fields import coverage_of, filled_of_all
from query.files.file_index import COUNTED_COLUMNS_SURE, LiveFile

IDS = st.integers(1, 5)
COUNTS = st.dictionaries(IDS, st.integers(0, 9))


def _column(column_id: int) -> Column:
    known = new_log_schema().by_name["message"]
    return replace(known, id=column_id)


def _file(values: Mapping[int, int] | None, nulls: Mapping[int, int] | None, rows: int = 9) -> LiveFile:
    return LiveFile(
        uri="file:///f",
        rows=rows,
        size_bytes=1,
        first_us=0,
        last_us=0,
        value_counts=values,
        null_counts=nulls,
        lower_bounds=None,
        upper_bounds=None,
    )


@st.composite
def _files(draw: st.DrawFn) -> list[tuple[LiveFile, int | None]]:
    """Some say nothing, some not all; rows of some are deleted."""
    found = []
    for _ in range(draw(st.integers(0, 4))):
        nulls = draw(st.one_of(st.none(), COUNTS))
        told = draw(COUNTS) if draw(st.booleans()) else dict(nulls or {})
        wide = dict.fromkeys(range(10, 10 + COUNTED_COLUMNS_SURE), 9) if draw(st.booleans()) else {}
        values = draw(st.one_of(st.none(), st.just({**dict.fromkeys(told, 9), **wide})))
        found.append((_file(values, nulls), draw(st.sampled_from([0, 0, 0, 0, 2, None]))))
    return found


@given(_files())
def test_both_looks_find_the_same(files: list[tuple[LiveFile, int | None]]) -> None:
    filled = filled_of_all(files)
    if filled is None:
        return
    for column in map(_column, range(1, 6)):
        assert filled.coverage_of(column) == coverage_of(column, files)


def test_what_files_do_not_say_is_not_summed() -> None:
    """No counts, deleted rows; counts of some columns, so many that some may be left out."""
    sure, many = _file({1: 9}, {1: 4}), dict.fromkeys(range(COUNTED_COLUMNS_SURE), 9)
    assert filled_of_all([(sure, 0), (sure, 0)]) == ({1: 10}, 18, {})
    assert filled_of_all([(sure, 0), (_file({1: 9}, {}), 0)]) == ({1: 5}, 18, {1: -9})
    filled = filled_of_all([(sure, 0), (_file(many, dict.fromkeys(many, 0)), 0)])
    assert filled is not None
    told = [filled.coverage_of(_column(at)) for at in (1, 2, COUNTED_COLUMNS_SURE)]
    assert told == [round(14 / 18, 4), 0.5, 0.0]
    for file in (_file(None, {}), _file({}, None)):
        assert filled_of_all([(sure, 0), (file, 0)]) is None
    for dead in (1, None):
        assert filled_of_all([(sure, dead)]) is None
