"""What this machine offers to the stack, and what it lacks: `python -m infra doctor`."""

import platform
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from infra.local import java, jvm_parts
from infra.local.prerequisites import Missing, missing_java
from infra.local.services import SERVICES, postgres
from lake import native_core

PYTHON_MIN = (3, 11)
DISK_BYTES_MIN = 5 * 1024**3
MEMORY_BYTES_MIN = 4 * 1024**3


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at: what was found, and what is missing (nothing: all is well)."""

    what: str
    found: str
    missing: tuple[Missing, ...] = ()


def examine(state_folder: Path) -> list[Finding]:
    """Looks at everything the stack needs. Changes nothing and starts nothing but `java -version`."""
    return [
        _python(),
        _java(java.CLASSIC),
        _java(java.MODERN),
        _maven(),
        *(_parts(service) for service in jvm_parts.SERVICES),
        Finding("native core of ingestion", native_core.told()),
        Finding(
            "PostgreSQL (tests, `--database postgres`)",
            str(postgres.program_folder() or "not found"),
            tuple(SERVICES["postgres"].missing()),
        ),
        _disk("state folder", state_folder),
        _disk("cache of JVM parts", jvm_parts.cache_folder()),
        _memory(),
    ]


def all_missing(findings: Sequence[Finding]) -> list[Missing]:
    return [missing for finding in findings for missing in finding.missing]


def _python() -> Finding:
    old = sys.version_info[:2] < PYTHON_MIN
    advice = (Missing("Python 3.11 or newer", package="python3"),) if old else ()
    return Finding("Python", f"{platform.python_version()} ({sys.executable})", advice)


def _java(need: java.JavaNeed) -> Finding:
    jdk = java.find(need)
    found = f"{jdk.major} ({jdk.java}, from {jdk.origin})" if jdk else "not found"
    return Finding(f"{need.says} ({need.purpose})", found, tuple(missing_java(need)))


def _maven() -> Finding:
    program = shutil.which("mvn")
    return Finding(
        "Maven",
        program or "not found",
        tuple(m for service in jvm_parts.SERVICES for m in jvm_parts.missing(service)),
    )


def _parts(service: str) -> Finding:
    folder = jvm_parts.folder(service)
    return Finding(
        f"JVM parts of {service}",
        str(folder) if folder.is_dir() else "not downloaded yet (python -m infra fetch)",
    )


def _disk(what: str, folder: Path) -> Finding:
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    free = shutil.disk_usage(existing).free
    few = (
        Missing(
            f"space on the disk of {existing}: 5 GiB",
            advice="free some space, or choose another folder (--state, FIRN_CACHE)",
        ),
    )
    return Finding(
        f"free disk, {what}", f"{free / 2**30:.1f} GiB at {existing}", few if free < DISK_BYTES_MIN else ()
    )


def _memory() -> Finding:
    memory = psutil.virtual_memory()
    few = (
        Missing(
            "free memory: 4 GiB for the whole stack", advice="stop other programs, or start fewer services"
        ),
    )
    return Finding(
        "memory",
        f"{memory.available / 2**30:.1f} of {memory.total / 2**30:.1f} GiB available",
        few if memory.available < MEMORY_BYTES_MIN else (),
    )
