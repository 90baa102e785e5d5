"""Events on this machine until Kafka has them: files of lines in a private folder, of which one process at a
time is the writer.

    writer              the chain's name, made once
    lock                held by the process that writes
    000...017.ndjson    events, the first of which has sequence 17; the newest file stays, since its last line
                        is the chain's head
    sent                the sequence up to which the topic has acknowledged
"""

import errno
import fcntl
import os
import secrets
import socket
import threading
from collections.abc import Sequence
from itertools import islice, pairwise
from pathlib import Path
from typing import NamedTuple

from lake.audit.event import Fields, Head, head_of, make_event
from lake.clock import SYSTEM_CLOCK, Clock
from lake.errors import PrerequisiteError, UnavailableError
from lake.private_files import private_folder

SEGMENT_BYTES = 4 * 1024 * 1024
BATCH_BYTES = 1024 * 1024
FOR_ALL = 0.9  # of the room
SUFFIX = ".ndjson"


class TrailLostError(UnavailableError):
    """An event could not be written where it would last."""


class Place(NamedTuple):
    """A byte of a file, which is named by the sequence of its first event."""

    first: int
    at: int


class Batch(NamedTuple):
    """Events as lines, the sequence of the last, and where that ends."""

    lines: Sequence[bytes]
    last: int
    end: Place


class Spool:
    """The chain of this process and its files. Thread-safe."""

    def __init__(
        self,
        folder: Path,
        bytes_max: int,
        *,
        segment_bytes: int = SEGMENT_BYTES,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """Goes on where the folder's chain ends; a line that a crash left half-written is no event. Raises
        PrerequisiteError where the folder cannot be used, or another process writes there."""
        self._folder, self._bytes_max, self._segment_bytes, self._clock = (
            folder,
            bytes_max,
            segment_bytes,
            clock,
        )
        self._lock = threading.Lock()
        try:
            private_folder(folder)
            self._held = _hold(folder / "lock")
            self.writer = _writer(folder / "writer")
            self._open()
        except OSError as error:
            raise PrerequisiteError(
                f"{folder} cannot hold the audit trail ({error.strerror}); it has to be a folder of this "
                "user's own, on a disk with space"
            ) from error

    def _open(self) -> None:
        segments = self._segments()
        self._head = next((head for each in reversed(segments[-2:]) if (head := _recovered(each))), Head())
        if segments and _first(segments[-1]) > self._head.sequence + 1:
            raise PrerequisiteError(
                f"{segments[-1]} is damaged, and nobody knows where the audit trail ends; move "
                f"{self._folder} away, and a new chain begins"
            )
        self._sent = min(int(_read(self._folder / "sent") or b"0"), self._head.sequence)
        self._place = self._place_of(self._sent + 1)
        self._bytes = sum(each.stat().st_size for each in segments)
        self._file = _opened(segments[-1] if segments else self._folder / _name(1))
        self._size = os.fstat(self._file).st_size

    def _place_of(self, sequence: int) -> Place:
        """Where an event's line begins, or will."""
        first = max((_first(each) for each in self._segments() if _first(each) <= sequence), default=1)
        path = self._folder / _name(first)
        lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
        return Place(first, sum(map(len, lines[: sequence - first])))

    @property
    def head(self) -> Head:
        """Where the chain ends."""
        return self._head

    @property
    def waiting(self) -> int:
        """Events that the topic has not acknowledged."""
        return self._head.sequence - self._sent

    @property
    def size_bytes(self) -> int:
        """Bytes of all files."""
        return self._bytes

    def append(self, fields: Fields, *, for_acts: bool = False) -> None:
        """Writes an event behind the others; the system has it, the disk perhaps not yet. The last tenth of
        the room is `for_acts`: who may search fills the rest. Raises TrailLostError, and then there is no
        such event."""
        with self._lock:
            event = make_event(fields, self.writer, self._head, self._clock.now())
            line = event.line + b"\n"
            if self._bytes + len(line) > self._bytes_max * (1.0 if for_acts else FOR_ALL):
                raise TrailLostError(
                    f"the audit trail is full: {self.waiting:,} events wait for ingest and Kafka "
                    f"({self._bytes:,} bytes, audit.spool_bytes_max is {self._bytes_max:,})"
                )
            try:
                if self._size >= self._segment_bytes:
                    self._roll()
                self._write(line)
            except OSError as error:
                raise TrailLostError(f"the audit trail cannot be written ({error.strerror})") from error
            self._head = event.head

    def sync(self) -> None:
        """Makes what was appended last. Raises TrailLostError."""
        # On a descriptor of its own: nobody who appends waits for the disk.
        with self._lock:
            descriptor = os.dup(self._file)
        try:
            os.fsync(descriptor)
        except OSError as error:
            raise TrailLostError(f"the audit trail cannot be written ({error.strerror})") from error
        finally:
            os.close(descriptor)

    def next_batch(self) -> Batch:
        """The oldest events that were not acknowledged; they are on the disk. One thread at a time. Raises
        TrailLostError, OSError."""
        with self._lock:
            sent, until, (first, at) = self._sent, self._head.sequence, self._place
        lines, end = list[bytes](), at + BATCH_BYTES
        if sent < until:
            self.sync()
        while sent + len(lines) < until and at < end:
            with (self._folder / _name(first)).open("rb") as file:
                file.seek(at)
                for line in islice(file, until - sent - len(lines)):
                    lines.append(line.removesuffix(b"\n"))
                    at += len(line)
                    if at >= end:
                        break
                else:
                    if sent + len(lines) < until:
                        first, at, end = sent + len(lines) + 1, 0, end - at
        return Batch(lines, sent + len(lines), Place(first, at))

    def acknowledge(self, batch: Batch) -> None:
        """Notes what the topic has; files all of whose events it has go, but for the newest. Raises
        OSError."""
        temporary = self._folder / ".sent"
        temporary.write_bytes(str(batch.last).encode())
        temporary.replace(self._folder / "sent")
        with self._lock:
            self._sent, self._place = batch.last, batch.end
        for segment, following in pairwise(self._segments()):
            if _first(following) - 1 <= batch.last:
                size = segment.stat().st_size
                segment.unlink()
                with self._lock:
                    self._bytes -= size

    def close(self) -> None:
        """Lets another process write there."""
        os.close(self._file)
        os.close(self._held)

    def _roll(self) -> None:
        """Begins a new file. The old one is on the disk before: of a chain only the end may be torn."""
        os.fsync(self._file)
        new = _opened(self._folder / _name(self._head.sequence + 1))
        os.close(self._file)
        self._file, self._size = new, 0

    def _write(self, line: bytes) -> None:
        written = 0
        try:
            written = os.write(self._file, line)
        finally:
            if written < len(line):
                os.ftruncate(self._file, self._size)  # what is half there is no event
        if written < len(line):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._size += len(line)
        self._bytes += len(line)

    def _segments(self) -> list[Path]:
        return sorted(self._folder.glob(f"*{SUFFIX}"))


def first_free(folder: Path, number: int, bytes_max: int) -> Spool:
    """The first of so many spools below a folder that no other process holds, for workers that have no
    numbers. Raises PrerequisiteError."""
    for at in range(number):
        try:
            return Spool(folder / str(at), bytes_max)
        except PrerequisiteError:
            if at == number - 1:
                raise
    raise ValueError("number must be positive")


def _name(first: int) -> str:
    return f"{first:020d}{SUFFIX}"


def _first(segment: Path) -> int:
    return int(segment.name.removesuffix(SUFFIX))


def _opened(segment: Path) -> int:
    return os.open(segment, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)


def _hold(path: Path) -> int:
    """Takes the folder for this process until it ends. Raises PrerequisiteError."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(descriptor)
        raise PrerequisiteError(
            f"another process writes the audit trail in {path.parent}; give each its own folder (state)"
        ) from error
    return descriptor


def _writer(path: Path) -> str:
    """The chain's name: the machine's, and what no other chain has."""
    if (known := _read(path)) is not None:
        return known.decode()
    name = f"{socket.gethostname()[:60]}-{secrets.token_hex(6)}"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        os.write(descriptor, name.encode())
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return name


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes() or None
    except FileNotFoundError:
        return None


def _recovered(segment: Path) -> Head | None:
    """The last whole event of a file, whose end is cut off behind it; None where there is none."""
    head, good = None, 0
    data = segment.read_bytes()
    while (end := data.find(b"\n", good)) >= 0:
        try:
            head = head_of(data[good:end])
        except ValueError:
            break
        good = end + 1
    if good < len(data):
        os.truncate(segment, good)
    return head
