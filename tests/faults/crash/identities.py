"""Where every record is, by its identity: read from the tables' files, the dead letters and the parking
topic, through nothing that could hide one."""

import io
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import pyarrow.parquet as pq

from lake.catalog_client import CatalogClient, TableName
from lake.commit import state_of
from lake.data_file import DATA
from lake.errors import NotFoundError
from lake.log_schema import INDEX, OFFSET, TOPIC_ID, TOPIC_PARTITION
from lake.manifest import Status, read_manifest
from lake.storage import open_storage
from tests.stack.support.kafka_topics import KafkaTopics

Identity = tuple[int, int]  # partition and offset; the topic and the index are the same for all


@dataclass(frozen=True)
class Found:
    """What became of records: `lost` are nowhere, `doubled` more than once in a table or in one beside the
    dead letters."""

    lost: int
    doubled: int
    details: str


def rows(catalog: CatalogClient, name: TableName, topic_id: str) -> Counter[Identity]:
    """The identities of all rows of a table, with how often each is there; they are all of this topic."""
    of_topics = rows_of_topics(catalog, name)
    assert of_topics.keys() <= {topic_id}
    return of_topics.get(topic_id, Counter())


def rows_of_topics(catalog: CatalogClient, name: TableName) -> dict[str, Counter[Identity]]:
    """The same by the id of the topic that rows came from."""
    storage, found = open_storage(), dict[str, Counter[Identity]]()
    try:
        metadata = catalog.load_table(name)["metadata"]
    except NotFoundError:
        return found
    for manifest in state_of(metadata, name, storage).manifests:
        for entry in read_manifest(storage.read(manifest.uri), manifest):
            if entry.status is Status.DELETED or entry.file.content != DATA:
                continue
            table = pq.read_table(
                io.BytesIO(storage.read(entry.file.uri)), columns=[TOPIC_ID, TOPIC_PARTITION, OFFSET, INDEX]
            )
            for row in table.to_pylist():
                assert row[INDEX] == 0
                found.setdefault(row[TOPIC_ID], Counter())[row[TOPIC_PARTITION], row[OFFSET]] += 1
    return found


def parked(kafka: KafkaTopics, topic: str) -> set[Identity]:
    """The identities of all messages in a parking topic."""
    facts = [message.facts for message in (kafka.read(topic) if kafka.topic_id(topic) else [])]
    return {(int(f["firn.partition"]), int(f["firn.offset"])) for f in facts}


def dead(kafka: KafkaTopics, topic: str) -> set[Identity]:
    """The identities of all dead letters; a crash may repeat one."""
    return {identity[1:] for identity in kafka.dead_letters(topic)}


def compare(
    good: dict[TableName, set[Identity]],
    bad: set[Identity],
    found: dict[TableName, Counter[Identity]],
    letters: set[Identity],
) -> Found:
    """Compares what was produced with where it is now, nothing being parked any more."""
    missing = {name: expected - found[name].keys() for name, expected in good.items()}
    twice = {
        name: [identity for identity, count in rows.items() if count > 1] for name, rows in found.items()
    }
    strange = {name: rows.keys() - good[name] for name, rows in found.items()}
    both = [identity for rows in found.values() for identity in rows.keys() & letters]
    lost = sum(map(len, missing.values())) + len(bad - letters)
    doubled = sum(
        sum(found[name][identity] - 1 for identity in identities) for name, identities in twice.items()
    ) + len(both)
    not_dead_lettered = {TableName("dead", "letters"): bad - letters}
    details = "; ".join(
        [
            *_some("missing", missing),
            *_some("twice", twice),
            *_some("strange", strange),
            *_some("missing", not_dead_lettered),
        ]
    )
    return Found(lost, doubled + sum(map(len, strange.values())), details)


def _some(what: str, by_table: Mapping[TableName, Collection[Identity]]) -> list[str]:
    return [
        f"{what} in {name}: {sorted(identities)[:10]}" for name, identities in by_table.items() if identities
    ]
