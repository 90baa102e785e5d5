"""The key's columns of a data file, and nothing else of it; columns are found by field id, since names
change."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.parquet as pq

from lake.errors import ProtocolError
from lake.storage import Storage

ROWS_AT_ONCE = 64 * 1024
_FIELD_ID = b"PARQUET:field_id"


class KeyColumns:
    """Reads the columns with the given field ids of one open Parquet file."""

    def __init__(self, uri: str, parquet: pq.ParquetFile, key_ids: Sequence[int]) -> None:
        self._uri, self._parquet, self._key_ids = uri, parquet, key_ids
        self._names = [parquet.schema_arrow.field(at).name for at in self._places(parquet.schema_arrow)]

    @property
    def rows(self) -> int:
        """How many rows the file has."""
        return int(self._parquet.metadata.num_rows)

    def batches(self) -> Iterator[list[pa.Array]]:
        """The key's columns in the order of the key, some rows at a time. Raises ProtocolError."""
        with parquet_errors(self._uri):
            for batch in self._parquet.iter_batches(ROWS_AT_ONCE, columns=self._names, use_threads=False):
                yield [batch.column(at) for at in self._places(batch.schema)]

    def _places(self, schema: pa.Schema) -> list[int]:
        by_id = {(field.metadata or {}).get(_FIELD_ID): at for at, field in enumerate(schema)}
        try:
            return [by_id[str(key_id).encode()] for key_id in self._key_ids]
        except KeyError as error:
            raise no_key_column(self._uri, int(error.args[0])) from None


@contextmanager
def open_key_columns(storage: Storage, uri: str, key_ids: Sequence[int]) -> Iterator[KeyColumns]:
    """Opens a data file by its footer. Raises NotFoundError, UnavailableError; ProtocolError where it is no
    Parquet file or lacks a column of the key."""
    with storage.open(uri) as file:
        with parquet_errors(uri):
            parquet = pq.ParquetFile(file)
        yield KeyColumns(uri, parquet, key_ids)


def field_ids(schema: pa.Schema) -> dict[str, int]:
    """The field id of each column of a file, by its name; 0 where it has none."""
    return {each.name: int((each.metadata or {}).get(_FIELD_ID, b"0")) for each in schema}


def no_key_column(uri: str, key_id: int) -> ProtocolError:
    """What is wrong with a data file that lacks a column of the key."""
    return ProtocolError(
        f"{uri} has no column with the field id {key_id}, which is part of the table's key; write the file "
        "again with the key's columns, or let the table append"
    )


@contextmanager
def parquet_errors(uri: str) -> Iterator[None]:
    """Says ProtocolError of what is no Parquet file, or a damaged one."""
    try:
        yield
    # Arrow says OSError for damaged pages, which for a disk that fails would have an errno.
    except (pa.ArrowInvalid, OSError) as error:
        if isinstance(error, OSError) and error.errno:
            raise
        raise ProtocolError(
            f"{uri} cannot be read as Parquet ({error}); restore the file, or roll the table back"
        ) from error
