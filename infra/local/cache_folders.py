"""Folders of the cache appear whole: one process at a time fills them under another name, then renames."""

import fcntl
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def scratch_folder(name: str, cache: Path) -> Iterator[Path]:
    """A temporary folder in the cache, for who holds the lock of that name; gone at the end, also what it
    still holds."""
    prefix = f"tmp-{name}-"
    for leftover in cache.glob(f"{prefix}*"):  # of a process that was killed: nobody else has the lock
        shutil.rmtree(leftover, ignore_errors=True)
    scratch = Path(tempfile.mkdtemp(prefix=prefix, dir=cache))
    try:
        scratch.chmod(0o755)  # mkdtemp's 0700 would lock other users of a shared cache out
        yield scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


@contextmanager
def only_one(lock: Path) -> Iterator[None]:
    """Lets one process at a time in; a second one waits, and then finds what the first has made."""
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
