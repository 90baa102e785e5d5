"""One clock for all processes of the simulation: it goes on by itself, second by second, and jumps where
it is moved to.

The moment and when it was set stand in a file that all processes have mapped, and each move in another.
No setting of the product leads here: the catalog's process of the simulation is one of its own
(`catalog_process.py`).
"""

import mmap
import struct
import time
from bisect import bisect_right
from datetime import UTC, datetime, timedelta
from pathlib import Path

from lake.clock import epoch_us

# The simulated moment, and the machine's monotonic time when it was set, both µs.
_TOLD = struct.Struct("<qq")
# When it was moved by the machine's calendar, and to where, both µs since 1970: they tell a file's time.
_MOVE = struct.Struct("<qq")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _machine_us() -> int:
    return time.monotonic_ns() // 1_000


class SharedClock:
    """Reads the clock of a file. The machine's monotonic time is one for all processes."""

    def __init__(self, file: Path) -> None:
        with file.open("r+b") as opened:
            self._map = mmap.mmap(opened.fileno(), _TOLD.size)
        self._moves_file, self._moves = file.with_name(file.name + ".moves"), list[tuple[int, int]]()
        self._read_bytes = 0  # of that file

    def _now_us(self) -> int:
        moment_us, set_us = _TOLD.unpack(self._map[:])
        return int(moment_us + _machine_us() - set_us)

    def now(self) -> datetime:
        return _EPOCH + timedelta(microseconds=self._now_us())

    def monotonic_s(self) -> float:
        return self._now_us() / 1e6

    def simulated(self, machine: datetime) -> datetime:
        """The simulated moment of a moment of the machine: of a file's last change, say."""
        machine_us = epoch_us(machine)
        if not self._moves or machine_us >= self._moves[-1][0]:
            self._read_moves()
        at = bisect_right(self._moves, machine_us, key=lambda pair: pair[0]) - 1
        before_us, moment_us = self._moves[max(0, at)]
        return _EPOCH + timedelta(microseconds=moment_us + max(0, machine_us - before_us))

    def _read_moves(self) -> None:
        """Those that came since: most often none, and a question like this comes for each file of a table."""
        if self._moves_file.stat().st_size - self._read_bytes < _MOVE.size:
            return
        with self._moves_file.open("rb") as opened:
            opened.seek(self._read_bytes)
            data = opened.read()
        whole = len(data) // _MOVE.size * _MOVE.size
        self._moves += _MOVE.iter_unpack(data[:whole])
        self._read_bytes += whole


class MovedClock(SharedClock):
    """The clock of whoever moves it."""

    def __init__(self, file: Path, start: datetime) -> None:
        file.write_bytes(_TOLD.pack(epoch_us(start), _machine_us()))
        super().__init__(file)
        self._moves_file.write_bytes(b"")
        self.move_to(start)

    def move_to(self, moment: datetime) -> None:
        """It is this moment now, or later where it has gone on further by itself: it never goes back."""
        moment = max(moment, self.now())
        self._map[:] = _TOLD.pack(epoch_us(moment), _machine_us())
        with self._moves_file.open("ab") as opened:
            opened.write(_MOVE.pack(epoch_us(datetime.now(UTC)), epoch_us(moment)))
