"""The native core's library (`core/`): where it lies, and whether this process uses it.

`FIRN_CORE` chooses: `off` has everything done in Python, a path names a library that was built elsewhere.
Without it the library counts that `make setup` has built from these very sources into the cache. Where there
is none, or one of another version, all runs without: as correct, and slower.
"""

import ctypes
import hashlib
import os
import platform
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from lake.errors import SettingsError
from lake.settings import InfraSettings

REPOSITORY = Path(__file__).resolve().parents[1]
SOURCES = REPOSITORY / "core"
LIBRARY = "libfirn_core.so"
CORE_VARIABLE = "FIRN_CORE"
CACHE_VARIABLE = "FIRN_CACHE"
OFF = "off"
# Of the library's functions (core/src/ffi.rs).
VERSION = 9


@dataclass(frozen=True, slots=True)
class Absent:
    """Why this process does without the core."""

    reason: str


@dataclass(frozen=True, slots=True)
class Core:
    """The core in use, and the file that it came from."""

    functions: ctypes.CDLL
    path: Path


def cache_folder() -> Path:
    """Where downloaded and built parts live: $FIRN_CACHE, else the setting `cache`, inside the repository
    unless absolute. Raises SettingsError."""
    return REPOSITORY / (os.environ.get(CACHE_VARIABLE) or InfraSettings.load().cache)


def source_files() -> list[Path]:
    """What the library is built from; none where only a part of the repository was installed."""
    own = [SOURCES / name for name in ("Cargo.toml", "Cargo.lock")]
    return [path for path in (*own, *sorted(SOURCES.glob("src/**/*.rs"))) if path.is_file()]


def built_library() -> Path:
    """Where the library of these sources and this machine is or would be; exists only when it is whole.
    Raises SettingsError."""
    told = hashlib.sha256()
    for path in source_files():
        text = path.read_bytes()
        told.update(f"{path.relative_to(SOURCES)}\n{len(text)}\n".encode() + text)
    return cache_folder() / "core" / f"{told.hexdigest()[:12]}-{platform.machine()}" / LIBRARY


@cache
def load() -> Core | Absent:
    """The core, loaded once per process."""
    wanted = os.environ.get(CORE_VARIABLE, "")
    if wanted == OFF:
        return Absent(f"{CORE_VARIABLE}={OFF}")
    try:
        path = Path(wanted) if wanted else built_library()
    except SettingsError as error:
        return Absent(str(error))
    if not path.is_file():
        return Absent(_missing(path, is_named=bool(wanted)))
    try:
        functions = ctypes.CDLL(str(path.absolute()))
        version = functions.firn_core_version()
    except (OSError, AttributeError) as error:
        return Absent(f"{path} cannot be loaded: {error}")
    if version != VERSION:
        return Absent(f"{path} has interface {version}, not {VERSION}: build it anew (make setup)")
    return Core(functions, path)


def told() -> str:
    """Which path this process takes, and why."""
    core = load()
    return f"not used: {core.reason}" if isinstance(core, Absent) else f"used: {core.path}"


def _missing(path: Path, *, is_named: bool) -> str:
    if is_named:
        return f"{CORE_VARIABLE} names {path}, which is no file; leave it empty for the library of make setup"
    return f"it is not built (make setup builds it where cargo is; {CORE_VARIABLE} can name a library)"
