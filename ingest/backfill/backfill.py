"""Files of an archive into tables, by the stages that live records pass: the control flow.

    archive -> archive_reader -> router -> buffer -> (shape | decoder, row) -> converter -> writer ->
    committer, with the marks of `backfill_ledger`

A file is compared with what was found at the start before its records are committed, and at its end: records
are numbered, and numbers of a file that is written to meanwhile mean nothing.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import structlog

from ingest.backfill.archive import ArchiveFile, UnusableFileError, current
from ingest.backfill.archive_reader import Batch, read_batches
from ingest.backfill.backfill_commits import BackfillCommits, ChangedMeanwhileError
from ingest.backfill.backfill_ledger import BackfillLedger
from ingest.backfill.backfill_report import FilesReport
from ingest.mask.masks import mask_of
from ingest.mask.message_mask import MessageMask, Parts, withheld_of
from ingest.model.raw_rows import ByteValues
from ingest.model.source import AsOf, Source
from ingest.route.buffer import RawRecord
from ingest.route.router import Envelope, Router
from ingest.write.flush_writer import Flush
from lake.commit import TableState
from lake.errors import Reason, Rejected
from lake.settings import IngestSettings, TopicSettings
from lake.storage import AnyStorage
from lake.tenant import TableId

# Of a batch that is taken as a whole: between its records no flush is due.
TOGETHER_BYTES = 4 * 1024 * 1024
# Every file that waits is looked at in every commit.
FILES_WAITING = 1_000
log = structlog.get_logger()


@dataclass
class _Reading:
    """The file that is being read: its number among the sources, and per table the first record that is not
    there yet. `only`: the table that all its records go to, where its rules name one."""

    file: ArchiveFile
    number: int
    source: Source
    router: Router
    resume: dict[TableId, int] = field(default_factory=dict)
    only: TableId | None = None


@dataclass
class Backfill:
    """One run."""

    settings: IngestSettings
    topic: TopicSettings
    storage: AnyStorage
    commits: BackfillCommits
    ledger: BackfillLedger
    report: FilesReport
    as_of: AsOf | None = None  # of a dump
    _routed: list[int] = field(default_factory=list)  # per source, the record after the last one routed
    _done: set[str] = field(default_factory=set)  # sources that are not read any more

    def run(self, files: Iterable[ArchiveFile]) -> None:
        """Reads all files; one that is refused or damaged is reported, and the others go on. Raises FirnError
        where nothing can go on."""
        for file in files:
            try:
                self._file(file)
            except UnusableFileError as error:
                log.warning("backfill.file_failed", file=file.uri, reason=str(error))
                self.report.failed[file.uri] = str(error)
            else:
                self.report.files += 1
            self._done.add(file.source)
            if len(self.commits.sources) >= FILES_WAITING:
                self._flush()
        self._flush()
        self.commits.writer.acknowledged()
        if self._mask is not None:
            counts = self._mask.take_counts()
            self.report.masked, self.report.withheld = counts.messages, counts.withheld

    @cached_property
    def _mask(self) -> MessageMask | None:
        return mask_of(self.settings, self.topic)

    # ---- in

    def _file(self, file: ArchiveFile) -> None:
        self.ledger.begin(file)
        reading = self._begin(file)
        if self._is_there_already(reading):
            return
        for batch in read_batches(file, self.storage, as_changes=self.topic.has_changes):
            self.commits.keep_alive()
            self._take(reading, batch)
            self.report.show(file.uri)
            if self.commits.is_full:
                self._flush()
        self._check_unchanged(file)
        self.ledger.ends[file.source] = self._routed[reading.number]

    def _begin(self, file: ArchiveFile) -> _Reading:
        topic = self.topic.model_copy(update={"name": file.uri})
        source = Source.of(topic, file.source, 0)._replace(as_of=self.as_of)
        self.commits.sources.append(source)
        self._routed.append(0)
        return _Reading(file, len(self._routed) - 1, source, Router(topic))

    def _is_there_already(self, reading: _Reading) -> bool:
        """Whether the one table that all records of the file go to has them all; the file need not be read
        then.

        Raises UnusableFileError where the file's path names no tenant.
        """
        rules = [*self.topic.tenant, *self.topic.stream]
        if not all(rule.startswith(("const:", "topic:")) for rule in rules):
            return False
        table = reading.router.route(Envelope(reading.file.uri, None, (), b"{}"))
        if isinstance(table, Rejected):
            raise UnusableFileError(
                f"{reading.file.uri} goes nowhere: {table.detail}; correct the regular expression, or read "
                "this file with --tenant"
            )
        reading.only = table
        self._meet(reading, [table])
        state = self.commits.states.last_known(table)
        mark = None if state is None else self.ledger.mark(state, reading.file.source)
        if mark is None or not mark.complete:
            return False
        self.report.records += mark.next
        self.report.skipped += mark.next
        return True

    def _take(self, reading: _Reading, batch: Batch) -> None:
        """Routes records into their tables' buffers or to the dead letters."""
        if self._mask is None and self._take_together(reading, batch):
            return
        values, withheld = (batch.values, {}) if self._mask is None else self._masked(reading, batch.values)
        routed = [
            (batch.first + at, value, withheld.get(at) or self._route(reading, value))
            for at, value in enumerate(values)
        ]
        self._meet(
            reading, {table for *_, table in routed if isinstance(table, TableId)} - reading.resume.keys()
        )
        for number, value, table in routed:
            self.report.records += 1
            if value is None:
                self.report.blank += 1
            elif table is None or isinstance(table, Rejected):
                self._dead_letter(reading, number, value, table)
            elif number < reading.resume[table]:
                self.report.skipped += 1
            elif self.commits.add(
                table, RawRecord(reading.number, number, reading.file.modified_ms, None, (), value)
            ):
                self._routed[reading.number] = number + 1
                self._flush([table])
            self._routed[reading.number] = number + 1

    def _masked(
        self, reading: _Reading, values: Sequence[bytes | None]
    ) -> tuple[list[bytes | None], dict[int, Rejected]]:
        """The records as they may be kept, and why nothing is kept of some, by their places."""
        assert self._mask is not None
        places_of, left, withheld = dict[str | None, list[int]](), list(values), dict[int, Rejected]()
        for at, value in enumerate(values):
            target = self._route(reading, value) if self._mask.names_streams else None
            places_of.setdefault(target.stream if isinstance(target, TableId) else None, []).append(at)
        for stream, places in places_of.items():
            before = [Parts(None, (), values[at], reading.file.modified_ms) for at in places]
            for at, parts in zip(places, self._mask.masked_parts(before, stream), strict=True):
                left[at] = parts.value
                if values[at] and (refused := withheld_of(parts.headers)) is not None:
                    left[at], withheld[at] = b"", refused
        return left, withheld

    def _take_together(self, reading: _Reading, batch: Batch) -> bool:
        """Takes records that all go to one table as the bytes they are; False, and nothing is done, where
        that is not known, one is blank or too long, or they are much."""
        table, values = reading.only, batch.values
        if (
            table is None
            or not isinstance(values, ByteValues)
            or values.sizes.max() > self.settings.limits.record_bytes_max
            or len(values.text) > TOGETHER_BYTES
        ):
            return False
        first, end = batch.first, batch.first + len(values)
        begin = min(max(first, reading.resume[table]), end)
        self.report.records += len(values)
        self.report.skipped += begin - first
        self._routed[reading.number] = end
        if begin < end and self.commits.extend(
            table, reading.number, begin, reading.file.modified_ms, values[begin - first :]
        ):
            self._flush([table])
        return True

    def _route(self, reading: _Reading, value: bytes | None) -> TableId | Rejected | None:
        if value is None:
            return None
        if len(value) > self.settings.limits.record_bytes_max:
            return Rejected(
                Reason.TOO_LARGE,
                f"{len(value)} bytes, limits.record_bytes_max is {self.settings.limits.record_bytes_max}",
            )
        return reading.router.route(Envelope(reading.file.uri, None, (), value))

    def _dead_letter(self, reading: _Reading, number: int, value: bytes, rejected: Rejected | None) -> None:
        assert rejected is not None
        self.commits.writer.dead_letter(
            RawRecord(reading.number, number, reading.file.modified_ms, None, (), value),
            reading.source,
            rejected,
            None,
        )

    def _meet(self, reading: _Reading, tables: Iterable[TableId]) -> None:
        """Learns how far tables are with the file. Raises UnusableFileError where one committed another
        content of it."""
        tables = list(tables)
        self.commits.open(tables)
        for table in tables:
            state = self.commits.states.last_known(table)
            assert state is not None
            self.ledger.check(state)
            mark = self.ledger.mark(state, reading.file.source)
            reading.resume[table] = 0 if mark is None else mark.next

    # ---- out

    def _flush(self, tables: Sequence[TableId] | None = None) -> None:
        self.commits.flush(self, tables)
        if self.commits.is_empty:
            self._forget()

    def _forget(self) -> None:
        """Nothing waits: files that were read to their ends need not be known any more."""
        if all(source.topic_id in self._done for source in self.commits.sources):
            self.commits.sources.clear()
            self._routed.clear()
            self.ledger.forget(self._done)
            self._done.clear()

    # ---- as the commits ask

    def check(self) -> None:
        for source in self.commits.sources[-1:]:  # the others were compared at their ends
            if source.topic_id not in self._done:
                self._check_unchanged(self.ledger.files[source.topic_id])

    def _check_unchanged(self, file: ArchiveFile) -> None:
        if not current(file, self.storage):
            raise ChangedMeanwhileError(
                f"{file.uri} was written to while it was read; run it again when the file is at rest. What "
                "is committed of it stays: if its "
                f"content has changed and not only its time, the next run names it"
            )

    def check_state(self, state: TableState, flush: Flush) -> None:
        for topic_partition in flush.ends:
            try:
                self.ledger.mark(state, topic_partition.topic_id)
            except UnusableFileError as error:  # another run took up another content just now
                raise ChangedMeanwhileError(str(error)) from error

    def end(self, _: TableId, source: int) -> int:
        return self._routed[source]
