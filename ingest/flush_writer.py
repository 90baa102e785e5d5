"""From a cut buffer to written files: convert, ask for new columns, write, sync, have the dead letters acknowledged.

Tables are written in groups, so that one call syncs their files and one question gets their new columns. What goes wrong with one table is
told as its trouble and harms no other.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

import structlog

from ingest.buffer import RawRecord, TableBuffer
from ingest.converter import Converted, ConverterLimits, Source, convert
from ingest.dead_letter import DeadLetters
from ingest.formats.rejected_record import RejectedRecord
from ingest.link import TableView, WrittenFlush, shared_schema
from ingest.row import TimeLimits
from ingest.shape import Shapes
from ingest.trouble import Cause, Trouble, trouble_of
from ingest.writer import write_files
from lake.errors import FirnError, Reason, Rejected
from lake.marks import Range, TopicPartition
from lake.settings import IngestSettings
from lake.storage import AnyStorage
from lake.tenant import TableId

log = structlog.get_logger()
T = TypeVar("T")


class ColumnLink(Protocol):
    """The committer as far as it hands out columns."""

    def grow(self, names: Mapping[TableId, Mapping[str, str]]) -> Mapping[TableId, bytes]:
        """Schemas with columns for new names (name -> original path)."""


@dataclass(slots=True)
class Flush:
    """Messages cut from one table's buffer. `ends`: per topic-partition the offset after the last message fully routed at the cut.

    `buried`: places of messages that became dead letters, None before anybody looked. `drain`: the number of the drain it is of, 0 for none.
    """

    table: TableId
    buffer: TableBuffer
    ends: Mapping[TopicPartition, int]
    buried: frozenset[int] | None = None
    drain: int = 0
    tries: int = 0


@dataclass(slots=True)
class Written:
    """What became of a group of flushes: those to be committed, those without a row to commit, those that could not be written."""

    flushes: list[WrittenFlush] = field(default_factory=list)
    empty: list[Flush] = field(default_factory=list)
    stuck: list[tuple[Flush, Trouble]] = field(default_factory=list)


class FlushWriter:
    """One worker's; not thread-safe."""

    def __init__(self, settings: IngestSettings, link: ColumnLink, dead_letters: DeadLetters, storage: AnyStorage) -> None:
        self._link = link
        self._dead_letters = dead_letters
        self._storage = storage
        self._limits = _limits(settings)
        self._shapes = Shapes()
        self.dead: Counter[str] = Counter()
        self.absorbed = self.rows_with_errors = 0

    def write(self, flushes: Sequence[Flush], sources: Sequence[Source], views: Mapping[TableId, TableView]) -> Written:
        """Writes flushes for their tables as these are; when it returns, files are synced (1) and dead letters acknowledged (2)."""
        written = Written()
        converted = self._each(flushes, lambda flush: self._convert(flush, sources, views[flush.table]), written)
        written.empty = [flush for flush, result in converted if not result.rows.num_rows]
        full = [(flush, result) for flush, result in converted if result.rows.num_rows]
        new = {flush.table: result.new for flush, result in full if result.new}
        schemas = self._link.grow(new) if new else {}
        results = {flush.table: result for flush, result in full}
        files = self._each(
            [flush for flush, _ in full], lambda flush: self._write(flush, results[flush.table], views[flush.table], schemas.get(flush.table)), written
        )
        written.flushes = self._synced(files, written)  # 1
        self._dead_letters.flush()  # 2
        return written

    def _each(self, flushes: Sequence[Flush], work: Callable[[Flush], T], written: Written) -> list[tuple[Flush, T]]:
        """Does the same with every flush; one that fails is stuck and leaves."""
        done = []
        for flush in flushes:
            try:
                done.append((flush, work(flush)))
            except FirnError as error:
                written.stuck.append((flush, trouble_of(error, Cause.STORAGE)))
            except Exception as error:  # whatever a table or its records have in them, it must not stop the others
                log.exception("flush.failed", table=str(flush.table))
                written.stuck.append((flush, Trouble(Cause.FAILING, f"table {flush.table}: its records cannot be written to it ({error!r})")))
        return done

    def _synced(self, files: Sequence[tuple[Flush, WrittenFlush]], written: Written) -> list[WrittenFlush]:
        try:
            self._storage.sync([file.uri for _, flush in files for file in flush.files])
        except FirnError as error:
            if len(files) > 1:
                return [flush for each in files for flush in self._synced([each], written)]
            written.stuck += [(flush, trouble_of(error, Cause.STORAGE)) for flush, _ in files]
            return []
        return [flush for _, flush in files]

    def _convert(self, flush: Flush, sources: Sequence[Source], view: TableView) -> Converted:
        """Converts a flush for the table as it is and buries what cannot be stored (once, however often it is written)."""
        marks = [view.marks.of(TopicPartition(source.topic_id, source.partition)) for source in sources]
        converted = convert(flush.buffer, sources, view.log_schema, marks, self._limits, self._shapes)
        if flush.buried is None:
            for at, rejected in converted.rejected:
                record = flush.buffer.record(at)
                self.bury(record, sources[record.source], rejected, flush.table)
            flush.buried = frozenset(at for at, rejected in converted.rejected if not isinstance(rejected, RejectedRecord))
            self.absorbed += converted.absorbed
            self.rows_with_errors += converted.rows_with_errors
        return converted

    def _write(self, flush: Flush, converted: Converted, view: TableView, schema_json: bytes | None) -> WrittenFlush:
        schema = view.log_schema if schema_json is None else shared_schema(schema_json)
        files = write_files(self._storage, view.location, converted.rows, schema)
        # A partition that is read again below its mark has nothing in here: naming it would make the flush look ahead for ever.
        ranges = {p: Range(view.marks.of(p), end) for p, end in flush.ends.items() if end > view.marks.of(p)}
        new = {name: schema.by_name[name].id for name in converted.new}
        return WrittenFlush(flush.table, view.uuid, ranges, files, converted.rows.num_rows, new, flush.drain)

    # ---- dead letters

    def bury(self, record: RawRecord, source: Source, rejected: Rejected, table: TableId | None) -> None:
        """Makes a dead letter of a message, or of one of several records in it."""
        name = None if table is None else str(table)
        self.dead[rejected.reason.value] += 1
        value, index = (rejected.value, rejected.index) if isinstance(rejected, RejectedRecord) else (record.value, None)
        self._dead_letters.send(source, record.offset, record.timestamp_ms, record.key, record.headers, value, rejected, name, index)

    def bury_all(self, flush: Flush, sources: Sequence[Source], rejected: Rejected) -> None:
        """Makes dead letters of all messages of a flush that are none yet."""
        buried = flush.buried or frozenset()
        for at in range(len(flush.buffer)):
            if at not in buried:
                record = flush.buffer.record(at)
                self.bury(record, sources[record.source], rejected, flush.table)
        flush.buried = frozenset(range(len(flush.buffer)))

    def acknowledged(self) -> None:
        """Returns when all dead letters so far are acknowledged."""
        self._dead_letters.flush()


TABLE_DELETED = Rejected(Reason.TABLE_DELETED, "the table was dropped, and its owner or the setting on_deleted wants dead letters")


def _limits(settings: IngestSettings) -> ConverterLimits:
    late_us = None if isinstance(settings.late_limit, str) else int(settings.late_limit * 1_000_000)
    ahead_us = None if isinstance(settings.late_limit, str) else int(settings.ahead_limit_s * 1_000_000)
    return ConverterLimits(settings.depth_max, settings.columns_max, TimeLimits(late_us, ahead_us))
