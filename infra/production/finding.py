"""What a check says."""

from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """How it stands."""

    OK = "ok"
    WARNING = "warning"
    UNSAFE = "unsafe"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at. `sentence`: what was found, and, unless all is well, what to do."""

    check: str
    verdict: Verdict
    sentence: str


def ok(check: str, *sentence: str) -> Finding:
    """Returns that all is well. `sentence`: in parts, as for the others."""
    return Finding(check, Verdict.OK, " ".join(sentence))


def warning(check: str, *sentence: str) -> Finding:
    """Returns what should be otherwise."""
    return Finding(check, Verdict.WARNING, " ".join(sentence))


def unsafe(check: str, *sentence: str) -> Finding:
    """Returns what must not stay."""
    return Finding(check, Verdict.UNSAFE, " ".join(sentence))


def unknown(check: str, *sentence: str) -> Finding:
    """Returns what could not be looked at."""
    return Finding(check, Verdict.UNKNOWN, " ".join(sentence))
