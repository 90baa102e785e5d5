"""Small state files that readers never see half written."""

import os
from pathlib import Path


def write_atomically(path: Path, content: bytes) -> None:
    """Replaces a file as a whole: readers see the old content or the new one, also when this process is
    killed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    written = path.with_name(f".{path.name}.{os.getpid()}")
    written.write_bytes(content)
    written.replace(path)
