"""Rows in another order are those that Arrow's `take` gives."""

import random

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.core.reordering import Reordering

Texts = list[str | None]
VALUES = st.one_of(st.none(), st.none(), st.none(), st.text(max_size=5))


@st.composite
def _tables(draw: st.DrawFn) -> tuple[pa.Table, pa.Array]:
    """Columns of texts in several pieces, one of numbers, and an order."""
    sizes = draw(st.lists(st.integers(0, 70), min_size=1, max_size=3))
    columns = [
        pa.chunked_array([pa.array(draw(_texts(size)), pa.string()) for size in sizes])
        for _ in range(draw(st.integers(1, 3)))
    ]
    count = sum(sizes)
    order = list(range(count))
    draw(st.randoms(use_true_random=False)).shuffle(order)
    numbers = pa.chunked_array([pa.array(range(count), pa.int64())])
    names = [*(f"text_{at}" for at in range(len(columns))), "number"]
    return pa.table([*columns, numbers], names=names), pa.array(order, pa.uint64())


def _texts(size: int) -> st.SearchStrategy[Texts]:
    return st.lists(VALUES, min_size=size, max_size=size)


@given(_tables())
def test_rows_are_those_that_take_gives(given_rows: tuple[pa.Table, pa.Array]) -> None:
    rows, order = given_rows
    found = Reordering(order).rows(rows)
    found.validate(full=True)
    assert found.equals(rows.take(order))


@pytest.mark.core
def test_columns_that_most_rows_lack_are_left_to_the_core(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the others are Arrow's."""
    taken: list[pa.ChunkedArray] = []
    take = pc.take

    def noted(column: pa.ChunkedArray, order: pa.Array) -> pa.ChunkedArray:
        taken.append(column)
        return take(column, order)

    order = list(range(300))
    random.Random(1).shuffle(order)
    sparse: Texts = ["seldom" if at % 7 == 0 else None for at in order]
    rows = pa.table(
        {
            "sparse": pa.chunked_array([sparse[:100], sparse[100:]]),
            "part": pa.chunked_array([pa.array(["x", *sparse]).slice(1)]),
            "dense": ["often"] * 300,
            "absent": pa.nulls(300, pa.string()),
            "empty": [text and "" for text in sparse],
        }
    )
    wanted = rows.take(pa.array(order))
    monkeypatch.setattr(pc, "take", noted)
    assert Reordering(pa.array(order)).rows(rows).equals(wanted)
    assert taken == [rows.column("dense")]
