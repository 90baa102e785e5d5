"""Files in the warehouse by URI: local disks and S3, one interface, durable before anybody commits to them.

Locations are spelled `file:///absolute/path` and `s3://bucket/key`. PyIceberg and Spark also write
`file:/path`, and Hadoop `s3a://`: `canonical` maps every spelling of one object to one text.
"""

import ctypes
import errno
import io
import os
import shutil
import stat
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import IO, Any, Protocol, cast
from urllib.parse import urlsplit

import obstore
from obstore.exceptions import NotFoundError as ObjectNotFoundError
from obstore.store import S3Store

from lake.errors import (
    ForeignFileError,
    NotFoundError,
    PrerequisiteError,
    SettingsError,
    TooLargeError,
    UnavailableError,
)
from lake.settings import StorageSettings

# From this many files on, one syncfs of the disk is cheaper than an fsync for each.
SYNCFS_FROM_FILES = 8
REQUESTS_AT_ONCE = 16
WRITE_BUFFER_BYTES = 128 * 1024
READ_BUFFER_BYTES = 1024 * 1024
NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class StoredObject:
    """One file as a listing shows it: canonical URI, size in bytes, time of last change (UTC).

    `etag` changes whenever the content does: the store's own, or, of a local file, its time of last change in
    nanoseconds.
    """

    uri: str
    size: int
    modified: datetime
    etag: str = ""


class Storage(Protocol):
    """What Firn asks of a warehouse. URIs may come in any spelling, canonical ones go out."""

    def write(self, uri: str, data: bytes | memoryview) -> None:
        """Writes a whole file; visible only when complete, durable only after `sync`. Raises
        UnavailableError, PrerequisiteError (disk full)."""

    def write_new(self, uri: str, data: bytes | memoryview) -> None:
        """The same under a name that is made for this file alone, like one with a fresh uuid, and that nobody
        is told before it is synced: on a disk half of it may stand under that name meanwhile, and after a
        crash. A file that is there is replaced as `write` does it."""

    def create(self, uri: str) -> Any:
        """A context manager giving a binary file to write to; complete and visible when it exits, absent when
        it fails, durable after `sync`."""

    def sync(self, uris: Sequence[str]) -> None:
        """Returns when all these files survive a power cut."""

    def read(self, uri: str, *, bytes_max: int | None = None, root: str | None = None) -> bytes:
        """The whole file, an ordinary one. Raises NotFoundError, UnavailableError.

        Raises TooLargeError, having read none of it, where it holds more than `bytes_max`, and
        ForeignFileError where a symbolic link leads out of the folder `root`, above which links may stand, or
        where it is a pipe or a device.
        """

    def read_range(self, uri: str, start: int, length: int) -> bytes:
        """`length` bytes from `start`."""

    def open(self, uri: str) -> IO[bytes]:
        """The file to read from start to end or by seeking, little of it in memory; the caller closes it.
        Raises NotFoundError, UnavailableError."""

    def size(self, uri: str) -> int | None:
        """Bytes of the file, None where it does not exist."""

    def stat(self, uri: str) -> StoredObject | None:
        """The file as a listing shows it, None where it does not exist."""

    def delete(self, uris: Iterable[str], *, root: str | None = None) -> None:
        """Deletes files; those that do not exist count as deleted. Raises ForeignFileError where a symbolic
        link leads out of the folder `root`."""

    def list(self, prefix: str) -> Iterator[StoredObject]:
        """Every file below a prefix, which is taken as a directory (a trailing slash is implied)."""

    def prune(self, prefix: str, is_old: Callable[[datetime], bool]) -> int:
        """Removes the empty folders below a prefix, and its own, whose last change is old, and returns how
        many. Who writes into one makes it again."""


def canonical(uri: str) -> str:
    """One spelling per object: `file:/x`, `file://localhost/x` and `/x` become `file:///x`; `s3a://` and
    `s3n://` become `s3://`."""
    if uri.startswith("s3://") or (uri.startswith("file:///") and not uri.startswith("file:////")):
        return uri
    if uri.startswith("/"):
        return f"file:///{uri.lstrip('/')}"
    scheme, colon, rest = uri.partition(":")
    if not colon:
        raise SettingsError(f"{uri!r} is not a location; use file:///path or s3://bucket/prefix")
    if scheme == "file":
        path = rest.removeprefix("//localhost") if rest.startswith("//localhost/") else rest
        return f"file:///{path.lstrip('/')}"
    if scheme in ("s3", "s3a", "s3n"):
        return f"s3:{rest}"
    raise SettingsError(f"{uri!r} has the unknown scheme {scheme!r}; use file:///path or s3://bucket/prefix")


def open_storage(settings: StorageSettings | None = None) -> "AnyStorage":
    """Storage for local files and S3 alike, chosen by each URI's scheme."""
    return AnyStorage(settings or StorageSettings.load())


class AnyStorage:
    """Sends each URI to the storage of its scheme."""

    def __init__(self, settings: StorageSettings) -> None:
        self._settings = settings
        self._local = LocalStorage()

    @cached_property
    def _s3(self) -> "S3Storage":
        return S3Storage(self._settings)

    def _for(self, uri: str) -> "LocalStorage | S3Storage":
        return self._s3 if canonical(uri).startswith("s3:") else self._local

    def write(self, uri: str, data: bytes | memoryview) -> None:
        self._for(uri).write(uri, data)

    def write_new(self, uri: str, data: bytes | memoryview) -> None:
        self._for(uri).write_new(uri, data)

    def create(self, uri: str) -> Any:
        return self._for(uri).create(uri)

    def sync(self, uris: Sequence[str]) -> None:
        self._local.sync([uri for uri in uris if canonical(uri).startswith("file:")])

    def read(self, uri: str, *, bytes_max: int | None = None, root: str | None = None) -> bytes:
        return self._for(uri).read(uri, bytes_max=bytes_max, root=root)

    def read_range(self, uri: str, start: int, length: int) -> bytes:
        return self._for(uri).read_range(uri, start, length)

    def open(self, uri: str) -> IO[bytes]:
        return self._for(uri).open(uri)

    def size(self, uri: str) -> int | None:
        return self._for(uri).size(uri)

    def stat(self, uri: str) -> StoredObject | None:
        return self._for(uri).stat(uri)

    def delete(self, uris: Iterable[str], *, root: str | None = None) -> None:
        by_store: dict[int, list[str]] = {}
        for uri in uris:
            by_store.setdefault(id(self._for(uri)), []).append(uri)
        for group in by_store.values():
            self._for(group[0]).delete(group, root=root)

    def list(self, prefix: str) -> Iterator[StoredObject]:
        return self._for(prefix).list(prefix)

    def prune(self, prefix: str, is_old: Callable[[datetime], bool]) -> int:
        return self._for(prefix).prune(prefix, is_old)

    def write_all(self, files: Sequence[tuple[str, bytes]]) -> None:
        """Writes many small files as `write_new` does, requests overlapping where that helps, and syncs them
        once."""
        if any(canonical(uri).startswith("s3:") for uri, _ in files):
            with ThreadPoolExecutor(REQUESTS_AT_ONCE) as pool:
                list(pool.map(lambda file: self.write_new(*file), files))
        else:
            for uri, data in files:
                self.write_new(uri, data)
        self.sync([uri for uri, _ in files])


class LocalStorage:
    """Files of this machine. A write goes to a temporary name and is renamed, so that nobody ever reads half
    a file; for a small one of which nobody knows that is most of the work.

    Folders that a write makes become durable with the files in them: when an hour begins, thousands of tables
    get a new one, and one call syncs many.
    """

    def __init__(self) -> None:
        self._new_in: dict[
            str, int
            # folders in which others were made since they were synced, and the number of the last of these
        ] = {}
        self._made = 0
        self._lock = threading.Lock()

    def write(self, uri: str, data: bytes | memoryview) -> None:
        with self._create(uri, buffering=0) as file:
            rest = memoryview(data)
            while rest:
                rest = rest[file.write(rest) :]

    def write_new(self, uri: str, data: bytes | memoryview) -> None:
        path = local_text(uri)
        with _disk_errors(path):
            try:
                descriptor = os.open(path, NEW_FILE, 0o666)
            except FileNotFoundError:
                self._make_folder(os.path.dirname(path))
                descriptor = os.open(path, NEW_FILE, 0o666)
            except FileExistsError:  # what came of an earlier attempt may be known to others
                self.write(uri, data)
                return
            try:
                rest = memoryview(data)
                while rest:
                    rest = rest[os.write(descriptor, rest) :]
            except BaseException:
                os.unlink(path)
                raise
            finally:
                os.close(descriptor)

    def create(self, uri: str) -> Any:
        return self._create(uri, WRITE_BUFFER_BYTES)

    @contextmanager
    def _create(self, uri: str, buffering: int) -> Iterator[IO[bytes]]:
        path = local_text(uri)
        with _disk_errors(path):
            try:
                file = _temporary(path, buffering)
            except FileNotFoundError:
                self._make_folder(os.path.dirname(path))
                file = _temporary(path, buffering)
            try:
                with file:
                    yield file
                os.rename(file.name, path)
            except BaseException:
                with suppress(FileNotFoundError):
                    os.unlink(file.name)
                raise

    def sync(self, uris: Sequence[str]) -> None:
        paths = [local_text(uri) for uri in uris]
        if not paths:
            return
        own = {os.path.dirname(path) for path in paths}
        with self._lock:
            folders = _with_those_above(own) if self._new_in else ()
            above = {folder: self._new_in[folder] for folder in folders if folder in self._new_in}
        with _disk_errors(paths[0]):
            if len(paths) >= SYNCFS_FROM_FILES:
                # The rename is on the same disk as the file: one call covers both.
                for folder in {os.stat(folder).st_dev: folder for folder in own | above.keys()}.values():
                    _syncfs(folder)
            else:
                for path in [*paths, *(own | above.keys())]:
                    _fsync(path)
        with self._lock:
            for folder in [folder for folder, made in above.items() if self._new_in.get(folder) == made]:
                del self._new_in[folder]

    def _make_folder(self, folder: str) -> None:
        """Makes a folder and those above it that are missing. What is to be synced for them is noted before
        another thread can find them."""
        missing: list[str] = []
        at = folder
        while not os.path.isdir(at):
            missing.append(at)
            at = os.path.dirname(at)
        with self._lock:
            self._made += 1
            self._new_in |= {os.path.dirname(made): self._made for made in missing}
        for made in reversed(missing):
            try:
                os.mkdir(made)
            except FileExistsError:  # another thread was faster
                continue
            except FileNotFoundError:  # the one above had been empty for long, and was pruned just now
                self._make_folder(made)

    def read(self, uri: str, *, bytes_max: int | None = None, root: str | None = None) -> bytes:
        path = local_text(uri)
        with _disk_errors(path):
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
            try:
                status = os.fstat(descriptor)
                if stat.S_ISDIR(status.st_mode):
                    raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
                if not stat.S_ISREG(status.st_mode):
                    raise ForeignFileError(
                        f"{path} is no ordinary file; put the file back, or take away what names it"
                    )
                if root is not None:
                    _check_real(descriptor, path, root)
                return _content(descriptor, path, status.st_size, bytes_max)
            finally:
                os.close(descriptor)

    def read_range(self, uri: str, start: int, length: int) -> bytes:
        with _disk_errors(local_path(uri)), local_path(uri).open("rb") as file:
            file.seek(start)
            return file.read(length)

    def open(self, uri: str) -> IO[bytes]:
        with _disk_errors(local_path(uri)):
            return local_path(uri).open("rb")

    def size(self, uri: str) -> int | None:
        path = local_path(uri)
        with _disk_errors(path):
            try:
                return path.stat().st_size
            except (FileNotFoundError, NotADirectoryError):
                return None

    def stat(self, uri: str) -> StoredObject | None:
        path = local_path(uri)
        try:
            return _stored(path) if path.is_file() else None
        except FileNotFoundError:  # deleted just now
            return None

    def delete(self, uris: Iterable[str], *, root: str | None = None) -> None:
        for uri in uris:
            path = local_text(uri)
            with suppress(FileNotFoundError), _disk_errors(path, missing_is_fine=True):
                if root is None:
                    os.unlink(path)
                else:
                    _unlink_below(path, root)

    def list(self, prefix: str) -> Iterator[StoredObject]:
        for folder, _, names in os.walk(local_path(prefix)):
            for name in names:
                path = Path(folder, name)
                with suppress(FileNotFoundError):  # deleted while we were listing
                    yield _stored(path)

    def prune(self, prefix: str, is_old: Callable[[datetime], bool]) -> int:
        removed = 0
        for folder, _, names in os.walk(local_path(prefix), topdown=False):
            with suppress(OSError):  # somebody has written into it, or it is gone
                if not names and is_old(datetime.fromtimestamp(os.stat(folder).st_mtime, UTC)):
                    os.rmdir(folder)
                    removed += 1
        return removed


class S3Storage:
    """Objects of an S3-compatible store; a put is durable when it is acknowledged."""

    def __init__(self, settings: StorageSettings) -> None:
        self._settings = settings
        self._stores: dict[str, S3Store] = {}

    def _at(self, uri: str) -> tuple[S3Store, str]:
        parts = urlsplit(canonical(uri), allow_fragments=False)
        bucket = parts.netloc
        if bucket not in self._stores:
            self._stores[bucket] = self._open(bucket)
        return self._stores[bucket], canonical(uri).removeprefix(f"s3://{bucket}/")

    def _open(self, bucket: str) -> S3Store:
        settings, s3 = self._settings, self._settings.s3
        config: dict[str, Any] = {"region": s3.region, "virtual_hosted_style_request": not s3.path_style}
        if s3.endpoint:
            config["endpoint"] = s3.endpoint
        if s3.access_key_id and s3.secret_access_key:
            config["access_key_id"] = s3.access_key_id
            config["secret_access_key"] = s3.secret_access_key.get_secret_value()
        options: dict[str, Any] = {
            "timeout": timedelta(seconds=settings.request_timeout_s),
            "allow_http": bool(s3.endpoint and s3.endpoint.startswith("http:")),
        }
        return S3Store(bucket, config=cast("Any", config), client_options=cast("Any", options))

    def write(self, uri: str, data: bytes | memoryview) -> None:
        store, key = self._at(uri)
        with _s3_errors(uri):
            obstore.put(store, key, bytes(data))

    def write_new(self, uri: str, data: bytes | memoryview) -> None:
        self.write(uri, data)

    @contextmanager
    def create(self, uri: str) -> Iterator[IO[bytes]]:
        # An aborted multipart upload would leave parts behind that nobody lists, so the file is put together
        # on the disk first.
        with tempfile.TemporaryFile() as file:
            yield cast("IO[bytes]", file)
            file.seek(0)
            store, key = self._at(uri)
            with _s3_errors(uri):
                obstore.put(store, key, cast("Any", file))

    def sync(self, uris: Sequence[str]) -> None:
        """Nothing to do: an acknowledged put is durable."""

    def read(self, uri: str, *, bytes_max: int | None = None, root: str | None = None) -> bytes:  # noqa: ARG002 - an object store has no links
        store, key = self._at(uri)
        with _s3_errors(uri):
            answer = obstore.get(store, key)  # its body is fetched when it is asked for
            if bytes_max is not None and answer.meta["size"] > bytes_max:
                raise _too_large(uri, answer.meta["size"], bytes_max)
            return bytes(answer.bytes())

    def read_range(self, uri: str, start: int, length: int) -> bytes:
        store, key = self._at(uri)
        with _s3_errors(uri):
            return bytes(obstore.get_range(store, key, start=start, length=length))

    def open(self, uri: str) -> IO[bytes]:
        store, key = self._at(uri)
        with _s3_errors(uri):
            reader = obstore.open_reader(store, key, buffer_size=READ_BUFFER_BYTES)
        return io.BufferedReader(_ObjectFile(uri, reader), READ_BUFFER_BYTES)

    def size(self, uri: str) -> int | None:
        found = self.stat(uri)
        return None if found is None else found.size

    def stat(self, uri: str) -> StoredObject | None:
        store, key = self._at(uri)
        try:
            with _s3_errors(uri):
                meta = obstore.head(store, key)
        except NotFoundError:
            return None
        return StoredObject(canonical(uri), meta["size"], meta["last_modified"], meta["e_tag"] or "")

    def delete(self, uris: Iterable[str], *, root: str | None = None) -> None:  # noqa: ARG002
        by_store: dict[int, tuple[S3Store, list[str]]] = {}
        for uri in uris:
            store, key = self._at(uri)
            by_store.setdefault(id(store), (store, []))[1].append(key)
        for store, keys in by_store.values():
            with suppress(NotFoundError), _s3_errors(keys[0]):
                obstore.delete(store, keys)

    def list(self, prefix: str) -> Iterator[StoredObject]:
        store, key = self._at(prefix.rstrip("/") + "/")
        bucket = urlsplit(canonical(prefix)).netloc
        with _s3_errors(prefix):
            for batch in obstore.list(store, key):
                for meta in batch:
                    yield StoredObject(
                        f"s3://{bucket}/{meta['path']}",
                        meta["size"],
                        meta["last_modified"],
                        meta["e_tag"] or "",
                    )

    def prune(self, prefix: str, is_old: Callable[[datetime], bool]) -> int:  # noqa: ARG002 - it has no folders
        return 0


class _ObjectFile(io.RawIOBase):
    """An object of a store as Python's readers want it."""

    def __init__(self, uri: str, reader: Any) -> None:
        super().__init__()
        self._uri, self._reader = uri, reader

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return int(self._reader.seek(offset, whence))

    def tell(self) -> int:
        return int(self._reader.tell())

    def readinto(self, buffer: Any) -> int:
        with _s3_errors(self._uri):
            data = bytes(self._reader.read(len(buffer)))
        buffer[: len(data)] = data
        return len(data)


def _stored(path: Path) -> StoredObject:
    stat = path.stat()
    return StoredObject(
        f"file://{path}", stat.st_size, datetime.fromtimestamp(stat.st_mtime, UTC), str(stat.st_mtime_ns)
    )


def local_path(uri: str) -> Path:
    """The path behind a local URI. Raises SettingsError for any other scheme."""
    return Path(local_text(uri))


def local_text(uri: str) -> str:
    """The same as text. Raises SettingsError."""
    # Where thousands of small files are written, the handling of `Path` costs as much as the system calls.
    location = canonical(uri)
    if not location.startswith("file://"):
        raise SettingsError(f"{uri!r} is not a local file")
    return location.removeprefix("file://")


def check_links(path: str, root: str) -> None:
    """Raises ForeignFileError where a symbolic link leads from a path of this machine out of the folder
    `root`. What stands above `root` may be a link."""
    if os.path.realpath(path) != _without_links(path, root):
        raise _leads_out(path, root)


def _check_real(descriptor: int, path: str, root: str) -> None:
    """The same of a file or folder that is open, which nobody can exchange any more."""
    try:
        real = os.readlink(f"/proc/self/fd/{descriptor}")
    except OSError:  # a machine without /proc
        real = os.path.realpath(path)
    if real.endswith(" (deleted)"):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
    # Where there are no links at all, which is the rule, nothing has to be resolved.
    if (real != path or not path.startswith(f"{local_text(root).rstrip('/')}/")) and real != _without_links(
        path, root
    ):
        raise _leads_out(path, root)


def _without_links(path: str, root: str) -> str | None:
    """Where a path lies if neither `root` itself nor anything below it is a link; None where it is not below
    it."""
    folder = local_text(root).rstrip("/")
    if path != folder and not path.startswith(f"{folder}/"):
        return None
    above = os.path.dirname(folder).rstrip("/")
    return os.path.realpath(above or "/").rstrip("/") + path[len(above) :]


def _leads_out(path: str, root: str) -> ForeignFileError:
    return ForeignFileError(
        f"{path} is reached by a symbolic link that leads out of {local_text(root)}; put the file in the "
        "place of the link"
    )


def _unlink_below(path: str, root: str) -> None:
    folder = os.path.dirname(path)
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        _check_real(descriptor, folder, root)
        os.unlink(os.path.basename(path), dir_fd=descriptor)
    finally:
        os.close(descriptor)


def _content(descriptor: int, path: str, size: int, bytes_max: int | None) -> bytes:
    if bytes_max is not None and size > bytes_max:
        raise _too_large(path, size, bytes_max)
    parts, read = list[bytes](), 0
    while part := os.read(descriptor, READ_BUFFER_BYTES if read else size + 1):
        parts.append(part)
        read += len(part)
        if bytes_max is not None and read > bytes_max:  # it grows while it is read
            raise _too_large(path, read, bytes_max)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _too_large(name: str, size: int, bytes_max: int) -> TooLargeError:
    return TooLargeError(
        f"{name} holds {size:,} bytes, more than the {bytes_max:,} that are read of such a file; restore it, "
        "or roll the table back"
    )


def _temporary(path: str, buffering: int) -> IO[bytes]:
    # Not `tempfile`: its files are readable by their owner only, and Trino often runs as another user.
    return open(f"{os.path.dirname(path)}/.tmp-{os.urandom(16).hex()}", "xb", buffering=buffering)


def _with_those_above(folders: Iterable[str]) -> set[str]:
    found = set[str]()
    for folder in folders:
        while folder not in found:
            found.add(folder)
            folder = os.path.dirname(folder)
    return found


def _fsync(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _syncfs(folder: str) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        if ctypes.CDLL(None, use_errno=True).syncfs(descriptor) != 0:
            raise OSError(ctypes.get_errno(), "syncfs failed", folder)
    finally:
        os.close(descriptor)


@contextmanager
def _disk_errors(path: str | Path, *, missing_is_fine: bool = False) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        if missing_is_fine:
            raise
        raise NotFoundError(f"{path} does not exist") from error
    except OSError as error:
        if error.errno in (28, 122):  # ENOSPC, EDQUOT
            folder = next(folder for folder in Path(path).parents if folder.is_dir())
            free = shutil.disk_usage(folder).free
            raise PrerequisiteError(
                f"the disk that holds {folder} is full ({free:,} bytes free); free space, then Firn goes on "
                "by itself"
            ) from error
        raise UnavailableError(f"{path}: {error.strerror}") from error


@contextmanager
def _s3_errors(uri: str) -> Iterator[None]:
    try:
        yield
    except (FileNotFoundError, ObjectNotFoundError) as error:
        raise NotFoundError(f"{uri} does not exist") from error
    except (OSError, obstore.exceptions.BaseError) as error:
        raise UnavailableError(f"{uri}: {error}") from error
