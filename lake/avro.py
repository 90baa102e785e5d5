"""Avro's binary encoding and object container files, to write (Avro specification, "Binary Encoding" and "Object Container Files").

A manifest is unions and maps throughout, and a library that takes any record tries each value against the branches of its union: for a commit of
one file that costs several times what the bytes do. Reading is left to fastavro.
"""

import os
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import orjson

MAGIC = b"Obj\x01"
BLOCK_BYTES = 64 * 1024
# Of less, the file system would save nothing: the schema in the header is longer.
DEFLATE_BYTES_MIN = 8 * 1024
NULL, PRESENT = b"\x00", b"\x02"


def _varint(number: int) -> bytes:
    zigzag = (number << 1) ^ (number >> 63)
    out = bytearray()
    while zigzag > 0x7F:
        out.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    out.append(zigzag)
    return bytes(out)


_SMALL = [_varint(number) for number in range(8_192)]


def integer(number: int) -> bytes:
    """An int or a long."""
    return _SMALL[number] if 0 <= number < len(_SMALL) else _varint(number)


def boolean(value: bool) -> bytes:
    """A boolean."""
    return b"\x01" if value else b"\x00"


def blob(data: bytes) -> bytes:
    """Bytes, or the UTF-8 of a string."""
    return integer(len(data)) + data


def text(string: str) -> bytes:
    """A string."""
    return blob(string.encode())


def optional(encoded: bytes | None) -> bytes:
    """A union of null and one more type, in this order."""
    return NULL if encoded is None else PRESENT + encoded


def optional_integer(number: int | None) -> bytes:
    """A union of null and a long."""
    return NULL if number is None else PRESENT + integer(number)


def optional_blob(data: bytes | None) -> bytes:
    """A union of null and bytes."""
    return NULL if data is None else PRESENT + blob(data)


def array(items: Sequence[bytes]) -> bytes:
    """An array of encoded items, as one block."""
    return integer(len(items)) + b"".join(items) + NULL if items else NULL


def optional_numbers(mapping: Mapping[int, int] | None) -> bytes:
    """A union of null and an array of pairs of key and long, which is how Iceberg spells a map with such keys."""
    return NULL if mapping is None else PRESENT + array([integer(key) + integer(value) for key, value in mapping.items()])


def optional_blobs(mapping: Mapping[int, bytes] | None) -> bytes:
    """The same with bytes as values."""
    return NULL if mapping is None else PRESENT + array([integer(key) + blob(value) for key, value in mapping.items()])


def container(schema: str, records: Iterable[bytes], metadata: Mapping[str, str]) -> bytes:
    """The file that holds these encoded records. `schema`: their Avro schema as JSON."""
    blocks = list(_blocks(records))
    codec = "deflate" if sum(len(data) for _, data in blocks) >= DEFLATE_BYTES_MIN else "null"
    entries = b"".join([text(key) + text(value) for key, value in metadata.items()])
    sync = os.urandom(16)
    parts = [MAGIC, integer(len(metadata) + 2), entries, _codec_and_schema(codec, schema), NULL, sync]
    for count, data in blocks:
        stored = zlib.compress(data, wbits=-zlib.MAX_WBITS) if codec == "deflate" else data
        parts += [integer(count), blob(stored), sync]
    return b"".join(parts)


@lru_cache(maxsize=8)
def _codec_and_schema(codec: str, schema: str) -> bytes:
    return text("avro.codec") + text(codec) + text("avro.schema") + text(schema)


def _blocks(records: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    block, size = list[bytes](), 0
    for record in records:
        block.append(record)
        size += len(record)
        if size >= BLOCK_BYTES:
            yield len(block), b"".join(block)
            block, size = [], 0
    if block:
        yield len(block), b"".join(block)


def schema_json(schema: Mapping[str, Any]) -> str:
    """A schema as the header of a file has it."""
    return orjson.dumps(schema).decode()
