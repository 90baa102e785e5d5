"""The messages of topics of changes, as an audit reads them: by the rules that ingestion reads them by, each
to what it does to keys of a keyed table, to a row of a history, or to nothing.

What is a dead letter, or parked, was not applied. What the table's mark does not cover was not either, and
has to be one of both, unless it has no effect.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby, islice
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from confluent_kafka import Message

from ingest.audit.audit_compare import Elsewhere, found_elsewhere
from ingest.audit.audit_key_compare import Fate
from ingest.audit.audit_key_rows import KeyedTable, KeyedTables
from ingest.audit.audit_key_spool import BESIDE, DELETE, PUT, REPLAYED, entries, order_bytes
from ingest.audit.audit_spool import BUCKET_BITS, IdentitySpool
from ingest.changes.change import Op
from ingest.convert.change_columns import ChangeColumns
from ingest.convert.read_changes import ReadChanges, ReadingTerms, Step, read_changes, steps_of
from ingest.convert.step_keys import by_mode, deletes_alone, find_step_keys, order_of
from ingest.keys.key_hash import hash_keys
from ingest.model.source import Source
from ingest.route.buffer import TableBuffer
from ingest.route.routes import Routes
from lake.marks import NO_MARKS, TopicPartition
from lake.tenant import TableId

BATCH_MESSAGES = 4_096


class ChangeStretch(NamedTuple):
    """A partition of a topic of changes: its number, `[start, end)` is to be accounted for. What keyed tables
    have beyond the end is applied, too. `is_compacted`: messages of it may be gone since they were read."""

    number: int
    source: Source
    start: int
    end: int
    is_compacted: bool

    @property
    def has_history_beside(self) -> bool:
        """Whether each message goes to two tables, and counts for both."""
        return self.source.changes is not None and self.source.changes.history

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.source.topic_id, self.source.partition)


@dataclass
class ChangesInput:
    """`counts`: by partition's number, messages of which it is known at once what became of them; the others
    are in the spool. `truncated_at`: by table and partition, the last message that emptied the table."""

    routes: Routes
    terms: ReadingTerms
    spool: IdentitySpool
    keyed: KeyedTables
    counts: dict[int, Counter[Fate]] = field(default_factory=lambda: defaultdict(Counter))
    dropped: Counter[int] = field(default_factory=Counter)
    truncated_at: dict[tuple[int, int], int] = field(default_factory=dict)
    _columns: dict[int, ChangeColumns] = field(default_factory=dict)
    _elsewhere: tuple[tuple[int, int], Elsewhere] | None = None  # of the bucket that is read

    def take(self, stretch: ChangeStretch, messages: Iterable[Message]) -> list[int]:
        """Reads messages of a partition in their order; the offsets of those which have to be found by their
        identity: rows of a history, dead letters, parked ones. Raises RegistryUnavailableError."""
        expected: list[int] = []
        for bucket, some in groupby(messages, lambda message: message.offset() >> BUCKET_BITS):
            if self._elsewhere is None or self._elsewhere[0] != (stretch.number, bucket):
                found = found_elsewhere(self.spool, stretch.topic_partition, bucket)
                self._elsewhere = (stretch.number, bucket), found
            while batch := self.routes.masked(stretch.source.topic, list(islice(some, BATCH_MESSAGES))):
                expected += self._take_batch(stretch, batch, self._elsewhere[1])
        return expected

    def _take_batch(
        self, stretch: ChangeStretch, batch: Sequence[Message], elsewhere: Elsewhere
    ) -> list[int]:
        expected: list[int] = []
        by_target: dict[TableId, list[Message]] = defaultdict(list)
        for message in batch:
            offset = message.offset()
            sent = self.keyed.sent_to.get((stretch.topic_partition, offset))
            found = offset in elsewhere.dead or (offset in elsewhere.kept and not stretch.has_history_beside)
            target = None if found else sent or self.routes.target_of(message)
            if isinstance(target, TableId):
                by_target[target].append(message)
            else:
                expected.append(offset)
        for table, some in by_target.items():
            expected += self._take(stretch, table, some, elsewhere)
        return sorted(set(expected))

    def _take(
        self, stretch: ChangeStretch, target: TableId, messages: Sequence[Message], elsewhere: Elsewhere
    ) -> Sequence[int]:
        """Takes messages of one table; the offsets of those to be found by their identity."""
        buffer = TableBuffer(target, 0.0)
        buffer.extend(0, messages)
        read = read_changes(buffer, [stretch.source], [0], self.terms)
        table = self.keyed.by_name.get(str(target))
        rows = [ordinal for ordinal, change in read.changes if not change.repeats_delete]
        beside = stretch.has_history_beside and not stretch.source.is_beside(target)
        in_history = [buffer.offsets[at] for at in rows] if beside else []
        if table is not None:
            self.keyed.of_interest.add(table.number)
            return [*in_history, *self._take_keyed(stretch, table, read, buffer.offsets, elsewhere)]
        is_history = stretch.source.mode_for(target) == "history"
        changes = rows if is_history else [ordinal for ordinal, _ in read.changes]
        expected = {*changes, *(ordinal for ordinal, _ in read.rejected)}
        self._pass_over(stretch, [buffer.offsets[at] for at in range(len(buffer)) if at not in expected])
        return [buffer.offsets[at] for at in expected]

    def _take_keyed(
        self,
        stretch: ChangeStretch,
        table: KeyedTable,
        read: ReadChanges,
        offsets: Sequence[int],
        elsewhere: Elsewhere,
    ) -> Sequence[int]:
        apart = steps_of(read.changes, table.key.order_by)
        columns = self._columns.setdefault(table.number, ChangeColumns(table.schema))
        found = find_step_keys(apart.steps, columns, table.key.columns)
        only = [deletes_alone(table.key.mode, stretch.source.changes)] * len(found.steps)
        kept = [(at, found.steps[at]) for at in by_mode(found.steps, table.key.mode, only)[0]]
        rejected = {ordinal for ordinal, _ in (*read.rejected, *found.rejected)}
        counted = {step.ordinal for _, step in kept if not _is_beside(step)} | set(apart.truncated_by)
        effective = counted | {step.ordinal for _, step in kept}
        mark = table.marks.of(stretch.topic_partition)
        dropped = self.keyed.dropped.get(table.name, NO_MARKS).of(stretch.topic_partition)
        expected, passed_over, applied = list[int](), list[int](), set[int]()
        for ordinal, offset in enumerate(offsets):
            if ordinal in rejected or (ordinal in effective and offset >= max(mark, dropped)):
                expected.append(offset)
            elif ordinal in effective and offset < dropped:
                self.dropped[stretch.number] += offset < stretch.end
            else:
                applied.add(ordinal)
                if ordinal not in counted:
                    passed_over.append(offset)
        self._pass_over(stretch, passed_over)
        kept = [(at, step) for at, step in kept if step.ordinal in applied]
        self._spool(stretch, table, kept, found.keys, offsets, elsewhere)
        for ordinal in apart.truncated_by:
            if ordinal in applied:
                self._truncate(stretch, table, offsets[ordinal])
        return expected

    def _pass_over(self, stretch: ChangeStretch, offsets: Iterable[int]) -> None:
        self.counts[stretch.number][Fate.PASSED_OVER] += sum(offset < stretch.end for offset in offsets)

    def _truncate(self, stretch: ChangeStretch, table: KeyedTable, offset: int) -> None:
        at = table.number, stretch.number
        self.counts[stretch.number][Fate.REPLACED if at in self.truncated_at else Fate.DELETED] += 1
        self.truncated_at[at] = offset

    def _spool(
        self,
        stretch: ChangeStretch,
        table: KeyedTable,
        steps: Sequence[tuple[int, Step]],
        keys: Sequence[pa.Array],
        offsets: Sequence[int],
        elsewhere: Elsewhere,
    ) -> None:
        """Adds steps, each with the place of its key."""
        if not steps:
            return
        places = pa.array([at for at, _ in steps], pa.int64())
        of_steps = [offsets[step.ordinal] for _, step in steps]
        kinds = [
            (DELETE if step.row is None else PUT)
            | (BESIDE if _is_beside(step) else 0)
            | (REPLAYED if offset in elsewhere.replayed else 0)
            for (_, step), offset in zip(steps, of_steps, strict=True)
        ]
        self.keyed.spool.add(
            entries(
                table.number,
                hash_keys([key.take(places) for key in keys]),
                source=stretch.number,
                offset=np.asarray(of_steps, np.int64),
                kind=np.asarray(kinds, np.int8),
                order=order_bytes(order_of([step for _, step in steps], table.key.order_by)),
            )
        )


def _is_beside(step: Step) -> bool:
    """Whether a step deletes the key that a row had before, for an update that moves it to another."""
    return step.row is None and step.change.op is not Op.DELETE
