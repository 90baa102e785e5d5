"""What messages of Firn's own topics name in the warehouse, opened and deleted only where Firn itself puts
such things."""

import re
import stat
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from ingest.kafka.claim_check import ASIDE_BYTES_MAX, Headers, open_envelope, read_aside
from lake.errors import NotFoundError, RefusedError, SettingsError
from lake.storage import canonical, local_path

if TYPE_CHECKING:
    from lake.storage import AnyStorage

log = structlog.get_logger()
# As `claim_check.py` names them.
_NAME = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}(\.zst)?")


@dataclass(frozen=True, slots=True)
class Aside:
    """One folder of bodies and envelopes. Raises RefusedError for whatever does not lie right in it under a
    name of Firn's."""

    storage: "AnyStorage"
    folder: str

    @classmethod
    def of(cls, storage: "AnyStorage", warehouse: str, name: str) -> "Aside":
        """A folder of the warehouse: `dead-letters` or `parked`."""
        return cls(storage, f"{warehouse.rstrip('/')}/{name}")

    def read(self, uri: str, bytes_max: int = ASIDE_BYTES_MAX) -> bytes:
        """A body, as it was. Raises NotFoundError, UnavailableError, RefusedError."""
        self._check(uri)
        return read_aside(self.storage, uri, bytes_max)

    def read_envelope(self, uri: str) -> tuple[bytes | None, Headers]:
        """Key and headers. Raises NotFoundError, UnavailableError, RefusedError."""
        return open_envelope(self.read(uri))

    def delete(self, uris: Iterable[str]) -> int:
        """Deletes what was put aside; how many objects. One that lies elsewhere is left alone and told.
        Raises UnavailableError."""
        ours = [uri for uri in sorted(set(uris)) if self._holds(uri)]
        self.storage.delete(ours, root=self.folder)
        return len(ours)

    def _holds(self, uri: str) -> bool:
        with suppress(RefusedError, SettingsError):
            self._check_place(uri)
            return True
        log.warning(
            "message.foreign_file",
            uri=uri,
            advice="a message named a file outside of Firn's folder; it was left alone",
        )
        return False

    def _check_place(self, uri: str) -> str:
        folder, _, name = canonical(uri).rpartition("/")
        if folder != canonical(self.folder) or _NAME.fullmatch(name) is None:
            raise RefusedError(
                f"the message names {uri} as what was put aside of it, which is not in {self.folder}; "
                "nothing else is opened"
            )
        return folder

    def _check(self, uri: str) -> None:
        folder = self._check_place(uri)
        if folder.startswith("file:"):
            try:
                mode = local_path(uri).lstat().st_mode
            except OSError as error:
                raise NotFoundError(f"{uri} is not there: {error.strerror}") from error
            if not stat.S_ISREG(mode):
                raise RefusedError(f"{uri} is no plain file; it is not opened")
