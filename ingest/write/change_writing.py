"""How a flush of changes is written, by its table and by what goes into it."""

from typing import Protocol

from ingest.convert.work import ConverterLimits
from ingest.route.buffer import TableBuffer
from ingest.write.change_terms import ChangeTerms, GrowingSchema, SourceKinds, WrittenChanges
from ingest.write.history_writer import HistoryWriting
from ingest.write.keyed_writer import KeyedWriting
from ingest.write.mixed_writer import MixedWriting


class Writing(Protocol):
    """The writing of one flush."""

    def append(self, buffer: TableBuffer) -> None:
        """Writes the messages of one part: complete, not yet synced."""

    def close(self) -> WrittenChanges:
        """What was written."""

    def discard(self) -> None:
        """As if nothing had been written."""


def writing_of(terms: ChangeTerms, kinds: SourceKinds, limits: ConverterLimits) -> Writing:
    """A table has a key from its first rows on, or never."""
    if terms.view.key is not None or (terms.view.is_new and kinds.keyed):
        return KeyedWriting(terms)
    if kinds.records or kinds.keyed:
        return MixedWriting(terms, kinds, limits)
    return HistoryWriting(terms, GrowingSchema(terms.view.log_schema))
