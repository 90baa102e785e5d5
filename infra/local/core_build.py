"""The native core (`core/`), built by cargo once per version of its sources into the cache.

Firn runs without it, so what keeps it from being built is told and is no error.
"""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from infra.local.cache_folders import only_one, scratch_folder
from lake import native_core
from lake.native_core import LIBRARY, SOURCES, Absent

NAME = "core"
# A build takes some seconds; nothing is downloaded.
BUILD_TIMEOUT_S = 300.0
OUTPUT_LINES = 8
Say = Callable[[str], None]


def build(say: Say) -> Path | Absent:
    """The library of these sources, built if absent; Absent, with the reason, where that fails."""
    target = native_core.built_library()
    if target.is_file():
        return target
    if not native_core.source_files():
        return Absent(f"{SOURCES} is not here")
    cargo = shutil.which("cargo")
    if cargo is None:
        return Absent("there is no cargo (Debian's packages rustc-web and cargo-web bring it)")
    cache = target.parents[1]
    cache.mkdir(parents=True, exist_ok=True)
    with only_one(cache / f"{NAME}.lock"):
        if not target.is_file():
            say(f"building the native core into {target.parent} (once per version) ...")
            with scratch_folder(NAME, cache) as scratch:
                if problem := _run_cargo(cargo, scratch / "build"):
                    return Absent(problem)
                whole = scratch / "whole"
                whole.mkdir()
                shutil.copyfile(scratch / "build/release" / LIBRARY, whole / LIBRARY)
                os.rename(whole, target.parent)
    return target


def _run_cargo(cargo: str, output: Path) -> str | None:
    """Why it failed, None where it did not."""
    manifest = str(SOURCES / "Cargo.toml")
    command = [cargo, "build", "--release", "--locked", "--offline", "--quiet", "--color=never"]
    try:
        answer = subprocess.run(
            [*command, "--manifest-path", manifest, "--target-dir", str(output)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=BUILD_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{cargo} did not build it: {error}"
    if answer.returncode == 0:
        return None
    lines = "\n".join(f"  | {line}" for line in answer.stdout.strip().splitlines()[-OUTPUT_LINES:])
    return f"{cargo} could not build it. The end of its output:\n{lines}"
