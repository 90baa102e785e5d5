"""Tokens of many values at once are those that plain Python finds in one value after the other."""

import random
from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lake.token_filter import column_tokens, tokens
from lake.token_filter.column_tokens import column_hashes
from lake.token_filter.letters import letters
from lake.token_filter.tokens import ValueTooLongError, demanded_hashes, in_field
from tests.lake.token_filter.support.texts import text
from tests.lake.token_filter.support.tokens_in_python import hashes_of, tokens_of

VALUES = st.text(st.characters(codec="utf-8"), max_size=40) | st.integers().map(
    lambda seed: text(random.Random(seed))
)


def expected(values: Sequence[str | None]) -> set[int]:
    return hashes_of(token for value in values if value is not None for token in tokens_of(value))


@given(st.lists(st.none() | VALUES, max_size=12))
def test_tokens_of_a_column_are_those_of_its_values(values: list[str | None]) -> None:
    """Each once and in order, whatever the values' scripts; none reaches over the end of a value."""
    found = column_hashes(pa.array(values, pa.string()))
    assert set(found.tolist()) == expected(values)
    assert (found[1:] > found[:-1]).all()


FORMS: list[Callable[[list[str | None]], pa.ChunkedArray | pa.Array]] = [
    lambda values: pa.array(["padding", *values, "behind"], pa.string()).slice(1, len(values)),
    lambda values: pa.array(values, pa.large_string()),
    lambda values: pa.array(values, pa.string_view()),
    lambda values: pa.array(values, pa.string()).cast(pa.binary()),
    lambda values: pa.array([*values, "behind"], pa.string()).dictionary_encode().slice(0, len(values)),
    lambda values: pa.chunked_array(
        [pa.array(values[at : at + 3], pa.string()) for at in range(0, len(values), 3)], pa.string()
    ),
    lambda values: pa.chunked_array([pa.array(["x", *values, "y"], pa.large_string())]).slice(1, len(values)),
]


@pytest.mark.parametrize("form", range(len(FORMS)))
@given(values=st.lists(st.none() | VALUES, max_size=12))
def test_every_form_of_a_column_has_the_same_tokens(form: int, values: list[str | None]) -> None:
    """Slices, chunks, dictionaries, 64-bit offsets, views, and text that is not marked as such."""
    assert set(column_hashes(FORMS[form](values)).tolist()) == expected(values)


@pytest.mark.long
def test_a_column_of_many_parts_has_the_tokens_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where text is cut into parts, and where few values repeat."""
    draw = random.Random(3)
    monkeypatch.setattr(tokens, "CHUNK_BYTES", 100)
    values = [text(draw) for _ in range(3_000)]
    assert set(column_hashes(pa.array(values)).tolist()) == expected(values)
    assert set(column_hashes(pa.array(values[:20] * 1_000)).tolist()) == expected(values[:20])


@pytest.mark.parametrize("width", [1, 7, 8, 9, 16, 32, 33, 64, 65, 72])
def test_ids_of_one_length_have_their_tokens(width: int) -> None:
    """They are hashed in a way of their own; one that is longer, or no run, takes them back to the usual
    one."""
    draw = random.Random(width)
    ids = ["".join(draw.choices("abcXYZ019_", k=width)) for _ in range(200)]
    for other in ([], ["x" * (width + 1)], ["-" * width], ["", "x" * width], ["é"]):
        values = [*ids, *other, *ids]
        assert set(column_hashes(pa.array(values)).tolist()) == expected(values)


def test_a_value_beyond_the_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """And one as long as the limit is not."""
    for module in (tokens, column_tokens):
        monkeypatch.setattr(module, "VALUE_BYTES_MAX", 1_000)
    monkeypatch.setattr(tokens, "CHUNK_BYTES", 100)
    assert set(column_hashes(pa.array(["a " * 500])).tolist()) == expected(["a"])
    with pytest.raises(ValueTooLongError):
        column_hashes(pa.array(["b", "a " * 500 + "a", "b"]))


@given(st.binary(max_size=40), VALUES, st.binary(max_size=40))
def test_bytes_that_are_no_text_take_no_token_away(before: bytes, value: str, behind: bytes) -> None:
    """Other writers put into text columns what they like; the text among it has its tokens."""
    raw = b" ".join((before, value.encode(), behind))
    assert expected([value]) <= set(column_hashes(pa.array([raw])).tolist())


@given(VALUES)
def test_a_text_demands_its_tokens(value: str) -> None:
    """But not those at an end that is open."""
    demanded = set(demanded_hashes(value).tolist())
    assert demanded == expected([value])
    closed = f"{value}|"
    assert set(demanded_hashes(closed, open_end=True).tolist()) == expected([closed])
    opened = set(demanded_hashes(value, open_start=True, open_end=True).tolist())
    assert opened <= set(column_hashes(pa.array([f"A{value}z_", f"K{value}İ"])).tolist())


def test_tokens_and_hashes_stay_what_they_are_in_files() -> None:
    """Another hash for one of these is another version of the tokenizer: files have them."""
    pinned = {
        "a": 0x685FDF50E51FA977,
        "order_42": 0xF92967D6004650A9,
        "order_423": 0x5062070DF93E9F41,
        "x" * 64: 0x6D97CC77BD772953,
        "x" * 65: 0x6D97CC77BD772953,
        "漢字": 0xFE97CEEFB79467A9,
        "Жж": 0x431B7F2533539E8A,
    }
    found = {value: demanded_hashes(value).tolist() for value in pinned}
    assert found == {value: [hashed] for value, hashed in pinned.items()}
    assert in_field(demanded_hashes("a"), 4).tolist() == [0x73114E8E1408AEF1]
    assert tokens.TOKENIZER_VERSION == 1


def test_the_letters_of_pairs_stay_what_they_are_in_files() -> None:
    """Their table is part of the tokenizer's version as well."""
    table = letters()
    assert int(np.flatnonzero(table).sum()) == 13_082_932_096
    assert (
        int((table.astype(np.uint64) * np.arange(len(table), dtype=np.uint64)).sum()) == 2_031_043_155_343_126
    )
