"""Alphabets: the characters of a column, and what cannot stand in it."""

import random
import string
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from lake.token_filter.alphabet import CHARACTERS_MAX, Alphabet, alphabet_of
from lake.token_filter.column_tokens import ColumnReading


def column_alphabet(parts: Sequence[pa.Array]) -> Alphabet | None:
    """The characters of arrays that are read one behind the other."""
    reading = ColumnReading()
    for part in parts:
        list(reading.hashes(part))
    return reading.alphabet


@pytest.mark.parametrize(
    ("values", "characters"),
    [
        ([], ""),
        ([""], ""),
        (["a"], "a"),
        (["Ab", None, "c"], "abc"),
        (["10.0.0.1", "7"], ".017"),
        (["\x00\x7f"], "\x00\x7f"),
    ],
)
def test_characters_of_a_column(values: list[Any], characters: str) -> None:
    """Letters count in lower case."""
    assert column_alphabet([pa.array(values, pa.string())]) == alphabet_of(characters)


def test_text_has_no_alphabet() -> None:
    """What is beyond ASCII, or of many characters, early or late."""
    many = string.ascii_letters + string.digits + string.punctuation
    assert len(set(many.lower())) > CHARACTERS_MAX
    for values in (["é"], [many], ["a" * 10_000 + "é"], ["a" * 10_000, many], ["1" * 4_097 + "\u212a"]):
        assert column_alphabet([pa.array(values)]) is None
    assert alphabet_of("é") is None


def test_random_columns() -> None:
    """Slices and several arrays: every character of a value is in the alphabet, and no other."""
    r = random.Random(5)
    for _ in range(300):
        letters = r.sample(string.printable, 30)
        values = ["".join(r.choices(letters, k=r.randrange(7))) for _ in range(r.randrange(1, 40))]
        at = r.randrange(len(values))
        array = pa.array(values)
        kept = "".join(values[at:]).lower()
        wanted = alphabet_of(kept)
        assert column_alphabet([array.slice(at)]) == wanted
        parts = [pa.array(values[:at], pa.large_string()), pa.array([], pa.string()), array.slice(at)]
        assert column_alphabet(parts) == alphabet_of("".join(values).lower())
