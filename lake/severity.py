"""Severities as records spell them, sorted into the few levels a chart can show."""

from enum import StrEnum


class Level(StrEnum):
    """From OpenTelemetry's severity ranges; `OTHER` is anything that is none of them, missing ones
    included."""

    FATAL = "fatal"
    ERROR = "error"
    WARN = "warn"
    INFO = "info"
    DEBUG = "debug"
    OTHER = "other"


# The place of a level here is its number, in SQL and in data files.
LEVELS = tuple(Level)
SPELLINGS = {
    Level.FATAL: "fatal critical crit emerg emergency panic alert f 0 1 2",
    Level.ERROR: "error err severe failure e 3",
    Level.WARN: "warn warning w 4",
    Level.INFO: "info information informational notice i 5 6",
    Level.DEBUG: "debug trace verbose fine finer finest d t 7",
}
# What is taken out of a severity before it is compared.
IGNORED = (" ", '"')
_LEVELS = {spelling: level for level, spellings in SPELLINGS.items() for spelling in spellings.split()}


def level_of(severity: str | None) -> Level:
    """The level of a severity; numbers are syslog's. Blanks and quotes around it, as in `"INFO "`, do not
    matter."""
    if not severity:
        return Level.OTHER
    for character in IGNORED:
        severity = severity.replace(character, "")
    # Character by character, as engines lower: U+0130 is one letter afterwards.
    return _LEVELS.get("".join(character.lower()[:1] for character in severity), Level.OTHER)
