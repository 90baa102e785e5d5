"""Values that lie one behind the other."""

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from ingest.model.raw_rows import ByteValues


@given(st.lists(st.tuples(st.binary(max_size=3), st.booleans()), max_size=9), st.integers(0, 9))
@example([(b"a", True), (b"", True), (b"bc", False), (b"", False), (b"d", True)], 1)
def test_some_values_are_put_together(values: list[tuple[bytes, bool]], first: int) -> None:
    """Also of a slice, which begins in the middle of its bytes."""
    some = ByteValues.of([value for value, _ in values])[first:]
    kept = np.array([is_kept for _, is_kept in values[first:]], bool)
    assert list(some.only(kept)) == [value for value, is_kept in values[first:] if is_kept]
