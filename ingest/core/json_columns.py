"""Records of JSON to columns of text, by the native core.

A record is *plain* where its values stand in the columns: by the route of each leaf the text that
`ingest.decode.formats.json_object.parse_object` gives of it, nothing where it is null. Every other record is
*odd*, and left to that exact path; core/README.md has the list of what is odd.
"""

import ctypes
import weakref
from collections.abc import Collection, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import structlog

from ingest.core.library import ArrowArray, Functions, JsonResult, Status, bytes_at
from ingest.model.raw_rows import ByteValues

# What the values of a column have been, as bits (core/src/kinds.rs).
TEXT, INTEGER, DECIMAL, NON_FINITE, BOOLEAN, ARRAY, EMPTY_OBJECT = (1 << bit for bit in range(7))
# Records of one call, and the bytes that they have.
ROWS_MAX = 65_536
BYTES_MAX = 2**31 - 1

log = structlog.get_logger()
Route = tuple[str, ...]
Positions = np.ndarray[Any, np.dtype[np.int32]]


class TextColumn(NamedTuple):
    """The values of one leaf over the plain records. `route`: its keys, the outermost first; the same object
    in every call. `kinds`: bits of what they have been; `values`: a pyarrow.StringArray, null where a record
    has none. The memory of all columns of a call is free when the last of them is gone."""

    route: Route
    kinds: int
    values: Any


class Parsed(NamedTuple):
    """`plain`: the numbers of the records that are rows of the columns, ascending; `odd`: of all others.
    `columns`: those with a value, in the order in which their routes were met first."""

    plain: Positions
    odd: Positions
    columns: list[TextColumn]


class JsonColumns:
    """Reads records, and keeps the keys that it meets, by which it reads the next ones faster.

    It begins anew with the keys where it has too many (core/README.md has the bounds). Not thread-safe: a
    call beside another raises RuntimeError.
    """

    def __init__(self, functions: Functions, depth_max: int, odd_keys: Collection[str] = ()) -> None:
        """`odd_keys`: keys that make a record odd where they stand at its top."""
        keys = ByteValues.of([key.encode() for key in odd_keys])
        handle = ctypes.c_void_p()
        status = functions.firn_json_new(
            depth_max, keys.data, keys.ends.ctypes.data, len(keys), ctypes.byref(handle)
        )
        _check(status, "no depth, or no keys")
        self._functions, self._handle = functions, handle
        self._routes: dict[int, Route] = {}
        self._generation = 0
        weakref.finalize(self, functions.firn_json_free, handle)

    def parse(self, values: Sequence[bytes]) -> Parsed:
        """Reads records, ROWS_MAX and BYTES_MAX at most; else ValueError.

        Some thousand are best: the more there are, the fewer columns fit before records become odd.
        """
        together = ByteValues.of(values)
        return self.parse_buffer(together.data, together.ends, together.begin)

    def parse_buffer(self, data: Any, ends: Any, begin: int = 0) -> Parsed:
        """Reads records that lie one behind the other in a buffer, which nobody may change meanwhile.

        The first begins at `begin`, each ends at its place of `ends` (int64). Raises ValueError where these
        do not ascend within the buffer, and as `parse` does.
        """
        data, ends = np.frombuffer(data, np.uint8), np.ascontiguousarray(ends, np.int64)
        plain, odd = np.empty((2, len(ends)), np.int32)
        array, result = ArrowArray(), JsonResult()
        status = self._functions.firn_json_parse(
            self._handle,
            data.ctypes.data,
            len(data),
            begin,
            ends.ctypes.data,
            len(ends),
            plain.ctypes.data,
            odd.ctypes.data,
            ctypes.byref(array),
            ctypes.byref(result),
        )
        if status == Status.PANICKED:  # a defect of the core costs speed, and no record
            log.error("core.failed", records=len(ends), advice="report this; the exact path has the records")
            return Parsed(plain[:0], np.arange(len(ends), dtype=np.int32), [])
        _check(status, f"more than {ROWS_MAX} records or {BYTES_MAX} bytes, or ends that do not ascend")
        columns = self._columns(array, result)
        return Parsed(plain[: result.rows], odd[: len(ends) - result.rows], columns)

    def _columns(self, array: ArrowArray, result: JsonResult) -> list[TextColumn]:
        values = pa.Array._import_from_c(ctypes.addressof(array), _texts(result.columns)).flatten()
        if result.generation != self._generation:
            self._routes, self._generation = {}, result.generation
        leaves, kinds = result.leaves[: result.columns], result.kinds[: result.columns]
        routes = [self._routes.get(leaf) or self._route(leaf) for leaf in leaves]
        return list(map(TextColumn, routes, kinds, values))

    def _route(self, leaf: int) -> Route:
        place, size = ctypes.c_void_p(), ctypes.c_int64()
        status = self._functions.firn_json_route(self._handle, leaf, ctypes.byref(place), ctypes.byref(size))
        _check(status, f"no leaf {leaf}")
        told, keys, at = bytes_at(place.value, size.value), list[str](), 0
        while at < len(told):
            begin = at + 4
            at = begin + int.from_bytes(told[at:begin], "little")
            keys.append(told[begin:at].decode())
        return self._routes.setdefault(leaf, tuple(keys))


@lru_cache(maxsize=256)
def _texts(columns: int) -> Any:
    return pa.struct([(str(at), pa.string()) for at in range(columns)])


def _check(status: int, wrong: str) -> None:
    match Status(status):
        case Status.DONE:
            return
        case Status.BUSY:
            raise RuntimeError("another thread is using this parser: each thread needs one of its own")
        case Status.BAD_ARGUMENTS:
            raise ValueError(f"the core refuses these arguments: {wrong}")
        case Status.PANICKED:
            raise RuntimeError("the native core has failed: report this, and set FIRN_CORE=off meanwhile")
