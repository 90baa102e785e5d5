"""Which files Maven may bring, and what they hold: `infra/poms/<service>.sha256`, one `<SHA-256>  <file>` a
line, as sha256sum writes and checks it.

Maven compares what it downloads with a checksum from the same place, which whoever changes the one can change
too. These lists are ours: they came into this repository with the versions in the poms, by `python -m infra
fetch --write-hashes`.
"""

import hashlib
import re
from pathlib import Path

from lake.errors import PrerequisiteError

SUFFIX = ".sha256"
SHOWN = 5
_LINE = re.compile(r"([0-9a-f]{64})  (\S+)")


def list_file(poms: Path, service: str) -> Path:
    """Where the list of a service is."""
    return poms / f"{service}{SUFFIX}"


def check(poms: Path, service: str, folder: Path) -> None:
    """Raises PrerequisiteError where a folder holds a file that is not listed or another one than is listed,
    or lacks one."""
    path = list_file(poms, service)
    listed, found = _listed(path), hashes(folder)
    if not listed:
        raise PrerequisiteError(
            f"{path} lists no file, so nothing that Maven brings for {service} is trusted; "
            f"{_on_purpose(service)}"
        )
    wrong = [f"{name} is not listed" for name in found if name not in listed]
    wrong += [
        f"{name} has SHA-256 {found[name]}, not {listed[name]}"
        for name in found
        if found[name] != listed.get(name, found[name])
    ]
    wrong += [f"{name} is missing" for name in listed if name not in found]
    if wrong:
        more = f" and {len(wrong) - SHOWN} more" if len(wrong) > SHOWN else ""
        raise PrerequisiteError(
            f"what Maven brought for {service} is not what {path.name} lists: "
            f"{'; '.join(wrong[:SHOWN])}{more}. Nothing was installed. "
            "Find out where the files came from; remove them from Maven's local repository to download them "
            f"again; {_on_purpose(service)}"
        )


def write(poms: Path, service: str, folder: Path) -> None:
    """Lists the files of a folder."""
    lines = "".join(f"{digest}  {name}\n" for name, digest in hashes(folder).items())
    list_file(poms, service).write_text(lines)


def hashes(folder: Path) -> dict[str, str]:
    """Every file below a folder -> its SHA-256, in the order of their names."""
    files = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    return {name: _digest(files[name]) for name in sorted(files)}


def _listed(path: Path) -> dict[str, str]:
    if not path.exists():
        return {}
    lines = [_LINE.fullmatch(line) for line in path.read_text().splitlines()]
    if None in lines:
        raise PrerequisiteError(
            f"{path}: line {lines.index(None) + 1} is not `<SHA-256>  <file>`; restore the file from the "
            "repository"
        )
    return {line[2]: line[1] for line in lines if line is not None}


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _on_purpose(service: str) -> str:
    return (
        "if the versions in the pom were changed on purpose, list them anew with `python -m infra fetch "
        f"--write-hashes {service}`"
    )
