"""Makes the class archives of this machine: starts each part once, and has Java keep its classes at its end.
What keeps one from being made is told and is no error."""

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from infra.local import class_archives, java, jvm_parts
from infra.local.cache_folders import only_one, scratch_folder
from infra.local.java import Jdk
from infra.local.supervisor import Stack
from lake.errors import FirnError, UnavailableError

NAME = "classes"
RECORDED_S = 600.0
# The catalog of a Trino that nobody asks for tables.
NOWHERE = "http://127.0.0.1:9"
# Java writes the beginning of an archive last.
HEADER_BYTES = 4
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class NotMade:
    """No archive, and why."""

    reason: str


def make(say: Say) -> dict[str, Path | NotMade]:
    """The archives of the downloaded parts, made if absent, by part."""
    made: dict[str, Path | NotMade] = {}
    for part, need in class_archives.NEEDS.items():
        jdk = java.find(need)
        if jdk is not None and class_archives.keeps_classes(jdk) and jvm_parts.folder(part).is_dir():
            made[part] = _one(part, jdk, class_archives.archive(part, jdk), say)
    return made


def _one(part: str, jdk: Jdk, archive: Path, say: Say) -> Path | NotMade:
    with only_one(archive.parent / f"classes-{part}.lock"):
        if archive.is_file():
            return archive
        say(f"recording the classes of {part} into {archive} (once per version) ...")
        with scratch_folder(f"classes-{part}", archive.parent) as scratch:
            written = scratch / "classes.jsa"
            # Else it tells of every class that cannot be kept.
            recording = f"-XX:ArchiveClassesAtExit={written} -Xlog:disable"
            try:
                if part == class_archives.SPARK:
                    _run_spark(recording, jdk)
                else:
                    _run_service(part, recording, scratch / "state")
                if not any(written.read_bytes()[:HEADER_BYTES]):
                    return NotMade("Java was ended before it had written them")
                written.chmod(0o444)  # Java makes it the owner's alone, and a cache may be shared
                os.rename(written, archive)
            except (FirnError, OSError, subprocess.TimeoutExpired) as error:
                return NotMade(str(error))
    return archive


def _run_service(service: str, recording: str, state: Path) -> None:
    stack = Stack(state, tied=True, say=lambda _: None)
    try:
        # Read by the `java` command itself.
        stack.start(service, catalog_uri=NOWHERE, environment={"JDK_JAVA_OPTIONS": recording})
    finally:
        stack.stop()


def _run_spark(recording: str, jdk: Jdk) -> None:
    """In a process of its own, for what Spark and Java write there."""
    home, jars = str(jdk.java.parents[1]), str(jvm_parts.folder("spark"))
    command = [sys.executable, "-m", "lake.short_spark", recording, home, jars]
    answer = subprocess.run(
        command,
        cwd=jvm_parts.REPOSITORY,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=RECORDED_S,
        check=False,
    )
    if answer.returncode != 0:
        raise UnavailableError(f"Spark did not run: {answer.stdout.strip().splitlines()[-1:]}")
