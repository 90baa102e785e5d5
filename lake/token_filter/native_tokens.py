"""Tokens and characters of texts of ASCII by the native core (core/src/tokens.rs), where this process has
it."""

import ctypes
from ctypes import POINTER, c_int, c_int64, c_void_p
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lake import native_core

_ARGUMENTS = {
    "firn_token_hashes": (c_void_p, c_int64, c_void_p, c_int64, c_void_p, c_int64, POINTER(c_int64)),
    "firn_bytes_in": (c_void_p, c_int64, c_void_p),
}
_DONE = 0


@cache
def _functions() -> Any:
    core = native_core.load()
    if isinstance(core, native_core.Absent):
        return None
    for name, arguments in _ARGUMENTS.items():
        function = getattr(core.functions, name)
        function.argtypes, function.restype = arguments, c_int
    return core.functions


def ascii_hashes(raw: NDArray[np.uint8], offsets: NDArray[np.int64]) -> NDArray[np.uint64] | None:
    """The hashes of all tokens of texts, each once, in order. `offsets`: where in `raw` each text begins, and
    the end of the last. None where some byte is not of ASCII, and without the core."""
    functions = _functions()
    if functions is None:
        return None
    # A text of n bytes has (n + 1) / 2 tokens at most.
    hashes = np.empty((int(offsets[-1] - offsets[0]) + len(offsets)) // 2, np.uint64)
    found = c_int64()
    status = functions.firn_token_hashes(
        raw.ctypes.data,
        len(raw),
        offsets.ctypes.data,
        len(offsets),
        hashes.ctypes.data,
        len(hashes),
        ctypes.byref(found),
    )
    return hashes[: found.value].copy() if status == _DONE and found.value >= 0 else None


def bytes_in(raw: NDArray[np.uint8]) -> list[int] | None:
    """Which bytes there are, ascending; None without the core."""
    functions = _functions()
    if functions is None:
        return None
    seen = np.empty(256, np.uint8)
    if functions.firn_bytes_in(raw.ctypes.data, len(raw), seen.ctypes.data) != _DONE:
        return None
    found: list[int] = np.flatnonzero(seen).tolist()
    return found
