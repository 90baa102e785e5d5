"""Record batches as no well-meaning producer makes them, sent by the wire protocol itself, and batches
damaged on the broker's disk."""

import gzip
import socket
import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

PRODUCE, VERSION = 0, 7  # the first one that takes zstd
GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
ANSWER_S = 60.0
# Of a batch's header: base offset, length, leader's epoch, magic, checksum; then what the checksum is of.
BEFORE_CHECKSUM, HEADER_BYTES = 17, 61
Headers = Sequence[tuple[bytes, bytes]]


def _crc32c_table() -> list[int]:
    table = []
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return table


_TABLE = _crc32c_table()


def crc32c(data: bytes) -> int:
    """Castagnoli's checksum, as Kafka's batches have it."""
    value = 0xFFFFFFFF
    for byte in data:
        value = _TABLE[(value ^ byte) & 0xFF] ^ value >> 8
    return value ^ 0xFFFFFFFF


def varint(number: int) -> bytes:
    """Zigzag, as records have it."""
    value, out = number << 1 ^ number >> 63, bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def record(at: int, value: bytes, headers: Headers = (), key: bytes | None = None) -> bytes:
    """One record of a batch, the `at`-th."""
    of_key = varint(-1) if key is None else varint(len(key)) + key
    of_headers = varint(len(headers)) + b"".join(
        varint(len(name)) + name + varint(len(text)) + text for name, text in headers
    )
    body = b"\x00" + varint(0) + varint(at) + of_key + varint(len(value)) + value + of_headers
    return varint(len(body)) + body


def compressed(codec: int, data: bytes) -> bytes:
    """As producers compress what a batch holds."""
    if codec == GZIP:
        return gzip.compress(data, mtime=0)
    if codec in (SNAPPY, LZ4, ZSTD):
        return bytes(pa.compress(data, {SNAPPY: "snappy", LZ4: "lz4", ZSTD: "zstd"}[codec], asbytes=True))
    return data


def batch(
    records: Sequence[bytes],
    *,
    codec: int = 0,
    body: bytes | None = None,
    wrong_checksum: bool = False,
    timestamp_ms: int | None = None,
) -> bytes:
    """A batch of records. `body`: what stands in place of the compressed records. `timestamp_ms`: now where
    none is given. With an older one the broker's retention may remove the batch while a test reads it."""
    timestamp_ms = time.time_ns() // 1_000_000 if timestamp_ms is None else timestamp_ms
    content = compressed(codec, b"".join(records)) if body is None else body
    head = struct.pack(
        ">hiqqqhii", codec, len(records) - 1, timestamp_ms, timestamp_ms, -1, -1, -1, len(records)
    )
    checksum = crc32c(head + content) ^ (1 if wrong_checksum else 0)
    return struct.pack(">qiibI", 0, len(head) + len(content) + 9, 0, 2, checksum) + head + content


@dataclass(frozen=True)
class Answer:
    """What the broker said of a batch: an error's number, 0 for none, and the offset of its first record."""

    error: int
    offset: int


class Wire:
    """A connection to one broker, without encryption. One batch after the other."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._address = (host, int(port))
        self._socket: Any = None

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def produce(self, topic: str, data: bytes, partition: int = 0) -> Answer | None:
        """Sends a batch, whatever it is; None where the broker hangs up on it."""
        name = topic.encode()
        body = (
            struct.pack(">hhii", -1, -1, 30_000, 1)
            + struct.pack(">h", len(name))
            + name
            + struct.pack(">iii", 1, partition, len(data))
            + data
        )
        head = struct.pack(">hhih", PRODUCE, VERSION, 7, 4) + b"evil"
        if self._socket is None:
            self._socket = socket.create_connection(self._address, timeout=ANSWER_S)
        try:
            self._socket.sendall(struct.pack(">i", len(head) + len(body)) + head + body)
            answer = self._receive(struct.unpack(">i", self._receive(4))[0])
        except (ConnectionError, EOFError):
            self.close()
            return None
        at = 4 + 4 + 2 + len(name) + 4 + 4  # correlation, topics, the name, partitions, the number
        return Answer(*struct.unpack(">hq", answer[at : at + 10]))

    def _receive(self, size: int) -> bytes:
        found = bytearray()
        while len(found) < size:
            part = self._socket.recv(size - len(found))
            if not part:
                raise EOFError
            found += part
        return bytes(found)


def damage(log_folder: Path, topic: str, offset: int, partition: int = 0) -> None:
    """Changes a byte of the records of the batch that begins at an offset where it lies on the broker's disk:
    its checksum is wrong from now on."""
    for segment in sorted((log_folder / f"{topic}-{partition}").glob("*.log")):
        at, end = 0, segment.stat().st_size
        with segment.open("r+b") as file:
            while at + HEADER_BYTES < end:
                file.seek(at)
                begins, length = struct.unpack(">qi", file.read(12))
                if length <= 0:
                    break  # space that the broker has set aside
                if begins == offset:
                    place = at + HEADER_BYTES + (12 + length - HEADER_BYTES) // 2
                    file.seek(place)
                    (byte,) = file.read(1)
                    file.seek(place)
                    file.write(bytes([byte ^ 0x55]))
                    return
                at += 12 + length
    raise AssertionError(f"{topic} has no batch that begins at offset {offset}")
