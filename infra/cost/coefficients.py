"""Measured coefficients: what a record, a byte, a commit, a merge, a search takes. Each names the measurement
that it comes from, and its date."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lake.errors import SettingsError

FILE = Path(__file__).with_name("coefficients.toml")


@dataclass(frozen=True, slots=True)
class Coefficient:
    """One figure. `result`: the file that has what the command gave; `note`: how the figure comes from it."""

    name: str
    value: float
    unit: str
    command: str
    result: str
    date: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Coefficients:
    """All of them, by name."""

    by_name: Mapping[str, Coefficient]

    def __getitem__(self, name: str) -> float:
        """The value of one. Raises SettingsError where there is none."""
        if name not in self.by_name:
            raise SettingsError(
                f"{FILE.name} has no coefficient {name!r}; write the file anew: "
                "python -m tests.benchmarks.cost_coefficients"
            )
        return self.by_name[name].value


def read_coefficients(path: Path = FILE) -> Coefficients:
    """The coefficients of a file. Raises SettingsError."""
    found = dict[str, Coefficient]()
    for entry in read_toml(path).get("coefficient", ()):
        try:
            coefficient = Coefficient(**entry)
        except TypeError as error:
            raise SettingsError(f"{path}: coefficient {entry.get('name', '')!r}: {error}") from None
        found[coefficient.name] = coefficient
    return Coefficients(found)


def read_toml(path: Path) -> dict[str, Any]:
    """A file of TOML. Raises SettingsError where it cannot be read or is none."""
    try:
        return tomllib.loads(path.read_text())
    except OSError as error:
        raise SettingsError(f"{path}: {error.strerror}; name a file that can be read") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path} is not TOML: {error}") from None
