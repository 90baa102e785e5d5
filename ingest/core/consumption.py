"""Kafka's messages, sorted by the native core: bytes for each table, and no object for each message.

The messages of some partitions go to a queue of their own, which the core empties; what else the client has
to say (other partitions, statistics, tokens to be renewed) stays with `Consumer`, which is asked, too.
Both are one client: the librdkafka that confluent-kafka has loaded, by its public interface. confluent-kafka
does not give out its handle, which is the first thing in the object; the versions for which that is known are
`CLIENTS`. With another one all goes through `Consumer`.
"""

import ctypes
from collections.abc import Iterator, Sequence
from ctypes import byref, c_char_p, c_int32, c_void_p
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple, Protocol

import confluent_kafka
import numpy as np
import structlog
from confluent_kafka import Consumer

from ingest.core.library import Absent, ConsumeResult, Functions, Status, load, view_at
from ingest.model.raw_rows import ROW, RawRows

CLIENTS = frozenset({"2.16.1"})
_HEAD_BYTES = object.__basicsize__  # what stands in an object before what it holds
# In place of a group's name (core/src/grouping.rs): no table takes the messages; a rule needs their values.
ODD, UNDECIDED = -1, -2
# What the core calls of librdkafka, in its order.
_USED = (
    "consume_batch_queue",
    "message_destroy",
    "message_headers",
    "header_get_all",
    "message_timestamp",
    "topic_name",
)
_GROUP_NUMBERS = 11
log = structlog.get_logger()


class Group(NamedTuple):
    """Messages of one source for which the rules of its topic find one name, in order. The bytes, as
    `raw_rows` spells them, are the core's until it is asked for more."""

    name: int
    first_offset: int
    rows: memoryview
    values: memoryview
    envelopes: memoryview

    def read(self) -> RawRows:
        """The messages one by one."""
        return RawRows(self.rows, [self.values], self.envelopes)


class GroupedRun(NamedTuple):
    """What came of a source together: so many messages, with values of so many bytes. `next_offset`: where it
    goes on."""

    source: int
    next_offset: int
    messages: int
    size_bytes: int
    groups: Sequence[Group]


class Grouped(NamedTuple):
    """A batch. With `has_errors` all groups are undecided, and the rows may be errors of the client."""

    has_errors: bool
    runs: list[GroupedRun]


class ConsumptionError(RuntimeError):
    """The core has not taken what came of the queue; part of that is gone there, and has to be read again."""


class Queue(Protocol):
    """Where the core finds messages: the addresses of the queue, and of the client's functions as `_USED` has
    them in order."""

    address: int
    functions: list[int | None]

    def divert(self, topic: str, partition: int) -> None:
        """Has what comes of a partition go to the queue, to be called whenever it is assigned anew."""

    def give_back(self) -> None:
        """Has all go to the consumer, also what is diverted from now on."""

    def close(self) -> None:
        """Nothing comes any more."""


class ClientQueue:
    """A queue of its own for some of the partitions that a consumer reads; closed before that."""

    def __init__(self, consumer: Consumer) -> None:
        self._client = _client()
        self._consumer = c_void_p.from_address(id(consumer) + _HEAD_BYTES).value
        self.address = self._client.rd_kafka_queue_new(self._consumer)
        self.functions = [ctypes.cast(self._client[f"rd_kafka_{name}"], c_void_p).value for name in _USED]
        self._target, self._diverted = self.address, set[tuple[str, int]]()

    def divert(self, topic: str, partition: int) -> None:
        self._diverted.add((topic, partition))
        self._forward(topic, partition, self._target)

    def give_back(self) -> None:
        # Once told where to forward a partition, the client leaves that to us, also when it is assigned anew.
        self._target = self._client.rd_kafka_queue_get_consumer(self._consumer)
        for topic, partition in self._diverted:
            self._forward(topic, partition, self._target)

    def close(self) -> None:
        for queue in {self.address, self._target}:
            self._client.rd_kafka_queue_destroy(queue)

    def _forward(self, topic: str, partition: int, queue: int) -> None:
        own = self._client.rd_kafka_queue_get_partition(self._consumer, topic.encode(), partition)
        if own:
            self._client.rd_kafka_queue_forward(own, queue)
            self._client.rd_kafka_queue_destroy(own)


class Consumption:
    """Takes messages of the partitions it was told of. One thread at a time."""

    def __init__(self, functions: Functions, queue: Queue, value_bytes_max: int) -> None:
        """Values of more bytes are odd."""
        self._functions, self._queue = functions, queue
        self._handle, self._plans = c_void_p(), dict[str, int]()
        used = (c_void_p * len(_USED))(*queue.functions)
        _check(functions.firn_consume_new(used, queue.address, value_bytes_max, byref(self._handle)))

    def close(self) -> None:
        """Nothing may be taken any more, nor what was taken last be looked at."""
        self._free()
        self._queue.close()

    def give_up(self) -> None:
        """The same, and the consumer has the partitions, old and new ones."""
        self._free()
        self._queue.give_back()

    def _free(self) -> None:
        if self._handle:
            self._functions.firn_consume_free(self._handle)
            self._handle = c_void_p()

    @property
    def takes(self) -> bool:
        """Whether it has not given up."""
        return bool(self._handle)

    def divert(self, topic: str, partition: int) -> None:
        """As `Queue.divert`."""
        self._queue.divert(topic, partition)

    def add(self, topic: str, partition: int, number: int, rules: bytes) -> None:
        """Tells of a partition and its number. `rules`: as `firn_consume_source` reads them."""
        name, plan = topic.encode(), self._plans.setdefault(topic, len(self._plans))
        _check(
            self._functions.firn_consume_source(
                self._handle, name, partition, number, plan, rules, len(rules)
            )
        )

    def take(self, count: int, timeout_s: float) -> Grouped:
        """At most so many messages, waiting for them as `Consumer.consume` does. Raises ConsumptionError."""
        result = ConsumeResult()
        _check(self._functions.firn_consume_take(self._handle, int(timeout_s * 1_000), count, byref(result)))
        return Grouped(bool(result.errors), list(_runs(result)))


def _runs(result: ConsumeResult) -> Iterator[GroupedRun]:
    if not result.group_count:
        return
    numbers = np.frombuffer(
        view_at(result.groups, result.group_count * _GROUP_NUMBERS * 8), np.int64
    ).reshape(-1, _GROUP_NUMBERS)
    ends = numbers[-1].tolist()
    rows, values, envelopes = (
        view_at(result.rows, ends[6] * ROW.size),
        view_at(result.values, ends[8]),
        view_at(result.envelopes, ends[10]),
    )
    generation = result.generation << 32
    for (_, source), found in groupby(numbers.tolist(), itemgetter(1, 2)):
        told = list(found)
        groups = [
            Group(
                name if name < 0 else generation + name,
                first,
                rows[row * ROW.size : row_end * ROW.size],
                values[value:value_end],
                envelopes[envelope:envelope_end],
            )
            for name, _, _, first, _, row, row_end, value, value_end, envelope, envelope_end in told
        ]
        # They lie one behind the other.
        messages, size_bytes = told[-1][6] - told[0][5], told[-1][8] - told[0][7]
        yield GroupedRun(source, max(map(itemgetter(4), told)) + 1, messages, size_bytes, groups)


def consumption_of(consumer: Any, value_bytes_max: int) -> Consumption | None:
    """For a consumer that was just made; None where this process does without the core, or does not know the
    client. Values of more bytes are odd."""
    functions = load()
    if isinstance(functions, Absent) or not isinstance(consumer, Consumer):
        return None
    if confluent_kafka.version() not in CLIENTS:
        log.warning(
            "consumer.in_python",
            client=confluent_kafka.version(),
            known=sorted(CLIENTS),
            advice="all is read, and slower; install the version of requirements/",
        )
        return None
    return Consumption(functions, ClientQueue(consumer), value_bytes_max)


def _client() -> Any:
    """The librdkafka of this process, which the client's module has loaded."""
    client = ctypes.CDLL(confluent_kafka.cimpl.__file__)
    for name, result, arguments in (
        ("queue_new", c_void_p, (c_void_p,)),
        ("queue_get_consumer", c_void_p, (c_void_p,)),
        ("queue_get_partition", c_void_p, (c_void_p, c_char_p, c_int32)),
        ("queue_forward", None, (c_void_p, c_void_p)),
        ("queue_destroy", None, (c_void_p,)),
    ):
        function = client[f"rd_kafka_{name}"]
        function.restype, function.argtypes = result, arguments
        setattr(client, f"rd_kafka_{name}", function)
    return client


def _check(status: int) -> None:
    if status != Status.DONE:
        raise ConsumptionError(f"the native core has failed to take messages ({Status(status).name})")
