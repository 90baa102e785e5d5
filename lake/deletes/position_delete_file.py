"""Position delete files, by which tables of format version 2 lose rows (Iceberg spec, "Position Delete
Files").

Each file that is written here names one data file, and its bounds say so: engines then read it for that data
file alone. Files of other engines may name many.
"""

import struct
from array import array
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64

from lake.data_file import POSITION_DELETES, DataFile
from lake.errors import ProtocolError, TooLargeError

FILE_PATH_ID, POSITION_ID = 2_147_483_546, 2_147_483_545
ROWS_MAX = 25_000_000
UNCOMPRESSED_BYTES_MAX = 1024 * 1024 * 1024
# What is held of a file at a time while it is read.
BATCH_ROWS = 65_536
_ID = b"PARQUET:field_id"
_SCHEMA = pa.schema(
    [
        pa.field(
            "file_path",
            pa.dictionary(pa.int8(), pa.string()),
            nullable=False,
            metadata={_ID: str(FILE_PATH_ID)},
        ),
        pa.field("pos", pa.int64(), nullable=False, metadata={_ID: str(POSITION_ID)}),
    ]
)
_LONG = struct.Struct("<q")


def encode_position_deletes(uri: str, data_file: DataFile, positions: BitMap64) -> tuple[bytes, DataFile]:
    """The bytes of a file that removes rows of one data file, and what a manifest says of it.

    `positions`: row numbers from 0, at least one, each below 2^63.
    """
    rows = len(positions)
    places = pa.Array.from_buffers(pa.int64(), rows, [None, pa.py_buffer(positions.to_array())])
    paths = pa.DictionaryArray.from_arrays(pa.repeat(pa.scalar(0, pa.int8()), rows), [data_file.uri])
    sink = pa.BufferOutputStream()
    table = pa.table([paths, places], schema=_SCHEMA)
    pq.write_table(table, sink, compression="zstd", use_dictionary=["file_path"], store_schema=False)
    data = sink.getvalue().to_pybytes()
    return data, _described(uri, len(data), data_file, positions)


def _described(uri: str, size_bytes: int, data_file: DataFile, positions: BitMap64) -> DataFile:
    # Bounds of other columns are shortened, the path is not: only equal bounds say that there is no other.
    path = data_file.uri.encode()
    return DataFile(
        uri=uri,
        hour=data_file.hour,
        bucket=data_file.bucket,
        span=data_file.span,
        rows=len(positions),
        size_bytes=size_bytes,
        content=POSITION_DELETES,
        value_counts=dict.fromkeys((FILE_PATH_ID, POSITION_ID), len(positions)),
        null_counts=dict.fromkeys((FILE_PATH_ID, POSITION_ID), 0),
        lower_bounds={FILE_PATH_ID: path, POSITION_ID: _LONG.pack(positions.min())},
        upper_bounds={FILE_PATH_ID: path, POSITION_ID: _LONG.pack(positions.max())},
        sort_order_id=None,  # their order is that of paths and positions, none of the table's
        referenced_data_file=data_file.uri,
    )


def decode_position_deletes(data: bytes, file: DataFile) -> dict[str, BitMap64]:
    """The positions that a delete file names, by the URI of the data file. Raises ProtocolError and, for more
    than is read of a file, TooLargeError."""
    found: dict[str, BitMap64] = {}
    try:
        for path, positions in _runs(_opened(data, file)):
            found.setdefault(path, BitMap64()).update(positions)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise _broken(file, str(error)) from error
    except ValueError as error:
        raise _broken(file, repr(error)) from error
    return found


def _opened(data: bytes, file: DataFile) -> pq.ParquetFile:
    """The file, once its footer says that it is what the manifest says and no larger than is read."""
    names = _names(pq.ParquetFile(pa.BufferReader(data)), file)
    parquet = pq.ParquetFile(pa.BufferReader(data), read_dictionary=[names[FILE_PATH_ID]])
    footer = parquet.metadata
    if footer.num_rows != file.rows:
        raise _broken(file, f"it has {footer.num_rows} rows, and its manifest says {file.rows}")
    unpacked = sum(footer.row_group(at).total_byte_size for at in range(footer.num_row_groups))
    if footer.num_rows > ROWS_MAX or unpacked > UNCOMPRESSED_BYTES_MAX:
        raise TooLargeError(
            f"position delete file {file.uri} has {footer.num_rows:,} rows and {unpacked:,} bytes unpacked, "
            f"at most {ROWS_MAX:,} and {UNCOMPRESSED_BYTES_MAX:,} are read; run Spark's rewrite_data_files"
        )
    return parquet


def _names(parquet: Any, file: DataFile) -> dict[int, str]:
    """The names of the two columns by their reserved ids; whatever else a file has (rows that were deleted)
    is not read."""
    kinds = {FILE_PATH_ID: _is_text, POSITION_ID: pa.types.is_int64}
    names = {}
    for field in parquet.schema_arrow:
        field_id = int((field.metadata or {}).get(_ID, -1))
        if field_id in kinds and kinds[field_id](field.type):
            names[field_id] = field.name
    if len(names) < len(kinds):
        raise _broken(
            file, f"it has no columns of text and long with the ids {FILE_PATH_ID} and {POSITION_ID}"
        )
    return names


def _is_text(kind: Any) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _runs(parquet: Any) -> Iterator[tuple[str, "array[int]"]]:
    """Data files and some of their positions. Raises ValueError where there is none."""
    names = {int(field.metadata[_ID]): field.name for field in parquet.schema_arrow if field.metadata}
    columns = [names[FILE_PATH_ID], names[POSITION_ID]]
    for batch in parquet.iter_batches(BATCH_ROWS, columns=columns, use_threads=False):
        paths, positions = (batch.column(name) for name in columns)
        if paths.null_count or positions.null_count:
            raise ValueError("a path or a position is missing")
        # By the number of a path in the dictionary: paths as texts would be as many as rows.
        numbered = pa.table({"path": paths.indices, "pos": positions})
        groups = numbered.group_by("path", use_threads=False).aggregate([("pos", "list")])
        for number, places in zip(groups["path"], groups["pos_list"], strict=True):
            yield paths.dictionary[number.as_py()].as_py(), _unsigned(places.values)


def _unsigned(positions: pa.Array) -> "array[int]":
    """The same numbers for a bitmap. Raises ValueError where one is negative."""
    numbers = array("q")
    _, data = positions.buffers()
    size = numbers.itemsize
    numbers.frombytes(data[positions.offset * size : (positions.offset + len(positions)) * size])
    if min(numbers, default=0) < 0:
        raise ValueError("a position is negative")
    unsigned = array("Q")
    unsigned.frombytes(memoryview(numbers).cast("B"))
    return unsigned


def _broken(file: DataFile, why: str) -> ProtocolError:
    return ProtocolError(
        f"position delete file {file.uri} is not as the Iceberg specification has it ({why}); restore it, or "
        "roll the table back"
    )
