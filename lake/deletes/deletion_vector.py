"""Deletion vectors, by which tables of format version 3 lose rows (Iceberg spec, "Deletion Vectors"; Puffin
spec, "deletion-vector-v1 blob type").

    length of magic and vector   4 bytes, big-endian
    magic                        D1 D3 39 64
    vector                       64-bit Roaring bitmap, portable format: positions by their upper 32 bits
    CRC-32 of magic and vector   4 bytes, big-endian
"""

import struct
from zlib import crc32

from pyroaring import BitMap64

from lake.errors import ProtocolError

MAGIC = b"\xd1\xd3\x39\x64"
# Positions are signed 64-bit numbers to those who read them.
POSITIONS_END = 1 << 63
_WORD = struct.Struct(">I")
_LEAST_BYTES = _WORD.size + len(MAGIC) + 8 + _WORD.size


def encode_deletion_vector(positions: BitMap64) -> bytes:
    """The blob that holds these positions. `positions`: row numbers from 0, each below 2^63."""
    compact = positions.copy()
    compact.run_optimize()
    body = MAGIC + compact.serialize()
    return _WORD.pack(len(body)) + body + _WORD.pack(crc32(body))


def decode_deletion_vector(blob: bytes, what: str) -> BitMap64:
    """The positions of a blob, as compact in memory as in it. Raises ProtocolError, which says `what` it was
    meant to be."""
    if len(blob) < _LEAST_BYTES:
        raise _broken(what, f"it has {len(blob)} bytes")
    (length,), (checksum,) = _WORD.unpack_from(blob), _WORD.unpack_from(blob, len(blob) - _WORD.size)
    body = memoryview(blob)[_WORD.size : -_WORD.size]
    if length != len(body):
        raise _broken(what, f"it says that it has {length} bytes and has {len(body)}")
    if body[: len(MAGIC)] != MAGIC:
        raise _broken(what, "it does not begin as one")
    if crc32(body) != checksum:
        raise _broken(what, "its checksum is another")
    try:
        positions = BitMap64.deserialize(bytes(body[len(MAGIC) :]))
    except (ValueError, IndexError) as error:
        raise _broken(what, str(error)) from error
    if positions and positions.max() >= POSITIONS_END:
        raise _broken(what, "it holds positions from 2^63 on")
    return positions


def _broken(what: str, why: str) -> ProtocolError:
    return ProtocolError(f"{what} is no deletion vector ({why}); restore the file, or roll the table back")
