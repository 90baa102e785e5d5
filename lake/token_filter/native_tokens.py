"""Tokens and characters of texts of ASCII by the native core (core/src/tokens.rs), where this process has
it."""

import ctypes
from ctypes import POINTER, Structure, c_bool, c_int, c_int64, c_uint64, c_void_p
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lake import native_core

_DONE = 0
_TOO_LONG = -1  # of hashes; -2: too many


class _WordsResult(Structure):
    _fields_ = (
        ("hashes", c_void_p),
        ("hash_count", c_int64),
        ("others", c_void_p),
        ("other_count", c_int64),
        ("characters", c_uint64 * 2),
        ("has_characters", c_bool),
    )


class Limits(NamedTuple):
    """Bytes of a text, tokens of an array, and its characters."""

    text_bytes: int
    tokens: int
    characters: int


class NativeTokens(NamedTuple):
    """What an array of texts has. `hashes`: of all tokens in its texts of ASCII, each once, in order. None:
    they are more than the limit, or, with `is_too_long`, a text is longer.

    `characters`: one bit for each character, letters in lower case; None where these are more than the limit
    or not all of ASCII. `others`: positions of texts that are not of ASCII, of equal ones one at least.
    """

    hashes: NDArray[np.uint64] | None
    is_too_long: bool
    characters: int | None
    others: NDArray[np.int64]


@cache
def _function() -> Any:
    core = native_core.load()
    if isinstance(core, native_core.Absent):
        return None
    function = core.functions.firn_words
    function.argtypes = (c_void_p, c_int64, c_void_p, c_int64, c_int64 * 3, POINTER(_WordsResult))
    function.restype = c_int
    return function


def read_texts(raw: NDArray[np.uint8], offsets: NDArray[np.int32], limits: Limits) -> NativeTokens | None:
    """Reads texts. `offsets`: where in `raw` each begins, and the end of the last. None without the core."""
    function, result = _function(), _WordsResult()
    if function is None:
        return None
    status = function(
        raw.ctypes.data,
        len(raw),
        offsets.ctypes.data,
        len(offsets),
        (c_int64 * 3)(*limits),
        ctypes.byref(result),
    )
    if status != _DONE:
        return None
    low, high = result.characters
    return NativeTokens(
        _copied(result.hashes, result.hash_count, np.uint64) if result.hash_count >= 0 else None,
        result.hash_count == _TOO_LONG,
        low | high << 64 if result.has_characters else None,
        _copied(result.others, result.other_count, np.int64),
    )


def _copied(address: int, count: int, kind: type[np.uint64] | type[np.int64]) -> NDArray[Any]:
    """Numbers of the core, which are its own until the next call."""
    return np.frombuffer(ctypes.string_at(address, count * 8), kind)
