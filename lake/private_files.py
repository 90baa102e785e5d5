"""Files that nobody but their owner reads: state, logs, databases. Whoever may list them learns who the
tenants are, and some hold keys."""

import os
import stat
from pathlib import Path

OTHERS = stat.S_IRWXG | stat.S_IRWXO
UMASK = OTHERS  # for processes all of whose files are private


def private_folder(path: Path) -> Path:
    """The folder, made if it is not there, closed to everybody else where it is made here. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        path.mkdir(mode=0o700)
    except FileExistsError:
        if not path.is_dir():
            raise
    return path


def private_file(path: Path) -> Path:
    """The file, made empty if it is not there; one that is gets closed to everybody else, where it belongs to
    this user. Raises OSError."""
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    # it is not opened: closing any descriptor of a SQLite file would give up the locks this process has on it
    except FileExistsError:
        close(path)
    return path


def close(path: Path) -> None:
    """Takes a file or folder of this user's away from everybody else."""
    found = path.stat()
    if found.st_mode & OTHERS and found.st_uid == os.geteuid():
        path.chmod(stat.S_IMODE(found.st_mode) & ~OTHERS)
