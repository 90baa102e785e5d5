"""The packs of token filters on this machine, some for each table and week. Nothing is in them that is not
in the data files: one that is lost or damaged is made anew.

They stay within a number of bytes, the ones unused for longest going first. A pack is never changed, only
replaced, so whoever has one open reads on.
"""

import os
import re
import threading
from collections import OrderedDict, defaultdict
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import structlog

from lake.metrics import FILTER_PACK_BYTES
from lake.private_files import private_folder
from query.files.filter_pack import LEAD_BYTES, DamagedPackError, PackHeader, Read, parse_header, parse_lead

log = structlog.get_logger()
# What a pack takes on disk at least.
DISK_BLOCK_BYTES = 4_096
HEADERS_FILES_MAX = 200_000
# Files that were erased and may still be asked about by a search that began before.
FORGOTTEN_MAX = 100_000
_NAME = re.compile(r"-?[0-9]+\.[0-9]+\.pack")


class PackFolder:
    """Thread-safe. A table is known by its key, a name of letters and digits."""

    def __init__(self, folder: Path, bytes_max: int) -> None:
        self._folder = folder
        self._bytes_max = bytes_max
        self._lock = threading.Lock()
        self._sizes: OrderedDict[Path, int] = OrderedDict()  # the last one was used last
        self._held = 0
        self._weeks: dict[str, dict[int, set[Path]]] = defaultdict(lambda: defaultdict(set))
        self._headers: OrderedDict[Path, PackHeader] = OrderedDict()
        self._headers_files = 0
        self._forgotten: OrderedDict[str, None] = OrderedDict()
        self._find()

    def packs(self, table: str, week: int) -> list[Path]:
        with self._lock:
            return sorted(self._weeks.get(table, {}).get(week, ()))

    def weeks(self, table: str) -> list[int]:
        """The weeks of which there are packs."""
        with self._lock:
            return list(self._weeks.get(table, {}))

    @contextmanager
    def opened(self, path: Path, table: str) -> Iterator[tuple[PackHeader, Read]]:
        """A pack of the table. Raises DamagedPackError, FileNotFoundError; then it is gone."""
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError as error:
            self.remove(path)
            raise FileNotFoundError(path) from error
        try:
            yield self._header(path, descriptor, table), _reader(descriptor)
        except DamagedPackError as error:
            log.warning("query.filter_pack_lost", path=str(path), error=str(error))
            self.remove(path)
            raise
        finally:
            os.close(descriptor)

    def write(
        self, table: str, week: int, pack: bytes, uris: Collection[str], instead_of: Sequence[Path]
    ) -> None:
        """Keeps a pack with the filters of these files; the others go. Raises OSError."""
        folder = private_folder(private_folder(self._folder) / table)
        temporary = folder / f".{threading.get_ident()}"
        try:
            temporary.write_bytes(pack)
        except OSError:
            temporary.unlink(missing_ok=True)  # a disk that is full gets its room back
            raise
        with self._lock:
            if not self._forgotten.keys().isdisjoint(uris):  # erased meanwhile
                temporary.unlink()
                return
            number = max((_number_of(each) for each in self._weeks[table][week]), default=-1) + 1
            path = folder / f"{week}.{number}.pack"
            temporary.rename(path)
            self._add(path, len(pack))
            for old in instead_of:
                self._drop(old)
            while self._held > self._bytes_max and self._sizes:
                self._drop(next(iter(self._sizes)))
            FILTER_PACK_BYTES.set(self._held)

    def remove(self, path: Path) -> None:
        with self._lock:
            self._drop(path)
            FILTER_PACK_BYTES.set(self._held)

    def forget(self, uris: Sequence[str]) -> None:
        """Removes every pack with the filter of one of these files, whose rows must not stay anywhere, and
        takes none any more."""
        gone = frozenset(uris)
        with self._lock:
            self._forgotten |= dict.fromkeys(uris)
            while len(self._forgotten) > FORGOTTEN_MAX:
                self._forgotten.popitem(last=False)
            paths = list(self._sizes)
        for path in paths:
            with (
                suppress(DamagedPackError, FileNotFoundError),
                self.opened(path, path.parent.name) as (header, _),
            ):
                if not gone.isdisjoint(header.uris):
                    self.remove(path)

    def _find(self) -> None:
        found = []
        for path in self._folder.glob("*/*"):
            with suppress(OSError):
                if _NAME.fullmatch(path.name):
                    status = path.stat()
                    found.append((status.st_mtime, status.st_size, path))
                else:  # a process ended while it wrote
                    path.unlink()
        for _, size, path in sorted(found):
            self._add(path, size)
        FILTER_PACK_BYTES.set(self._held)

    def _add(self, path: Path, size_bytes: int) -> None:
        self._sizes[path] = max(size_bytes, DISK_BLOCK_BYTES)
        self._held += self._sizes[path]
        self._weeks[path.parent.name][_week_of(path)].add(path)

    def _drop(self, path: Path) -> None:
        path.unlink(missing_ok=True)
        self._held -= self._sizes.pop(path, 0)
        self._headers_files -= len(header.uris) if (header := self._headers.pop(path, None)) else 0
        table, week = path.parent.name, _week_of(path)
        weeks = self._weeks[table]
        weeks[week].discard(path)
        if not weeks[week]:
            del weeks[week]
        if not weeks:
            del self._weeks[table]
            with suppress(OSError):  # somebody writes into it just now
                path.parent.rmdir()

    def _header(self, path: Path, descriptor: int, table: str) -> PackHeader:
        pack_id, _ = parse_lead(os.pread(descriptor, LEAD_BYTES, 0))
        with self._lock:
            header = self._headers.get(path)
            if path in self._sizes:
                self._sizes.move_to_end(path)
            if header is not None and header.id == pack_id and header.table == table:
                self._headers.move_to_end(path)
                return header
        header = parse_header(_reader(descriptor), table, os.fstat(descriptor).st_size)
        os.utime(descriptor)
        with self._lock:
            if path in self._sizes:
                before = self._headers.pop(path, None)
                self._headers[path] = header
                self._headers_files += len(header.uris) - (len(before.uris) if before else 0)
            while self._headers_files > HEADERS_FILES_MAX and len(self._headers) > 1:
                self._headers_files -= len(self._headers.popitem(last=False)[1].uris)
        return header


def _week_of(path: Path) -> int:
    return int(path.name.split(".")[0])


def _number_of(path: Path) -> int:
    return int(path.name.split(".")[1])


def _reader(descriptor: int) -> Read:
    def read(offset: int, length: int) -> bytes:
        return os.pread(descriptor, length, offset)

    return read
