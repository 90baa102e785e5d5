"""The native core finds the tokens and characters that the Python path does."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lake.token_filter.native_tokens import ascii_hashes, bytes_in
from lake.token_filter.tokens import distinct, text_hashes

pytestmark = pytest.mark.core

WORDS = st.sampled_from(
    ["GET", "/api_1", " ", "", "a", "Z9", "\x00", "\x7f", "x" * 8, "yY" * 4 + "z", "é", "漢字"]
)
TEXTS = st.lists(st.one_of(st.lists(WORDS, max_size=9).map("".join), st.text(max_size=80)), max_size=9)


@given(TEXTS)
@example(["a" * 64, "a" * 65, "b" * 63, "b" * 8, "B" * 9])
@example(["one two", "three"])
@example(["@[`{/:"])
@example(["aur_3uvvhvzyrr9r hides"])  # a word whose hash is 0, which anybody can find
def test_tokens_are_those_of_the_python_path(texts: list[str]) -> None:
    """Of texts of ASCII, also where they begin in the middle of a buffer; of others it says nothing."""
    before, encoded = b"before", [text.encode() for text in texts]
    raw = np.frombuffer(before + b"".join(encoded), np.uint8)
    offsets = len(before) + np.cumsum([0, *map(len, encoded)], dtype=np.int64)
    found = ascii_hashes(raw, offsets)
    if all(text.isascii() for text in texts):
        assert found is not None
        expected = distinct(text_hashes(raw[len(before) :], offsets - len(before)))
        assert found.tolist() == expected.tolist()
    else:
        assert found is None


@given(st.binary())
def test_bytes_are_those_that_are_there(data: bytes) -> None:
    """Each once, in order."""
    assert bytes_in(np.frombuffer(data, np.uint8)) == sorted(set(data))
