"""When each key was last used: kept in memory, and written now and then for all of them together, so that no
request waits for it."""

import threading

# A key may have been used so much later than the database says: a use is noted once within this time, and
# written by the next turn of the upkeep, a minute later at most.
PRECISION_MS = 300_000
KEYS_MAX = 10_000


class KeyUses:
    """The uses that this process has seen. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._noted: dict[str, int] = {}
        self._waiting: dict[str, int] = {}

    def note(self, key_id: str, now_ms: int) -> None:
        """A key is used."""
        if now_ms - self._noted.get(key_id, -PRECISION_MS) < PRECISION_MS:
            return
        with self._lock:
            if len(self._noted) >= KEYS_MAX:
                self._noted.clear()
            self._noted[key_id] = self._waiting[key_id] = now_ms

    def take(self) -> list[tuple[str, int]]:
        """What is to be written, (key, ms since 1970) each; whoever takes it writes it or puts it back."""
        with self._lock:
            taken, self._waiting = self._waiting, {}
        return sorted(taken.items())

    def put_back(self, uses: list[tuple[str, int]]) -> None:
        """What could not be written, for the next time."""
        with self._lock:
            self._waiting = dict(uses) | self._waiting
