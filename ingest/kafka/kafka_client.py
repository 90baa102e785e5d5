"""How every client of Kafka reaches the brokers, and what those that read have in common."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import structlog
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from ingest.kafka.kafka_trouble import REFUSALS
from lake.errors import SettingsError, UnavailableError
from lake.kafka_connection import connection
from lake.settings import IngestSettings

# A broker's answer of bytes that the client cannot use is asked for again after this: the position behind it
# is looked for meanwhile.
ERROR_BACKOFF_MS = 50
FETCH_BYTES = 1024 * 1024
# Somebody waits for records meanwhile; closing takes milliseconds where it ends at all.
CLOSE_S = 1.0
# Each keeps three threads and what it had fetched, so a producer of such batches must not make many.
LEFT_BEHIND_MAX = 16
_closing: list[threading.Thread] = []
Client = TypeVar("Client")
log = structlog.get_logger()


def admin_client(settings: IngestSettings) -> AdminClient:
    """Asks the brokers; no request is sent before it is used. Raises UnavailableError as `make_client`."""
    return make_client(AdminClient, connection(settings))


def make_client(kind: Callable[[dict[str, Any]], Client], options: dict[str, Any]) -> Client:
    """A client of Kafka. Raises UnavailableError where it does not take the options: while certificates are
    replaced, a file may be missing, or a key not be the certificate's."""
    try:
        return kind({**options, "error_cb": REFUSALS.note})
    except KafkaException as error:
        raise UnavailableError(
            f"Kafka's client does not take the settings of ingest.kafka: {error.args[0].str()}"
        ) from error


def check_connection(settings: IngestSettings) -> None:
    """Raises SettingsError where no client can be made by the settings, as they and their files are now."""
    try:
        admin_client(settings)
    except UnavailableError as error:
        raise SettingsError(f"{error}; correct that, or the files that it names") from error


def reading_options(settings: IngestSettings, group: str, fetch_bytes: int) -> dict[str, Any]:
    """Of a consumer that begins where it is told and stores nothing by itself. Checksums of batches are
    compared, unless `kafka.check_crcs` says otherwise.

    What a batch may decompress to is bounded by the client for zstd alone (`receive.message.max.bytes`);
    docs/ingest.md says what to set for the others.
    """
    return {
        **connection(settings),
        "group.id": group,
        "enable.auto.commit": False,
        "auto.offset.reset": "error",
        "isolation.level": "read_committed",
        "check.crcs": settings.kafka.check_crcs,
        "fetch.message.max.bytes": fetch_bytes,
        "fetch.error.backoff.ms": ERROR_BACKOFF_MS,
        "receive.message.max.bytes": settings.limits.batch_bytes_max,
    }


def go_to(consumer: Consumer, topic: str, partition: int, offset: int) -> None:
    """Has a partition that is assigned be read from an offset on. Raises KafkaException.

    Not by seeking: the client refuses that where it has given the partition up, as it does behind a batch
    with a wrong checksum.
    """
    topic_partition = TopicPartition(topic, partition, offset)
    consumer.incremental_unassign([topic_partition])
    consumer.incremental_assign([topic_partition])


def part_with(consumer: Any) -> None:
    """Closes a consumer, and goes on without it where that does not end.

    librdkafka 2.16 closes some for ever: behind a batch that it cannot use it resets an offset, and where it
    is closed meanwhile its thread waits for a lock that it holds itself. Such a client costs its threads and
    buffers; waiting for it would stop a partition for all tenants.
    """
    closing = threading.Thread(target=consumer.close, name="kafka-close", daemon=True)
    closing.start()
    closing.join(CLOSE_S)
    _closing[:] = [each for each in (*_closing, closing) if each.is_alive()]
    if closing.is_alive():
        log.warning(
            "kafka.close_hangs",
            left_behind=len(_closing),
            advice="a client of Kafka is left to itself; a worker that has many ends, and starts anew",
        )


def check_left_behind() -> None:
    """Raises UnavailableError where so many clients do not close that this process had better end."""
    alive = sum(each.is_alive() for each in _closing)
    if alive > LEFT_BEHIND_MAX:
        raise UnavailableError(
            f"{alive} clients of Kafka do not close, behind batches that nobody can read; workers start anew"
        )


@contextmanager
def parting_with(consumer: Any) -> Iterator[Any]:
    """A consumer, closed at the end as `part_with` does."""
    try:
        yield consumer
    finally:
        part_with(consumer)


def reading_consumer(settings: IngestSettings, group: str, fetch_bytes: int = FETCH_BYTES) -> Consumer:
    """A consumer that only reads what it is assigned, and never joins its group nor stores anything for
    it."""
    return make_client(
        Consumer,
        {
            **reading_options(settings, group, fetch_bytes),
            "enable.partition.eof": True,
            "queued.max.messages.kbytes": 32 * 1024,
        },
    )
