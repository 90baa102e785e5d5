"""Severities as records spell them, sorted into the few levels a chart can show."""

from enum import StrEnum


class Level(StrEnum):
    """From OpenTelemetry's severity ranges; `OTHER` is anything that is none of them, missing ones included."""

    FATAL = "fatal"
    ERROR = "error"
    WARN = "warn"
    INFO = "info"
    DEBUG = "debug"
    OTHER = "other"


_SPELLINGS = {
    Level.FATAL: "fatal critical crit emerg emergency panic alert f 0 1 2",
    Level.ERROR: "error err severe failure e 3",
    Level.WARN: "warn warning w 4",
    Level.INFO: "info information informational notice i 5 6",
    Level.DEBUG: "debug trace verbose fine finer finest d t 7",
}
_LEVELS = {spelling: level for level, spellings in _SPELLINGS.items() for spelling in spellings.split()}


def level_of(severity: str | None) -> Level:
    """The level of a severity; numbers are syslog's."""
    return _LEVELS.get(severity.strip().strip('"').lower(), Level.OTHER) if severity else Level.OTHER
