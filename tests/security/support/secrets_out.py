"""Known secrets, and the search for them in what comes out of services: as they are, and as they travel."""

import base64
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

import psutil

BEGIN = 24  # characters that give a longer secret away
SHORTEST = 12


@dataclass
class Known:
    """Secrets by what they are for. `folder`: for those that services read from files."""

    folder: Path
    texts: dict[str, str] = field(default_factory=dict)

    def make(self, name: str) -> str:
        """A new one, that nobody else has."""
        return self.add(name, f"{name}-{secrets.token_hex(12)}")

    def add(self, name: str, text: str) -> str:
        """One that somebody else has made. Raises ValueError for one so short that it stands anywhere."""
        if len(text) < SHORTEST:
            raise ValueError(f"{name}: {len(text)} characters")
        self.texts[name] = text
        return text

    def variables(self, given: Mapping[str, str]) -> dict[str, str]:
        """The variables with these secrets: every second in a file, as containers mount them."""
        made = {}
        for at, (variable, value) in enumerate(sorted(given.items())):
            if at % 2:
                file = self.folder / secrets.token_hex(4)
                file.write_text(f"{value}\n")
                made[f"{variable}_FILE"] = str(file)
            else:
                made[variable] = value
        return made

    def found_in(self, outputs: Mapping[str, bytes]) -> list[str]:
        """Which secret stands in which output."""
        spelled = [(name, form) for name, text in self.texts.items() for form in forms(text)]
        return [
            f"{name} in {where}"
            for where, content in outputs.items()
            for name in sorted({name for name, form in spelled if form in content})
        ]


def forms(secret: str) -> set[bytes]:
    """A secret as bytes: plain, cut short, in a URL, in hexadecimal digits, and in base64 wherever in it it
    begins."""
    raw = secret.encode()
    plain = {raw, raw[:BEGIN], quote(secret, safe="").encode(), raw.hex().encode()}
    # Of three alignments each has characters in its middle that no neighbour changes.
    coded = {base64.b64encode(b"\0" * shift + raw)[4:-4] for shift in range(3)}
    return {form for form in plain | coded if len(form) >= SHORTEST}


def files_below(*folders: Path) -> Iterator[tuple[str, bytes]]:
    """Every file of these folders, by its path, and what it holds."""
    for folder in folders:
        for path in folder.rglob("*"):
            if path.is_file():
                yield str(path), path.read_bytes()


def command_lines() -> Iterator[tuple[str, bytes]]:
    """The command line of every process of the machine, as everybody sees it."""
    for process in psutil.process_iter(["pid", "cmdline"]):
        yield f"command line of {process.pid}", " ".join(process.info["cmdline"] or ()).encode()
