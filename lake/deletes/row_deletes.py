"""Which rows of a table's data files are deleted by position, in the form of the table's format version:
written for a commit (`lake.commit.prepare_row_delta`), and read back.

The positions of a data file are a bitmap, so those of several deletes are put together with `|`. Row numbers
begin with 0 and count the rows of the file as they lie in it.
"""

from collections.abc import Sequence

from pyroaring import BitMap64

from lake.data_file import POSITION_DELETES, PUFFIN, ROW_LINEAGE, DataFile
from lake.deletes.deletion_vector import decode_deletion_vector, encode_deletion_vector
from lake.deletes.position_delete_file import decode_position_deletes, encode_position_deletes
from lake.deletes.puffin import Blob, encode_puffin
from lake.errors import ProtocolError, TooLargeError
from lake.storage import Storage
from lake.table_files import METADATA_BYTES_MAX, check_ordinary, read_file
from lake.table_layout import deletion_vectors_uri, position_deletes_uri
from lake.table_location import TableLocation

BLOB_TYPE = "deletion-vector-v1"
Place = tuple[str, int | None]  # of a delete file, as `DataFile.place` has it
# The reserved id of the column that a vector is about: the row's number in its file.
ROW_POSITION_ID = 2_147_483_645


def encode_row_deletes(
    location: str, version: int, deleted: Sequence[tuple[DataFile, BitMap64]]
) -> tuple[list[tuple[str, bytes]], list[DataFile]]:
    """(URI, content) of the files that delete these rows in a table of a format version, and what its delete
    manifest says of them.

    Version 2: a file for each data file. Version 3: one file with a vector for each data file, which holds
    all of its deleted rows, those of earlier deletes too (`lake.deletes.row_delta` adds them). Raises
    ValueError for a data file without positions and for positions that it does not have.
    """
    for data_file, positions in deleted:
        if not positions or positions.max() >= data_file.rows:
            raise ValueError(f"{data_file.uri} has {data_file.rows} rows; no such positions can be deleted")
    if not deleted:
        return [], []
    return _vectors(location, deleted) if version >= ROW_LINEAGE else _delete_files(location, deleted)


def positions_of(
    files: Sequence[DataFile], deleted: Sequence[tuple[DataFile, BitMap64]]
) -> dict[Place, dict[str, BitMap64]]:
    """What `load_row_deletes` would read of the files that `encode_row_deletes` has made of `deleted`."""
    return {
        file.place: {data_file.uri: positions}
        for file, (data_file, positions) in zip(files, deleted, strict=True)
    }


def _delete_files(
    location: str, pairs: Sequence[tuple[DataFile, BitMap64]]
) -> tuple[list[tuple[str, bytes]], list[DataFile]]:
    written, files = [], []
    for data_file, positions in pairs:
        uri = position_deletes_uri(location, data_file.partition)
        data, file = encode_position_deletes(uri, data_file, positions)
        written.append((uri, data))
        files.append(file)
    return written, files


def _vectors(
    location: str, pairs: Sequence[tuple[DataFile, BitMap64]]
) -> tuple[list[tuple[str, bytes]], list[DataFile]]:
    uri = deletion_vectors_uri(location)
    blobs = [
        Blob(
            BLOB_TYPE,
            encode_deletion_vector(positions),
            [ROW_POSITION_ID],
            {"referenced-data-file": data_file.uri, "cardinality": str(len(positions))},
        )
        for data_file, positions in pairs
    ]
    data, offsets = encode_puffin(blobs)
    files = [
        DataFile(
            uri=uri,
            hour=data_file.hour,
            bucket=data_file.bucket,
            span=data_file.span,
            rows=len(positions),
            size_bytes=len(data),
            content=POSITION_DELETES,
            sort_order_id=None,
            file_format=PUFFIN,
            referenced_data_file=data_file.uri,
            content_offset=offset,
            content_size_in_bytes=len(blob.data),
        )
        for (data_file, positions), blob, offset in zip(pairs, blobs, offsets, strict=True)
    ]
    return [(uri, data)], files


def load_row_deletes(storage: Storage, file: DataFile, table_location: TableLocation) -> dict[str, BitMap64]:
    """The deleted positions that a delete file of the table names, by the URI of the data file.

    Raises ForeignFileError where it is no file of the table, TooLargeError, ProtocolError (also for equality
    deletes, which name no positions), NotFoundError, UnavailableError.
    """
    if file.content != POSITION_DELETES:
        raise ProtocolError(f"{file.uri} deletes no rows by position; have Spark rewrite what it is about")
    if not file.is_deletion_vector:
        return decode_position_deletes(read_file(storage, file.uri, table_location), file)
    referenced, offset, size_bytes = _place(file)
    check_ordinary(table_location, file.uri, set())
    table_location.check(referenced)
    positions = decode_deletion_vector(
        storage.read_range(file.uri, offset, size_bytes), f"{file.uri} from byte {offset} on"
    )
    if len(positions) != file.rows:
        raise ProtocolError(
            f"the deletion vector of {referenced} in {file.uri} holds {len(positions)} positions, and its "
            f"manifest says {file.rows}; roll the table back"
        )
    return {referenced: positions}


def _place(file: DataFile) -> tuple[str, int, int]:
    """The data file of a vector, and where the vector lies: bounded before anything is read."""
    referenced, offset = file.referenced_data_file, file.content_offset
    size_bytes = file.content_size_in_bytes
    # Whoever writes a manifest also chooses the types in it.
    if (
        not (referenced and isinstance(offset, int) and isinstance(size_bytes, int))
        or min(offset, size_bytes) < 0
    ):
        raise ProtocolError(
            f"a manifest does not say where in {file.uri} a deletion vector lies, or for which data file; "
            "restore the manifest, or roll the table back"
        )
    if size_bytes > METADATA_BYTES_MAX:
        raise TooLargeError(
            f"a deletion vector in {file.uri} has {size_bytes:,} bytes, at most {METADATA_BYTES_MAX:,} are "
            "read; run Spark's rewrite_data_files"
        )
    return referenced, offset, size_bytes
