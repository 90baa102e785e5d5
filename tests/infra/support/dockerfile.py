"""Dockerfiles as they are written, and their steps taken on this machine, below a folder in place of `/`."""

import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import orjson

from infra.local.jvm_parts import REPOSITORY

IMAGES = REPOSITORY / "infra/images"
# Folders at the root of an image that its steps fill; what else begins with `/` is the machine's.
OWN = re.compile(r"(?<![\w./])/(opt|core|build|fetch|cache|jars|firn|var/lib/firn|tmp/requirements\.txt)\b")
# What a machine has or not, and a test does not change.
OF_THE_SYSTEM = ("apt-get", "useradd")
STEP_TIMEOUT_S = 1200.0


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction: its keyword, and the rest on one line."""

    keyword: str
    rest: str


def instructions(file: Path) -> list[Instruction]:
    """Return the instructions of a Dockerfile in their order, without comments."""
    lines = [line for line in file.read_text().splitlines() if line and not line.startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    return [Instruction(*line.split(maxsplit=1)) for line in joined.splitlines()]


def last(steps: list[Instruction], keyword: str) -> str:
    """Return what the last instruction of a keyword says. Raises IndexError where there is none."""
    return [step.rest for step in steps if step.keyword == keyword][-1]


def environment(steps: list[Instruction]) -> dict[str, str]:
    """Return the variables that the image sets."""
    words = [word for step in steps if step.keyword == "ENV" for word in shlex.split(step.rest)]
    return dict(word.split("=", maxsplit=1) for word in words)


@dataclass
class Image:
    """A Dockerfile whose steps have been taken below `root`: its stages share that folder."""

    root: Path
    steps: list[Instruction]
    folder: Path = field(init=False)

    def __post_init__(self) -> None:
        self.folder = self.root
        for step in self.steps:
            if step.keyword == "COPY":
                self._copy(shlex.split(step.rest))
            elif step.keyword == "WORKDIR":
                self.folder = Path(self.here(step.rest))
                self.folder.mkdir(parents=True, exist_ok=True)
            elif step.keyword == "RUN" and not any(word in step.rest for word in OF_THE_SYSTEM):
                self._run(step.rest)

    def here(self, text: str) -> str:
        """Return a text with the paths that are the image's own below `root`."""
        return OWN.sub(lambda found: f"{self.root}{found[0]}", text)

    def command(self) -> list[str]:
        """Return what a container of the image starts."""
        return [*self._words(last(self.steps, "ENTRYPOINT")), *self._words(last(self.steps, "CMD"))]

    def health_check(self) -> list[str]:
        """Return the command by which a container is asked whether it is well."""
        return self._words(last(self.steps, "HEALTHCHECK").partition(" CMD ")[2])

    def variables(self, given: Mapping[str, str]) -> dict[str, str]:
        """Return the environment of a container: nothing of this process, the image's, and what is given."""
        of_image = {name: self.here(value) for name, value in environment(self.steps).items()}
        path = of_image["PATH"].replace("$PATH", "/usr/local/bin:/usr/bin:/bin")
        return {"HOME": str(self.folder), "LANG": "C.UTF-8", **of_image, "PATH": path, **given}

    def _words(self, told: str) -> list[str]:
        return [self.here(word) for word in orjson.loads(told)]

    def _copy(self, words: list[str]) -> None:
        of_stage = words[0].startswith("--from=")
        source, target = words[-2:]
        here = Path(self.here(source)) if of_stage else REPOSITORY / source
        there = self.folder / self.here(target)
        if here == there:
            return
        there.parent.mkdir(parents=True, exist_ok=True)
        if here.is_dir():
            shutil.copytree(here, there, ignore=shutil.ignore_patterns("__pycache__", "target"))
        else:
            shutil.copyfile(here, there)

    def _run(self, command: str) -> None:
        subprocess.run(["sh", "-ec", self.here(command)], cwd=self.folder, check=True, timeout=STEP_TIMEOUT_S)
