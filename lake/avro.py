"""Avro's binary encoding and object container files (Avro specification, "Binary Encoding" and "Object
Container Files").

A manifest is unions and maps throughout, and a library that takes any record tries each value against the
branches of its union: for a commit of one file that costs several times what the bytes do. So writing is done
here. Files of any schema are read by fastavro; those of Firn's own schemas are decoded in a tenth of the time
by who knows what is in them (`manifest_records.py`).
"""

import os
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from io import BytesIO
from typing import Any, cast

import fastavro
import orjson
from fastavro.schema import SchemaParseException

from lake.avro_bounds import BLOCK_BYTES_MAX, SYNC_BYTES, blocks_of, check_blocks, check_schema, unpacked
from lake.column_maps import long_at
from lake.errors import ProtocolError, TooLargeError

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
    size = len(data)  # nearly all are short, and a call of `integer` takes as long as the rest
    return (_SMALL[size] if size < len(_SMALL) else _varint(size)) + data


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
    """A union of null and an array of pairs of key and long, which is how Iceberg spells a map with such
    keys."""
    if mapping is None:
        return NULL
    # A manifest has some hundred such pairs for each of its files: `integer` is not called for the small
    # ones, which are nearly all.
    small, end = _SMALL, len(_SMALL)
    parts: list[bytes] = []
    for key, value in mapping.items():
        parts.append(small[key] if 0 <= key < end else _varint(key))
        parts.append(small[value] if 0 <= value < end else _varint(value))
    return _pairs(len(mapping), parts)


def optional_blobs(mapping: Mapping[int, bytes] | None) -> bytes:
    """The same with bytes as values."""
    if mapping is None:
        return NULL
    small, end = _SMALL, len(_SMALL)
    parts: list[bytes] = []
    for key, value in mapping.items():
        parts.append(small[key] if 0 <= key < end else _varint(key))
        parts.append(small[len(value)] if len(value) < end else _varint(len(value)))
        parts.append(value)
    return _pairs(len(mapping), parts)


def _pairs(count: int, parts: Sequence[bytes]) -> bytes:
    return PRESENT + (integer(count) + b"".join(parts) + NULL if count else NULL)


@dataclass(frozen=True, slots=True)
class Block:
    """Encoded records, one after the other, as a file stores them: deflated where that is worth it."""

    count: int = 0
    stored: bytes = b""
    codec: str = "null"

    @classmethod
    def of(cls, count: int, data: bytes) -> "Block":
        """So many encoded records."""
        return cls(count, data) if len(data) < DEFLATE_BYTES_MIN else cls(count, _deflated(data), "deflate")

    @property
    def data(self) -> bytes:
        """The records as they were encoded."""
        return self.stored if self.codec == "null" else zlib.decompress(self.stored, wbits=-zlib.MAX_WBITS)


def container(schema: str, records: Iterable[bytes], metadata: Mapping[str, str]) -> bytes:
    """The file that holds these encoded records. `schema`: their Avro schema as JSON."""
    blocks = list(_blocks(records))
    if sum(len(data) for _, data in blocks) < DEFLATE_BYTES_MIN:
        return _file(schema, "null", blocks, metadata)
    return _file(schema, "deflate", [(count, _deflated(data)) for count, data in blocks], metadata)


def container_of_block(schema: str, block: Block, metadata: Mapping[str, str]) -> bytes:
    """The same of records that are put together already."""
    return _file(schema, block.codec, [(block.count, block.stored)] if block.count else [], metadata)


def _deflated(data: bytes) -> bytes:
    return zlib.compress(data, level=1, wbits=-zlib.MAX_WBITS)


def _file(schema: str, codec: str, blocks: Iterable[tuple[int, bytes]], metadata: Mapping[str, str]) -> bytes:
    entries = b"".join([text(key) + text(value) for key, value in metadata.items()])
    sync = os.urandom(16)
    parts = [MAGIC, integer(len(metadata) + 2), entries, _codec_and_schema(codec, schema), NULL, sync]
    for count, stored in blocks:
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


def schema_field(name: str, kind: Any, field_id: int, *, optional: bool = False) -> dict[str, Any]:
    """A field of a record, with the id by which Iceberg knows it."""
    field = {"name": name, "type": ["null", kind] if optional else kind, "field-id": field_id}
    return field | {"default": None} if optional else field


def stored_blocks(data: bytes, block_bytes_max: int) -> tuple[str, list[tuple[int, bytes]]] | None:
    """A file's schema, and its blocks: how many records each holds, and their bytes. For who knows schemas
    and decodes by them; None where it is packed in other ways than Firn's, larger than it may be, or damaged:
    `read_container` tells."""
    try:
        header, start = _header(data)
        codec = header.get("avro.codec", "null")
        if codec not in ("null", "deflate"):
            return None
        blocks = blocks_of(data, start, is_deflated=codec == "deflate", block_bytes_max=block_bytes_max)
        return header["avro.schema"], blocks
    except (ValueError, IndexError, KeyError, EOFError, zlib.error, TooLargeError):
        return None


def _header(data: bytes) -> tuple[dict[str, str], int]:
    """The pairs at a file's beginning, and where its blocks begin."""
    if not data.startswith(MAGIC):
        raise ValueError("no Avro")
    found = dict[str, str]()
    count, at = long_at(data, len(MAGIC))
    while count:
        if count < 0:
            raise ValueError("a block with its size")
        for _ in range(count):
            length, at = long_at(data, at)
            key, at = data[at : at + length], at + length
            size, at = long_at(data, at)
            if length < 0 or size < 0:
                raise ValueError("a negative length")
            found[key.decode()] = data[at : at + size].decode()
            at += size
        count, at = long_at(data, at)
    return found, at + SYNC_BYTES


def read_container(
    data: bytes, what: str, *, block_bytes_max: int = BLOCK_BYTES_MAX
) -> Iterator[dict[str, Any]]:
    """The records of a file. Raises ProtocolError, which says `what` it was meant to be, where it is none, or
    no harmless one."""
    try:
        file = BytesIO(data)
        reader: Any = fastavro.reader(file)  # it reads the header alone
        check_schema(reader.metadata["avro.schema"])
        if reader.codec != "null":
            reader = fastavro.reader(
                BytesIO(unpacked(data, file.tell(), reader.metadata, what, block_bytes_max))
            )
        else:
            check_blocks(data, file.tell(), block_bytes_max)
        yield from cast("Iterator[dict[str, Any]]", reader)
    except (
        ValueError,
        EOFError,
        KeyError,
        IndexError,
        TypeError,
        zlib.error,
        RecursionError,
        OverflowError,
        SchemaParseException,
    ) as error:
        raise ProtocolError(
            f"{what} is not readable Avro ({error}); the file is damaged, restore it or roll the table back"
        ) from error
