"""What an audit reads: the identity columns of every live data file, the topics of dead letters, parked
records and replays, and the input itself."""

import gzip
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

import orjson
import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import Message

from ingest.audit.audit_key_rows import KeyedTables
from ingest.audit.audit_spool import BUCKET_BITS, INDEX_BITS, FoundIn, IdentitySpool
from ingest.decode.dead_letter import read_letter
from ingest.decode.decoder import Batch, look_closer, take_apart
from ingest.decode.formats.registry import LOOKS_LINE, LOOKS_OPEN, REPLAY, TOPIC_FORMATS
from ingest.decode.replay import ATTEMPT, facts_behind, origin_of
from ingest.kafka.kafka_reader import Ends, KafkaPartition, KafkaReader
from ingest.kafka.topic_mac import TopicMac
from ingest.model.link import parse_table_key
from ingest.parking.parked_topic import PARKED
from lake.catalog_client import CatalogClient, TableName
from lake.commit import TableState, state_of
from lake.data_file import DATA
from lake.errors import FirnError, NotFoundError
from lake.extras_client import DroppedTable, ExtrasClient
from lake.live_files import columns_of_file, live_entries, may_hold
from lake.log_schema import INDEX, OFFSET, TOPIC, TOPIC_ID, TOPIC_PARTITION
from lake.marks import NO_MARKS, Marks, TopicPartition
from lake.settings import REPLAY_STREAM, REPLAY_TENANT, FormatName, IngestSettings
from lake.storage import AnyStorage
from lake.table_files import METADATA_BYTES_MAX
from lake.table_layout import TENANT_PROPERTY
from lake.tenant import TableId, TenantId, from_identifier

GZIP = b"\x1f\x8b"
_IDENTITY = (TOPIC, TOPIC_ID, TOPIC_PARTITION, OFFSET, INDEX)


@dataclass
class TableScan:
    """What was read of the tables; files of other topics alone are not. `names` are numbered as the spool's
    notes are; `with_deletes`: tables without keys that have delete files, which are not applied.

    `unreadable`: tables of which a file cannot be read, each with a sentence; their rows are not counted, or
    not all of them.
    """

    names: list[str] = field(default_factory=list)
    rows: int = 0
    files: int = 0
    with_deletes: list[str] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)
    marks: dict[str, Marks] = field(default_factory=dict)


def spool_tables(
    catalog: CatalogClient, storage: AnyStorage, spool: IdentitySpool, keyed: KeyedTables | None = None
) -> TableScan:
    """Reads the identities of all rows of all log tables, each table at one snapshot; and the rows of keyed
    ones by their keys, where they are wanted. Raises FirnError."""
    scan = TableScan()
    for name in _tenants_tables(catalog):
        try:
            metadata = catalog.load_table(name)["metadata"]
        except NotFoundError as error:
            scan.unreadable.append(f"{name}: {error}")
            continue
        if TENANT_PROPERTY in metadata.get("properties", {}):
            scan.names.append(str(name))
            try:
                _spool_table(state_of(metadata, name, storage), storage, spool, scan, keyed)
            except FirnError as error:
                scan.unreadable.append(f"{name}: {error}")
    return scan


def spool_dropped(
    control: CatalogClient,
    storage: AnyStorage,
    spool: IdentitySpool,
    scan: TableScan,
    keyed: KeyedTables | None = None,
) -> None:
    """Reads the identities of the rows of dropped tables, as long as they may still come back: they were
    written, and a person took them away.

    Those that cannot be read are added to the scan's unreadable ones.
    """
    if not control.has_extras:
        return
    for dropped in ExtrasClient(control).dropped_tables():
        if dropped.purge_started_ms is not None:
            continue
        try:
            with suppress(NotFoundError):  # purged meanwhile
                _spool_dropped(dropped, storage, spool, keyed)
        except (FirnError, orjson.JSONDecodeError) as error:
            scan.unreadable.append(f"{dropped.table.dotted}, dropped: {error}")


def _spool_dropped(
    dropped: DroppedTable, storage: AnyStorage, spool: IdentitySpool, keyed: KeyedTables | None
) -> None:
    data = storage.read(dropped.metadata_location, bytes_max=METADATA_BYTES_MAX)
    metadata = orjson.loads(gzip.decompress(data) if data[:2] == GZIP else data)
    if TENANT_PROPERTY in metadata.get("properties", {}):
        scan = TableScan([str(dropped.table)])
        state = state_of(metadata, dropped.table, storage)
        if parse_table_key(state.properties) is None:
            _spool_table(state, storage, spool, scan, None, FoundIn.DROPPED)
        elif keyed is not None:
            keyed.drop(state)


def _tenants_tables(catalog: CatalogClient) -> Iterator[TableName]:
    for namespace in catalog.namespaces():
        if from_identifier(namespace) is not None:
            yield from catalog.tables(namespace)


def _spool_table(
    state: TableState,
    storage: AnyStorage,
    spool: IdentitySpool,
    scan: TableScan,
    keyed: KeyedTables | None,
    found_in: FoundIn = FoundIn.ROWS,
) -> None:
    scan.marks[str(state.name)] = state.marks
    if (key := parse_table_key(state.properties)) is not None:
        if keyed is not None:
            rows, files = keyed.read(state, key, storage)
            scan.rows, scan.files = scan.rows + rows, scan.files + files
        return
    topic_id = state.schema.by_name[TOPIC].id
    for file in (entry.file for entry in live_entries(state, storage)):
        if file.content != DATA:
            if str(state.name) not in scan.with_deletes:
                scan.with_deletes.append(str(state.name))
            continue
        if not may_hold(file, topic_id, spool.names):
            continue
        scan.files += 1
        scan.rows += file.rows
        for rows in columns_of_file(state, file, storage, _IDENTITY):
            _spool_rows(rows, len(scan.names) - 1, spool, found_in)


def _spool_rows(rows: pa.Table, table: int, spool: IdentitySpool, found_in: FoundIn) -> None:
    rows = rows.combine_chunks()
    sources = rows.group_by([TOPIC, TOPIC_ID, TOPIC_PARTITION]).aggregate([]).to_pylist()
    for source in sources:
        partition = spool.partition(source[TOPIC], source[TOPIC_ID], source[TOPIC_PARTITION])
        if partition is None:
            continue
        part = rows
        if len(sources) > 1:
            part = rows.filter(
                pc.and_(
                    pc.equal(rows[TOPIC_ID], source[TOPIC_ID]),
                    pc.equal(rows[TOPIC_PARTITION], source[TOPIC_PARTITION]),
                )
            )
        offsets, indexes = (part.column(name).combine_chunks() for name in (OFFSET, INDEX))
        spool.add(found_in, partition, offsets, indexes, table)


# ---- Firn's own topics


def spool_dead_letters(settings: IngestSettings, reader: KafkaReader, spool: IdentitySpool) -> int:
    """Reads the identities of all dead letters; a dead letter may be there more than once. Returns how many
    were read."""
    read, mac = 0, TopicMac(settings)
    for message in reader.read(_all(reader, settings.internal_topics.dead_letters)):
        letter = read_letter(message, mac)
        partition = (
            None
            if letter is None
            else spool.partition(letter.was_topic, letter.was_topic_id, letter.was_partition)
        )
        if letter is not None and partition is not None:
            read += 1
            for offset in range(letter.was_offset, letter.until or letter.was_offset + 1):
                spool.add_one(FoundIn.DEAD, partition, offset, letter.index, letter.attempt)
    return read


def spool_replays(
    settings: IngestSettings,
    reader: KafkaReader,
    spool: IdentitySpool,
    consumed: Mapping[KafkaPartition, int],
    keyed: KeyedTables | None = None,
) -> None:
    """Reads the identities of all replayed dead letters; `consumed`: the group's offsets, which tell the read
    ones. Parked ones count as not read yet. `keyed` learns where changes of rows went."""
    ranges = _all(reader, settings.internal_topics.replay)
    by_key = {partition.key: partition for partition in ranges}
    parked = {partition.key: _parked_offsets(spool, partition) for partition in ranges}
    mac = TopicMac(settings)
    for message in reader.read(ranges):
        found = origin_of(message.headers() or ()) if mac.is_own(message) else None
        origin = None if found is None else found[0]
        partition = (
            None if origin is None else spool.partition(origin.topic, origin.topic_id, origin.partition)
        )
        if origin is not None and partition is not None:
            key = (message.topic(), message.partition())
            read = message.offset() < consumed.get(by_key[key], 0) and message.offset() not in parked[key]
            if keyed is not None and origin.changes is not None and (table := _sent_to(message)) is not None:
                keyed.sent_to[partition, origin.offset] = table
            spool.add_one(FoundIn.REPLAYED, partition, origin.offset, origin.index, 2 * origin.attempt + read)


def _sent_to(message: Message) -> TableId | None:
    """The table that a replayed dead letter goes to."""
    found = facts_behind(message.headers() or (), ATTEMPT)
    tenant, stream = ("", "") if found is None else (found[0].get(REPLAY_TENANT), found[0].get(REPLAY_STREAM))
    return TableId(TenantId(tenant), stream) if tenant and stream else None


def _parked_offsets(spool: IdentitySpool, partition: KafkaPartition) -> set[int]:
    topic_partition = TopicPartition(partition.topic_id, partition.partition)
    return {
        (bucket << BUCKET_BITS) + (key >> INDEX_BITS)
        for bucket in spool.buckets(topic_partition)
        for key in spool.load(FoundIn.PARKED, topic_partition, bucket)[0].to_pylist()
    }


def spool_parked(
    settings: IngestSettings, reader: KafkaReader, spool: IdentitySpool, tables: TableScan
) -> int:
    """Reads the identities of the parked records that wait. Returns how many were read.

    What lies below its table's mark has been drained since: it is a row or a dead letter by now, or it is
    missing.
    """
    read, mac = 0, TopicMac(settings)
    for message in reader.read(_all(reader, settings.internal_topics.parked)):
        found = facts_behind(message.headers() or (), PARKED) if mac.is_own(message) else None
        if found is None:
            continue
        facts = found[0]
        topic_partition = spool.partition(
            facts["firn.topic"], facts["firn.topic_id"], int(facts["firn.partition"])
        )
        table, offset = (
            TableId(TenantId(facts["firn.tenant"]), facts["firn.stream"]),
            int(facts["firn.offset"]),
        )
        if (
            topic_partition is not None
            and tables.marks.get(str(table), NO_MARKS).of(topic_partition) <= offset
        ):
            read += 1
            spool.add_one(FoundIn.PARKED, topic_partition, offset, None)
    return read


def _all(reader: KafkaReader, topic: str) -> dict[KafkaPartition, Ends]:
    return reader.ends(reader.partitions([topic]))


# ---- the input


def records_in(value: bytes | None, form: FormatName, depth_max: int) -> int:
    """How many records a message carries: one, unless it is taken apart."""
    if not value or form == REPLAY:
        return 1
    known = TOPIC_FORMATS[form]
    kind = known.by_first_byte.get(value[:1], known.otherwise)
    if kind is LOOKS_LINE or (kind is LOOKS_OPEN and look_closer(value, known) is LOOKS_LINE):
        return 1
    found = take_apart(value, form, depth_max)
    return len(found) if isinstance(found, Batch) else 1
