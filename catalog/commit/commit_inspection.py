"""Looks into the manifests that a commit of a bound key brings, before the commit is taken.

An engine believes what a table's manifests say. The tenant that holds a key to one namespace could name files
of any other in them, and whoever reads the table would read those. So every manifest that is new is read
once, below a bound, and each file in it has to be the table's own. Commits of keys that are bound to nothing
are the operator's own, above all ingestion's, and are not held up by this.
"""

import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from hashlib import blake2b
from typing import Any

from catalog.access.locations import check_file, named_by
from catalog.model import metrics
from catalog.model.error_response import CatalogError, bad_request, forbidden, unavailable
from catalog.store.metadata_store import MetadataStore
from lake.avro import read_container
from lake.avro_bounds import BLOCK_BYTES_MAX
from lake.errors import FatalError, ForeignFileError, NotFoundError, RetryableError
from lake.manifest import ENTRIES_MAX, ENTRY_BLOCK_BYTES_MAX
from lake.table_files import METADATA_BYTES_MAX, check_ordinary
from lake.table_location import TableLocation

Json = dict[str, Any]
MANIFESTS_MAX = 10_000
# Of all files that one commit makes us read.
BYTES_MAX = 4 * METADATA_BYTES_MAX
KNOWN_MAX = 100_000
THREADS = 2


class Inspector:
    """Reads manifests with few threads of its own, so that nobody else waits for what a tenant sends, and
    remembers which it has found right."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self._known: OrderedDict[bytes, None] = OrderedDict()
        self._lock = threading.Lock()
        self.threads = ThreadPoolExecutor(THREADS, thread_name_prefix="inspection")

    def check(self, table_location: TableLocation, snapshots: Sequence[Json]) -> None:
        """Raises CatalogError where a snapshot reaches a file that is not of the place, or cannot be read."""
        left = BYTES_MAX
        for snapshot in snapshots:
            for uri in self._manifests(table_location, snapshot):
                left -= self._check_manifest(table_location, uri)
                if left < 0:
                    raise bad_request(
                        f"the manifests of a commit hold more than {BYTES_MAX:,} bytes; commit fewer files "
                        "at once"
                    )

    def _manifests(self, table_location: TableLocation, snapshot: Json) -> Iterator[object]:
        for what, uri in named_by(snapshot):
            check_file(table_location, what, uri)
            if what == "manifest":
                yield uri
                continue
            data = self._read(table_location, str(uri), what)
            for number, line in enumerate(_avro(data, f"{what} {uri}", BLOCK_BYTES_MAX)):
                if number >= MANIFESTS_MAX:
                    raise bad_request(f"{uri} lists more than {MANIFESTS_MAX:,} manifests; merge them")
                yield line.get("manifest_path")

    def _check_manifest(self, table_location: TableLocation, uri: object) -> int:
        """Bytes that were read for it."""
        check_file(table_location, "manifest", uri)
        key = blake2b(f"{table_location.prefixes}{uri}".encode(errors="replace"), digest_size=16).digest()
        with self._lock:
            if key in self._known:
                self._known.move_to_end(key)
                return 0
        data = self._read(table_location, str(uri), "manifest")
        folders: set[str] = set()
        for entry in _entries(data, str(uri)):
            for file in (entry.get("file_path"), entry.get("referenced_data_file")):
                if file is not None:
                    _check_data_file(table_location, file, folders)
        with self._lock:
            self._known[key] = None
            if len(self._known) > KNOWN_MAX:
                self._known.popitem(last=False)
        return len(data)

    def _read(self, table_location: TableLocation, uri: str, what: str) -> bytes:
        try:
            return self._store.read_of_table(uri, table_location)
        except NotFoundError as error:
            raise bad_request(f"the {what} {error}; write it before the commit") from error
        except ForeignFileError as error:
            metrics.foreign_files.labels(what).inc()
            raise forbidden(str(error)) from error
        except FatalError as error:
            raise bad_request(str(error)) from error
        except RetryableError as error:
            raise unavailable(f"{error}; nothing was changed") from error


def _check_data_file(table_location: TableLocation, uri: object, folders: set[str]) -> None:
    check_file(table_location, "data file", uri)
    try:
        check_ordinary(table_location, str(uri), folders)
    except ForeignFileError as error:
        metrics.foreign_files.labels("data file").inc()
        raise forbidden(str(error)) from error


def _avro(data: bytes, what: str, block_bytes_max: int) -> Iterator[Json]:
    try:
        yield from read_container(data, what, block_bytes_max=block_bytes_max)
    except FatalError as error:
        raise error if isinstance(error, CatalogError) else bad_request(str(error)) from error


def _entries(data: bytes, uri: str) -> Iterator[Json]:
    for number, record in enumerate(_avro(data, f"manifest {uri}", ENTRY_BLOCK_BYTES_MAX)):
        file = record.get("data_file")
        if not isinstance(file, dict) or number >= ENTRIES_MAX:
            raise bad_request(
                f"{uri} is no manifest, or one of more than {ENTRIES_MAX:,} files; name another"
            )
        yield file
