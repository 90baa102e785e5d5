"""A flush of changes to a history: every change is a row, appended as records are."""

from dataclasses import dataclass, field

from ingest.convert.change_columns import ChangeColumns
from ingest.convert.history_rows import HistoryRows, lay_out_history
from ingest.convert.read_changes import ReadChanges, read_changes
from ingest.route.buffer import TableBuffer
from ingest.write.change_terms import ChangeTerms, GrowingSchema, PartFate, WrittenChanges
from ingest.write.writer import write_files
from lake.data_file import DataFile


@dataclass
class HistoryWriting:
    """The writing of one flush. `schema`: the table's, which others may add to as well."""

    terms: ChangeTerms
    schema: GrowingSchema
    _files: list[DataFile] = field(default_factory=list)
    _rows: int = 0

    def append(self, buffer: TableBuffer) -> None:
        """Writes the messages of one part: complete, not yet synced."""
        terms = self.terms
        read = read_changes(buffer, terms.sources, terms.marks, terms.reading)
        history = self._lay_out(read, buffer)
        terms.note(buffer, PartFate(read.rejected, read.committed, history.rows_with_errors))
        if history.rows.num_rows:
            self._files += write_files(terms.storage, terms.view.location, history.rows, self.schema.schema)
            self._rows += history.rows.num_rows

    def _lay_out(self, read: ReadChanges, buffer: TableBuffer) -> HistoryRows:
        while True:
            columns = ChangeColumns(self.schema.schema)
            history = lay_out_history(read, buffer, self.terms.sources, columns)
            if self.schema.take(columns.wanted(), self.terms.grow):
                return history

    def close(self) -> WrittenChanges:
        """What was written."""
        return WrittenChanges(self._files, self._rows, self.schema.new, self.schema.widened)

    def discard(self) -> None:
        """Files that are complete are left to the orphan remover."""
