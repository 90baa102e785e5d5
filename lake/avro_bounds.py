"""What a stranger's Avro file may cost its reader: it is taken apart and unpacked here, by its blocks, before
a library decodes its records.

An Avro file brings its own schema and its own packing. A thousand bytes of deflate may hold a million, a
schema may have values that take no bytes, of which a few bytes announce billions, and one that contains
itself nests as deep as the file is long.
"""

import bz2
import lzma
import zlib
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any

import orjson

from lake.errors import TooLargeError

MAGIC = b"Obj\x01"
SYNC_BYTES = 16
# Of all records of a file together. A manifest of 4,000 files with a thousand columns each takes some 150 MB.
UNPACKED_BYTES_MAX = 256 * 1024 * 1024
# Of one block, which is decoded as a whole: writers begin a new one every 64 kB, and Firn's manifest lists
# are one block.
BLOCK_BYTES_MAX = 32 * 1024 * 1024
SCHEMA_NODES_MAX = 10_000
SCHEMA_DEPTH_MAX = 32
# An unpartitioned table's files have a partition without fields; nothing else needs a value without bytes.
EMPTY_VALUES_MAX = 4
DECIMAL_BYTES_MAX = 32
_PRIMITIVE = frozenset({"boolean", "int", "long", "float", "double", "bytes", "string"})


class _Cursor:
    """Where one is in the bytes of a file."""

    def __init__(self, data: bytes, at: int) -> None:
        self._data = data
        self.at = at

    @property
    def is_at_end(self) -> bool:
        return self.at >= len(self._data)

    def integer(self) -> int:
        """A long. Raises EOFError, ValueError."""
        number = shift = 0
        while True:
            if self.at >= len(self._data):
                raise EOFError("it ends in the middle of a number")
            byte = self._data[self.at]
            self.at += 1
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (number >> 1) ^ -(number & 1)
            shift += 7
            if shift > 63:
                raise ValueError("it holds a number of more than 64 bits")

    def take(self, length: int) -> bytes:
        """So many bytes. Raises EOFError, ValueError."""
        if length < 0:
            raise ValueError("it holds a negative length")
        if self.at + length > len(self._data):
            raise EOFError("it ends in the middle of a value")
        self.at += length
        return self._data[self.at - length : self.at]


def check_blocks(data: bytes, start: int, block_bytes_max: int = BLOCK_BYTES_MAX) -> None:
    """Of a file whose blocks are not packed. `start`: where its header ends. Raises TooLargeError, EOFError,
    ValueError."""
    for count, block, _ in _blocks(data, start):
        _check_block(count, len(block), block_bytes_max)


def unpacked(
    data: bytes, start: int, header: Mapping[str, str], what: str, block_bytes_max: int = BLOCK_BYTES_MAX
) -> bytes:
    """The same file without packing; `start` and `header`: where its header ends and what it says.

    Raises TooLargeError, and what is no such file as EOFError, ValueError or zlib.error.
    """
    unpack = _UNPACK.get(header["avro.codec"])
    if unpack is None:
        raise ValueError(
            f"it is packed with {header['avro.codec']}, which is not read; write manifests with gzip, "
            "Iceberg's default"
        )
    body, left = list[bytes](), UNPACKED_BYTES_MAX
    for count, stored, sync in _blocks(data, start):
        block = unpack(stored, min(left, block_bytes_max) + 1)
        left -= len(block)
        if left < 0:
            raise TooLargeError(
                f"{what} unpacks to more than {UNPACKED_BYTES_MAX:,} bytes; restore it, or roll the table "
                "back"
            )
        _check_block(count, len(block), block_bytes_max)
        body += [_varint(count), _varint(len(block)), block, sync]
    entries = [
        _blob(key.encode()) + _blob(value.encode()) for key, value in {**header, "avro.codec": "null"}.items()
    ]
    return b"".join(
        [MAGIC, _varint(len(entries)), *entries, b"\x00", data[start - SYNC_BYTES : start], *body]
    )


def blocks_of(
    data: bytes, start: int, *, is_deflated: bool, block_bytes_max: int = BLOCK_BYTES_MAX
) -> list[tuple[int, bytes]]:
    """Of each block how many records it holds, and their bytes; `start`: where the header ends. Raises as
    `unpacked` does, and where they are too large together."""
    found, left = list[tuple[int, bytes]](), UNPACKED_BYTES_MAX
    for count, stored, _ in _blocks(data, start):
        block = _UNPACK["deflate"](stored, min(left, block_bytes_max) + 1) if is_deflated else stored
        left -= len(block)
        if left < 0:
            raise TooLargeError(f"it unpacks to more than {UNPACKED_BYTES_MAX:,} bytes")
        _check_block(count, len(block), block_bytes_max)
        found.append((count, block))
    return found


def _blocks(data: bytes, start: int) -> Iterator[tuple[int, bytes, bytes]]:
    """(records that a block claims to hold, its bytes as they are stored, the mark at its end)."""
    cursor, mark = _Cursor(data, start), data[start - SYNC_BYTES : start]
    while not cursor.is_at_end:
        count, stored = cursor.integer(), cursor.take(cursor.integer())
        if cursor.take(SYNC_BYTES) != mark:
            raise ValueError("its blocks do not end with its mark")
        yield count, stored, mark


def _check_block(count: int, size: int, block_bytes_max: int) -> None:
    if size > block_bytes_max:
        raise TooLargeError(
            f"a block of it unpacks to more than {block_bytes_max:,} bytes; restore the file, or roll the "
            "table back"
        )
    if not 0 <= count <= size:  # each record takes a byte at least
        raise ValueError(f"a block of {size} bytes claims to hold {count} records")


def _varint(number: int) -> bytes:
    zigzag, out = number << 1, bytearray()
    while zigzag > 0x7F:
        out.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    out.append(zigzag)
    return bytes(out)


def _blob(data: bytes) -> bytes:
    return _varint(len(data)) + data


def _zstandard(data: bytes, bytes_max: int) -> bytes:
    try:
        import zstandard  # not every room has it, and few files need it
    except ImportError as error:
        raise ValueError(
            "it is packed with zstandard, which is not read here; write manifests with gzip, Iceberg's "
            "default"
        ) from error
    try:
        with zstandard.ZstdDecompressor(max_window_size=2**27).stream_reader(data) as reader:
            return bytes(reader.read(bytes_max))
    except zstandard.ZstdError as error:
        raise ValueError(str(error)) from error


def _xz(data: bytes, bytes_max: int) -> bytes:
    try:
        return lzma.LZMADecompressor(memlimit=2**27).decompress(data, bytes_max)
    except lzma.LZMAError as error:
        raise ValueError(str(error)) from error


# Each gives the first `bytes_max` bytes of what a block unpacks to.
_UNPACK: dict[str, Callable[[bytes, int], bytes]] = {
    "deflate": lambda data, bytes_max: zlib.decompressobj(-zlib.MAX_WBITS).decompress(data, bytes_max),
    "bzip2": lambda data, bytes_max: bz2.BZ2Decompressor().decompress(data, bytes_max),
    "xz": _xz,
    "zstandard": _zstandard,
}


@lru_cache(maxsize=256)
def check_schema(schema: str) -> None:
    """Raises ValueError for a schema by which few bytes make many values, or a nesting without end."""
    nodes, empty = _weigh(orjson.loads(schema), {}, 0)
    if nodes > SCHEMA_NODES_MAX or empty > EMPTY_VALUES_MAX:
        raise ValueError("its schema has more fields than any table's")


Named = dict[str, tuple[int, int] | None]


def _weigh(kind: Any, named: Named, depth: int) -> tuple[int, int]:
    """(values, those of them that take no bytes) that one value of a type holds, what its arrays and maps
    hold counted once."""
    if depth > SCHEMA_DEPTH_MAX:
        raise ValueError("its schema is nested deeper than any table's")
    if isinstance(kind, str):
        return (1, 0) if kind in _PRIMITIVE else _known(kind, named)
    if isinstance(kind, list):
        branches = [(1, 0) if branch == "null" else _weigh(branch, named, depth + 1) for branch in kind]
        return 1 + sum(nodes for nodes, _ in branches), max((empty for _, empty in branches), default=0)
    if not isinstance(kind, dict):
        raise ValueError("its schema is none")  # noqa: TRY004 - damaged data, not a wrong argument
    match kind.get("type"):
        case "record" | "error":
            return _record(kind, named, depth)
        case "array" | "map" as container:
            nodes, empty = _weigh(kind.get("items" if container == "array" else "values"), named, depth + 1)
            if container == "array" and empty >= nodes:
                raise ValueError("its schema has a list of values that take no bytes")
            return 1 + nodes, empty
        case "fixed":
            return _fixed(kind, named)
        case "enum":
            named[str(kind.get("name"))] = (1, 0)
            return 1, 0
        case "bytes" if kind.get("logicalType") == "decimal":
            raise ValueError("its schema has numbers of any length")
        case other:
            return _weigh(other, named, depth + 1)


def _record(kind: dict[str, Any], named: Named, depth: int) -> tuple[int, int]:
    name = str(kind.get("name"))
    named[name] = None
    fields = [_weigh(field["type"], named, depth + 1) for field in kind.get("fields", ())]
    # A record itself takes no bytes: it is empty when all its fields are.
    nodes, empty = 1 + sum(nodes for nodes, _ in fields), sum(empty for _, empty in fields)
    named[name] = found = (nodes, empty + 1 if empty == nodes - 1 else empty)
    if nodes > SCHEMA_NODES_MAX:
        raise ValueError("its schema has more fields than any table's")
    return found


def _fixed(kind: dict[str, Any], named: Named) -> tuple[int, int]:
    size = kind.get("size")
    if not isinstance(size, int) or (kind.get("logicalType") == "decimal" and size > DECIMAL_BYTES_MAX):
        raise ValueError("its schema has numbers of any length")
    named[str(kind.get("name"))] = found = (1, int(size <= 0))
    return found


def _known(name: str, named: Named) -> tuple[int, int]:
    """A type that was named before. Iceberg's own schemas never contain themselves."""
    found = named.get(name, named.get(name.rpartition(".")[2]))
    if found is None:
        raise ValueError(f"its schema refers to {name!r}, which it does not say, or which contains itself")
    return found
