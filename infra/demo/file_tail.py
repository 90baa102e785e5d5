"""Reading a growing log file line by line: partial lines wait, a rotated file is read to its end, a truncated
one from its start."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

# A line longer than this is handed out in pieces, so that a file without newlines cannot fill the memory.
LINE_BYTES_MAX = 512 * 1024
READ_BYTES_MAX = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Position:
    """Where reading goes on: the file's identity and the offset in bytes of the next line."""

    device: int
    inode: int
    offset: int


@dataclass(frozen=True, slots=True)
class TailedLine:
    """One line without its line end, and the position it starts at."""

    content: bytes
    start: Position


class FileTail:
    """One log file, which need not exist yet; between calls it stays open, so that a rename does not lose its
    end."""

    def __init__(self, path: Path, resume_at: Position | None = None) -> None:
        self._path = path
        self._resume_at = resume_at
        self._file: BinaryIO | None = None
        self._device = self._inode = 0
        self._offset = 0

    @property
    def position(self) -> Position:
        """Where the next line starts."""
        return self._resume_at or Position(self._device, self._inode, self._offset)

    def read_lines(self, *, at_end: bool = False) -> list[TailedLine]:
        """The complete lines that came since the last call, at most `READ_BYTES_MAX` (call again until none
        comes).

        A last line without a line end waits for the rest; with `at_end`, or when the file was rotated away,
        it counts as complete.
        """
        if self._file is None and not self._open():
            return []
        if self._truncated():
            self._offset = 0
        rotated = self._rotated()
        lines = self._take(whole=at_end or rotated)
        if not lines and rotated:
            self.close()
            return self.read_lines(at_end=at_end)
        return lines

    def close(self) -> None:
        """Closes the file; the next read opens whatever then has its name."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _open(self) -> bool:
        try:
            self._file = self._path.open("rb", buffering=0)
        except FileNotFoundError:
            return False
        found = os.fstat(self._file.fileno())
        resume, self._resume_at = self._resume_at, None
        same = (
            resume is not None
            and (resume.device, resume.inode) == (found.st_dev, found.st_ino)
            and resume.offset <= found.st_size
        )
        self._device, self._inode = found.st_dev, found.st_ino
        self._offset = resume.offset if resume is not None and same else 0
        return True

    def _truncated(self) -> bool:
        return self._file is not None and os.fstat(self._file.fileno()).st_size < self._offset

    def _rotated(self) -> bool:
        try:
            found = self._path.stat()
        except FileNotFoundError:
            # Renamed, and its successor is not there yet: until then the writer still writes to the file held
            # open here.
            return False
        return (found.st_dev, found.st_ino) != (self._device, self._inode)

    def _take(self, *, whole: bool) -> list[TailedLine]:
        if self._file is None:
            return []
        content = os.pread(self._file.fileno(), READ_BYTES_MAX, self._offset)
        lines, at = [], 0
        while at < len(content):
            newline = content.find(b"\n", at, at + LINE_BYTES_MAX)
            if newline >= 0:
                line, following = content[at:newline], newline + 1
            elif len(content) - at >= LINE_BYTES_MAX:
                line, following = content[at : at + LINE_BYTES_MAX], at + LINE_BYTES_MAX
            elif whole and len(content) < READ_BYTES_MAX:
                line, following = content[at:], len(content)
            else:
                break
            lines.append(TailedLine(line.removesuffix(b"\r"), self.position))
            self._offset += following - at
            at = following
        return lines
