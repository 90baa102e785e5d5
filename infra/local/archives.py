"""Unpacks tar archives that were made by us, or whose hashes were compared."""

import tarfile
from pathlib import Path
from typing import Any

# Python has it from 3.11.4 on; Debian 12 brings 3.11.2.
_FILTER: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}


def unpack(archive: Path, folder: Path) -> None:
    """Puts what an archive holds into a folder, which is made where there is none."""
    with tarfile.open(archive) as file:
        file.extractall(folder, **_FILTER)  # noqa: S202 - by a filter where there is one; ours, or compared
