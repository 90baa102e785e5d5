"""Rows to small Parquet files, by the native core.

Pyarrow takes a millisecond for a file of twenty rows and as many columns, nearly all of it independent of how
many rows there are. The core knows the primitive types below and writes them plain; whatever else a table has
is pyarrow's.
"""

import ctypes
import struct
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, NamedTuple, Self

import numpy as np
import pyarrow as pa
import structlog
from numpy.typing import NDArray

from ingest.core.library import ArrowArray, FileResult, Functions, Status, bytes_at
from lake.avro import integer as zigzag  # Thrift's integers are Avro's

log = structlog.get_logger()
_INT = struct.Struct("<i").pack
_REQUIRED, _ALWAYS, _NESTED = 1, 2, 4
_OPTIONAL, _REPEATED = 1, 2
_TEXT, _LIST = 0, 3  # converted types
_BYTE_ARRAY = 6
# The logical type that a schema element ends with: a union of empty structs, or of a boolean (whether it is
# UTC) and a unit, which is another union.
_OF_TEXT, _OF_LIST, _OF_DATE = b"\x1c\x00\x00", b"\x3c\x00\x00", b"\x6c\x00\x00"
_MICROSECONDS = b"\x1c\x2c\x00\x00\x00\x00"
# By Iceberg's type: the type of Parquet, its converted type, its logical type. All as Arrow writes them.
_TYPES: Mapping[str, tuple[int, int | None, bytes]] = {
    "boolean": (0, None, b""),
    "int": (1, None, b""),
    "long": (2, None, b""),
    "float": (4, None, b""),
    "double": (5, None, b""),
    "date": (1, 6, _OF_DATE),
    "time": (2, None, b"\x7c\x12" + _MICROSECONDS),
    "timestamp": (2, None, b"\x8c\x12" + _MICROSECONDS),
    "timestamptz": (2, 10, b"\x8c\x11" + _MICROSECONDS),
    "string": (_BYTE_ARRAY, _TEXT, _OF_TEXT),
}


class SmallFile(NamedTuple):
    """`data`: the file; `metrics`: what `lake.data_file.listed_file` takes."""

    data: bytes
    metrics: bytes


class ParquetRows:
    """Rows that the core sees, to be written part by part. A context manager; not thread-safe."""

    def __init__(
        self,
        functions: Functions,
        layout: bytes,
        rows: pa.RecordBatch,
        order: NDArray[np.uint32] | None = None,
    ) -> None:
        """`layout`: of `layout_for_core`, for the fields of which `rows` has the columns. `order`: the number
        of the row for each place; else rows stand where they are."""
        self._functions, self._layout, self._array = functions, layout, ArrowArray()
        self._order = order
        rows._export_to_c(ctypes.addressof(self._array))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._array.release()

    def file(
        self, first: int, count: int, bytes_max: int, *, leave_out_nulls: bool = False
    ) -> SmallFile | None:
        """`count` rows from the place `first` on as a file. None where it is pyarrow's: it would have more
        than `bytes_max` before compression, a list that is not NULL, or bytes that are no text.

        `leave_out_nulls`: columns without a value are left out, but for those that a file always has.
        """
        result, order = FileResult(), None
        if self._order is not None:
            if not 0 <= first <= first + count <= len(self._order):
                return None
            order = self._order.ctypes.data + first * self._order.itemsize
        status = self._functions.firn_parquet_write(
            self._layout,
            len(self._layout),
            ctypes.byref(self._array),
            order,
            first,
            count,
            not leave_out_nulls,
            bytes_max,
            ctypes.byref(result),
        )
        if status == Status.PANICKED:  # a defect of the core costs speed, and no row
            log.error("core.failed", rows=count, advice="report this; pyarrow writes the file")
        if status != Status.DONE:
            return None
        return SmallFile(
            bytes_at(result.file, result.file_size), bytes_at(result.metrics, result.metrics_size)
        )


def layout_for_core(fields: Iterable[Mapping[str, Any]], always: Sequence[str]) -> bytes | None:
    """Fields, as a schema's JSON spells them, as the core reads them (core/src/parquet.rs); None where one
    has a type that it does not write. `always`: names of those that a file has even without a value."""
    told = list[bytes]()
    for column, field in enumerate(fields):
        kind, flags = field["type"], _ALWAYS if field["name"] in always else 0
        if isinstance(kind, str):
            if kind not in _TYPES:
                return None
            physical, converted, logical = _TYPES[kind]
            elements = [_element(field, physical, not field["required"], converted, logical)]
            leaves = [(field["id"], [field["name"]])]
            flags |= _REQUIRED if field["required"] else 0
        elif _is_list_of_texts(field):
            physical, flags, members = _BYTE_ARRAY, flags | _NESTED, kind["element"]["fields"]
            elements = [
                _element(field, None, _OPTIONAL, _LIST, _OF_LIST, children=1),
                _element({"name": "list"}, None, _REPEATED, children=1),
                _element(
                    {"name": "element", "id": kind["element-id"]}, None, _OPTIONAL, children=len(members)
                ),
                *(_element(member, _BYTE_ARRAY, _OPTIONAL, _TEXT, _OF_TEXT) for member in members),
            ]
            leaves = [(m["id"], [field["name"], "list", "element", m["name"]]) for m in members]
        else:
            return None
        for field_id, names in leaves:  # the first of a field's leaves has all its elements
            told += map(_INT, (column, physical, flags, field_id, len(elements)))
            told += [_blob(b"".join(elements)), _blob(_path(names))]
            elements = []
    return b"".join(told)


def _is_list_of_texts(field: Mapping[str, Any]) -> bool:
    """Whether it is an optional list of optional structs of optional texts, as `_errors` is."""
    kind = field["type"]
    if field["required"] or kind["type"] != "list" or kind["element-required"]:
        return False
    element = kind["element"]
    return (
        not isinstance(element, str)
        and element["type"] == "struct"
        and all(member["type"] == "string" and not member["required"] for member in element["fields"])
    )


def _element(
    field: Mapping[str, Any],
    physical: int | None,
    repetition: int,
    converted: int | None = None,
    logical: bytes = b"",
    *,
    children: int | None = None,
) -> bytes:
    """A schema element (Parquet's parquet.thrift) in Thrift's compact protocol: each value behind a byte that
    has how far its number is from the one before, and its type."""
    values = {
        1: None if physical is None else (5, zigzag(physical)),
        3: (5, zigzag(repetition)),
        4: (8, _text(field["name"])),
        5: None if children is None else (5, zigzag(children)),
        6: None if converted is None else (5, zigzag(converted)),
        9: (5, zigzag(field["id"])) if "id" in field else None,
        10: (12, logical) if logical else None,
    }
    out, last = [], 0
    for number, value in values.items():
        if value is not None:
            out += [bytes([(number - last) << 4 | value[0]]), value[1]]
            last = number
    return b"".join([*out, b"\x00"])


def _path(names: Sequence[str]) -> bytes:
    """A list of texts, of fewer than fifteen."""
    return bytes([len(names) << 4 | 8]) + b"".join(map(_text, names))


def _text(text: str) -> bytes:
    data = text.encode()
    length, told = len(data), bytearray()
    while length > 0x7F:
        told.append(length & 0x7F | 0x80)
        length >>= 7
    return bytes([*told, length]) + data


def _blob(data: bytes) -> bytes:
    return _INT(len(data)) + data
