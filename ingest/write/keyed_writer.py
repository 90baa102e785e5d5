"""A flush of changes to files: rows of a keyed table, with the steps of its keys that lead to them."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ingest.changes.change import Change
from ingest.convert.change_columns import ChangeColumns
from ingest.convert.keyed_part import KeyedPart, KeyRules, convert_changes
from ingest.convert.read_changes import ReadChanges, read_changes
from ingest.keys.keyed_steps import KeyedSteps, StepSpool
from ingest.model.link import KEYED_MODES, KeyedRows, TableKey, TableView
from ingest.model.source import Source
from ingest.route.buffer import TableBuffer
from ingest.write.keyed_files import KeyedFiles
from lake.data_file import DataFile
from lake.errors import FatalError, Rejected
from lake.log_schema import LogSchema, WantedColumn, shared_schema
from lake.marks import TopicPartition
from lake.settings import ChangeSettings
from lake.storage import Storage

Grow = Callable[[Mapping[str, WantedColumn]], bytes]


@dataclass(frozen=True, slots=True)
class PartFate:
    """What became of the messages of a part beside its rows: ordinals that are rejected and why, how many the
    table has already, how many rows have errors."""

    rejected: Sequence[tuple[int, Rejected]]
    committed: int = 0
    rows_with_errors: int = 0


@dataclass(frozen=True, slots=True)
class KeyedFlush:
    """What was written of a flush: files, rows in them, new columns with their ids, and what it does to
    keys."""

    files: Sequence[DataFile]
    rows: int
    new: Mapping[str, int]
    keyed: KeyedRows | None


def is_keyed(buffer: TableBuffer, sources: Sequence[Source], view: TableView) -> bool:
    """Whether the messages are changes of rows, which stand under a key."""
    if view.key is not None:
        return True
    settings = changes_of(buffer, sources)
    return settings is not None and settings.mode in KEYED_MODES


def changes_of(buffer: TableBuffer, sources: Sequence[Source]) -> ChangeSettings | None:
    """What the settings say of the changes in a buffer: those of its first source that has any."""
    found = (sources[number].changes for number in buffer.first_offsets)
    return next((settings for settings in found if settings is not None), None)


@dataclass
class KeyedWriting:
    """The writing of one flush for the table as `view` shows it. `grow` gets columns for it."""

    storage: Storage
    view: TableView
    sources: Sequence[Source]
    marks: Sequence[int]
    depth_max: int
    grow: Grow
    note: Callable[[TableBuffer, PartFate], None]
    settings: ChangeSettings | None
    _spool: StepSpool = field(default_factory=StepSpool)
    _counts: Counter[str] = field(default_factory=Counter)
    _new: dict[str, int] = field(default_factory=dict)
    _widened: dict[str, Any] = field(default_factory=dict)
    _is_truncated: bool = False
    _rules: KeyRules | None = None
    _files: KeyedFiles | None = None
    _schema: LogSchema = field(init=False)

    def __post_init__(self) -> None:
        self._schema = self.view.log_schema
        if self.view.key is not None:
            key = self.view.key
            self._rules = KeyRules(key.mode, key.columns, key.order_by)

    def append(self, buffer: TableBuffer) -> None:
        """Writes the messages of one part. Raises FatalError where the table can take no changes."""
        read = read_changes(buffer, self.sources, self.marks, self.depth_max)
        self._counts.update(read.passed_over)
        rules = self._rules or self._new_rules(read)
        if rules is None:
            self.note(buffer, PartFate(read.rejected, read.committed))
            return
        columns = ChangeColumns(self._schema)
        part = convert_changes(read, buffer, self.sources, columns, rules)
        self._counts.update(part.counts)
        self.note(buffer, PartFate(part.rejected, read.committed, part.rows_with_errors))
        if part.is_truncated:
            self._is_truncated = True
            self._spool.truncate()
        if columns.new or columns.widened:
            self._grow(columns)
        self._spool.add(self._write(part, rules))

    def _new_rules(self, read: ReadChanges) -> KeyRules | None:
        """The rules of a table that the first change with a key makes a keyed one."""
        first = next((step.change for step in read.steps), None)
        if first is None or self.settings is None:
            return None
        if not self.view.is_new:
            raise FatalError(
                f"the table at {self.view.location} has no key, and changes are to be applied to it by mode "
                f"{self.settings.mode}; let the topic's rules name another stream, or drop the table"
            )
        self._rules = KeyRules(self.settings.mode, _key_of(first), self.settings.order_by)
        return self._rules

    def _grow(self, columns: ChangeColumns) -> None:
        wanted: dict[str, WantedColumn] = dict(columns.new)
        wanted |= columns.wider()
        self._schema = shared_schema(self.grow(wanted))
        self._new |= {name: self._schema.by_name[name].id for name in columns.new}
        self._widened |= {name: self._schema.by_name[name].kind for name in columns.widened}

    def _write(self, part: KeyedPart, rules: KeyRules) -> KeyedSteps:
        if not part.rows.num_rows:
            return part.steps
        if self._files is None:
            buckets = 1 if self.settings is None else self.settings.buckets
            self._files = KeyedFiles(self.storage, self.view.location, self.view.buckets or buckets)
        numbers, rows = self._files.append(part.rows, self._schema, rules.key[0])
        file, row = part.steps.file.copy(), part.steps.row.copy()
        at = np.flatnonzero(part.leaves_row)
        file[at], row[at] = numbers, rows
        return replace(part.steps, file=file, row=row)

    def close(self) -> KeyedFlush:
        """Closes the files: complete, not yet synced."""
        files = [] if self._files is None else self._files.close()
        rows = 0 if self._files is None else self._files.rows
        return KeyedFlush(files, rows, self._new, self._keyed())

    def _keyed(self) -> KeyedRows | None:
        if self._rules is None or not (self._is_truncated or any(map(len, self._spool.parts))):
            return None
        rules = self._rules
        return KeyedRows(
            TableKey(rules.key, rules.mode, rules.order_by),
            tuple(TopicPartition(source.topic_id, source.partition) for source in self.sources),
            self._spool.packed(),
            self._widened,
            self._is_truncated,
            1 if self.settings is None else self.settings.buckets,
            dict(self._counts),
        )

    def discard(self) -> None:
        """As if nothing had been written."""
        if self._files is not None:
            self._files.discard()


def _key_of(change: Change) -> tuple[str, ...]:
    return tuple(change.key.values)
