"""The native core finds the tokens and characters that the Python path does."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lake.token_filter.alphabet import CHARACTERS_MAX, array_alphabet
from lake.token_filter.native_tokens import Limits, NativeTokens, read_texts
from lake.token_filter.tokens import distinct, text_hashes

pytestmark = pytest.mark.core

WORDS = st.sampled_from(
    ["GET", "/api_1", " ", "", "a", "Z9", "\x00", "\x7f", "x" * 8, "yY" * 4 + "z", "é", "漢字"]
)
TEXTS = st.lists(st.one_of(st.lists(WORDS, max_size=9).map("".join), st.text(max_size=80)), max_size=30)
LIMITS = Limits(1_000, 10_000, CHARACTERS_MAX)


def read(texts: list[str], limits: Limits = LIMITS) -> NativeTokens:
    """Texts that begin in the middle of a buffer."""
    encoded = [text.encode() for text in texts]
    raw = np.frombuffer(b"before" + b"".join(encoded), np.uint8)
    found = read_texts(raw, len("before") + np.cumsum([0, *map(len, encoded)], dtype=np.int32), limits)
    assert found is not None
    return found


def in_python(texts: list[str]) -> list[int]:
    encoded = [text.encode() for text in texts]
    offsets = np.cumsum([0, *map(len, encoded)], dtype=np.int64)
    found: list[int] = distinct(text_hashes(np.frombuffer(b"".join(encoded), np.uint8), offsets)).tolist()
    return found


@given(TEXTS)
@example(["a" * 64, "a" * 65, "b" * 63, "b" * 8, "B" * 9])
@example(["one two", "three"])
@example(["@[`{/:"])
@example(["", *[""] * 20, "behind", "é", "behind", "é"])
@example(["a" * 8 + "x" + "b" * 8, "a" * 8 + "y" + "b" * 8])
@example(["aur_3uvvhvzyrr9r hides"])  # a word whose hash is 0, which anybody can find
def test_tokens_and_characters_are_those_of_the_python_path(texts: list[str]) -> None:
    """Of texts of ASCII; others are named."""
    found = read(texts)
    assert found.hashes is not None
    assert found.hashes.tolist() == in_python([text for text in texts if text.isascii()])
    assert {texts[at] for at in found.others} == {text for text in texts if not text.isascii()}
    assert found.characters == array_alphabet(pa.array(texts, pa.string()))


def test_what_is_beyond_the_limits_is_told() -> None:
    """And what is as much as they say is not."""
    long, many = "a " * 500, " ".join(map(str, range(10_000)))
    assert read([long]).hashes is not None
    assert (read([long + "b"]).hashes, read([long + "b"]).is_too_long) == (None, True)
    at_once = LIMITS._replace(text_bytes=len(many))
    all_of_them = read([many], at_once).hashes
    assert all_of_them is not None
    assert len(all_of_them) == 10_000
    few = at_once._replace(tokens=9_999)
    assert (read([many], few).hashes, read([many], few).is_too_long) == (None, False)
