"""The key indexes on this machine's disk, within a number of bytes. Nothing is lost with them: what is not
there is made from the key's columns of its data file.

Several processes may share the folder: files are replaced as a whole, and two that make the same index write
the same bytes.
"""

import errno
import hashlib
import os
import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import numpy as np
import orjson
import structlog

from ingest.keys.key_columns import open_key_columns
from ingest.keys.key_hash import KeyHashes, hash_keys
from ingest.keys.key_index_file import TEMPORARY, KeyIndex, Unusable, make_index, open_index, write_index
from lake.clock import SYSTEM_CLOCK, Clock
from lake.errors import PrerequisiteError, UnavailableError
from lake.private_files import OTHERS, close, private_folder
from lake.storage import Storage, canonical

log = structlog.get_logger()

OPEN_MAX = 256  # each open index holds a file descriptor
# Other processes write into the folder too: it is looked through after each such share of its budget.
SHARE_UNSEEN = 16
LEFT_BEHIND_S = 3_600.0
_SUFFIX = ".keys"


@dataclass(frozen=True, slots=True)
class KeyedFile:
    """One live data file of a keyed table, and the field ids of the table's key, in the order of the key."""

    table_uuid: UUID
    uri: str
    size_bytes: int
    key_ids: tuple[int, ...]

    def identity(self) -> bytes:
        """A digest (32 bytes) of all that an index depends on."""
        parts = [str(self.table_uuid), canonical(self.uri), self.size_bytes, self.key_ids]
        return hashlib.sha256(orjson.dumps(parts)).digest()


@dataclass(slots=True)
class StoreCounts:
    """What a store did since it was made: indexes found on disk, made from their data files, found damaged
    (and made again), removed to keep within the budget."""

    found: int = 0
    made: int = 0
    damaged: int = 0
    removed: int = 0


class KeyIndexStore:
    """Keeps the indexes of data files in one private folder of at most `bytes_max`, the ones unused for
    longest going first. Thread-safe."""

    def __init__(
        self,
        storage: Storage,
        folder: Path,
        bytes_max: int,
        *,
        open_max: int = OPEN_MAX,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.counts = StoreCounts()
        self._storage = storage
        self._folder = folder
        self._bytes_max = bytes_max
        self._open_max = open_max
        self._clock = clock
        self._lock = threading.Lock()
        self._open: OrderedDict[Path, KeyIndex] = OrderedDict()
        self._unseen_bytes = bytes_max  # what is there from before is not known
        with _disk_errors(folder):
            close(private_folder(folder))
            _check_owner(folder)

    def index_of(self, file: KeyedFile) -> KeyIndex:
        """The index of a data file: the one that is open, the one on disk, or one made now.

        Raises NotFoundError, UnavailableError; ProtocolError where the data file cannot be read or lacks the
        key; PrerequisiteError where the disk is full.
        """
        path = self._path(file)
        with self._lock:
            index = self._open.get(path)
        if index is None:
            index = self._on_disk(path, file) or self._made(file)
        self._used(path, index)
        return index

    def put(self, file: KeyedFile, hashes: KeyHashes) -> KeyIndex:
        """Keeps the index of a file that was just written, from the hashes of its rows in their order.
        Raises PrerequisiteError, UnavailableError."""
        path, identity = self._path(file), file.identity()
        made = make_index(hashes)
        with _disk_errors(path):
            write_index(path, made, identity)
            # The mapped one takes no memory while nobody uses it.
            index = open_index(path, identity)
            self._keep_within_budget(path)
        if not isinstance(index, KeyIndex):  # removed by another process meanwhile
            index = made
        self._used(path, index)
        return index

    def forget(self, file: KeyedFile) -> None:
        """Removes the index of a file whose keys must not stay anywhere."""
        self._remove(self._path(file))

    def _path(self, file: KeyedFile) -> Path:
        return self._folder / f"{file.table_uuid}-{file.identity().hex()}{_SUFFIX}"

    def _on_disk(self, path: Path, file: KeyedFile) -> KeyIndex | None:
        with _disk_errors(path):
            index = open_index(path, file.identity())
        if isinstance(index, Unusable):
            self.counts.damaged += 1
            log.warning("key_index.unusable", path=str(path), data_file=file.uri, reason=index.reason)
            return None
        if index is not None:
            self.counts.found += 1
        return index

    def _made(self, file: KeyedFile) -> KeyIndex:
        self.counts.made += 1
        return self.put(file, hashes_of_file(self._storage, file))

    def _used(self, path: Path, index: KeyIndex) -> None:
        # The time of last use is that of the file, so that all who share the folder know it.
        with suppress(OSError):
            os.utime(path)
        with self._lock:
            self._open[path] = index
            self._open.move_to_end(path)
            while len(self._open) > self._open_max:
                self._open.popitem(last=False)

    def _keep_within_budget(self, written: Path) -> None:
        with suppress(FileNotFoundError):
            self._unseen_bytes += written.stat().st_size
        share = self._bytes_max // SHARE_UNSEEN
        if self._unseen_bytes < share:
            return
        self._unseen_bytes = 0
        self._remove_abandoned()
        entries = sorted(_entries(self._folder))
        held = sum(size for _, size, _ in entries)
        for _, size, path in entries:
            if held <= self._bytes_max - share:
                return
            if path != written:
                self._remove(path)  # who has it mapped keeps reading it
                self.counts.removed += 1
                held -= size

    def _remove_abandoned(self) -> None:
        """Removes what processes left behind that died while they wrote."""
        before_ns = int((self._clock.now().timestamp() - LEFT_BEHIND_S) * 1e9)
        for path in self._folder.glob(f"{TEMPORARY}*"):
            with suppress(FileNotFoundError):
                if path.stat().st_mtime_ns < before_ns:
                    path.unlink()

    def _remove(self, path: Path) -> None:
        with self._lock:
            self._open.pop(path, None)
        with _disk_errors(path), suppress(FileNotFoundError):
            path.unlink()


def hashes_of_file(storage: Storage, file: KeyedFile) -> KeyHashes:
    """Hashes the keys of a data file's rows, in their order; reads only the key's columns. Raises
    NotFoundError, UnavailableError, ProtocolError."""
    with open_key_columns(storage, file.uri, file.key_ids) as columns:
        parts = [hash_keys(batch) for batch in columns.batches()]
    none = np.empty(0, np.uint64)
    high = np.concatenate([none, *(part.high for part in parts)])
    return KeyHashes(high, np.concatenate([none, *(part.low for part in parts)]))


def _entries(folder: Path) -> Iterator[tuple[int, int, Path]]:
    """Time of last use in ns, bytes and path of each index."""
    for path in folder.glob(f"*{_SUFFIX}"):
        with suppress(FileNotFoundError):  # removed by another process just now
            status = path.stat()
            yield status.st_mtime_ns, status.st_size, path


def _check_owner(folder: Path) -> None:
    """Raises PrerequisiteError for a folder whose files somebody else may exchange: an index decides which
    rows a change replaces."""
    found = folder.stat()
    if found.st_uid != os.geteuid() or found.st_mode & OTHERS:
        raise PrerequisiteError(
            f"the folder of the key indexes, {folder}, belongs to another user or is open to others; name "
            "one of this user's by key_index.folder"
        )


@contextmanager
def _disk_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise PrerequisiteError(
                f"the disk that holds the key indexes in {path.parent} is full; free space, or give the "
                "indexes fewer bytes"
            ) from error
        raise UnavailableError(f"{path}: {error.strerror}") from error
