"""The index of one data file: the hashes of its keys, sorted, each with its row number. Like the data file it
never changes.

A file of 72 bytes and 20 for each row, little-endian, which is mapped into memory:

    magic, version, version of the hash, CRC-32 of what follows the header, rows, rows whose key another row
    of the file has too, digest of the data file's identity, CRC-32 of the header, four zero bytes
    high halves of the hashes (8 bytes each, ascending), low halves (8), row numbers (4)

A key may stand in a data file several times, and then each of its rows is found. Firn's own files hold a key
once; but other writers make files too, and an index that refused them, or named one row of two, would leave a
row alive that a delete has removed.
"""

import errno
import mmap
import os
import stat
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from ingest.keys.key_hash import HASH_VERSION, KeyHashes

MAGIC = b"firnkeys"
FORMAT_VERSION = 1
ROWS_MAX = 2**32 - 1
_HEADER = struct.Struct("<8sHHIQQ32s")
_HEADER_CRC = struct.Struct("<II")
HEADER_BYTES = _HEADER.size + _HEADER_CRC.size
ROW_BYTES = 20
_READ_BYTES = 1024 * 1024
TEMPORARY = ".tmp-"


@dataclass(frozen=True, slots=True)
class Unusable:
    """A file that is no index of this data file; the reason is a sentence."""

    reason: str


@dataclass(frozen=True, slots=True, eq=False)
class KeyIndex:
    """The `n` keys of a data file: hashes ascending by their high half, and the row number of each."""

    hashes: KeyHashes
    rows: NDArray[np.uint32]
    doubled: int  # rows whose key another row of the file has too
    _mapped: mmap.mmap | None = None

    def __len__(self) -> int:
        return len(self.rows)

    def find(self, sought: KeyHashes) -> tuple[NDArray[np.int64], NDArray[np.uint32]]:
        """Which of the sought keys stand in the file, and where: pairs of a place in `sought` and a row
        number, one for each row. Fast where `sought` ascends by its high half."""
        high = self.hashes.high
        first = np.searchsorted(high, sought.high)
        inside = np.flatnonzero(first < len(high))
        near = inside[high[first[inside]] == sought.high[inside]]
        first = first[near]
        count = np.searchsorted(high, sought.high[near], side="right") - first
        keys = np.repeat(near, count)
        # Places first, first + 1, ... of each run.
        places = np.arange(len(keys)) + np.repeat(first - (np.cumsum(count) - count), count)
        same = self.hashes.low[places] == sought.low[keys]
        return keys[same], self.rows[places[same]]

    def let_go(self) -> None:
        """Gives the memory of a mapped file back; what is needed of it again comes from the disk's cache."""
        if self._mapped is not None:
            self._mapped.madvise(mmap.MADV_DONTNEED)


def make_index(hashes: KeyHashes) -> KeyIndex:
    """Makes the index of a data file from the hashes of its rows, in their order. At most ROWS_MAX rows."""
    order = np.argsort(hashes.high, kind="stable")
    by_hash = hashes.taken(order)
    return KeyIndex(by_hash, order.astype(np.uint32), _doubled(by_hash))


def _doubled(by_high: KeyHashes) -> int:
    """How many rows have a key that another one has too. Hashes that have a high half in common are nearly
    always of equal keys, and few: only these are sorted in full."""
    suspects = by_high.taken(np.flatnonzero(_beside_equal(by_high.high[1:] == by_high.high[:-1])))
    by_hash = suspects.taken(np.lexsort((suspects.low, suspects.high)))
    equal = (by_hash.high[1:] == by_hash.high[:-1]) & (by_hash.low[1:] == by_hash.low[:-1])
    return int(np.count_nonzero(_beside_equal(equal)))


def _beside_equal(equal_to_next: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Which rows equal the one before or the one after, from which of them equals the next one."""
    no = np.zeros(1, np.bool_)
    beside: NDArray[np.bool_] = np.concatenate([equal_to_next, no]) | np.concatenate([no, equal_to_next])
    return beside


def write_index(path: Path, index: KeyIndex, identity: bytes) -> None:
    """Writes an index for its owner alone, complete or not at all. Whoever writes the same one at the same
    time writes the same bytes. Raises OSError.

    It is not synced: what a power cut damages fails its CRC and is built again.
    """
    parts = [
        np.ascontiguousarray(index.hashes.high, "<u8").data,
        np.ascontiguousarray(index.hashes.low, "<u8").data,
        np.ascontiguousarray(index.rows, "<u4").data,
    ]
    crc = 0
    for part in parts:
        crc = zlib.crc32(part, crc)
    with _replacing(path) as descriptor, open(descriptor, "wb", closefd=False) as file:
        file.write(_header(crc, index, identity))
        for part in parts:
            file.write(part)


def _header(crc: int, index: KeyIndex, identity: bytes) -> bytes:
    header = _HEADER.pack(MAGIC, FORMAT_VERSION, HASH_VERSION, crc, len(index), index.doubled, identity)
    return header + _HEADER_CRC.pack(zlib.crc32(header), 0)


@contextmanager
def _replacing(path: Path) -> Iterator[int]:
    """The descriptor of a new private file, which takes the path's place at the end."""
    temporary = path.with_name(f"{TEMPORARY}{uuid4().hex}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        yield descriptor
        temporary.replace(path)
    except BaseException:
        with suppress(FileNotFoundError):
            temporary.unlink()
        raise
    finally:
        os.close(descriptor)


def open_index(path: Path, identity: bytes) -> KeyIndex | Unusable | None:
    """Maps the index of the data file with this identity into memory; None where there is no file.

    All of it is read and checked once: its length, its CRC, that hashes ascend and row numbers exist. Raises
    OSError where the disk fails.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        return Unusable("it is a symbolic link")
    try:
        return _checked(descriptor, identity)
    finally:
        os.close(descriptor)


def _checked(descriptor: int, identity: bytes) -> KeyIndex | Unusable:
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
        return Unusable("it is no ordinary file of this user")
    head = _read_header(os.read(descriptor, HEADER_BYTES), status.st_size, identity)
    if isinstance(head, Unusable):
        return head
    if head.crc != _crc_of_rest(descriptor):
        return Unusable("its content is not what its CRC says")
    index = _mapped(descriptor, head)
    sound = _is_sound(index)
    index.let_go()
    return index if sound else Unusable("its hashes do not ascend, or it names rows that do not exist")


@dataclass(frozen=True, slots=True)
class _Header:
    crc: int
    rows: int
    doubled: int


def _read_header(data: bytes, size: int, identity: bytes) -> _Header | Unusable:
    if len(data) < HEADER_BYTES:
        return Unusable("it ends before its header does")
    magic, version, hash_version, crc, rows, doubled, found = _HEADER.unpack_from(data)
    if magic != MAGIC:
        return Unusable("it is no key index")
    if zlib.crc32(data[: _HEADER.size]) != _HEADER_CRC.unpack_from(data, _HEADER.size)[0]:
        return Unusable("its header is not what its CRC says")
    if (version, hash_version) != (FORMAT_VERSION, HASH_VERSION):
        return Unusable("it is of another version")
    if found != identity:
        return Unusable("it is the index of another data file")
    if size != HEADER_BYTES + ROW_BYTES * rows:
        return Unusable("it is longer or shorter than its header says")
    return _Header(crc, rows, doubled)


def _crc_of_rest(descriptor: int) -> int:
    # Read, not mapped: what is only read once does not count as memory of this process.
    crc = 0
    while part := os.read(descriptor, _READ_BYTES):
        crc = zlib.crc32(part, crc)
    return crc


def _mapped(descriptor: int, head: _Header) -> KeyIndex:
    mapped = mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ)
    n = head.rows
    high = np.frombuffer(mapped, "<u8", n, HEADER_BYTES)
    low = np.frombuffer(mapped, "<u8", n, HEADER_BYTES + 8 * n)
    rows = np.frombuffer(mapped, "<u4", n, HEADER_BYTES + 16 * n)
    return KeyIndex(KeyHashes(high, low), rows, head.doubled, mapped)


def _is_sound(index: KeyIndex) -> bool:
    high = index.hashes.high
    return not len(index) or (int(index.rows.max()) < len(index) and bool(np.all(high[1:] >= high[:-1])))
