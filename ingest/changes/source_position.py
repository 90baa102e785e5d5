"""Where a change stands in the log of its database, comparable with other changes of the same table.

| database | position | from |
|---|---|---|
| PostgreSQL | log sequence number | `lsn` |
| MySQL, MariaDB | number of the binlog file, offset in it, row of the event | `file`, `pos`, `row` |
| SQL Server, Db2 | LSNs of commit and change, event number | `commit_lsn`, `change_lsn`, `event_serial_no` |
| Oracle | system change number | `scn` |

Two changes of one key are in the order of their positions, because the second one had to wait for the lock of
the first. Equal positions are the same change, or parts of one statement.
"""

import re
from typing import Any, Protocol

SourcePosition = tuple[int, ...]


class SourceMembers(Protocol):
    """Debezium's `source`."""

    def get(self, name: str, /) -> Any:
        """The member of `SOURCE_FIELDS` of that name; None where there is none."""


# The members of `source` that are read here.
SOURCE_FIELDS = (
    "lsn",
    "file",
    "pos",
    "row",
    "commit_lsn",
    "change_lsn",
    "event_serial_no",
    "scn",
    "ts_us",
    "ts_ns",
    "ts_ms",
)
_DIGITS = 20  # of an unsigned number of 64 bits
_HEXADECIMAL = re.compile(r"[0-9A-Fa-f]+(?::[0-9A-Fa-f]+)*")
_BINLOG_FILE = re.compile(r".*\.(\d{1,18})", re.DOTALL | re.ASCII)
_NUMBER = re.compile(r"\d{1,38}", re.ASCII)


def find_position(source: SourceMembers) -> SourcePosition | None:
    """The position that Debezium's `source` names; None where it names none that is known."""
    if (lsn := _number(source.get("lsn"))) is not None:
        return (lsn,)
    if (file := source.get("file")) is not None:
        return binlog_position(file, source.get("pos"), source.get("row"))
    if (commit := _lsn(source.get("commit_lsn"))) is not None:
        change, event = _lsn(source.get("change_lsn")), _number(source.get("event_serial_no"))
        return commit, change or 0, event or 0
    if (scn := _number(source.get("scn"))) is not None:
        return (scn,)
    return None


def find_time_us(source: SourceMembers) -> int | None:
    """When the change happened by Debezium's `source`, microseconds since 1970-01-01T00:00Z, as exactly as it
    says."""
    if (us := _number(source.get("ts_us"))) is not None:
        return us
    if (ns := _number(source.get("ts_ns"))) is not None:
        return ns // 1_000
    ms = _number(source.get("ts_ms"))
    return None if ms is None else ms * 1_000


def binlog_position(file: Any, offset: Any, row: Any) -> SourcePosition | None:
    """The position of MySQL's binlog: the number that ends the file's name, the offset, the row."""
    match = _BINLOG_FILE.fullmatch(file) if type(file) is str else None  # a number is none, `Json` or not
    number = _number(offset)
    if match is None or number is None:
        return None
    return int(match[1]), number, _number(row) or 0


def position_text(position: SourcePosition) -> str:
    """A position as text that sorts as the position does."""
    return ":".join(f"{part:0{_DIGITS}}" for part in position)


def _number(value: Any) -> int | None:
    """A whole number; of a message without a schema it is its text."""
    if type(value) is int:
        return value if value >= 0 else None
    return int(value) if isinstance(value, str) and _NUMBER.fullmatch(value) else None


def _lsn(value: Any) -> int | None:
    """An LSN of SQL Server, as it is written: hexadecimal parts of a fixed width."""
    if type(value) is not str or not _HEXADECIMAL.fullmatch(value):
        return None
    return int(value.replace(":", ""), 16)
