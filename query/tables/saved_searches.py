"""Searches that somebody gave a name: one JSON file per key, small enough to be read and written whole."""

import hashlib
import threading
from collections.abc import Mapping
from pathlib import Path

import orjson

from lake.errors import NotFoundError
from query.model.problem import refuse

SEARCHES_MAX = 200
Address = Mapping[str, str]  # the parameters of the search page


class SavedSearches:
    """The searches of all keys. Thread-safe; one process writes them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()

    def of(self, key: str | None) -> dict[str, Address]:
        """Name -> address, the names in order."""
        file = self._file(key)
        return dict(sorted(orjson.loads(file.read_bytes()).items())) if file.exists() else {}

    def keep(self, key: str | None, name: str, address: Address) -> None:
        """Keeps a search under a name, in place of the one that had it. Raises BadQuestionError where there
        are too many."""
        with self._lock:
            kept = self.of(key) | {name: dict(address)}
            if len(kept) > SEARCHES_MAX:
                raise refuse(f"{SEARCHES_MAX} searches are kept already; delete one first")
            self._write(key, kept)

    def drop(self, key: str | None, name: str) -> None:
        """Forgets a search. Raises NotFoundError."""
        with self._lock:
            kept = self.of(key)
            if kept.pop(name, None) is None:
                raise NotFoundError(f"no search is kept as {name!r}")
            self._write(key, kept)

    def _write(self, key: str | None, kept: Mapping[str, Address]) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        file = self._file(key)
        new = file.with_suffix(".new")
        new.write_bytes(orjson.dumps(kept))
        new.replace(file)

    def _file(self, key: str | None) -> Path:
        # The key itself is a secret and must not be a file's name.
        return self._folder / f"{hashlib.sha256((key or '').encode()).hexdigest()[:32]}.json"
