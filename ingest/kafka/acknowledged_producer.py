"""Messages that must not be lost on their way to a topic of Firn's own."""

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import TypeVar

from confluent_kafka import KafkaError, KafkaException, Producer

from ingest.kafka.internal_topic import MESSAGE_BYTES_MAX
from ingest.kafka.kafka_client import make_client
from ingest.kafka.kafka_trouble import FORBIDDEN, KafkaRefusedError, Right, forbidden
from ingest.kafka.topic_mac import TopicMac
from lake.clock import SYSTEM_CLOCK
from lake.errors import FatalError
from lake.kafka_connection import connection
from lake.settings import IngestSettings

QUEUE_WAIT_S = 0.5
ANY_PARTITION = -1  # the client chooses by the key
T = TypeVar("T")


class AcknowledgedProducer:
    """Produces to one topic in order, with acks=all; a message counts as sent when `flush` says that none is
    left."""

    def __init__(
        self, settings: IngestSettings, topic: str, *, queue_kbytes: int, timeout_ms: int = 0
    ) -> None:
        """`queue_kbytes`: of messages not yet acknowledged; beyond them `send` waits. `timeout_ms`: when a
        message is given up, 0 for never."""
        self._topic = topic
        self._mac = TopicMac(settings)
        self._settings = settings
        # Messages that are neither acknowledged nor refused: by whose they are, by the marks they are behind.
        self._left, self._left_since, self._mark = Counter[str](), Counter[int](), 0
        self.refusals: list[str] = []  # why the topic took messages not
        self.is_forbidden = False  # for want of a right, which somebody may yet give
        self._producer = make_client(
            Producer,
            {
                **connection(settings),
                "acks": "all",
                "enable.idempotence": True,  # also keeps the order
                # A broker that does not know a producer takes any sequence as its first, so where a request
                # is refused by a partition that has no leader yet, the next one is taken, and librdkafka
                # counts both as acknowledged.
                "max.in.flight.requests.per.connection": 1,
                "compression.type": "zstd",
                "linger.ms": 20,
                "message.timeout.ms": timeout_ms,
                "message.max.bytes": MESSAGE_BYTES_MAX,
                "queue.buffering.max.kbytes": queue_kbytes,
            },
        )

    def send(
        self,
        value: bytes | None,
        key: bytes | None,
        headers: Sequence[tuple[str, bytes | None]],
        *,
        partition: int = ANY_PARTITION,
        timestamp_ms: int = 0,
        sign: bool = True,
        of: str = "",
    ) -> None:
        """Queues a message, `timestamp_ms` 0 being now. `sign`: not for a copy of what somebody else wrote.
        `of`: whose it is, as `wait` asks. Waits while the queue is full."""
        signed = [*headers, *(self._mac.header(self._topic, key, value, headers) if sign else ())]
        self._left[of] += 1
        self._left_since[self._mark] += 1
        while not self._queued(value, key, signed, partition, timestamp_ms, of):
            self._producer.poll(QUEUE_WAIT_S)
        self._producer.poll(0)

    def _queued(
        self,
        value: bytes | None,
        key: bytes | None,
        headers: list[tuple[str, bytes | None]],
        partition: int,
        timestamp_ms: int,
        of: str,
    ) -> bool:
        try:
            self._producer.produce(
                self._topic,
                value=value,
                key=key,
                headers=headers,
                partition=partition,
                timestamp=timestamp_ms,
                on_delivery=partial(self._answered, of, self._mark),
            )
        except BufferError:  # the queue is full
            return False
        except KafkaException as error:
            if error.args[0].code() not in FORBIDDEN:
                raise
            self._answered(of, self._mark, error.args[0], None)
        return True

    def _answered(self, of: str, mark: int, error: KafkaError | None, _: object) -> None:
        _less(self._left, of)
        _less(self._left_since, mark)
        if error is None:
            return
        self.refusals.append(error.str())
        if error.code() in FORBIDDEN:
            self.is_forbidden = True
            self.refusals[-1] += f" ({forbidden(self._settings, Right('WRITE', f'topic {self._topic}'))})"

    def check(self, what: str) -> None:
        """Raises KafkaRefusedError where the topic refuses messages for want of a right, FatalError where it
        does for another reason. `what`: they are."""
        if self.refusals:
            kind = KafkaRefusedError if self.is_forbidden else FatalError
            raise kind(
                f"topic {self._topic} refuses {what}: {self.refusals[0]}; mend the topic and start again, "
                "nothing is lost"
            )

    def wait(self, of: Collection[str], timeout_s: float) -> int:
        """Returns as soon as none of the messages of these is left, whatever is left of others; how many are
        neither acknowledged nor refused when the time is over."""
        self._poll_until(lambda: not any(each in self._left for each in of), timeout_s)
        return sum(self._left[each] for each in of)

    def mark(self) -> int:
        """A mark behind all that was sent so far, for `reached`."""
        self._mark += 1
        return self._mark

    def reached(self, mark: int, timeout_s: float) -> bool:
        """Whether all that was sent before a mark is acknowledged or refused, at the latest when the time is
        over."""
        return self._poll_until(lambda: all(each >= mark for each in self._left_since), timeout_s)

    def _poll_until(self, is_so: Callable[[], bool], timeout_s: float) -> bool:
        until_s = SYSTEM_CLOCK.monotonic_s() + timeout_s
        self._producer.poll(0)
        while not (found := is_so()) and (left_s := until_s - SYSTEM_CLOCK.monotonic_s()) > 0:
            self._producer.poll(left_s)
        return found

    def flush(self, timeout_s: float) -> int:
        """How many messages are neither acknowledged nor refused when the time is over."""
        return int(self._producer.flush(timeout_s))


def _less(counter: Counter[T], of: T) -> None:
    counter[of] -= 1
    if not counter[of]:
        del counter[of]
