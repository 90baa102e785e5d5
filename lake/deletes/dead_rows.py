"""Which rows of data files are deleted by position: the live delete files of a snapshot, and the positions
that they name for the data files that are asked for.

A deletion vector holds all deleted rows of its data file, so delete files beside it are passed by (Iceberg
spec, "Scan Planning").
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from pyroaring import BitMap64

from lake.data_file import EQUALITY_DELETES, DataFile
from lake.deletes.position_delete_file import FILE_PATH_ID
from lake.deletes.row_deletes import load_row_deletes
from lake.errors import ProtocolError
from lake.manifest import ManifestEntry
from lake.storage import Storage
from lake.table_location import TableLocation

# By `DataFile.place`: what position deletes name, by the URI of the data file.
LoadedDeletes = dict[tuple[str, int | None], Mapping[str, BitMap64]]


@dataclass(frozen=True, slots=True)
class DeleteFiles:
    """Live delete files by what they are about. `of_one`: position delete files of one data file, by its URI;
    `of_many`: those that may name several."""

    vectors: Mapping[str, ManifestEntry] = field(default_factory=dict)
    of_one: Mapping[str, Sequence[ManifestEntry]] = field(default_factory=dict)
    of_many: Sequence[ManifestEntry] = ()
    has_equality_deletes: bool = False

    @classmethod
    def of(cls, entries: Iterable[ManifestEntry]) -> "DeleteFiles":
        """Sorts live entries of delete manifests. Raises ProtocolError for two vectors of one data file."""
        vectors: dict[str, ManifestEntry] = {}
        of_one: dict[str, list[ManifestEntry]] = {}
        of_many: list[ManifestEntry] = []
        has_equality_deletes = False
        for entry in entries:
            about = only_data_file(entry.file)
            if entry.file.content == EQUALITY_DELETES:
                has_equality_deletes = True
            elif entry.file.is_deletion_vector:
                _add_vector(vectors, entry)
            elif about is not None:
                of_one.setdefault(about, []).append(entry)
            else:
                of_many.append(entry)
        return cls(vectors, of_one, of_many, has_equality_deletes)

    def of_file(self, uri: str, sequence_number: int | None) -> list[DataFile]:
        """The delete files that may name rows of a data file with this sequence number (None: of the commit
        that is being made, or unknown; then all)."""
        vector = self.vectors.get(uri)
        if vector is not None:
            return [vector.file] if _applies(vector, sequence_number) else []
        candidates = [*self.of_one.get(uri, ())]
        candidates += [entry for entry in self.of_many if _may_name(entry.file, uri)]
        return [entry.file for entry in candidates if _applies(entry, sequence_number)]

    def rows_of(self, data_files: Iterable[tuple[str, int | None]]) -> int:
        """How many positions the delete files hold that `load_dead_rows` would read for these data files."""
        files = [file for uri, sequence_number in data_files for file in self.of_file(uri, sequence_number)]
        return sum({file.place: file.rows for file in files}.values())

    def dead_rows_of(self, uri: str, sequence_number: int | None) -> int | None:
        """How many rows of one data file are deleted, by what manifests say; None where they do not say it of
        this file alone."""
        files = self.of_file(uri, sequence_number)
        if self.has_equality_deletes or any(only_data_file(file) is None for file in files):
            return None
        return sum(file.rows for file in files)


def _add_vector(vectors: dict[str, ManifestEntry], entry: ManifestEntry) -> None:
    about = entry.file.referenced_data_file
    if about is None or about in vectors:
        raise ProtocolError(
            f"a snapshot has two deletion vectors of one data file, or one of none ({about}); roll the table "
            "back"
        )
    vectors[about] = entry


def only_data_file(file: DataFile) -> str | None:
    """The one data file whose rows position deletes name, where their manifest says that there is no
    other."""
    if file.referenced_data_file is not None:
        return file.referenced_data_file
    lower, upper = ((bounds or {}).get(FILE_PATH_ID) for bounds in (file.lower_bounds, file.upper_bounds))
    return lower.decode(errors="replace") if lower is not None and lower == upper else None


def _may_name(file: DataFile, uri: str) -> bool:
    path = uri.encode()
    lower, upper = ((bounds or {}).get(FILE_PATH_ID) for bounds in (file.lower_bounds, file.upper_bounds))
    return (lower is None or lower <= path) and (upper is None or path <= upper)


def _applies(entry: ManifestEntry, sequence_number: int | None) -> bool:
    """Whether a delete is not older than the data file."""
    if sequence_number is None or entry.sequence_number is None:
        return True
    return entry.sequence_number >= sequence_number


def load_dead_rows(
    storage: Storage,
    delete_files: DeleteFiles,
    data_files: Iterable[tuple[str, int | None]],
    table_location: TableLocation,
    loaded: LoadedDeletes | None = None,
) -> dict[str, BitMap64]:
    """The deleted positions of data files, by URI; files that have lost no row are not among them.

    `data_files`: URI and sequence number. Each delete file is read once; what is in `loaded` is not read
    again, and what is read is put there. Raises what `load_row_deletes` raises.
    """
    loaded = {} if loaded is None else loaded
    wanted = [(uri, delete_files.of_file(uri, sequence_number)) for uri, sequence_number in data_files]
    for file in (file for _, files in wanted for file in files):
        if file.place not in loaded:
            loaded[file.place] = load_row_deletes(storage, file, table_location)
    dead: dict[str, BitMap64] = {}
    for uri, files in wanted:
        for file in files:
            positions = loaded[file.place].get(uri)
            if positions:
                dead[uri] = dead[uri] | positions if uri in dead else positions
    return dead
