"""Files of an archive into tables, by the stages that live records pass: the control flow.

    archive -> archive_reader -> router -> buffer -> (shape | decoder, row) -> converter -> writer -> committer, with the marks of `backfill_ledger`

The order of durability is that of live ingestion: 1 data files synced - 2 dead letters acknowledged - 3 tables committed, each with its marks. There
is no 4: a table's mark in `firn.backfill.<source>` says where a file goes on, so a run that was killed is simply run again.

A file is compared with what was found at the start before its records are committed, and at its end: records are numbered, and numbers of a file
that is written to meanwhile mean nothing.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

import structlog

from ingest.archive import ArchiveFile, UnusableFileError, current
from ingest.archive_reader import ArchiveRecord, read_records
from ingest.backfill_ledger import BackfillLedger
from ingest.backfill_report import BackfillReport
from ingest.buffer import Buffers, RawRecord
from ingest.committer import Committer
from ingest.converter import Source
from ingest.fault_point import reach
from ingest.flush_writer import TABLE_DELETED, Flush, FlushWriter
from ingest.link import Outcome, TableView, WrittenFlush
from ingest.router import Envelope, Router
from ingest.table_states import TableStates
from ingest.trouble import VERDICTS, Trouble
from lake.errors import FatalError, Reason, Rejected, UnavailableError
from lake.marks import TopicPartition
from lake.settings import IngestSettings, TopicSettings
from lake.storage import AnyStorage
from lake.tenant import TableId

BATCH_RECORDS = 1_000
# One table is converted as a whole; all together wait as raw bytes, of which half the budget is theirs and half is for the conversion.
TABLE_BYTES = 32 * 1024 * 1024
GROUP_TABLES = 256
# Every file that waits is looked at in every commit.
FILES_WAITING = 1_000
STEP_S = 0.005
# What may pass by itself is waited for so long, per commit.
PATIENCE_S = 120.0
log = structlog.get_logger()


@dataclass
class Columns:
    """Hands out columns straight from what the committer knows."""

    states: TableStates

    def grow(self, names: Mapping[TableId, Mapping[str, str]]) -> Mapping[TableId, bytes]:
        return {table: self.states.grow(table, new) for table, new in names.items()}


@dataclass
class _Reading:
    """The file that is being read: its number among the sources, and per table the first record that is not there yet."""

    file: ArchiveFile
    number: int
    source: Source
    router: Router
    resume: dict[TableId, int] = field(default_factory=dict)


@dataclass
class Backfill:
    """One run. `keep_alive` is called again and again, and raises where the run has to end."""

    settings: IngestSettings
    topic: TopicSettings
    storage: AnyStorage
    states: TableStates
    committer: Committer
    ledger: BackfillLedger
    writer: FlushWriter
    report: BackfillReport
    keep_alive: Callable[[], None]
    _sources: list[Source] = field(default_factory=list)
    _routed: list[int] = field(default_factory=list)  # per source, the record after the last one routed
    _done: set[str] = field(default_factory=set)  # sources that are not read any more
    _buffers: Buffers = field(default_factory=Buffers)

    def run(self, files: Iterable[ArchiveFile]) -> None:
        """Reads all files; one that is refused or damaged is reported, and the others go on. Raises FirnError where nothing can go on."""
        for file in files:
            try:
                self._file(file)
            except UnusableFileError as error:
                log.warning("backfill.file_failed", file=file.uri, reason=str(error))
                self.report.failed[file.uri] = str(error)
            else:
                self.report.files += 1
            self._done.add(file.source)
            if len(self._sources) >= FILES_WAITING:
                self._flush(self._all())
        self._flush(self._all())
        self.writer.acknowledged()

    # ---- in

    def _file(self, file: ArchiveFile) -> None:
        self.ledger.begin(file)
        reading = self._begin(file)
        if self._is_there_already(reading):
            return
        records = read_records(file, self.storage)
        while batch := list(islice(records, BATCH_RECORDS)):
            self.keep_alive()
            self._take(reading, batch)
            self.report.show(file.uri)
            if self._buffers.size_bytes >= self.settings.buffer_bytes_max // 2:
                self._flush(self._all())
        self._check_unchanged(file)
        self.ledger.ends[file.source] = self._routed[reading.number]

    def _begin(self, file: ArchiveFile) -> _Reading:
        topic = self.topic.model_copy(update={"name": file.uri})
        source = Source(file.uri, file.source, 0, topic.format, topic.time_zone)
        self._sources.append(source)
        self._routed.append(0)
        return _Reading(file, len(self._sources) - 1, source, Router(topic))

    def _is_there_already(self, reading: _Reading) -> bool:
        """Whether the one table that all records of the file go to has them all; the file need not be read then.

        Raises UnusableFileError where the file's path names no tenant.
        """
        rules = [*self.topic.tenant, *self.topic.stream]
        if not all(rule.startswith(("const:", "topic:")) for rule in rules):
            return False
        table = reading.router.route(Envelope(reading.file.uri, None, (), b"{}"))
        if isinstance(table, Rejected):
            raise UnusableFileError(f"{reading.file.uri} goes nowhere: {table.detail}; correct the regular expression, or read this file with --tenant")
        self._meet(reading, [table])
        state = self.states.last_known(table)
        mark = None if state is None else self.ledger.mark(state, reading.file.source)
        if mark is None or not mark.complete:
            return False
        self.report.records += mark.next
        self.report.skipped += mark.next
        return True

    def _take(self, reading: _Reading, batch: Sequence[ArchiveRecord]) -> None:
        """Routes records into their tables' buffers or to the dead letters."""
        routed = [(record, self._route(reading, record)) for record in batch]
        self._meet(reading, {table for _, table in routed if isinstance(table, TableId)} - reading.resume.keys())
        now_s = time.monotonic()
        for (number, value), table in routed:
            self.report.records += 1
            if value is None:
                self.report.blank += 1
            elif table is None or isinstance(table, Rejected):
                self._bury(reading, number, value, table)
            elif number < reading.resume[table]:
                self.report.skipped += 1
            else:
                record = RawRecord(reading.number, number, reading.file.modified_ms, None, (), value)
                if self._buffers.add(table, now_s, *record) >= TABLE_BYTES:
                    self._routed[reading.number] = number + 1
                    self._flush([table])
            self._routed[reading.number] = number + 1

    def _route(self, reading: _Reading, record: ArchiveRecord) -> TableId | Rejected | None:
        if record.value is None:
            return None
        if len(record.value) > self.settings.record_bytes_max:
            return Rejected(Reason.TOO_LARGE, f"{len(record.value)} bytes, record_bytes_max is {self.settings.record_bytes_max}")
        return reading.router.route(Envelope(reading.file.uri, None, (), record.value))

    def _bury(self, reading: _Reading, number: int, value: bytes, rejected: Rejected | None) -> None:
        assert rejected is not None
        self.writer.bury(RawRecord(reading.number, number, reading.file.modified_ms, None, (), value), reading.source, rejected, None)

    def _meet(self, reading: _Reading, tables: Iterable[TableId]) -> None:
        """Learns how far tables are with the file. Raises UnusableFileError where one absorbed another content of it."""
        tables = list(tables)
        self._open(tables)
        for table in tables:
            state = self.states.last_known(table)
            assert state is not None
            mark = self.ledger.mark(state, reading.file.source)
            reading.resume[table] = 0 if mark is None else mark.next

    def _open(self, tables: Sequence[TableId]) -> None:
        """Returns when all these tables are known."""
        missing = {table for table in tables if self.states.last_known(table) is None}
        patience = _Patience()
        self.states.want(missing)
        while missing:
            arrivals = self.states.poll()
            missing.difference_update(arrivals.known)
            for table, trouble in arrivals.failed:
                patience.failed(table, trouble)
            if missing:
                self._wait()

    def _check_unchanged(self, file: ArchiveFile) -> None:
        if not current(file, self.storage):
            raise ChangedMeanwhileError(
                f"{file.uri} was written to while it was read; run it again when the file is at rest. What is committed of it stays: if its "
                f"content has changed and not only its time, the next run names it"
            )

    # ---- out

    def _all(self) -> list[TableId]:
        return [buffer.table for buffer in self._buffers]

    def _flush(self, tables: Sequence[TableId]) -> None:
        """Writes and commits what waits for these tables; returns when it is durable."""
        for source in self._sources[-1:]:  # the others were compared at their ends
            if source.topic_id not in self._done:
                self._check_unchanged(self.ledger.files[source.topic_id])
        group = list[Flush]()
        for table in tables:
            group.append(self._cut(table))
            # A group is converted as a whole.
            if len(group) >= GROUP_TABLES or sum(flush.buffer.size_bytes for flush in group) >= TABLE_BYTES:
                self._commit(group)
                group = []
        self._commit(group)
        if not len(self._buffers):
            self._forget()

    def _cut(self, table: TableId) -> Flush:
        buffer = self._buffers.take(table)
        return Flush(table, buffer, {TopicPartition(self._sources[n].topic_id, 0): self._routed[n] for n in buffer.first_offsets})

    def _forget(self) -> None:
        """Nothing waits: files that were read to their ends need not be known any more."""
        if all(source.topic_id in self._done for source in self._sources):
            self._sources.clear()
            self._routed.clear()
            self.ledger.forget(self._done)
            self._done.clear()

    def _commit(self, flushes: Sequence[Flush]) -> None:
        left = {flush.table: flush for flush in flushes}
        sent: dict[TableId, WrittenFlush] = {}
        to_write, patience = list(flushes), _Patience()
        while left:
            if to_write:
                written = self.writer.write(to_write, self._sources, {flush.table: self._view(flush) for flush in to_write})  # 1, 2
                reach("dead_letters_acknowledged")
                for flush in written.empty:
                    del left[flush.table]
                to_write = [flush for flush, _ in written.stuck]
                for flush, trouble in written.stuck:
                    patience.failed(flush.table, trouble)
                sent |= {flush.table: flush for flush in written.flushes}
                self.committer.submit(0, written.flushes)  # 3
                reach("handed_over")
            to_write += self._settled(left, sent, patience)
            if left and not to_write:
                self._wait()

    def _view(self, flush: Flush) -> TableView:
        state = self.states.last_known(flush.table)
        assert state is not None
        for place in flush.ends:
            try:
                self.ledger.mark(state, place.topic_id)
            except UnusableFileError as error:  # another run took up another content just now
                raise ChangedMeanwhileError(str(error)) from error
        return self.states.view(flush.table)

    def _settled(self, left: dict[TableId, Flush], sent: Mapping[TableId, WrittenFlush], patience: "_Patience") -> list[Flush]:
        """Takes note of what became of flushes; returns those to be written again."""
        self.keep_alive()
        arrivals, step = self.states.poll(), self.committer.step()
        for table, trouble in [*arrivals.failed, *step.failed]:
            patience.failed(table, trouble)
        again = []
        for _, table, outcome, _ in step.settled:
            if outcome is Outcome.REDO:
                again.append(left[table])
                continue
            flush = left.pop(table)
            if outcome is Outcome.BURY:
                self.writer.bury_all(flush.buffer, self._sources, TABLE_DELETED)
                self.writer.acknowledged()
            else:
                self.report.rows += sent[table].rows
                self.report.commits += 1
        if step.settled:
            reach("settled")
        return again

    def _wait(self) -> None:
        self.keep_alive()
        time.sleep(STEP_S)


class ChangedMeanwhileError(FatalError):
    """A file is not what it was a moment ago: nothing of it that is not committed may be."""


@dataclass
class _Patience:
    """How long a commit may take."""

    until_s: float = field(default_factory=lambda: time.monotonic() + PATIENCE_S)

    def failed(self, table: TableId, trouble: Trouble) -> None:
        """Raises FatalError for what does not pass by itself, UnavailableError when it has lasted too long."""
        log.warning("backfill.table_fails", table=str(table), cause=trouble.cause.value, reason=trouble.sentence)
        if trouble.cause in VERDICTS:
            raise FatalError(f"table {table} takes no rows ({trouble.cause.value}): {trouble.sentence}. Mend that, then run it again")
        if time.monotonic() > self.until_s:
            raise UnavailableError(f"table {table} takes no rows for now: {trouble.sentence}. Run it again: it goes on where it stands")
