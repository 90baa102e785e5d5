"""The dead-letter topic: where a message goes that cannot be stored, with its bytes, key, headers, coordinates and reason.

A dead letter is the message as it was (value, key, headers), plus headers that start with `firn.`. A body that the topic would not
take is put into the warehouse and the header `firn.body` says where.
"""

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import stamina
import structlog
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from ingest.converter import Source
from lake.errors import FatalError, PrerequisiteError, Rejected, UnavailableError
from lake.settings import MIB, IngestSettings
from lake.storage import AnyStorage

MESSAGE_BYTES_MAX = 16 * MIB
# What key, headers and framing may need beside the body.
ENVELOPE_BYTES = MIB
FLUSH_TIMEOUT_S = 60.0
log = structlog.get_logger()


class DeadLetters:
    """Produces to the dead-letter topic with acks=all; `flush` returns when every letter is acknowledged."""

    def __init__(self, settings: IngestSettings, storage: AnyStorage, warehouse: str) -> None:
        self._topic = settings.dead_letter_topic
        self._servers = settings.bootstrap_servers
        self._storage = storage
        self._bodies = f"{warehouse.rstrip('/')}/dead-letters"
        self._failed: list[str] = []
        self._producer = Producer(
            {
                "bootstrap.servers": settings.bootstrap_servers,
                "acks": "all",
                "enable.idempotence": True,
                "compression.type": "zstd",
                "linger.ms": 20,
                "message.timeout.ms": 0,  # a letter is never given up: the line waits for the broker
                "message.max.bytes": MESSAGE_BYTES_MAX,
                "queue.buffering.max.kbytes": 256 * 1024,
                "log_level": 2,
            }
        )

    def ensure_topic(self) -> None:
        """Creates the topic, or makes sure that one which exists keeps its messages for ever and takes large ones."""
        admin = AdminClient({"bootstrap.servers": self._servers, "log_level": 2})
        config = {"retention.ms": "-1", "retention.bytes": "-1", "max.message.bytes": str(MESSAGE_BYTES_MAX), "cleanup.policy": "delete"}
        try:
            if self._topic not in admin.list_topics(timeout=30).topics:
                admin.create_topics([NewTopic(self._topic, num_partitions=1, replication_factor=-1, config=config)])[self._topic].result()
                log.info("topic.created", topic=self._topic)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise UnavailableError(f"Kafka at {self._servers} neither has nor creates topic {self._topic}: {error}") from error
        found = self._configuration(admin)
        wrong = {key: found[key].value for key, value in config.items() if found[key].value != value}
        if wrong:
            wanted = ",".join(f"{key}={value}" for key, value in config.items() if key in wrong)
            raise PrerequisiteError(
                f"topic {self._topic} could lose dead letters ({wrong}); run kafka-configs.sh --alter --topic {self._topic} --add-config {wanted}"
            )

    # A topic just created is not known to every part of the broker at once.
    @stamina.retry(on=UnavailableError, attempts=8, timeout=30.0)
    def _configuration(self, admin: AdminClient) -> Mapping[str, Any]:
        resource = ConfigResource(ResourceType.TOPIC, self._topic)
        try:
            return dict(admin.describe_configs([resource])[resource].result())
        except KafkaException as error:
            raise UnavailableError(f"Kafka at {self._servers} does not describe topic {self._topic}: {error}") from error

    def send(
        self,
        source: Source,
        offset: int,
        timestamp_ms: int,
        key: bytes | None,
        headers: Sequence[tuple[str, bytes | None]],
        value: bytes | None,
        rejected: Rejected,
        table: str | None,
        index: int | None = None,
    ) -> None:
        """Queues one letter; `flush` makes sure of it. `index`: of the one bad record of a message that carries several."""
        facts = {
            "firn.reason": rejected.reason.value,
            "firn.detail": rejected.detail,
            "firn.topic": source.topic,
            "firn.topic_id": source.topic_id,
            "firn.partition": str(source.partition),
            "firn.offset": str(offset),
            "firn.timestamp_ms": str(timestamp_ms),
        }
        if table is not None:
            facts["firn.table"] = table
        if index is not None:
            facts["firn.index"] = str(index)
        if value is not None and len(value) + ENVELOPE_BYTES > MESSAGE_BYTES_MAX:
            facts["firn.body"] = self._put_aside(value)
            value = None
        all_headers = [*headers, *((name, text.encode("utf-8", "backslashreplace")) for name, text in facts.items())]
        while not self._queued(key, all_headers, value):
            self._producer.poll(0.5)

    def _queued(self, key: bytes | None, headers: Sequence[tuple[str, bytes | None]], value: bytes | None) -> bool:
        try:
            self._producer.produce(self._topic, value=value, key=key, headers=headers, on_delivery=self._delivered)
            self._producer.poll(0)
        except BufferError:  # the queue is full
            return False
        return True

    def _put_aside(self, value: bytes) -> str:
        uri = f"{self._bodies}/{uuid.uuid4()}"
        self._storage.write(uri, value)
        self._storage.sync([uri])
        return uri

    def _delivered(self, error: object, _: object) -> None:
        if error is not None:
            self._failed.append(str(error))

    def flush(self) -> None:
        """Waits until every letter is acknowledged. Raises UnavailableError where the broker does not answer for now; nothing may be committed then."""
        left = self._producer.flush(FLUSH_TIMEOUT_S)
        if self._failed:
            raise FatalError(f"topic {self._topic} refuses a dead letter: {self._failed[0]}; mend the topic and start again, nothing is lost")
        if left:
            raise UnavailableError(f"{left} dead letters are not acknowledged by topic {self._topic} yet")
