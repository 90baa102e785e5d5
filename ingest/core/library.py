"""The functions of the native core, as `core/src/ffi.rs` declares them."""

import ctypes
from ctypes import (
    CFUNCTYPE,
    POINTER,
    Structure,
    c_bool,
    c_char_p,
    c_int,
    c_int32,
    c_int64,
    c_uint32,
    c_uint64,
    c_void_p,
)
from enum import IntEnum
from functools import cache
from typing import Any

from lake import native_core
from lake.native_core import Absent

__all__ = [
    "Absent",
    "ArrowArray",
    "ConsumeResult",
    "FileResult",
    "JsonResult",
    "ReorderedTexts",
    "Status",
    "TextsPart",
    "load",
]

Functions = Any  # the library's functions are attributes that ctypes looks up


class Status(IntEnum):
    """What a function returns."""

    DONE = 0
    BAD_ARGUMENTS = 1
    BUSY = 2
    PANICKED = 3


class JsonResult(Structure):
    """What became of the records of a call."""

    _fields_ = (
        ("rows", c_int64),
        ("columns", c_int64),
        ("leaves", POINTER(c_uint32)),
        ("kinds", POINTER(c_uint32)),
        ("generation", c_uint64),
    )


class FileResult(Structure):
    """A file, and what a manifest says of its columns."""

    _fields_ = (
        ("file", c_void_p),
        ("file_size", c_int64),
        ("metrics", c_void_p),
        ("metrics_size", c_int64),
    )


class ConsumeResult(Structure):
    """What was taken of a queue."""

    _fields_ = (
        ("errors", c_int64),
        ("generation", c_uint64),
        ("group_count", c_int64),
        ("groups", c_void_p),
        ("rows", c_void_p),
        ("values", c_void_p),
        ("envelopes", c_void_p),
    )


class TextsPart(Structure):
    """Texts of some rows of a column: addresses of what Arrow calls offsets, validity and data."""

    _fields_ = (
        ("rows", c_int64),
        ("offsets", c_void_p),
        ("validity", c_void_p),
        ("data", c_void_p),
        ("size", c_int64),
    )


class ReorderedTexts(Structure):
    """Where a reordered array goes: addresses of what Arrow calls offsets, validity and data."""

    _fields_ = (("offsets", c_void_p), ("validity", c_void_p), ("data", c_void_p))


class ArrowArray(Structure):
    """A structure of Arrow's C Data Interface; of its members only the last callback counts here."""

    _fields_ = (
        ("numbers", c_int64 * 5),
        ("pointers", c_void_p * 3),
        ("release_callback", CFUNCTYPE(None, c_void_p)),
        ("private_data", c_void_p),
    )

    def release(self) -> None:
        """Gives what pyarrow has exported back to it, once."""
        self.release_callback(ctypes.addressof(self))


_ARGUMENTS = {
    "firn_json_new": (c_uint32, c_char_p, c_void_p, c_int64, POINTER(c_void_p)),
    "firn_json_free": (c_void_p,),
    "firn_json_parse": (
        c_void_p,
        c_void_p,
        c_int64,
        c_int64,
        c_void_p,
        c_int64,
        c_void_p,
        c_void_p,
        POINTER(ArrowArray),
        POINTER(JsonResult),
    ),
    "firn_json_route": (c_void_p, c_uint32, POINTER(c_void_p), POINTER(c_int64)),
    "firn_parquet_write": (
        c_char_p,
        c_int64,
        POINTER(ArrowArray),
        c_void_p,
        c_int64,
        c_int64,
        c_bool,
        c_int64,
        POINTER(FileResult),
    ),
    "firn_reorder": (POINTER(TextsPart), c_int64, c_void_p, c_int64, POINTER(ReorderedTexts)),
    "firn_consume_new": (c_void_p, c_void_p, c_uint64, POINTER(c_void_p)),
    "firn_consume_free": (c_void_p,),
    "firn_consume_source": (c_void_p, c_char_p, c_int32, c_int32, c_uint32, c_char_p, c_int64),
    "firn_consume_take": (c_void_p, c_int32, c_int64, POINTER(ConsumeResult)),
}


@cache
def load() -> Functions | Absent:
    """The functions; Absent, with the reason, where this process does without the core."""
    core = native_core.load()
    if isinstance(core, Absent):
        return core
    functions = core.functions
    for name, arguments in _ARGUMENTS.items():
        function = getattr(functions, name)
        function.argtypes, function.restype = arguments, c_int
    return functions


def view_at(address: int | None, size: int) -> memoryview:
    """Memory that the core has told of, as long as that keeps it."""
    view: memoryview = _view_of(address, size, _READ) if address else memoryview(b"")
    return view


_READ = 0x100  # PyBUF_READ
_view_of = ctypes.pythonapi.PyMemoryView_FromMemory
_view_of.restype, _view_of.argtypes = ctypes.py_object, (c_void_p, ctypes.c_ssize_t, c_int)


def bytes_at(address: int | None, size: int) -> bytes:
    """A copy of memory that the core has told of."""
    return ctypes.string_at(address, size) if address else b""
