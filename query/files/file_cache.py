"""Data files as paths on this machine: local ones as they are, those on S3 fetched once. Data files never
change, so a copy is never stale."""

import hashlib
import shutil
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from lake.clock import SYSTEM_CLOCK, Clock
from lake.errors import ForeignFileError, TooLargeError
from lake.storage import Storage, canonical, local_text
from lake.table_files import check_ordinary
from lake.table_location import TableLocation

FETCHES_AT_ONCE = 8
FETCH_BYTES_MAX = 16 * 1024**3
COPY_BYTES = 1024**2
FOLDERS_CHECKED_S = 10.0
# DuckDB takes a path with these for a pattern of many.
_WILD = frozenset("*?[")


class FileCache:
    """Keeps fetched files up to a number of bytes, the ones unused for longest going first. Thread-safe."""

    def __init__(self, storage: Storage, folder: Path, bytes_max: int, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._storage = storage
        self._folder = folder
        self._bytes_max = bytes_max
        self._lock = threading.Lock()
        self._fetching: dict[str, threading.Lock] = {}
        self._folders: set[str] = set()
        self._folders_until_s = 0.0

    def local_paths(self, uris: Sequence[str], table_location: TableLocation) -> list[str]:
        """A path for each data file of the table that lies there. Raises ForeignFileError, NotFoundError,
        UnavailableError."""
        _check(uris, table_location, self._checked_folders())
        remote = [uri for uri in uris if not canonical(uri).startswith("file:")]
        if not remote:
            return [local_text(uri) for uri in uris]
        self._folder.mkdir(parents=True, exist_ok=True)
        with ThreadPoolExecutor(FETCHES_AT_ONCE) as pool:
            fetched = dict(zip(remote, pool.map(self._fetched, remote), strict=True))
        self._shrink(keep=set(fetched.values()))
        return [str(fetched[uri]) if uri in fetched else local_text(uri) for uri in uris]

    def _checked_folders(self) -> set[str]:
        """Folders that no link led to a moment ago: one search after the other reads the same ones."""
        now_s = self._clock.monotonic_s()
        if now_s >= self._folders_until_s:
            self._folders, self._folders_until_s = set(), now_s + FOLDERS_CHECKED_S
        return self._folders

    def forget(self, uris: Sequence[str]) -> None:
        """Removes the copies of files whose rows must not stay anywhere."""
        for uri in uris:
            self._copy(uri).unlink(missing_ok=True)

    def _copy(self, uri: str) -> Path:
        return self._folder / f"{hashlib.sha256(canonical(uri).encode()).hexdigest()}.parquet"

    def _fetched(self, uri: str) -> Path:
        path = self._copy(uri)
        with self._lock:
            alone = self._fetching.setdefault(uri, threading.Lock())
        with alone:
            if path.exists():
                path.touch()
            else:
                temporary = path.with_suffix(f".{threading.get_ident()}")
                self._fetch(uri, temporary)
                temporary.rename(path)
        with self._lock:
            self._fetching.pop(uri, None)
        return path

    def _fetch(self, uri: str, path: Path) -> None:
        size = self._storage.size(uri)
        if size is not None and size > FETCH_BYTES_MAX:
            raise TooLargeError(
                f"{uri} holds {size:,} bytes, more than the {FETCH_BYTES_MAX:,} that are fetched of a data "
                "file; ask with engine=trino"
            )
        with self._storage.open(uri) as source, path.open("wb") as target:
            shutil.copyfileobj(source, target, COPY_BYTES)

    def _shrink(self, keep: set[Path]) -> None:
        with self._lock:
            files = sorted(
                (path.stat().st_mtime, path.stat().st_size, path) for path in self._folder.glob("*.parquet")
            )
            held = sum(size for _, size, _ in files)
            for _, size, path in files:
                if held <= self._bytes_max:
                    return
                if path not in keep:
                    path.unlink(missing_ok=True)  # a query that has it open keeps reading it
                    held -= size


def _check(uris: Sequence[str], table_location: TableLocation, folders: set[str]) -> None:
    """Raises ForeignFileError unless every file is the table's own, and those of this machine are ordinary
    files that no link leads to."""
    for uri in uris:
        root = table_location.check(uri)
        check_ordinary(table_location, uri, folders)
        if not _WILD.isdisjoint(uri[len(root) :]):
            raise ForeignFileError(
                f"{uri} reads as a pattern of many files; roll the table at {table_location.location} back"
            )
