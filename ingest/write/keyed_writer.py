"""A flush of changes to files: rows of a keyed table, with the steps of its keys that lead to them."""

from collections import Counter
from dataclasses import dataclass, field, replace

import numpy as np

from ingest.convert.change_columns import ChangeColumns
from ingest.convert.keyed_part import KeyedPart, KeyRules, Numbering, convert_changes
from ingest.convert.read_changes import ReadChanges, read_changes
from ingest.keys.keyed_steps import KeyedSteps, StepSpool
from ingest.model.link import NAMED_MAX, KeyedRows, TableKey
from ingest.route.buffer import TableBuffer
from ingest.write.change_terms import ChangeTerms, GrowingSchema, PartFate, WrittenChanges
from ingest.write.keyed_files import KeyedFiles
from lake.marks import TopicPartition


@dataclass
class KeyedWriting:
    """The writing of one flush."""

    terms: ChangeTerms
    _spool: StepSpool = field(default_factory=StepSpool)
    _counts: Counter[str] = field(default_factory=Counter)
    _in_several: list[str] = field(default_factory=list)
    _truncated_at: dict[int, int] = field(default_factory=dict)
    _rules: KeyRules | None = None
    _files: KeyedFiles | None = None
    _has_replayed: bool = False
    _schema: GrowingSchema = field(init=False)
    _numbering: Numbering = field(init=False)

    def __post_init__(self) -> None:
        sources = self.terms.sources
        self._numbering = Numbering([TopicPartition(each.topic_id, each.partition) for each in sources])
        self._schema = GrowingSchema(self.terms.view.log_schema)
        if (key := self.terms.view.key) is not None:
            self._rules = KeyRules(key.mode, key.columns, key.order_by)

    def append(self, buffer: TableBuffer) -> None:
        """Writes the messages of one part."""
        terms = self.terms
        read = read_changes(buffer, terms.sources, terms.marks, terms.reading)
        self._counts.update(read.passed_over)
        rules = self._rules or self._new_rules(read)
        if rules is None:
            terms.note(buffer, PartFate(read.rejected, read.committed))
            return
        part = self._convert(read, buffer, rules)
        self._has_replayed |= bool(read.origins)
        self._counts.update(part.counts)
        self._in_several += part.in_several
        terms.note(buffer, PartFate(part.rejected, read.committed, part.rows_with_errors))
        if part.truncated_at:
            self._truncated_at |= part.truncated_at
            self._spool.truncate()
        self._spool.add(self._write(part, rules))

    def _convert(self, read: ReadChanges, buffer: TableBuffer, rules: KeyRules) -> KeyedPart:
        while True:
            columns = ChangeColumns(self._schema.schema)
            part = convert_changes(read, buffer, self.terms.sources, columns, rules, self._numbering)
            if self._schema.take(columns.wanted(), self.terms.grow):
                return part

    def _new_rules(self, read: ReadChanges) -> KeyRules | None:
        """The rules of a table that the first change with a key makes a keyed one."""
        settings = self.terms.settings
        first = next((change for _, change in read.changes if change.key.values), None)
        if first is None or settings is None:
            return None
        self._rules = KeyRules(settings.mode, tuple(first.key.values), settings.order_by)
        return self._rules

    def _write(self, part: KeyedPart, rules: KeyRules) -> KeyedSteps:
        if not part.rows.num_rows:
            return part.steps
        if self._files is None:
            self._files = KeyedFiles(self.terms.storage, self.terms.view.location, self._buckets)
        numbers, rows = self._files.append(part.rows, self._schema.schema, rules.key[0])
        file, row = part.steps.file.copy(), part.steps.row.copy()
        at = np.flatnonzero(part.leaves_row)
        file[at], row[at] = numbers, rows
        return replace(part.steps, file=file, row=row)

    @property
    def _buckets(self) -> int:
        """As the table has them; of a new one as the settings say."""
        settings = self.terms.settings
        return self.terms.view.buckets or (1 if settings is None else settings.buckets)

    def close(self) -> WrittenChanges:
        """Closes the files: complete, not yet synced."""
        files = [] if self._files is None else self._files.close()
        rows = 0 if self._files is None else self._files.rows
        return WrittenChanges(files, rows, self._schema.new, self._schema.widened, self._keyed())

    def _keyed(self) -> KeyedRows | None:
        rules = self._rules
        # What empties a table that is not there yet is no reason to make it; its key has no type so far.
        empties = bool(self._truncated_at) and not self.terms.view.is_new
        if rules is None or not (empties or any(map(len, self._spool.parts))):
            return None
        partitions = tuple(self._numbering.partitions)
        return KeyedRows(
            TableKey(rules.key, rules.mode, rules.order_by),
            partitions,
            self._spool.packed(),
            {partitions[source]: offset for source, offset in self._truncated_at.items()},
            self._buckets,
            dict(self._counts),
            tuple(self._in_several[:NAMED_MAX]),
            self._has_replayed,
        )

    def discard(self) -> None:
        """As if nothing had been written."""
        if self._files is not None:
            self._files.discard()
