"""Delivers the demo's records to Kafka and counts what the broker acknowledged. A record is delivered, or
counted as failed; never neither."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from infra.demo.record import JSON_TOPIC, TEXT_TOPIC, ChangeRecord, DemoRecord
from infra.demo.tally import Tally
from lake.errors import UnavailableError

TOPICS = (JSON_TOPIC, TEXT_TOPIC)
PARTITIONS_DEFAULT = 4
# Ample, so that records above Firn's own limit reach it: turning them down is its task.
MESSAGE_BYTES_MAX = 8 * 1024 * 1024
REQUEST_TIMEOUT_S = 15.0
DELIVERY_TIMEOUT_S = 60.0
_QUEUE_KBYTES = 64 * 1024
# How often delivery reports are taken while records are being queued.
_RECORDS_PER_POLL = 500
# librdkafka writes a line for each refused connection; what matters of that comes back as an error of the
# call or the delivery report.
_CONNECTION = {"log_level": 2, "reconnect.backoff.ms": 500, "reconnect.backoff.max.ms": 2_000}

DeliveryReport = Callable[[KafkaError | None, Message], None]


def create_topics(
    bootstrap_servers: str, partitions: int = PARTITIONS_DEFAULT, names: Sequence[str] = TOPICS
) -> None:
    """Creates topics where they are missing; existing ones stay as they are. `UnavailableError` where Kafka
    does not answer."""
    admin = AdminClient(
        {
            **_CONNECTION,
            "bootstrap.servers": bootstrap_servers,
            "socket.timeout.ms": int(REQUEST_TIMEOUT_S * 1000),
        }
    )
    config = {"max.message.bytes": str(MESSAGE_BYTES_MAX), "message.timestamp.type": "CreateTime"}
    topics = [
        NewTopic(topic, num_partitions=partitions, replication_factor=1, config=config) for topic in names
    ]
    created: dict[str, Future[None]] = admin.create_topics(topics, request_timeout=REQUEST_TIMEOUT_S)
    for topic, answer in created.items():
        try:
            answer.result()
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise UnavailableError(
                    f"topic {topic} was not created at {bootstrap_servers}: {error.args[0].str()}; check "
                    "that the broker runs"
                ) from error


class DemoProducer:
    """An idempotent producer with a bounded queue; `tally` counts by delivery reports, of changes only those
    that failed."""

    def __init__(self, bootstrap_servers: str, *, delivery_timeout_s: float = DELIVERY_TIMEOUT_S) -> None:
        self.tally = Tally()
        self._bootstrap_servers = bootstrap_servers
        self._delivery_timeout_s = delivery_timeout_s
        self._until_poll = _RECORDS_PER_POLL
        self._producer = Producer(
            {
                **_CONNECTION,
                "bootstrap.servers": bootstrap_servers,
                "client.id": "firn-demo",
                "enable.idempotence": True,
                "max.in.flight.requests.per.connection": 1,  # else a new partition may lose one
                "acks": "all",
                "compression.type": "zstd",
                "linger.ms": 50,
                "message.max.bytes": MESSAGE_BYTES_MAX,
                "queue.buffering.max.kbytes": _QUEUE_KBYTES,
                "delivery.timeout.ms": int(delivery_timeout_s * 1000),
            }
        )

    def send(self, record: DemoRecord | ChangeRecord) -> None:
        """Queues one record; waits while the queue is full. `UnavailableError` when Kafka takes nothing at
        all any more."""

        def on_delivery(error: KafkaError | None, _message: Message) -> None:
            if error is not None:
                self.tally.not_delivered(error.str())
            elif isinstance(record, DemoRecord):
                self.tally.delivered(record)

        self._until_poll -= 1
        if self._until_poll <= 0:
            self._until_poll = _RECORDS_PER_POLL
            self._producer.poll(0)
        while not self._queued(record, on_delivery):
            self._producer.poll(0.1)

    def poll(self) -> None:
        """Takes delivery reports without waiting; raises `UnavailableError` if any record was not
        delivered."""
        self._producer.poll(0)
        self._raise_failures()

    def flush(self) -> None:
        """Waits until every queued record is acknowledged or given up; raises `UnavailableError` if any
        record was not delivered."""
        if self._producer.flush(self._delivery_timeout_s + REQUEST_TIMEOUT_S):
            self._give_up()
        self._raise_failures()

    def _queued(self, record: DemoRecord | ChangeRecord, on_delivery: DeliveryReport) -> bool:
        try:
            self._producer.produce(
                record.topic,
                value=record.value,
                key=record.key,
                headers=list(record.headers),
                timestamp=record.timestamp_ms,
                on_delivery=on_delivery,
            )
        except BufferError:
            return False
        except KafkaException as error:
            self.tally.not_delivered(error.args[0].str())
            self._give_up()
            raise UnavailableError(
                f"Kafka at {self._bootstrap_servers} refuses a record for {record.topic}: "
                f"{error.args[0].str()}"
            ) from error
        return True

    def _raise_failures(self) -> None:
        if self.tally.failed:
            self._give_up()
            raise UnavailableError(
                f"{self.tally.failed} records were not delivered, {self.tally.total.produced} were "
                f"(first reason: {self.tally.first_failure}); look at the log of the broker at "
                f"{self._bootstrap_servers} and start the demo again"
            )

    def _give_up(self) -> None:
        """Takes back what still waits, so that each record sent is counted, as delivered or as failed."""
        self._producer.purge()
        self._producer.flush(REQUEST_TIMEOUT_S)
