"""Metadata files: written whole and durable before anything points at them, never changed afterwards, cached
by their location."""

import gzip
import os
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any, cast

import orjson
import structlog

from catalog.model.error_response import bad_request, forbidden
from catalog.store.metadata_cache import MetadataCache
from lake.clock import SYSTEM_CLOCK, Clock
from lake.errors import FirnError, ProtocolError, SettingsError, TooLargeError
from lake.storage import AnyStorage, StoredObject, canonical
from lake.table_files import METADATA_BYTES_MAX, read_file
from lake.table_location import TableLocation

log = structlog.get_logger()
WRITES_AT_ONCE = 16
WRITE_DEADLINE_S = 30.0


@dataclass(frozen=True, slots=True)
class MetadataFile:
    """A new metadata file: where it goes and its JSON, uncompressed."""

    location: str
    data: bytes


class WriteTimedOut(FirnError):
    """The storage did not answer in time; the file may appear later, but nothing points at it."""


class MetadataStore:
    """Reads and writes metadata files below the allowed locations."""

    def __init__(
        self,
        storage: AnyStorage,
        warehouse: str,
        *,
        allowed_locations: Sequence[str] = (),
        cache_bytes_max: int,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        # Without a warehouse (beside another catalog) there are no tables, and no location is allowed.
        self.warehouse = canonical(warehouse).rstrip("/") if warehouse else ""
        self._storage = storage
        self._clock = clock
        self._allowed = tuple(
            canonical(prefix).rstrip("/") + "/" for prefix in (warehouse, *allowed_locations) if prefix
        )
        self.allowed = tuple(prefix for prefix in self._allowed if prefix != f"{self.warehouse}/")
        self._cache = MetadataCache(cache_bytes_max)
        self._pool = ThreadPoolExecutor(WRITES_AT_ONCE, thread_name_prefix="metadata")
        self._deletions = ThreadPoolExecutor(1, thread_name_prefix="deletions")

    def check_location(self, location: object, what: str = "location") -> str:
        """Lets a location below the warehouse or an allowed prefix pass, as spelled. Raises CatalogError 400
        or 403."""
        if not isinstance(location, str) or not location:
            raise bad_request(f"{what} must be a URI such as {self.warehouse}/path")
        try:
            uri = canonical(location)
        except SettingsError as error:
            raise bad_request(f"{what}: {error}") from error
        if any(part in ("..", ".") for part in uri.split("/")) or "\x00" in uri:
            raise bad_request(f"{what} {location!r} must not contain '.' or '..' segments")
        if not (uri.rstrip("/") + "/").startswith(self._allowed) or uri.rstrip("/") + "/" in self._allowed:
            raise forbidden(
                f"{what} {location!r} is not below the warehouse {self.warehouse}; choose one below it, or "
                "allow its prefix in the setting allowed_locations"
            )
        return location

    def cached(self, location: str) -> bytes | None:
        """The file's JSON when it is in memory. A local file that was taken away counts as gone at once:
        asking costs two microseconds."""
        if location.startswith(("file:", "/")) and not os.path.exists(
            canonical(location).removeprefix("file://")
        ):
            self.forget([location])
            return None
        return self._cache.get(location)

    def read(self, location: str) -> bytes:
        """The file's JSON. Raises NotFoundError, UnavailableError, and TooLargeError or ForeignFileError
        where it is none of metadata."""
        data = self.cached(location)
        if data is None:
            data = self._storage.read(
                location, bytes_max=METADATA_BYTES_MAX, root=location.rpartition("/")[0]
            )
            if data[:2] == b"\x1f\x8b":
                data = _unzipped(data, location)
            self.remember(location, data)
        return data

    def read_raw(self, uri: str) -> bytes:
        """A file of the catalog's own, uncached. Raises NotFoundError, UnavailableError."""
        return self._storage.read(uri)

    def read_of_table(self, uri: str, table_location: TableLocation) -> bytes:
        """A manifest list or manifest that a table names. Raises what `read` raises."""
        return read_file(self._storage, uri, table_location)

    def remember(self, location: str, data: bytes) -> None:
        """Puts a file that exists into the cache."""
        self._cache.put(location, data)

    def forget(self, locations: Sequence[str]) -> None:
        """Drops files from the cache that no table points at any more."""
        self._cache.forget(locations)

    def write_many(self, files: Sequence[tuple[MetadataFile, float | None]]) -> list[Exception | None]:
        """Writes files so that each survives a power cut; per file None or why it failed. The second of each
        pair is a deadline on the monotonic clock.

        Remote requests overlap; local files share one sync. One failing file never hurts another.
        """
        outcomes: list[Exception | None] = [None] * len(files)
        remote: dict[Future[None], int] = {}
        local: list[int] = []
        for at, (file, _) in enumerate(files):
            if canonical(file.location).startswith("file:"):
                local.append(at)
            else:
                remote[self._pool.submit(self._write, file)] = at
        self._write_local(files, local, outcomes)
        self._await_remote(files, remote, outcomes)
        return outcomes

    def _write_local(
        self,
        files: Sequence[tuple[MetadataFile, float | None]],
        local: list[int],
        outcomes: list[Exception | None],
    ) -> None:
        written: list[int] = []
        for at in local:
            try:
                self._write(files[at][0])
                written.append(at)
            except (FirnError, OSError) as error:
                outcomes[at] = error
        try:
            self._storage.sync([files[at][0].location for at in written])
        except (FirnError, OSError):
            for at in written:  # one disk of several refused: find out whose
                try:
                    self._storage.sync([files[at][0].location])
                except (FirnError, OSError) as error:
                    outcomes[at] = error

    def _await_remote(
        self,
        files: Sequence[tuple[MetadataFile, float | None]],
        remote: dict[Future[None], int],
        outcomes: list[Exception | None],
    ) -> None:
        longest = self._clock.monotonic_s() + WRITE_DEADLINE_S
        for future, at in sorted(remote.items(), key=lambda pair: files[pair[1]][1] or longest):
            wait([future], max(0.0, min(files[at][1] or longest, longest) - self._clock.monotonic_s()))
            if not future.done():
                future.cancel()
                outcomes[at] = WriteTimedOut(f"the storage did not take {files[at][0].location} in time")
            elif error := future.exception():
                outcomes[at] = cast("Exception", error)

    def _write(self, file: MetadataFile) -> None:
        self._storage.write(
            file.location, gzip.compress(file.data, 6) if ".gz.metadata.json" in file.location else file.data
        )

    def delete(self, locations: Sequence[str]) -> None:
        """Deletes metadata files; one that cannot be deleted is left to the orphan remover and logged."""
        self.forget(locations)
        for location in locations:
            try:
                self._storage.delete([location])
            except (FirnError, OSError) as error:
                log.warning("catalog.metadata_not_deleted", location=location, error=str(error))

    def delete_later(self, locations: Sequence[str]) -> None:
        """Deletes metadata files when there is time; those that are left at the end of the process are left
        to the orphan remover."""
        self._deletions.submit(self.delete, locations)

    @property
    def prefixes(self) -> list[str]:
        """The warehouse and the other prefixes where tables may lie, without those that lie inside
        another."""
        roots = sorted({prefix.rstrip("/") for prefix in self._allowed})
        return [root for root in roots if not any(root.startswith(f"{other}/") for other in roots)]

    def list(self, prefix: str) -> Iterator[StoredObject]:
        """Every file below a prefix."""
        return self._storage.list(prefix)

    def exists(self, location: str) -> bool:
        """Whether the file is there."""
        return self._storage.size(location) is not None

    def close(self) -> None:
        """Ends the threads; pending writes are given up."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._deletions.shutdown(wait=True)


def _unzipped(data: bytes, location: str) -> bytes:
    unzip = zlib.decompressobj(zlib.MAX_WBITS | 16)
    try:
        found = unzip.decompress(data, METADATA_BYTES_MAX + 1)
    except zlib.error as error:
        raise ProtocolError(
            f"{location} is damaged ({error}); restore it, or register the version before it"
        ) from error
    if len(found) > METADATA_BYTES_MAX:
        raise TooLargeError(
            f"{location} unpacks to more than {METADATA_BYTES_MAX:,} bytes; restore it, or register the "
            "version before it"
        )
    return found


def parse_metadata(data: bytes) -> dict[str, Any]:
    """The metadata as a fresh tree that may be changed."""
    return cast("dict[str, Any]", orjson.loads(data))
