"""Reads the metadata files of a table: only its own, never without a bound."""

import os
import stat
from contextlib import suppress

from lake.errors import ForeignFileError
from lake.manifest import ManifestEntry, read_manifest, read_references
from lake.manifest_list import Lines, ManifestFile, read_manifest_list
from lake.manifest_records import Reference
from lake.storage import Storage, check_links, local_text
from lake.table_location import TableLocation

# Of a metadata file, manifest list or manifest, as it is stored. A manifest of 4,000 files with a thousand
# columns each takes half of it.
METADATA_BYTES_MAX = 64 * 1024 * 1024


def read_file(
    storage: Storage, uri: str, table_location: TableLocation, *, bytes_max: int = METADATA_BYTES_MAX
) -> bytes:
    """A file that a table's metadata names. Raises ForeignFileError, TooLargeError, NotFoundError,
    UnavailableError."""
    return storage.read(uri, bytes_max=bytes_max, root=table_location.check(uri))


def load_manifest_list(
    storage: Storage, uri: str, table_location: TableLocation, known: Lines | None = None
) -> list[ManifestFile]:
    """The manifests of a snapshot; each is the table's own. `known`: as `read_manifest_list` has it. Raises
    what `read_file` raises, and ProtocolError."""
    manifests = read_manifest_list(read_file(storage, uri, table_location), known)
    for manifest in manifests:
        table_location.check(manifest.uri)
    return manifests


def load_manifest(
    storage: Storage, manifest: ManifestFile, table_location: TableLocation
) -> list[ManifestEntry]:
    """The entries of a manifest; each file is the table's own. Raises what `read_file` raises, and
    ProtocolError."""
    entries = read_manifest(read_file(storage, manifest.uri, table_location), manifest)
    for entry in entries:
        table_location.check(entry.file.uri)
    return entries


def load_references(
    storage: Storage, manifest: ManifestFile, table_location: TableLocation
) -> list[Reference]:
    """The files that a manifest names; each that is live is the table's own. Raises what `load_manifest`
    raises."""
    found = read_references(read_file(storage, manifest.uri, table_location), manifest)
    for each in found:
        if each.is_live:
            table_location.check(each.uri)
    return found


def check_ordinary(table_location: TableLocation, uri: str, folders: set[str]) -> None:
    """Of files on this machine: raises ForeignFileError where a link leads out of the table's folder, or
    where it is no ordinary file.

    `folders` grows by those that were found right. A file that is not there is for its reader to miss.
    """
    root = table_location.check(uri)
    if not root.startswith("file:"):
        return
    path = local_text(uri)
    folder = os.path.dirname(path)
    if folder not in folders:
        check_links(folder, root)
        folders.add(folder)
    with suppress(FileNotFoundError, NotADirectoryError):
        if not stat.S_ISREG(os.lstat(path).st_mode):
            raise ForeignFileError(
                f"{path} is no ordinary file; put the file back, or roll the table at "
                f"{table_location.location} back"
            )
