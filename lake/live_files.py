"""The files of a table that are live, and some columns of each, as who looks for single rows reads them."""

import io
from collections.abc import Collection, Iterator, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from lake.commit import TableState
from lake.data_file import DataFile
from lake.errors import ProtocolError
from lake.manifest import ManifestEntry, Status
from lake.manifest_list import DATA_MANIFEST, DELETE_MANIFEST
from lake.storage import AnyStorage
from lake.table_files import load_manifest

WHOLE_FILE_BYTES = 4 * 1024 * 1024
_FIELD_ID = b"PARQUET:field_id"


def live_entries(
    state: TableState, storage: AnyStorage, contents: Collection[int] = (DATA_MANIFEST, DELETE_MANIFEST)
) -> Iterator[ManifestEntry]:
    """The live data files and delete files of a table, or one kind of them (`ManifestFile.content`); a
    manifest is read when its first entry is asked for. Raises what `load_manifest` raises."""
    for manifest in state.manifests:
        if manifest.live_files and manifest.content in contents:
            yield from (
                entry
                for entry in load_manifest(storage, manifest, state.table_location)
                if entry.status is not Status.DELETED
            )


def may_hold(file: DataFile, column: int, texts: Collection[str]) -> bool:
    """Whether a text column of a data file, by its field id, may hold one of these texts: by its bounds as
    manifests have them, which may be cut, and are never narrower than the values."""
    low, high = ((bounds or {}).get(column) for bounds in (file.lower_bounds, file.upper_bounds))
    if low is None or high is None:
        return True
    return any(low <= text.encode() <= high for text in texts)


def numbers_of(file: DataFile, column: int) -> tuple[int, int] | None:
    """The least and the greatest value of an int or long column of a data file, by its field id; None where
    its manifest does not say (Iceberg spec, appendix D: little-endian, of the type that the column had)."""
    low, high = ((bounds or {}).get(column) for bounds in (file.lower_bounds, file.upper_bounds))
    if low is None or high is None:
        return None
    return int.from_bytes(low, "little", signed=True), int.from_bytes(high, "little", signed=True)


def columns_of_file(
    state: TableState, file: DataFile, storage: AnyStorage, wanted: Sequence[str]
) -> Iterator[pa.Table]:
    """Columns of a data file by their folded names in the table, a row group at a time. Raises
    ProtocolError."""
    source = (
        pa.BufferReader(
            storage.read(file.uri, bytes_max=file.size_bytes, root=state.table_location.check(file.uri))
        )
        if file.size_bytes <= WHOLE_FILE_BYTES
        else pa.PythonFile(_Ranges(storage, file), mode="r")
    )
    parquet = pq.ParquetFile(source)
    by_id = {int((one.metadata or {}).get(_FIELD_ID, b"-1")): one.name for one in parquet.schema_arrow}
    ids = {name: state.schema.by_name[name].id for name in wanted}
    if absent := [name for name, field_id in ids.items() if field_id not in by_id]:
        raise ProtocolError(
            f"{file.uri} of table {state.name} has no column {absent[0]}: whoever wrote it left the identity "
            "of its rows out"
        )
    names = {name: by_id[field_id] for name, field_id in ids.items()}
    for group in range(parquet.num_row_groups):
        read = parquet.read_row_group(group, columns=list(names.values()))
        yield pa.table({name: read.column(column) for name, column in names.items()})


class _Ranges(io.RawIOBase):
    """A stored file as Parquet's reader wants it: only what it asks for is fetched."""

    def __init__(self, storage: AnyStorage, file: DataFile) -> None:
        super().__init__()
        self._storage, self._uri, self._size, self._at = storage, file.uri, file.size_bytes, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + (0, self._at, self._size)[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def read(self, size: int = -1) -> bytes:
        length = min(size if size >= 0 else self._size, self._size - self._at)
        data = self._storage.read_range(self._uri, self._at, length) if length > 0 else b""
        self._at += len(data)
        return data
