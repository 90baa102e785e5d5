"""From a cut buffer to written files: convert, ask for new columns, write, sync, have the dead letters
acknowledged.

Tables are written in groups, so that one call syncs their files and one question gets their new columns. What
goes wrong with one table is told as its trouble and harms no other.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import compress
from typing import Any, Protocol, TypeVar

import numpy as np
import structlog

from ingest.convert.batched import Waiting, convert_batched
from ingest.convert.converter import convert, is_committed
from ingest.convert.kept_times import KeptTimes
from ingest.convert.read_changes import ReadingTerms
from ingest.convert.terms import TimeLimits
from ingest.convert.work import Converted, ConverterLimits, Part
from ingest.dead_letters.dead_letter import Letters
from ingest.dead_letters.letters_left import LettersLeft
from ingest.decode.formats.registry import REPLAY
from ingest.decode.formats.rejected_record import RejectedRecord
from ingest.kafka.unreadable import RejectedRange, UnreadableRange
from ingest.model.fault_point import reach
from ingest.model.link import Counts, NewColumn, TableView, WrittenFlush, new_columns
from ingest.model.over_limit import OverLimit, Stretch, Stretches, are_in, parse_stretches
from ingest.model.source import Source
from ingest.model.table_retention import Retentions
from ingest.model.tenant_rate import Rates, TenantRate
from ingest.model.trouble import Cause, Trouble, trouble_of
from ingest.route.buffer import RawRecord, TableBuffer
from ingest.route.tenant_meter import TenantMeter, limits_text, over_limit, without_value
from ingest.write.change_terms import (
    ChangeTerms,
    PartFate,
    SourceKinds,
    changes_of,
    has_columns,
    takes_changes,
)
from ingest.write.change_writing import writing_of
from ingest.write.hot_table import HotFiles
from ingest.write.writer import SharedLayouts, write_files
from lake.clock import SYSTEM_CLOCK, Clock, epoch_ms
from lake.data_file import DataFile
from lake.errors import FirnError, Reason, Rejected
from lake.isolation import isolate
from lake.log_schema import LogSchema, WantedColumn, shared_schema
from lake.marks import Range, TopicPartition
from lake.settings import IngestSettings
from lake.storage import Storage
from lake.tenant import TableId

# Tables written together: their files are synced by one call and their new columns asked for in one question.
GROUP_TABLES = 256
GROUP_BYTES = 64 * 1024 * 1024
log = structlog.get_logger()
T = TypeVar("T")


class ColumnLink(Protocol):
    """The committer as far as it hands out columns."""

    def grow(self, names: Mapping[TableId, Mapping[str, WantedColumn]]) -> Mapping[TableId, bytes]:
        """Schemas with columns for new names (name -> original path)."""


@dataclass(slots=True)
class Flush:
    """Messages cut from one table's buffer. `ends`: per topic-partition the offset after the last message
    fully routed at the cut.

    `drain`: the number of the drain it is of, 0 for none. `hot`: files that most of it is in already.
    """

    table: TableId
    buffer: TableBuffer
    ends: Mapping[TopicPartition, int]
    drain: int = 0
    hot: HotFiles | None = None

    @property
    def first_offsets(self) -> Mapping[int, int]:
        """The lowest offset per source."""
        return self.buffer.first_offsets


def cut_flush(
    buffer: TableBuffer, sources: Sequence[Source], end: Callable[[int], int], drain: int = 0
) -> Flush:
    """Makes a flush of a buffer that was taken. `end`: of a source the offset after the last message fully
    routed."""
    ends = {sources[n].place: end(n) for n in buffer.first_offsets}
    return Flush(buffer.table, buffer, ends, drain)


def grouped(flushes: Iterable[Flush], bytes_max: int = GROUP_BYTES) -> Iterator[list[Flush]]:
    """Flushes in the groups in which they are written. None is taken before the group before it was dealt
    with."""
    group, size_bytes = list[Flush](), 0
    for flush in flushes:
        group.append(flush)
        size_bytes += flush.buffer.size_bytes
        if len(group) >= GROUP_TABLES or size_bytes >= bytes_max:
            yield group
            group, size_bytes = [], 0
    if group:
        yield group


@dataclass(slots=True)
class Written:
    """What became of a group of flushes: those to be committed, those without a row to commit, those that
    could not be written."""

    flushes: list[WrittenFlush] = field(default_factory=list)
    empty: list[Flush] = field(default_factory=list)
    stuck: list[tuple[Flush, Trouble]] = field(default_factory=list)


class FlushWriter:
    """One worker's; not thread-safe."""

    def __init__(
        self,
        settings: IngestSettings,
        link: ColumnLink,
        dead_letters: Letters,
        storage: Storage,
        write: Callable[..., list[DataFile]] = write_files,
        retentions: Retentions | None = None,
        clock: Clock = SYSTEM_CLOCK,
        rates: Rates | None = None,
    ) -> None:
        """`write`: how a flush becomes files, `write_files` or another of writer.py. `retentions`: who tells
        which records are past their table's; without it none is. `rates`: who tells how much a tenant
        may send; without it any number."""
        self.rates = rates
        self._withholds = any(t.masking is not None and t.masking.withholds_surplus for t in settings.topics)
        self._meter = TenantMeter()
        self._retentions = retentions
        self._clock = clock
        self._write_files = write
        self._link = link
        self._dead_letters = dead_letters
        self._storage = storage
        self._limits = ConverterLimits(
            settings.limits.depth_max, settings.limits.columns_max, TimeLimits.of(settings)
        )
        self._reading = ReadingTerms.of(settings)
        self._hours_max = settings.flush.hours_max
        self._hot: dict[TableId, HotFiles] = {}
        self._counts = Counts()
        self._letters_topic = settings.internal_topics.dead_letters
        self._letters_left = LettersLeft()

    def _unforeseen(self, what: str) -> None:
        self._counts.unforeseen[what] += 1

    def take_counts(self) -> Counts:
        """What was counted since they were taken last."""
        counts, self._counts = self._counts, Counts()
        counts.letters_not_stored = self._letters_left.take()
        return counts

    def write(
        self, flushes: Sequence[Flush], sources: Sequence[Source], views: Mapping[TableId, TableView]
    ) -> Written:
        """Writes flushes for their tables as these are; when it returns, files are synced (1) and the dead
        letters of these tables, and of none, acknowledged (2). Those of other tables are behind the marks of
        none of these."""
        written, every = Written(), flushes
        of_changes = [takes_changes(flush.buffer, sources, views[flush.table]) for flush in flushes]
        changed = self._each(
            list(compress(flushes, of_changes)),
            lambda flush: self._write_changes(flush, sources, views[flush.table]),
            written,
        )
        flushes = [flush for flush, changes in zip(flushes, of_changes, strict=True) if not changes]
        hot = self._each(
            [f for f in flushes if f.buffer.closed],
            lambda flush: self._write_hot(flush, sources, views[flush.table]),
            written,
        )
        plain = [flush for flush in flushes if not flush.buffer.closed]
        parts = self._convert_batched(plain, sources, views)
        converted = self._each(
            plain,
            lambda flush: self._convert(
                flush.buffer, sources, views[flush.table], parts.get(flush.table, ()), flush.drain
            ),
            written,
        )
        full = [
            (flush, result)
            for flush, result in converted
            if result.rows.num_rows or _stretches(flush, sources, views[flush.table])
        ]
        to_commit = {flush.table for flush, _ in full}
        written.empty = [flush for flush, _ in converted if flush.table not in to_commit]
        new = {flush.table: result.new for flush, result in full if result.new}
        schemas = self._link.grow(new) if new else {}
        results = {flush.table: result for flush, result in full}
        with SharedLayouts(self._storage) as layouts:
            files = self._each(
                [flush for flush, _ in full],
                lambda flush: self._write(
                    flush,
                    sources,
                    results[flush.table],
                    views[flush.table],
                    schemas.get(flush.table),
                    layouts,
                ),
                written,
            )
        reach("files_written")
        others = [*hot, *changed]
        written.empty += [flush for flush, result in others if not result.changes_table]
        written.flushes = self._synced(
            [*files, *((flush, result) for flush, result in others if result.changes_table)], written
        )  # 1
        reach("files_synced")
        self._dead_letters.flush({str(flush.table) for flush in every})  # 2
        return written

    def _each(
        self, flushes: Sequence[Flush], work: Callable[[Flush], T], written: Written
    ) -> list[tuple[Flush, T]]:
        """Does the same with every flush; one that fails is stuck and leaves."""
        done = []
        for flush in flushes:
            try:
                with isolate(
                    "flush.failed",
                    partial(self._unforeseen, "flush"),
                    foreseen=(FirnError,),
                    table=str(flush.table),
                ) as outcome:
                    done.append((flush, work(flush)))
            except FirnError as error:
                written.stuck.append((flush, trouble_of(error, Cause.STORAGE)))
                continue
            if outcome.error is not None:
                sentence = f"table {flush.table}: its records cannot be written to it ({outcome.error!r})"
                written.stuck.append((flush, Trouble(Cause.FAILING, sentence)))
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

    def _convert_batched(
        self, flushes: Sequence[Flush], sources: Sequence[Source], views: Mapping[TableId, TableView]
    ) -> Mapping[TableId, Sequence[Part]]:
        """What can be converted for many tables at once."""
        waiting = [
            Waiting(flush.buffer, views[flush.table].log_schema, self._kept(flush.buffer, views[flush.table]))
            for flush in flushes
            if not is_committed(flush.buffer, _marks(views[flush.table], sources))
            and (flush.drain or self._rate(flush.table) is None)
            and flush.buffer.over is None
            and self._withheld(flush.buffer) is None
        ]
        # Whatever a record has in it: each table by itself will tell which one.
        counted = partial(self._unforeseen, "convert")
        with isolate("flushes.not_converted_together", counted, tables=len(waiting)):
            return convert_batched(waiting, sources, self._limits)
        return {}

    def _convert(
        self,
        buffer: TableBuffer,
        sources: Sequence[Source],
        view: TableView,
        parts: Sequence[Part] = (),
        drain: int = 0,
    ) -> Converted:
        """Converts messages for the table as it is; what cannot be stored becomes dead letters (once, however
        often they are written). What was parked (`drain`) is counted against no limit."""
        self._dead_letter_over(buffer, sources, view)
        kept, over = self._kept(buffer, view), self._over(buffer, sources, view, drain)
        limits = self._limits_of(buffer.table)
        limits = limits if kept is None else limits.keeping(kept)
        converted = convert(buffer, sources, view.log_schema, _marks(view, sources), limits, parts, over)
        fate = PartFate(converted.rejected, converted.committed, converted.rows_with_errors)
        self._note(sources, buffer, fate)
        return converted

    def _kept(self, buffer: TableBuffer, view: TableView) -> KeptTimes | None:
        """Which times the table keeps: the same for a buffer however often it is converted, else a record
        could be late that was none when its dead letter would have been sent."""
        if self._retentions is None or view.key is not None:
            return None
        if buffer.kept is None:
            now_ms = epoch_ms(self._clock.now())
            buffer.kept = KeptTimes(buffer.table, view.said, self._retentions, now_ms)
        assert isinstance(buffer.kept, KeptTimes)
        return buffer.kept

    def _note(self, sources: Sequence[Source], buffer: TableBuffer, fate: PartFate) -> None:
        """Makes dead letters of what cannot be stored (once, however often it is written), and counts."""
        for at, rejected in fate.rejected:
            # A history beside a table has read what that reads, and leaves its dead letters to it.
            if at >= buffer.looked_at and not sources[buffer.sources[at]].is_beside(buffer.table):
                record = buffer.record(at)
                self.dead_letter(record, sources[record.source], rejected, buffer.table)
        if not buffer.looked_at:
            self._counts.committed += fate.committed
            self._counts.rows_with_errors += fate.rows_with_errors
            tenant = buffer.table.tenant.name
            self._counts.tenant_records[tenant] += len(buffer)
            self._counts.tenant_bytes[tenant] += buffer.value_bytes
        buffer.dead_lettered |= {
            at for at, rejected in fate.rejected if not isinstance(rejected, RejectedRecord)
        }
        buffer.looked_at = len(buffer)

    # ---- limits of tenants

    def _rate(self, table: TableId) -> TenantRate | None:
        return None if self.rates is None else self.rates.rate(table.tenant.namespace)

    def _limits_of(self, table: TableId) -> ConverterLimits:
        most = None if self.rates is None else self.rates.columns(table.tenant.namespace).most
        return self._limits if most is None else self._limits.with_columns(most)

    def _withheld(self, buffer: TableBuffer) -> Any:
        """Which messages have no value, since their tenant had sent too much when they came (numpy array of
        bool; None: none). No other message without one is ever buffered for a table of records."""
        withheld = buffer.values.sizes == 0 if self._withholds else None
        return withheld if withheld is not None and withheld.any() else None

    def _share_over(self, buffer: TableBuffer, view: TableView) -> None:
        """What is over the limit is known of all parts of a buffer together."""
        if buffer.over is None and (view.over or self._withholds or self._rate(buffer.table) is not None):
            buffer.over = OverLimit()

    def _over(self, buffer: TableBuffer, sources: Sequence[Source], view: TableView, drain: int) -> Any:
        """Which messages their tenant's limit leaves no room for (numpy array of bool; None: none), decided
        once for a buffer. What somebody has sent again is counted against no limit."""
        rate, withheld = None if drain else self._rate(buffer.table), self._withheld(buffer)
        if rate is not None or withheld is not None:
            over = buffer.over = buffer.over or OverLimit()
            over.why = over.why if rate is None else over_limit(rate)
            numbers, offsets = _places(buffer)
            marks, new = _marks(view, sources), np.zeros(len(offsets), bool)
            for source in np.unique(numbers).tolist():
                begin = max(marks[source], over.decided.get(source, 0))
                if sources[source].form != REPLAY:
                    new |= (numbers == source) & (offsets >= begin)
            if new.any():
                is_over = self._counted(buffer, rate, new, withheld)[new]
                for source in np.unique(numbers[new]).tolist():
                    own = numbers[new] == source
                    over.decide(source, offsets[new][own], is_over[own])
        return None if buffer.over is None else buffer.over.places(*_places(buffer))

    def _counted(self, buffer: TableBuffer, rate: TenantRate | None, new: Any, withheld: Any) -> Any:
        """Which of a buffer's messages are over the limit, the `new` ones being counted; what was withheld is
        so already, and has taken no room."""
        is_over = np.zeros(len(new), bool) if withheld is None else new & withheld
        asked = new & ~is_over
        if rate is not None and asked.any():
            times, sizes = np.frombuffer(buffer.timestamps_ms, np.int64)[asked], buffer.values.sizes[asked]
            now_ms = epoch_ms(self._clock.now())
            is_over[asked] = self._meter.over(buffer.table.tenant.name, rate, times, sizes, now_ms)
        if is_over.any():
            log.warning(
                "records.over_limit",
                tenant=buffer.table.tenant.name,
                records=int(is_over.sum()),
                limit=None if rate is None else limits_text(rate),
            )
        return is_over

    def _dead_letter_over(self, buffer: TableBuffer, sources: Sequence[Source], view: TableView) -> None:
        """Makes dead letters of what the table has committed as over its tenant's limit, each once for a
        buffer."""
        said = _said_of(buffer, sources, view)
        if not said:
            return
        over = buffer.over = buffer.over or OverLimit()
        numbers, offsets = _places(buffer)
        for source, stretches in said.items():
            told, mark = over.told.get(source, 0), view.marks.of(sources[source].place)
            own = (numbers == source) & (offsets >= told) & (offsets < mark)
            for at in np.flatnonzero(own & are_in(offsets, stretches)).tolist():
                record = buffer.record(at)
                why = over.why if record.value else without_value(over.why)
                self.dead_letter(record, sources[source], why, buffer.table)
                over.told[source] = int(offsets[at]) + 1

    def committed(self, buffer: TableBuffer, sources: Sequence[Source], view: TableView) -> None:
        """Makes dead letters of what of a flush is over its tenant's limit, as the table says that has it
        now; nothing of it may be let go of before they are acknowledged."""
        if _said_of(buffer, sources, view):
            buffer.over = buffer.over or OverLimit()  # of all parts the same
            for part in buffer.parts():
                self._dead_letter_over(part, sources, view)

    def _write(
        self,
        flush: Flush,
        sources: Sequence[Source],
        converted: Converted,
        view: TableView,
        schema_json: bytes | None,
        layouts: SharedLayouts,
    ) -> WrittenFlush:
        schema = view.log_schema if schema_json is None else shared_schema(schema_json)
        converted, schema = self._as_promised(
            flush.buffer, sources, view, converted, schema, drain=flush.drain
        )
        files = self._files(converted, view.location, schema, layouts) if converted.rows.num_rows else []
        new = new_columns(view.log_schema, schema)
        over = _stretches(flush, sources, view)
        return self._written(flush, sources, view, files, converted.rows.num_rows, new, over)

    def _files(
        self, converted: Converted, location: str, schema: LogSchema, layouts: SharedLayouts
    ) -> list[DataFile]:
        shared = converted.shared
        files = None if shared is None else layouts.write(location, shared, schema)
        if files is None:
            files = self._write_files(self._storage, location, converted.rows, schema)
        return files

    def _as_promised(
        self,
        buffer: TableBuffer,
        sources: Sequence[Source],
        view: TableView,
        converted: Converted,
        schema: LogSchema,
        *,
        drain: int = 0,
    ) -> tuple[Converted, LogSchema]:
        """Converts anew, by the schema that the table is to have, where another writer of it was faster with
        a column."""
        while not has_columns(schema, converted.new):
            view = replace(view, schema=schema.encoded)
            converted = self._convert(buffer, sources, view, drain=drain)
            if converted.new:
                schema = shared_schema(self._link.grow({buffer.table: converted.new})[buffer.table])
        return converted, schema

    def _written(
        self,
        flush: Flush,
        sources: Sequence[Source],
        view: TableView,
        files: Sequence[DataFile],
        rows: int,
        new: Mapping[str, NewColumn],
        over: Stretches,
    ) -> WrittenFlush:
        # A partition that is read again below its mark has nothing in here: naming it would make the flush
        # look ahead for ever.
        ranges = {p: Range(view.marks.of(p), end) for p, end in flush.ends.items() if end > view.marks.of(p)}
        packed = [file.packed() for file in files]
        size_bytes = _fresh_bytes(flush.buffer, _marks(view, sources))
        return WrittenFlush(
            flush.table, view.uuid, ranges, packed, rows, new, flush.drain, over=over, value_bytes=size_bytes
        )

    # ---- tables of changes

    def _write_changes(self, flush: Flush, sources: Sequence[Source], view: TableView) -> WrittenFlush:
        """Writes changes part by part, so that only one is held as Python objects."""
        if flush.hot is not None:  # records came first
            flush.hot.discard()
            flush.hot = None
        terms = ChangeTerms(
            self._storage,
            view,
            sources,
            _marks(view, sources),
            self._reading,
            lambda names: self._link.grow({flush.table: names})[flush.table],
            partial(self._note, sources),
            changes_of(flush.buffer, sources),
        )
        kinds = SourceKinds.of(flush.buffer, sources)
        writing = writing_of(terms, kinds, self._limits_of(flush.table))
        try:
            for part in flush.buffer.parts():
                writing.append(part)
            done = writing.close()
        except BaseException:
            writing.discard()
            raise
        written = self._written(flush, sources, view, done.files, done.rows, done.new, {})
        is_history = view.key is None and bool(kinds.histories)
        return replace(written, widened=done.widened, keyed=done.keyed, is_history=is_history)

    # ---- hot tables

    def append(self, buffer: TableBuffer, sources: Sequence[Source], view: TableView) -> None:
        """Adds what waits for a hot table to files that stay open; where that fails, it waits for its flush,
        which will tell."""
        if takes_changes(buffer, sources, view):
            self.abort(buffer.table)
            return  # it is closed, and converted part by part with its flush
        self._share_over(buffer, view)
        if not buffer.closed:
            self._hot[buffer.table] = HotFiles(self._storage, view, self._hours_max)
        hot = self._hot.get(buffer.table)
        if hot is None or hot.parts != len(buffer.closed):
            return
        counted = partial(self._unforeseen, "append")
        with isolate("table.not_spooled", counted, table=str(buffer.table)) as outcome:
            self._append(hot, buffer, sources, view)
            hot.parts += 1
        if outcome.error is not None:
            self.abort(buffer.table)

    def hot_bytes(self, table: TableId) -> int:
        """The size of the largest open file of a table."""
        hot = self._hot.get(table)
        return 0 if hot is None else hot.size_bytes

    def take_hot(self, table: TableId) -> HotFiles | None:
        """The open files of a table, for its flush."""
        return self._hot.pop(table, None)

    def abort(self, table: TableId) -> None:
        """Discards the open files of a table."""
        if (hot := self._hot.pop(table, None)) is not None:
            hot.discard()

    def _append(self, hot: HotFiles, buffer: TableBuffer, sources: Sequence[Source], view: TableView) -> None:
        converted = self._convert(buffer, sources, view)
        if converted.rows.num_rows:
            schema = (
                shared_schema(self._link.grow({buffer.table: converted.new})[buffer.table])
                if converted.new
                else view.log_schema
            )
            converted, schema = self._as_promised(buffer, sources, view, converted, schema)
            hot.append(converted.rows, schema)

    def _write_hot(self, flush: Flush, sources: Sequence[Source], view: TableView) -> WrittenFlush:
        """Closes the files of a hot table with the rest of its flush in them; where the table has changed
        since, all is written again."""
        self._kept(flush.buffer, view)  # of all parts the same
        self._share_over(flush.buffer, view)
        hot, flush.hot = flush.hot, None
        firsts = {sources[n].place: offset for n, offset in flush.buffer.first_offsets.items()}
        if hot is not None and (
            hot.parts != len(flush.buffer.closed)
            or hot.ids_changed
            or hot.view.uuid != view.uuid
            or any(view.marks.of(topic_partition) > first for topic_partition, first in firsts.items())
        ):
            hot.discard()
            hot = None
        parts = flush.buffer.parts() if hot is None else iter([flush.buffer] if len(flush.buffer) else [])
        hot = hot or HotFiles(self._storage, view, self._hours_max)
        for part in parts:
            self._append(hot, part, sources, view)
        over = _stretches(flush, sources, view)
        return self._written(flush, sources, view, hot.close(), hot.rows, hot.new, over)

    # ---- dead letters

    def dead_letter(
        self, record: RawRecord, source: Source, rejected: Rejected, table: TableId | None
    ) -> None:
        """Makes a dead letter of a message, or of one of several records in it. One that is a dead letter
        already stays that."""
        if source.topic == self._letters_topic:
            self._letters_left.note(source, record.offset, record.offset + 1, rejected)
            return
        name = None if table is None else str(table)
        self._counts.dead[rejected.reason.value] += 1
        self._dead_letters.send(source, record, rejected, name)

    def count_foreign(self, topic: str) -> None:
        """Notes a message in a topic of Firn's own that somebody else wrote."""
        self._counts.foreign[topic] += 1

    def dead_letter_range(
        self, number: int, source: Source, unreadable: UnreadableRange, now_ms: int
    ) -> None:
        """Makes one dead letter of offsets that nobody can read; they count as so many records. Those of the
        dead-letter topic itself stay what they are."""
        why = RejectedRange.of(unreadable)
        self._counts.unreadable[source.topic] += 1
        log.error(
            "records.unreadable",
            topic=source.topic,
            partition=source.partition,
            first=unreadable.start,
            next=unreadable.end,
            reason=unreadable.error,
        )
        if source.topic == self._letters_topic:
            self._letters_left.note(source, unreadable.start, unreadable.end, why)
            return
        self._counts.dead[why.reason.value] += unreadable.offsets
        self._dead_letters.send(
            source, RawRecord(number, unreadable.start, now_ms, None, (), None), why, None
        )

    def dead_letter_all(self, buffer: TableBuffer, sources: Sequence[Source], rejected: Rejected) -> None:
        """Makes dead letters of all messages that are none yet."""
        for record in buffer.alive():
            self.dead_letter(record, sources[record.source], rejected, buffer.table)

    def acknowledged(self) -> None:
        """Returns when all dead letters so far are acknowledged."""
        self._dead_letters.flush()

    def mark(self) -> int:
        """A mark behind all dead letters so far, for `reached`."""
        return self._dead_letters.mark()

    def reached(self, mark: int, timeout_s: float) -> bool:
        """Whether all dead letters before a mark are acknowledged, at the latest when the time is over."""
        return self._dead_letters.reached(mark, timeout_s)


TABLE_DELETED = Rejected(
    Reason.TABLE_DELETED,
    "the table was dropped, and its owner or the setting tables.on_deleted wants dead letters",
)


def _places(buffer: TableBuffer) -> tuple[Any, Any]:
    """Sources and offsets of its messages, as numpy arrays."""
    return np.frombuffer(buffer.sources, np.int32), np.frombuffer(buffer.offsets, np.int64)


def _said_of(buffer: TableBuffer, sources: Sequence[Source], view: TableView) -> dict[int, Sequence[Stretch]]:
    """By source what the table says was over the limit, as far as the buffer can have any of it."""
    said = parse_stretches(view.over) if view.over else {}
    found = {source: said.get(sources[source].place, ()) for source in buffer.first_offsets}
    return {
        source: stretches
        for source, stretches in found.items()
        if stretches and stretches[-1][1] > buffer.first_offsets[source]
    }


def _stretches(flush: Flush, sources: Sequence[Source], view: TableView) -> Stretches:
    """What of a flush is over its tenant's limit, and not committed as anything yet."""
    over, found = flush.buffer.over, dict[TopicPartition, list[Stretch]]()
    for source, stretches in () if over is None else over.stretches.items():
        place = sources[source].place
        mark = view.marks.of(place)
        if left := [(max(start, mark), end) for start, end in stretches if end > mark]:
            found[place] = left
    return found


def _fresh_bytes(buffer: TableBuffer, marks: Sequence[int]) -> int:
    """Bytes of the values of its messages that the table has not committed yet."""
    if all(marks[source] <= first for source, first in buffer.first_offsets.items()):
        return buffer.value_bytes + sum(part.value_bytes for part in buffer.closed)
    size_bytes = 0
    for part in buffer.parts():
        numbers, offsets = _places(part)
        size_bytes += int(part.values.sizes[offsets >= np.array(marks, np.int64)[numbers]].sum())
    return size_bytes


def _marks(view: TableView, sources: Sequence[Source]) -> list[int]:
    """Per source the next offset that the table has not committed."""
    return [view.marks.of(source.place) for source in sources]
