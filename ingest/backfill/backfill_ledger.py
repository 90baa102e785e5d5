"""The marks of a backfill from files: a commit sets those of its files and leaves the marks of the live
topics as they are."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from ingest.backfill.archive import ArchiveFile, UnusableFileError
from ingest.commit.ledger import Advance, beside_live
from lake.backfill_mark import BackfillMark, backfill_property, parse_backfill_mark
from lake.commit import TableState
from lake.marks import Marks, Range, TopicPartition


@dataclass
class BackfillLedger:
    """Marks of the files that are being read. `ends`: how many records a file has, once it was read to its
    end. `check`: raises FatalError where a table, as it is now, does not take them."""

    check: Callable[[TableState], None]
    files: dict[str, ArchiveFile] = field(default_factory=dict)  # by source
    ends: dict[str, int] = field(default_factory=dict)

    def begin(self, file: ArchiveFile) -> None:
        """A file is read from here on."""
        self.files[file.source] = file

    def forget(self, sources: Iterable[str]) -> None:
        """These files are done."""
        for source in sources:
            self.files.pop(source, None)
            self.ends.pop(source, None)

    def mark(self, state: TableState, source: str) -> BackfillMark | None:
        """How far the table has committed a file. Raises UnusableFileError where it committed another content
        of it, ProtocolError."""
        mark, file = parse_backfill_mark(state.properties, source), self.files[source]
        if mark is not None and not mark.is_of(file.size, file.etag):
            raise UnusableFileError(
                f"{file.uri} has changed since {mark.next:,} records of it went into table {state.name} "
                f"(then {mark.size:,} bytes, etag {mark.etag}; now "
                f"{file.size:,} bytes, etag {file.etag}), so their numbers mean nothing any more. Put back "
                "the file as it was to go on with it; what is new "
                f"goes in as a file of another name, without the records that are there already"
            )
        return mark

    # ---- as a committer asks

    def marks(self, state: TableState) -> Marks:
        self.check(state)
        marks = {source: parse_backfill_mark(state.properties, source) for source in self.files}
        return Marks(
            {TopicPartition(source, 0): mark.next for source, mark in marks.items() if mark is not None}
        )

    def advance(self, state: TableState, ranges: Mapping[TopicPartition, Range], _: str) -> Advance:
        return beside_live(
            state,
            {
                backfill_property(topic_partition.topic_id): self._mark(
                    topic_partition.topic_id, end
                ).to_property()
                for topic_partition, (_, end) in ranges.items()
            },
        )

    def moved_by(self, _: TableState) -> str:
        return ""

    def _mark(self, source: str, end: int) -> BackfillMark:
        file = self.files[source]
        return BackfillMark(file.uri, file.size, file.etag, end, complete=self.ends.get(source) == end)
