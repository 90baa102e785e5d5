"""A page of docs/runbooks as data: its title, its commands, the alerts that it names."""

import re
from dataclasses import dataclass
from pathlib import Path

from infra.local.jvm_parts import REPOSITORY

FOLDER = REPOSITORY / "docs/runbooks"
INDEX = "README"

_BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_ALERT = re.compile(r"\]\(\.\./alerts\.md#(firn\w+)\)")
_QUOTED = re.compile(r"`([^`\n]+)`")
_PLACEHOLDER = re.compile(r"\b[A-Z][A-Z_]+\b")


@dataclass(frozen=True)
class Runbook:
    """`name`: of the page's file, and of its drill. `commands`: every line of its `sh` blocks, in order, with
    continued lines joined. `alerts`: as its links to docs/alerts.md name them, in lower case.
    `quoted`: what stands between backticks, on one line."""

    name: str
    title: str
    commands: tuple[str, ...]
    alerts: frozenset[str]
    quoted: frozenset[str]


def read(path: Path) -> Runbook:
    """Reads a page."""
    text = path.read_text()
    lines = "".join(_BLOCK.findall(text)).replace("\\\n", " ").splitlines()
    commands = tuple(" ".join(line.split()) for line in lines if line.strip())
    return Runbook(
        path.stem,
        text.splitlines()[0].lstrip("# "),
        commands,
        frozenset(_ALERT.findall(text)),
        frozenset(_QUOTED.findall(_BLOCK.sub("", text))),
    )


def pages() -> list[Runbook]:
    """All pages of disasters, by name."""
    return [read(path) for path in sorted(FOLDER.glob("*.md")) if path.stem != INDEX]


def filled_in(command: str, values: dict[str, str]) -> str:
    """A command with values in place of its words in capitals; KeyError where one of them has none."""
    return _PLACEHOLDER.sub(lambda found: values[found[0]], command)
