"""A dump of a table: which keyed tables take its rows, and where those stand among the changes of the source.

| a table | takes the rows of a dump |
|---|---|
| new, or without a row | yes, as long as nobody else writes to it |
| with rows of files of the same run | yes: the run goes on where it stands |
| with other rows, ordered by position or time | yes: `as_of` says how old the rows are |
| with other rows, ordered by offset | no: nothing tells which of two rows is older |
| of mode `first_wins` | yes: a key that is there stays |
| of mode `delete_only` | yes: its rows come from batches |
"""

import re
from collections.abc import Collection
from dataclasses import dataclass, field

from ingest.changes.connect_schema import row_column
from ingest.changes.source_position import binlog_position
from ingest.decode.event_time import parse_instant
from ingest.model.link import TableKey, parse_table_key
from ingest.model.source import AsOf
from lake.backfill_mark import BACKFILL_PREFIX, backfill_property
from lake.commit import TableState
from lake.errors import FatalError, SettingsError
from lake.marks import Marks
from lake.settings import ChangeSettings

_NUMBER = re.compile(r"\d{1,38}", re.ASCII)
_LSN = re.compile(r"([0-9A-Fa-f]{1,8})/([0-9A-Fa-f]{1,8})")
_BINLOG = re.compile(r"(.*\.\d{1,18}):(\d{1,18})", re.ASCII)


def parse_as_of(text: str) -> AsOf:
    """Reads a position (a number, PostgreSQL's `16/B374D848`, MySQL's `binlog.000003:154`) or a time. Raises
    SettingsError."""
    if _NUMBER.fullmatch(text):
        return AsOf(position=(int(text),))
    if (lsn := _LSN.fullmatch(text)) is not None:
        return AsOf(position=((int(lsn[1], 16) << 32) + int(lsn[2], 16),))
    if (binlog := _BINLOG.fullmatch(text)) is not None:
        return AsOf(position=binlog_position(binlog[1], int(binlog[2]), None))
    if (instant := parse_instant(text)) is not None:
        return AsOf(time_us=instant.us)
    raise SettingsError(
        f"--as-of {text!r} is no position and no time; write a log sequence number (16/B374D848, or as a "
        "number), a file of the binlog and an offset (binlog.000003:154), or a time like 2026-03-01T00:00:00Z"
    )


@dataclass
class DumpRules:
    """What tables of one run have to be. `changes`: how its rows are read; None: they are records. `sources`:
    the ids of its files."""

    changes: ChangeSettings | None
    as_of: AsOf | None
    sources: Collection[str]
    _began: dict[str, Marks] = field(default_factory=dict)  # by the uuid of a table

    def check(self, state: TableState) -> None:
        """Raises FatalError where a table does not take what this run brings."""
        key = parse_table_key(state.properties)
        if self.changes is None:
            if key is not None:
                names = " ".join(f"--key {name}" for name in key.columns)
                raise FatalError(
                    f"table {state.name} has a row for each key, and records have none; say which fields are "
                    f"the key of the rows: {names}"
                )
            return
        if key is None and state.exists:
            raise FatalError(
                f"table {state.name} has no key, and rows are only ever added to it; leave --key out, or "
                "name another stream"
            )
        key = key or TableKey(self._columns, self.changes.mode, self.changes.order_by)
        if sorted(key.columns) != sorted(self._columns):
            raise FatalError(
                f"the key of table {state.name} is {', '.join(key.columns)}; give these fields as --key"
            )
        if key.mode in ("first_wins", "delete_only"):
            return
        if key.order_by == "offset":
            self._check_empty(state)
        else:
            self._check_as_of(state, key)

    @property
    def _columns(self) -> tuple[str, ...]:
        """The key as columns."""
        return () if self.changes is None else tuple(row_column(name, "string") for name in self.changes.key)

    def _check_as_of(self, state: TableState, key: TableKey) -> None:
        told = self.as_of and (self.as_of.position if key.order_by == "position" else self.as_of.time_us)
        if told is None:
            raise FatalError(
                f"table {state.name} orders its changes by {key.order_by}; say with --as-of which "
                f"{key.order_by} of the source the dump was taken at"
            )

    def _check_empty(self, state: TableState) -> None:
        """Nobody else may have written to the table, nor may begin to."""
        own = [name for name in state.properties if name.startswith(BACKFILL_PREFIX)]
        if state.uuid not in self._began:
            has_none = not state.totals.rows and not own
            self._began[state.uuid] = state.marks if has_none else Marks({})
        others = set(own) - {backfill_property(source) for source in self.sources}
        if (
            others
            or (state.totals.rows and not own)
            or state.marks.offsets != self._began[state.uuid].offsets
        ):
            raise FatalError(
                f"table {state.name} has rows that this run has not brought, and nothing tells whether they "
                "are older than the dump's; take a dump into an empty table, all its files in one run and "
                "before its stream is read, or let the table order its changes (changes.order_by)"
            )
