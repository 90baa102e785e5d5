"""The records of one file of an archive, in their order: lines of text or JSON, plain or compressed, or the
rows of a Parquet file as JSON objects.

How a file is read is told by its first bytes, not by its name. Little of it is in memory at a time.
"""

import gzip
import io
import zlib
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import IO, Any, NamedTuple

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ingest.backfill import parquet_changes
from ingest.backfill.archive import ArchiveFile, UnusableFileError
from ingest.backfill.parquet_json import json_default, json_value
from ingest.model.raw_rows import ByteValues
from lake.errors import NotFoundError, UnavailableError
from lake.storage import AnyStorage

_GZIP, _ZSTD, _PARQUET = b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"PAR1"
# A line is held in memory as a whole. What is longer is no line of a log, but a file of another kind.
LINE_BYTES_MAX = 64 * 1024 * 1024
PARQUET_ROWS, ROWS_TOGETHER = 4_096, 1_000
# Of a file that is cut off, so many decoded bytes before the cut are not seen at most.
BUFFER_BYTES = 64 * 1024
# Of a file that is not compressed so much is read at once: a processor's cache holds it until it is taken
# apart.
BLOCK_BYTES = 256 * 1024
# Blanks are all below it, as other characters that no line of a log begins with.
_NEWLINE, _BLANKS_END = ord("\n"), ord(" ")
_BROKEN = (EOFError, OSError, zlib.error, pa.ArrowInvalid, pa.ArrowNotImplementedError)


class Batch(NamedTuple):
    """Records that follow each other: the number of the first in its file, from 0, and their values.

    `ByteValues` where each is a record; else None is a blank line, which is none but has a number.
    """

    first: int
    values: Sequence[bytes | None]


def read_batches(file: ArchiveFile, storage: AnyStorage, *, as_changes: bool = False) -> Iterator[Batch]:
    """All records of a file; `as_changes`: rows of Parquet with their types. Raises UnusableFileError with
    the number of the record beyond which it cannot be read, UnavailableError."""
    number = 0
    with _opened(file, storage) as stored:
        try:
            for values in _values(stored, as_changes):
                yield Batch(number, values)
                number += len(values)
        except _BROKEN as error:
            if isinstance(error, OSError) and error.errno is not None:  # the disk, not what is on it
                raise UnavailableError(f"{file.uri}: {error.strerror}") from error
            raise UnusableFileError(
                f"{file.uri} cannot be read beyond record {max(0, number - 1)} "
                f"({error or type(error).__name__}): it is damaged or cut off. "
                f"What comes before is in; put a whole copy in its place under another name to get the rest"
            ) from error
        except _LongLineError as error:
            raise UnusableFileError(
                f"{file.uri} has a line of more than {LINE_BYTES_MAX:,} bytes at record {error.number}: it "
                "is no file of lines; what comes before is in"
            ) from error


def _opened(file: ArchiveFile, storage: AnyStorage) -> IO[bytes]:
    try:
        return storage.open(file.uri)
    except NotFoundError as error:
        raise UnusableFileError(
            f"{file.uri} is gone since it was found; put it back and run it again"
        ) from error


def _values(stored: IO[bytes], as_changes: bool) -> Iterator[Sequence[bytes | None]]:
    first = stored.read(4)
    stored.seek(0)
    if first == _PARQUET:
        return _in_batches(parquet_changes.read_rows(stored) if as_changes else _rows(stored))
    if first[:2] == _GZIP:
        return _lines(gzip.GzipFile(fileobj=stored), BUFFER_BYTES)
    if first == _ZSTD:
        # Arrow's reader, unlike others, tells a file that is cut off from one that is whole, and reads
        # several frames one behind the other.
        unpacked = pa.CompressedInputStream(pa.PythonFile(stored, mode="r"), "zstd")
        return _lines(io.BufferedReader(unpacked, BUFFER_BYTES), BUFFER_BYTES)
    return _lines(stored, BLOCK_BYTES)


class _LongLineError(Exception):
    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def _lines(stored: Any, block_bytes: int) -> Iterator[Sequence[bytes | None]]:
    """Lines without their ends, None for blank ones, as many at once as end in a block."""
    number = rest_bytes = 0
    rest = list[bytes]()  # of a line whose end is not read yet
    while block := stored.read1(block_bytes):
        first, last = block.find(b"\n"), block.rfind(b"\n")
        rest_bytes += len(block) if first < 0 else first
        if first >= 0 and rest_bytes < LINE_BYTES_MAX:
            values = _taken_apart(b"".join([*rest, block[: last + 1]]))
            number += len(values)
            yield values
            rest, rest_bytes, block = [], len(block) - last - 1, block[last + 1 :]
        if rest_bytes >= LINE_BYTES_MAX:
            raise _LongLineError(number)
        rest.append(block)
    if rest_bytes:
        yield [_line(b"".join(rest))]


def _taken_apart(text: bytes) -> Sequence[bytes | None]:
    """The lines of a text that ends with one. Where none can be blank, and none ends with more than its
    newline, no line becomes an object of its own: it would cost as much as to decode it."""
    read = np.frombuffer(text, np.uint8)
    ends = np.flatnonzero(read == _NEWLINE)
    begins = np.concatenate(([0], ends[:-1] + 1))
    if b"\r" not in text and (read[begins] > _BLANKS_END).all():
        return ByteValues(text.replace(b"\n", b""), ends - np.arange(len(ends)))
    lines = [_line(line) for line in text[:-1].split(b"\n")]
    records = [line for line in lines if line is not None]
    return ByteValues.of(records) if len(records) == len(lines) else lines


def _line(line: bytes) -> bytes | None:
    return None if not line or line.isspace() else line.rstrip(b"\r")


# ---- Parquet


def _in_batches(rows: Iterator[bytes]) -> Iterator[Sequence[bytes]]:
    while some := list(islice(rows, ROWS_TOGETHER)):
        yield ByteValues.of(some)


def _rows(stored: IO[bytes]) -> Iterator[bytes]:
    parquet = pq.ParquetFile(pa.PythonFile(stored, mode="r"), pre_buffer=False)
    if len(set(parquet.schema_arrow.names)) < len(parquet.schema_arrow.names):
        raise pa.ArrowInvalid("two columns have the same name")
    for batch in parquet.iter_batches(batch_size=PARQUET_ROWS):
        table = pa.table({name: _readable(batch.column(at)) for at, name in enumerate(batch.schema.names)})
        for row in table.to_pylist():
            yield orjson.dumps(
                {name: json_value(value) for name, value in row.items() if value is not None},
                default=json_default,
            )


def _readable(column: pa.Array) -> pa.Array:
    """Times as RFC 3339 to the last digit, with Z where they are of a zone: Python has no nanoseconds."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if not pa.types.is_timestamp(column.type):
        return column
    text = pc.strftime(column.cast(pa.timestamp(column.type.unit)), "%Y-%m-%dT%H:%M:%S")
    return pc.binary_join_element_wise(text, "Z", "") if column.type.tz is not None else text
