"""Values that lie one behind the other."""

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from ingest.model.raw_rows import SLICE_ROWS, ByteValues, PieceValues


@given(st.lists(st.tuples(st.binary(max_size=3), st.booleans()), max_size=9), st.integers(0, 9))
@example([(b"a", True), (b"", True), (b"bc", False), (b"", False), (b"d", True)], 1)
def test_some_values_are_put_together(values: list[tuple[bytes, bool]], first: int) -> None:
    """Also of a slice, which begins in the middle of its bytes."""
    some = ByteValues.of([value for value, _ in values])[first:]
    kept = np.array([is_kept for _, is_kept in values[first:]], bool)
    assert list(some.only(kept)) == [value for value, is_kept in values[first:] if is_kept]


@given(
    st.lists(st.lists(st.binary(max_size=3), max_size=4), max_size=5), st.integers(0, 9), st.integers(0, 9)
)
@example([[b"ab"], [], [b"", b"c"], [b""], [b"de", b"f"]], 0, 5)
def test_values_in_pieces_are_those_in_one(pieces: list[list[bytes]], first: int, end: int) -> None:
    """One by one, all, and in slices, which begin and end in the middle of a piece and may have several."""
    values = [value for piece in pieces for value in piece]
    apart = PieceValues([b"".join(piece) for piece in pieces], ByteValues.of(values).ends)
    assert [apart[at] for at in range(len(apart))] == list(apart) == values
    some = apart[first:end]
    assert (list(some), some.sizes.tolist(), bytes(some.text)) == (
        values[first:end],
        [len(value) for value in values[first:end]],
        b"".join(values[first:end]),
    )
    assert apart.sizes.tolist() == [len(value) for value in values]


def test_a_slice_of_one_piece_is_not_copied() -> None:
    """Of a large buffer that would cost as much as to read it."""
    pieces = [b"abc" * 10, b"de" * 10]
    apart = PieceValues(pieces, ByteValues.of([b"abc"] * 10 + [b"de"] * 10).ends)
    assert (apart[2:9].data, apart[11:].data) == (pieces[0], pieces[1])
    assert apart[2:9].data is pieces[0]


def test_many_values_in_pieces_come_one_after_the_other() -> None:
    """More than are put together at a time."""
    values = [b"%d" % at for at in range(2 * SLICE_ROWS + 1)]
    pieces = [b"".join(values[:5]), b"".join(values[5 : SLICE_ROWS + 3]), b"".join(values[SLICE_ROWS + 3 :])]
    assert list(PieceValues(pieces, ByteValues.of(values).ends)) == values
