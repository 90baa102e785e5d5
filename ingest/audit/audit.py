"""The proof that nothing was lost and nothing doubled: per partition, consumed = written + dead-lettered +
parked, by the identity of every record.

The order matters, because ingesters may run meanwhile; what is read later can only hold more:

    1  the group's offsets: what is below them has to be somewhere 2  the rows of all tables (identity columns
    of the live data files), and of dropped ones that may still come back 3  dead letters, parked records,
    replays 4  the input itself, from its first offset that Kafka still has, or where the group began, to the
    group's: which records there are to account for

Offsets prove nothing by themselves: control records and aborted transactions leave gaps. A dead letter or a
parked record may be there more than once. A parked record that is a row, too, was drained. A dead letter that
is a row, too, was replayed, or is an error. Where dead letters are rows of a table as well, their topic is
one more input; a letter that is no row of that table is still a dead letter, where it is.

A keyed table keeps one row of many changes. Its changes are taken again, up to its marks, by the rules that
ingestion goes by (audit_changes.py), and its rows compared with what they leave, key by key
(audit_key_compare.py).
"""

import tempfile
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from ingest.audit.audit_changes import ChangeStretch
from ingest.audit.audit_compare import Example, Expected, Verdict, compare
from ingest.audit.audit_keys import KeyAudit, TableAudit
from ingest.audit.audit_sources import (
    TableScan,
    records_in,
    spool_dead_letters,
    spool_dropped,
    spool_parked,
    spool_replays,
    spool_tables,
)
from ingest.audit.audit_spool import BUCKET_BITS, BUCKET_OFFSETS, WHOLE, FoundIn, IdentitySpool
from ingest.kafka.kafka_reader import KafkaPartition, KafkaReader, Stored
from ingest.model.source import Source
from ingest.route.router import Envelope, Router
from ingest.route.routes import Routes
from lake.catalog_client import CatalogClient
from lake.marks import TopicPartition
from lake.settings import IngestSettings, TopicSettings
from lake.storage import AnyStorage
from lake.tenant import TableId


@dataclass(frozen=True, slots=True)
class FoundExample:
    """A wrong identity, and whatever helps to find it: the tables that hold it, and the one it would be
    routed to."""

    example: Example
    tables: Sequence[str]
    belongs_to: str | None


@dataclass(frozen=True, slots=True)
class PartitionAudit:
    """One partition. `gone`: the topic has another id now, or is no more; of its records only doubles can be
    told."""

    topic: str
    topic_id: str
    partition: int
    start: int
    end: int
    gone: bool
    verdict: Verdict
    examples: Sequence[FoundExample]


@dataclass(frozen=True, slots=True)
class Audit:
    """All of them, and what was read for it."""

    partitions: Sequence[PartitionAudit]
    tables: TableScan
    dead_letters: int
    parked_records: int
    keyed: Sequence[TableAudit] = ()

    @property
    def is_clean(self) -> bool:
        if self.tables.unreadable or not all(each.counts.is_clean for each in self.keyed):
            return False
        return all(each.verdict.is_clean for each in self.partitions)


@dataclass(frozen=True, slots=True)
class _Stretch:
    """The offsets `[start, end)` of a partition to account for."""

    partition: KafkaPartition
    start: int
    end: int

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.partition.topic_id, self.partition.partition)


class Auditor:
    """Audits the input topics of the settings."""

    def __init__(
        self, settings: IngestSettings, reader: KafkaReader, catalog: CatalogClient, storage: AnyStorage
    ) -> None:
        self._settings = settings
        self._reader = reader
        self._catalog = catalog
        self._storage = storage
        self._topics = {topic.name: topic for topic in settings.topics}
        self._routes = Routes(settings)

    def audit(self, since_ms: int | None = None, *, whole: bool = False) -> Audit:
        """The audit. `since_ms`: only records that reached Kafka at or after this time have to be accounted
        for; `whole`: also those from before the group began, which are a backfill's to bring in. Raises
        FirnError."""
        with tempfile.TemporaryDirectory(prefix="firn-audit-") as folder:
            spool = IdentitySpool(
                Path(folder), frozenset((*self._topics, self._settings.internal_topics.replay))
            )
            stretches = self._stretches(since_ms, whole=whole)  # 1
            keys = self._key_audit(Path(folder), spool, stretches)
            replay = self._reader.partitions([self._settings.internal_topics.replay])
            consumed = {partition: stored.offset for partition, stored in self._reader.stored(replay).items()}
            tables = spool_tables(self._catalog, self._storage, spool, keys.tables)  # 2
            spool_dropped(self._catalog, self._storage, spool, tables, keys.tables)
            dead_letters = spool_dead_letters(self._settings, self._reader, spool)  # 3
            parked = spool_parked(self._settings, self._reader, spool, tables)
            spool_replays(self._settings, self._reader, spool, consumed, keys.tables)
            audits = [self._audit_partition(spool, stretch, tables, keys) for stretch in stretches]  # 4
            looked_at = {stretch.topic_partition for stretch in stretches}
            audits += [
                self._audit_gone(spool, topic_partition, tables)
                for topic_partition in spool.partitions()
                if topic_partition not in looked_at
            ]
            by_partition = {TopicPartition(each.topic_id, each.partition): each.verdict for each in audits}
            keyed = keys.finish(by_partition)
        return Audit(audits, tables, dead_letters, parked, keyed)

    def _key_audit(self, folder: Path, spool: IdentitySpool, stretches: Sequence[_Stretch]) -> KeyAudit:
        """What looks at the changes of these partitions."""
        of_changes = [stretch for stretch in stretches if self._topics[stretch.partition.topic].has_changes]
        compacted = self._reader.may_be_compacted({stretch.partition.topic for stretch in of_changes})
        numbered = [
            ChangeStretch(
                number,
                Source.of(self._topics[stretch.partition.topic], *stretch.partition[1:]),
                stretch.start,
                stretch.end,
                stretch.partition.topic in compacted,
            )
            for number, stretch in enumerate(of_changes)
        ]
        return KeyAudit(self._settings, self._reader, self._storage, spool, folder, numbered)

    def _stretches(self, since_ms: int | None, *, whole: bool) -> list[_Stretch]:
        partitions = self._reader.partitions(self._topics)
        ends, stored = self._reader.ends(partitions), self._reader.stored(partitions)
        first = (
            {p: end.start for p, end in ends.items()}
            if since_ms is None
            else self._reader.from_time(partitions, since_ms)
        )
        stretches = []
        for partition in partitions:
            known, start = stored.get(partition), first[partition]
            if known is None or known.topic_id not in ("", partition.topic_id):
                known = Stored(start, partition.topic_id)
            start = start if whole else max(start, known.first)
            stretches.append(_Stretch(partition, start, max(start, known.offset)))
        return stretches

    def _audit_partition(
        self, spool: IdentitySpool, stretch: _Stretch, tables: TableScan, keys: KeyAudit
    ) -> PartitionAudit:
        verdict, seen, of = Verdict(), set[int](), stretch.topic_partition
        changes = keys.stretches.get(of)
        how = {"of_changes": changes is not None, "has_history": bool(changes and changes.has_history_beside)}
        for bucket, expected in self._expected(stretch, keys):
            seen.add(bucket)
            verdict.add(compare(spool, of, bucket, expected, **how))
        for bucket in spool.buckets(of):
            if bucket not in seen:
                verdict.add(compare(spool, of, bucket, None, **how))
        topic, topic_id, partition = stretch.partition
        if topic == self._settings.internal_topics.dead_letters:
            verdict.keep_missing()
        examples = [self._explain(spool, stretch, example, tables) for example in verdict.examples]
        return PartitionAudit(
            topic, topic_id, partition, stretch.start, stretch.end, False, verdict, examples
        )

    def _audit_gone(
        self, spool: IdentitySpool, topic_partition: TopicPartition, tables: TableScan
    ) -> PartitionAudit:
        verdict = Verdict()
        for bucket in spool.buckets(topic_partition):
            verdict.add(compare(spool, topic_partition, bucket, None))
        examples = [
            FoundExample(example, _holders(spool, topic_partition, example, tables), None)
            for example in verdict.examples
        ]
        return PartitionAudit(
            spool.topics[topic_partition],
            topic_partition.topic_id,
            topic_partition.partition,
            0,
            0,
            True,
            verdict,
            examples,
        )

    def _expected(self, stretch: _Stretch, keys: KeyAudit) -> Iterator[tuple[int, Expected]]:
        """The messages of a stretch, bucket by bucket; also buckets in which there are none."""
        changes = keys.stretches.get(stretch.topic_partition)
        if stretch.start >= stretch.end and changes is None:
            return
        topic = self._topics[stretch.partition.topic]
        bucket, offsets, records = stretch.start >> BUCKET_BITS, array("q"), array("q")
        for offset, many in self._records(stretch, topic) if changes is None else keys.records(changes):
            while offset >> BUCKET_BITS > bucket:
                yield bucket, _bucket(stretch, bucket, offsets, records)
                bucket, offsets, records = bucket + 1, array("q"), array("q")
            offsets.append(offset % BUCKET_OFFSETS)
            records.append(many)
        for last in range(bucket, (stretch.end - 1 >> BUCKET_BITS) + 1):
            yield last, _bucket(stretch, last, offsets, records)
            offsets, records = array("q"), array("q")

    def _records(self, stretch: _Stretch, topic: TopicSettings) -> Iterator[tuple[int, int]]:
        """The offset of every message and how many records it carries. Of what nobody can read every offset
        counts as one: a dead letter stands for them."""
        for run in self._reader.read_runs({stretch.partition: (stretch.start, stretch.end)}):
            yield from self._unreadable()
            for message in self._routes.masked(topic.name, run):
                depth_max = self._settings.limits.depth_max
                yield message.offset(), records_in(message.value(), topic.format, depth_max)
        yield from self._unreadable()

    def _unreadable(self) -> Iterator[tuple[int, int]]:
        for unreadable in self._reader.take_unreadable():
            yield from ((offset, 1) for offset in range(unreadable.start, unreadable.end))

    def _explain(
        self, spool: IdentitySpool, stretch: _Stretch, example: Example, tables: TableScan
    ) -> FoundExample:
        belongs_to = None
        if stretch.start <= example.offset < stretch.end:
            message = next(
                iter(self._reader.read({stretch.partition: (example.offset, example.offset + 1)})), None
            )
            if message is not None:
                (message,) = self._routes.masked(stretch.partition.topic, [message])
                belongs_to = _routed(self._topics[stretch.partition.topic], message)
        return FoundExample(example, _holders(spool, stretch.topic_partition, example, tables), belongs_to)


def _bucket(stretch: _Stretch, bucket: int, offsets: "array[int]", records: "array[int]") -> Expected:
    base = bucket * BUCKET_OFFSETS
    found, many = (
        pa.Array.from_buffers(pa.int64(), len(values), [None, pa.py_buffer(values)])
        for values in (offsets, records)
    )
    return Expected(found, many, max(0, stretch.start - base), min(BUCKET_OFFSETS, stretch.end - base))


def _holders(
    spool: IdentitySpool, topic_partition: TopicPartition, example: Example, tables: TableScan
) -> list[str]:
    """The tables that hold rows of an offset, one entry for each row of the identity."""
    relative = example.offset % BUCKET_OFFSETS
    keys, notes = spool.load(
        FoundIn.ROWS, topic_partition, example.offset >> BUCKET_BITS, relative, relative + 1
    )
    index = example.index
    return [
        tables.names[note]
        for key, note in zip(keys.to_pylist(), notes.to_pylist(), strict=True)
        if index is None or key & WHOLE == index
    ]


def _routed(topic: TopicSettings, message: object) -> str | None:
    """The table that the topic's rules name for a message."""
    key, headers, value = (getattr(message, name)() for name in ("key", "headers", "value"))
    target = Router(topic).route(Envelope(topic.name, key, headers or (), value))
    return str(target) if isinstance(target, TableId) else None
