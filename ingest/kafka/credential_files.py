"""The files that clients of Kafka and of the schema registry were made with: secrets, certificates, keys.
What they hold is replaced while clients run, and no client looks again by itself."""

import hashlib
from pathlib import Path

from lake.kafka_connection import connection
from lake.settings import IngestSettings
from lake.settings.secret_files import files_of

# Of settings of the client whose value is the path of a file.
_PATH = ".location"


class CredentialFiles:
    """Remembers what the files of the settings held; made before the clients are."""

    def __init__(self, settings: IngestSettings) -> None:
        options = connection(settings)
        paths = {options[name] for name in options if name.endswith(_PATH)}
        paths.update(files_of(settings.kafka), files_of(settings.registry))
        self._held = {path: _digest(path) for path in sorted(paths)}

    def changed(self) -> list[str]:
        """Returns the paths of those that hold something else now. One that cannot be read is as it was:
        files are gone for a moment while they are replaced."""
        return [path for path, held in self._held.items() if _digest(path) not in (None, held)]


def _digest(path: str) -> bytes | None:
    try:
        return hashlib.sha256(Path(path).read_bytes()).digest()
    except OSError:
        return None
