"""Makes the class archives of this machine: starts Kafka and Spark once each, and has Java keep their classes
when they end. What keeps one from being made is told and is no error."""

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from infra.local import class_archives, java, jvm_parts
from infra.local.cache_folders import only_one, scratch_folder
from infra.local.java import CLASSIC, Jdk
from infra.local.supervisor import Stack
from lake.errors import FirnError, UnavailableError

NAME = "classes"
RECORDED_S = 600.0
# Java writes the beginning of an archive last.
HEADER_BYTES = 4
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class NotMade:
    """No archive, and why."""

    reason: str


def make(say: Say) -> dict[str, Path | NotMade]:
    """The archives of the downloaded parts, made if absent, by part."""
    jdk = java.find(CLASSIC)
    if jdk is None:
        return {}
    archives = {"kafka": class_archives.kafka(jdk), "spark": class_archives.spark(jdk)}
    return {
        part: _one(part, jdk, archive, say)
        for part, archive in archives.items()
        if jvm_parts.folder(part).is_dir()
    }


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
                _run_kafka(recording, scratch / "state") if part == "kafka" else _run_spark(recording, jdk)
                if not any(written.read_bytes()[:HEADER_BYTES]):
                    return NotMade("Java was ended before it had written them")
                written.chmod(0o444)  # Java makes it the owner's alone, and a cache may be shared
                os.rename(written, archive)
            except (FirnError, OSError, subprocess.TimeoutExpired) as error:
                return NotMade(str(error))
    return archive


def _run_kafka(recording: str, state: Path) -> None:
    stack = Stack(state, tied=True, say=lambda _: None)
    try:
        # Read by the `java` command itself.
        stack.start("kafka", environment={"JDK_JAVA_OPTIONS": recording})
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
