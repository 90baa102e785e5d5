"""Tokens and characters of a text column: by the native core, and by numpy what that leaves."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from lake.token_filter.alphabet import CHARACTERS_MAX, Alphabet, array_alphabet, few_of_either
from lake.token_filter.bloom import BITS_PER_KEY
from lake.token_filter.native_tokens import Limits, NativeTokens, read_texts
from lake.token_filter.tokens import (
    VALUE_BYTES_MAX,
    Hashes,
    ValueTooLongError,
    distinct,
    few_values,
    plain,
    value_parts,
)

# Distinct tokens of one row group: 4 MiB of filter.
KEYS_MAX = (4 << 20) * 8 // BITS_PER_KEY


class TooManyTokensError(Exception):
    """A row group has more tokens than a filter takes."""


@dataclass(slots=True)
class ColumnReading:
    """Reads a column array by array. `alphabet`: the characters of what is read; None where they are many, or
    not all of ASCII."""

    alphabet: Alphabet | None = 0

    def hashes(self, values: pa.Array) -> Iterator[Hashes]:
        """The hashes of all tokens of an array in parts as they are found; a token may be in several. Raises
        ValueTooLongError, TooManyTokensError."""
        if pa.types.is_dictionary(values.type):
            values = values.unique().dictionary_decode()
        native = _by_core(values)
        if native is None:
            values = few_values(values)
            if self.alphabet is not None:
                self.alphabet = few_of_either(self.alphabet, array_alphabet(values))
            yield from value_parts(values)
            return
        if native.is_too_long:
            raise ValueTooLongError(f"a value has more than {VALUE_BYTES_MAX:,} bytes")
        if native.hashes is None:
            raise TooManyTokensError
        self.alphabet = few_of_either(self.alphabet, native.characters)
        yield native.hashes
        if len(native.others):
            yield from value_parts(values.take(pa.array(native.others)))


def column_hashes(column: pa.ChunkedArray | pa.Array) -> Hashes:
    """The hashes of all tokens of a text column (text, or bytes that are text), each once, in order. Raises
    as `ColumnReading.hashes` does."""
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    reading = ColumnReading()
    found = [part for chunk in chunks for part in reading.hashes(chunk)]
    return distinct(np.concatenate([np.zeros(0, np.uint64), *found]))


def _by_core(values: pa.Array) -> NativeTokens | None:
    """None where it does not read them."""
    raw, offsets = plain(values)
    if offsets.dtype != np.int32:
        return None
    return read_texts(raw, offsets, Limits(VALUE_BYTES_MAX, KEYS_MAX, CHARACTERS_MAX))
