"""What became of the demo's records, counted at the other end: rows by Trino, rows by the catalog, dead
letters by their topic."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, TopicPartition

from infra.demo.record import NO_TENANT, TENANT_HEADER
from infra.demo.trino_statement import quoted, select
from lake.catalog_client import CatalogClient, TableName
from lake.errors import UnavailableError
from lake.table_layout import KEY_PROPERTY, TENANT_PROPERTY
from lake.tenant import parse_tenant

DEAD_LETTER_TOPIC = "firn.dead-letters"
_IDENTITY = ("firn.topic_id", "firn.partition", "firn.offset")


@dataclass(frozen=True, slots=True)
class TableCount:
    """One table as the catalog sees it; `rows` are those of its data files, deleted ones included."""

    name: TableName
    tenant: str
    rows: int
    files: int
    delete_files: int = 0


@dataclass(frozen=True, slots=True)
class RowCount:
    """A tenant's rows as Trino counts them; `with_errors` are those whose `_errors` is not NULL, `distinct`
    the record identities."""

    rows: int = 0
    with_errors: int = 0
    distinct: int = 0


def tables(catalog: CatalogClient) -> list[TableCount]:
    """Every log table of the catalog with what its newest snapshot says of it."""
    return _found(catalog, are_keyed=False)


def keyed_tables(catalog: CatalogClient) -> list[TableCount]:
    """The same of tables that follow a database: their rows are no records of their own."""
    return _found(catalog, are_keyed=True)


def _found(catalog: CatalogClient, *, are_keyed: bool) -> list[TableCount]:
    found = []
    for namespace in catalog.namespaces():
        for name in catalog.tables(namespace):
            metadata = catalog.load_table(name)["metadata"]
            head = next(
                (
                    s
                    for s in metadata.get("snapshots", ())
                    if s["snapshot-id"] == metadata.get("current-snapshot-id")
                ),
                None,
            )
            summary = head["summary"] if head else {}
            tenant = metadata["properties"].get(TENANT_PROPERTY)
            if tenant is not None and (KEY_PROPERTY in metadata["properties"]) is are_keyed:
                sizes = ("total-records", "total-data-files", "total-delete-files")
                found.append(TableCount(name, tenant, *(int(summary.get(size, 0)) for size in sizes)))
    return found


def count_rows(trino_uri: str, found: list[TableCount]) -> dict[str, RowCount]:
    """Rows by tenant, counted by Trino in one query."""
    if not found:
        return {}
    identity = "ROW(_topic_id, _topic_partition, _offset, _index)"
    query = " UNION ALL ".join(
        f"SELECT {at}, count(*), count(_errors), count(DISTINCT {identity}) FROM "  # noqa: S608
        f"lake.{quoted(table.name.namespace)}.{quoted(table.name.name)}"
        for at, table in enumerate(found)
    )
    counts: dict[str, RowCount] = {}
    for at, rows, with_errors, distinct in select(trino_uri, query):
        before = counts.get(found[at].tenant, RowCount())
        counts[found[at].tenant] = RowCount(
            before.rows + rows, before.with_errors + with_errors, before.distinct + distinct
        )
    return counts


def count_dead_letters(bootstrap_servers: str) -> Mapping[str, int]:
    """Dead letters by tenant, each identity once: a crash may repeat a letter, and a repeated one is no
    second record."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "firn-demo-counts",
            "enable.auto.commit": False,
            "log_level": 2,
        }
    )
    seen: dict[tuple[str, ...], str] = {}
    try:
        partitions = consumer.list_topics(DEAD_LETTER_TOPIC, timeout=15).topics[DEAD_LETTER_TOPIC].partitions
        for partition in partitions:
            low, high = consumer.get_watermark_offsets(
                TopicPartition(DEAD_LETTER_TOPIC, partition), timeout=15
            )
            consumer.assign([TopicPartition(DEAD_LETTER_TOPIC, partition, OFFSET_BEGINNING)])
            at = low
            while at < high:
                for message in consumer.consume(1000, 5.0):
                    if message.error() is None:
                        headers = dict(message.headers() or ())
                        seen[tuple(headers[name].decode() for name in _IDENTITY)] = _tenant(headers)
                        at = message.offset() + 1
    except KafkaException as error:
        raise UnavailableError(
            f"Kafka at {bootstrap_servers} does not give the dead letters: {error}"
        ) from error
    finally:
        consumer.close()
    return Counter(seen.values())


def _tenant(headers: Mapping[str, bytes]) -> str:
    raw = headers.get(TENANT_HEADER)
    tenant = parse_tenant(raw) if raw else None
    return getattr(tenant, "name", NO_TENANT)
