"""The audit of keyed tables, from their rows and the input's changes to a verdict for each table.

rows, changes -> a spool by key -> compared, key by key -> counts by table and by partition
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from confluent_kafka import Message

from ingest.audit.audit_changes import ChangesInput, ChangeStretch
from ingest.audit.audit_compare import Verdict
from ingest.audit.audit_key_compare import (
    Fate,
    KeyCounts,
    KeyedRules,
    KeyExample,
    KeyVerdict,
    Rule,
    compare_keys,
    without_replaced,
)
from ingest.audit.audit_key_rows import KeyedTables, key_text
from ingest.audit.audit_key_spool import NOWHERE, KeySpool
from ingest.audit.audit_spool import IdentitySpool
from ingest.convert.read_changes import ReadingTerms, read_changes
from ingest.kafka.kafka_reader import KafkaPartition, KafkaReader
from ingest.model.link import TableKey
from ingest.route.buffer import TableBuffer
from ingest.route.routes import Routes
from lake.marks import TopicPartition
from lake.settings import IngestSettings
from lake.storage import AnyStorage
from lake.tenant import TableId, TenantId

_NO_TABLE = TableId(TenantId("audit"), "audit")


@dataclass(frozen=True, slots=True)
class FoundKey:
    """A key that is not as the input says, and where its row, or the change whose row is missing, comes from.
    `key`: as JSON; None where neither can be read."""

    what: str
    key: str | None
    topic: str | None
    partition: int | None
    offset: int


@dataclass(frozen=True, slots=True)
class TableAudit:
    """One keyed table."""

    table: str
    key: TableKey
    counts: KeyCounts
    examples: Sequence[FoundKey]


class KeyAudit:
    """Looks at the changes of some partitions, and at the rows of all keyed tables that they may be in."""

    def __init__(
        self,
        settings: IngestSettings,
        reader: KafkaReader,
        storage: AnyStorage,
        spool: IdentitySpool,
        folder: Path,
        stretches: Sequence[ChangeStretch],
    ) -> None:
        self._reader, self._storage = reader, storage
        self._numbered = stretches
        self.stretches = {stretch.topic_partition: stretch for stretch in stretches}
        self._terms = ReadingTerms.of(settings)
        self._verdict = KeyVerdict()
        numbers = {each.topic_partition: each.number for each in stretches}
        self._tables = KeyedTables(KeySpool(folder, self._reduced), numbers)
        self._input = ChangesInput(Routes(settings), self._terms, spool, self._tables)

    @property
    def tables(self) -> KeyedTables | None:
        """Where rows go; None where no topic has changes."""
        return self._tables if self._numbered else None

    def _reduced(self, some: pa.Table) -> pa.Table:
        left, replaced = without_replaced(some, [_rule(table.key) for table in self._tables.tables])
        for source, count in replaced.items():
            self._verdict.fates[source, Fate.REPLACED] += count
        return left

    def records(self, stretch: ChangeStretch) -> Iterator[tuple[int, int]]:
        """Reads the changes of a partition; the offsets of those that have to be found by their identity,
        each with 1. Of what nobody can read each offset is one."""
        partition = KafkaPartition(stretch.source.topic, *stretch.topic_partition)
        marks = [table.marks.of(stretch.topic_partition) for table in self._tables.tables]
        # What tables have beyond the group's offset is read as well, as far as it is there.
        end = min(max([stretch.end, *marks]), self._reader.ends([partition])[partition].end)
        if stretch.start >= end:
            return
        with closing(self._reader.read_runs({partition: (stretch.start, end)})) as runs:
            for run in runs:
                yield from self._taken(stretch, run)
        yield from self._taken(stretch, ())

    def _taken(self, stretch: ChangeStretch, run: Sequence[Message]) -> Iterator[tuple[int, int]]:
        """What of a run, and of what was stepped over before it, has to be found by its identity."""
        expected = self._input.take(stretch, run)
        for unreadable in self._reader.take_unreadable():
            expected += range(unreadable.start, unreadable.end)
        yield from ((offset, 1) for offset in sorted(expected) if offset < stretch.end)

    def finish(self, verdicts: Mapping[TopicPartition, Verdict]) -> list[TableAudit]:
        """Compares what was read; adds to the verdicts of partitions what became of their changes."""
        tables = self._tables.tables
        known = KeyedRules(
            [_rule(table.key) for table in tables],
            [table.key.order_by != "offset" for table in tables],
            # Rows of a table that could not be read to its end prove nothing.
            [table.key.mode == "delete_only" or table.name not in self._tables.by_name for table in tables],
            [stretch.start for stretch in self._numbered],
            [stretch.is_compacted for stretch in self._numbered],
            self._input.truncated_at,
        )
        for part in self._tables.spool.parts():
            compare_keys(part, known, self._verdict)
        for stretch in self._numbered:
            self._add_fates(stretch, verdicts[stretch.topic_partition])
        examples = [(one.table, self._explained(one)) for one in self._verdict.examples]
        return [
            TableAudit(
                table.name,
                table.key,
                self._verdict.tables.get(table.number, KeyCounts()),
                [found for number, found in examples if number == table.number],
            )
            for table in tables
            if table.number in self._tables.of_interest
        ]

    def _add_fates(self, stretch: ChangeStretch, verdict: Verdict) -> None:
        for fate in Fate:
            count = self._input.counts[stretch.number][fate] + self._verdict.fates[stretch.number, fate]
            name = fate.name.lower()
            setattr(verdict, name, getattr(verdict, name) + count)
            verdict.consumed += count
        verdict.dropped += self._input.dropped[stretch.number]
        verdict.consumed += self._input.dropped[stretch.number]

    def _explained(self, one: KeyExample) -> FoundKey:
        stretch = self._numbered[one.source] if one.source != NOWHERE else None
        if one.file != NOWHERE:
            key = self._tables.key_at(self._storage, one.file, one.position)
        else:
            key = None if stretch is None else self._key_of_message(stretch, one)
        if stretch is None:
            return FoundKey(one.what, key, None, None, one.offset)
        return FoundKey(one.what, key, stretch.source.topic, stretch.source.partition, one.offset)

    def _key_of_message(self, stretch: ChangeStretch, one: KeyExample) -> str | None:
        partition = KafkaPartition(stretch.source.topic, *stretch.topic_partition)
        buffer = TableBuffer(_NO_TABLE, 0.0)
        for message in self._reader.read({partition: (one.offset, one.offset + 1)}):
            buffer.extend(0, [message])
        read = read_changes(buffer, [stretch.source], [0], self._terms)
        return next((key_text(change.key.values) for _, change in read.changes), None)


def _rule(key: TableKey) -> Rule:
    if key.mode == "first_wins":
        return Rule.FIRST
    return Rule.LAST if key.order_by == "offset" else Rule.GREATEST
