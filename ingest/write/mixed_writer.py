"""A flush of a table without a key into which topics of changes and topics of records go together, or changes
that only a table with a key could take. What one topic sends must not take the records of another along."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

from ingest.convert.converter import convert
from ingest.convert.work import Converted, ConverterLimits
from ingest.route.buffer import TableBuffer
from ingest.write.change_terms import ChangeTerms, GrowingSchema, PartFate, SourceKinds, WrittenChanges
from ingest.write.history_writer import HistoryWriting
from ingest.write.writer import write_files
from lake.data_file import DataFile
from lake.errors import Reason, Rejected

# A mark behind every offset: nothing of such a source is looked at.
_BEHIND_ALL = 1 << 62
NO_KEY = Rejected(
    Reason.KEY_MISSING,
    "the table has no key, and changes are to be applied to it; let the topic's rules name another stream, "
    "or drop the table so that it is created anew",
)


@dataclass
class MixedWriting:
    """The writing of one flush: records as rows, changes of a history as rows, other changes as dead
    letters."""

    terms: ChangeTerms
    kinds: SourceKinds
    limits: ConverterLimits
    _files: list[DataFile] = field(default_factory=list)
    _rows: int = 0
    _schema: GrowingSchema = field(init=False)
    _history: HistoryWriting = field(init=False)
    _fates: list[PartFate] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._schema = GrowingSchema(self.terms.view.log_schema)
        marks = self._marks_of(self.kinds.histories)
        terms = replace(self.terms, marks=marks, note=lambda _, fate: self._fates.append(fate))
        self._history = HistoryWriting(terms, self._schema)

    def append(self, buffer: TableBuffer) -> None:
        """Writes the messages of one part: complete, not yet synced."""
        self._fates = [self._refused(buffer), self._append_records(buffer)]
        self._history.append(buffer)
        self.terms.note(
            buffer,
            PartFate(
                [each for fate in self._fates for each in fate.rejected],
                _committed(buffer, self.terms.marks),
                sum(fate.rows_with_errors for fate in self._fates),
            ),
        )

    def _append_records(self, buffer: TableBuffer) -> PartFate:
        terms, converted = self.terms, self._convert(buffer)
        if converted.rows.num_rows:
            location = terms.view.location
            self._files += write_files(terms.storage, location, converted.rows, self._schema.schema)
            self._rows += converted.rows.num_rows
        return PartFate(converted.rejected, 0, converted.rows_with_errors)

    def _convert(self, buffer: TableBuffer) -> Converted:
        marks = self._marks_of(self.kinds.records)
        while True:
            converted = convert(buffer, self.terms.sources, self._schema.schema, marks, self.limits)
            if self._schema.take(converted.new, self.terms.grow):
                return converted

    def _refused(self, buffer: TableBuffer) -> PartFate:
        marks = self._marks_of(self.kinds.keyed)
        fresh = [at for at in range(len(buffer)) if buffer.offsets[at] >= marks[buffer.sources[at]]]
        return PartFate([(at, NO_KEY) for at in fresh])

    def _marks_of(self, sources: Collection[int]) -> list[int]:
        return [mark if at in sources else _BEHIND_ALL for at, mark in enumerate(self.terms.marks)]

    def close(self) -> WrittenChanges:
        """What was written."""
        history = self._history.close()
        return replace(history, files=[*self._files, *history.files], rows=self._rows + history.rows)

    def discard(self) -> None:
        """Files that are complete are left to the orphan remover."""


def _committed(buffer: TableBuffer, marks: Sequence[int]) -> int:
    return sum(offset < marks[source] for source, offset in zip(buffer.sources, buffer.offsets, strict=True))
