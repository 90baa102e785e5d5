"""Searches that somebody gave a name: one JSON file per key, small enough to be read and written whole.

They belong to the key by its id, so that they stay when it is rotated. Before, they belonged to its secret;
such a file is taken over when its key asks.
"""

import hashlib
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import orjson

from lake.errors import NotFoundError
from query.model.problem import refuse

SEARCHES_MAX = 200
Address = Mapping[str, str]  # the parameters of the search page


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose searches they are: the id of a key, and what was sent as key (None: nobody was asked for one)."""

    key_id: str
    secret: str | None


class SavedSearches:
    """The searches of all keys. Thread-safe; one process writes them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()

    def of(self, owner: Owner) -> dict[str, Address]:
        """Name -> address, the names in order."""
        file = self._file(owner)
        return dict(sorted(orjson.loads(file.read_bytes()).items())) if file.exists() else {}

    def keep(self, owner: Owner, name: str, address: Address) -> None:
        """Keeps a search under a name, in place of the one that had it. Raises BadRequestError where there
        are too many."""
        with self._lock:
            kept = self.of(owner) | {name: dict(address)}
            if len(kept) > SEARCHES_MAX:
                raise refuse(f"{SEARCHES_MAX} searches are kept already; delete one first")
            self._write(owner, kept)

    def drop(self, owner: Owner, name: str) -> None:
        """Forgets a search. Raises NotFoundError."""
        with self._lock:
            kept = self.of(owner)
            if kept.pop(name, None) is None:
                raise NotFoundError(f"no search is kept as {name!r}")
            self._write(owner, kept)

    def _write(self, owner: Owner, kept: Mapping[str, Address]) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        file = self._file(owner)
        new = file.with_suffix(".new")
        new.write_bytes(orjson.dumps(kept))
        new.replace(file)

    def _file(self, owner: Owner) -> Path:
        # The key itself is a secret and must not be a file's name.
        of_secret = self._named(owner.secret or "")
        if owner.secret is None:
            return of_secret
        of_key = self._named(f"id {owner.key_id}")
        if of_secret.exists() and not of_key.exists():
            with suppress(FileNotFoundError):  # another request took it over
                of_secret.replace(of_key)
        return of_key

    def _named(self, name: str) -> Path:
        return self._folder / f"{hashlib.sha256(name.encode()).hexdigest()[:32]}.json"
