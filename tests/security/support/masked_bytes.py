"""How many bytes of secrets there are in what Firn has written: files of a warehouse and of a state folder,
logs, messages of topics.

Files are looked through as they lie there and, where they are compressed, as what they hold: columns of
Parquet, manifests of Avro, gzip, zstd.
"""

import gzip
from collections.abc import Iterable, Iterator, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq

Parts = tuple[bytes | None, bytes | None, Sequence[tuple[str, bytes | None]]]  # key, value, headers


def masked_bytes_found(
    secrets: Sequence[bytes],
    paths: Iterable[Path] = (),
    messages: Iterable[Parts] = (),
    *,
    since_s: float = 0.0,
) -> int:
    """Returns the bytes of secrets in files, in all files below folders, and in messages of Kafka; each
    occurrence counts. `since_s`: what was written before, in Unix time, can hold none."""
    return sum(
        text.count(secret) * len(secret)
        for text in (*_of_files(paths, since_s), *_of_messages(messages))
        for secret in secrets
    )


def _of_files(paths: Iterable[Path], since_s: float) -> Iterator[bytes]:
    for path in paths:
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            yield str(file).encode()
            if file.is_file() and file.stat().st_mtime >= since_s:
                data = file.read_bytes()
                yield data
                yield from _held_by(data)


def _held_by(data: bytes) -> Iterator[bytes]:
    """What a file holds that is not as it lies there."""
    if data[:4] == b"PAR1":
        table = pq.read_table(BytesIO(data))
        yield from (_text(column.to_pylist()) for column in table.columns)
        yield str(table.schema).encode()
    elif data[:3] == b"Obj":
        for record in fastavro.reader(BytesIO(data)):
            yield _text(record)
    elif data[:2] == b"\x1f\x8b":
        yield gzip.decompress(data)
    elif data[:4] == b"\x28\xb5\x2f\xfd":
        yield pa.CompressedInputStream(pa.BufferReader(data), "zstd").read()


def _of_messages(messages: Iterable[Parts]) -> Iterator[bytes]:
    for key, value, headers in messages:
        yield from map(_text, (key, value, *(part for header in headers for part in header)))


def _text(value: Any) -> bytes:
    """Every text and every bytes in a value, apart from each other."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, dict):
        return b"\n".join(_text(item) for pair in value.items() for item in pair)
    if isinstance(value, list | tuple):
        return b"\n".join(map(_text, value))
    return str(value).encode("utf-8", "backslashreplace")
