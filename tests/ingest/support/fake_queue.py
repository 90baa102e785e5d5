"""A queue of Kafka's client in memory, behind the core: functions and structs as rdkafka.h declares them."""

import ctypes
from ctypes import (
    CFUNCTYPE,
    POINTER,
    Structure,
    c_char_p,
    c_int,
    c_int32,
    c_int64,
    c_size_t,
    c_ssize_t,
    c_void_p,
)
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Message, TopicPartition

from ingest.core.library import Functions, Status
from ingest.kafka.header_workaround import UNREADABLE
from tests.ingest.support.fake_kafka import FakeConsumer

NO_HEADERS = -156


class RdMessage(Structure):
    """rd_kafka_message_t."""

    _fields_ = (
        ("error", c_int),
        ("topic", c_void_p),
        ("partition", c_int32),
        ("payload", c_char_p),
        ("size", c_size_t),
        ("key", c_char_p),
        ("key_size", c_size_t),
        ("offset", c_int64),
        ("private", c_void_p),
    )


class FakeQueue:
    """What the core takes of a consumer in memory. `given`: messages that it has not given back."""

    def __init__(self, consumer: FakeConsumer) -> None:
        self.address, self.given = 1, dict[int, tuple[RdMessage, Message]]()
        self._consumer, self._has_given_back = consumer, False
        self._own = FakeConsumer(consumer.broker, consumer.group)
        self._topics = dict[str, Any]()
        self._texts = list[Any]()  # of headers, as long as the core may look at them
        self._functions = [
            CFUNCTYPE(c_ssize_t, c_void_p, c_int, POINTER(c_void_p), c_size_t)(self._consume),
            CFUNCTYPE(None, c_void_p)(self._destroy),
            CFUNCTYPE(c_int, c_void_p, POINTER(c_void_p))(self._headers),
            CFUNCTYPE(c_int, c_void_p, c_size_t, POINTER(c_char_p), POINTER(c_char_p), POINTER(c_size_t))(
                self._header_at
            ),
            CFUNCTYPE(c_int64, c_void_p, POINTER(c_int))(lambda at, _: self.given[at][1].timestamp()[1]),
            CFUNCTYPE(c_void_p, c_void_p)(lambda topic: topic),  # a topic is the place of its name
        ]
        self.functions = [ctypes.cast(function, c_void_p).value for function in self._functions]

    def divert(self, topic: str, partition: int) -> None:
        """The consumer does not see the partition any more."""
        if self._has_given_back:
            return
        offset = self._consumer.position(topic, partition)
        self._consumer.incremental_unassign([TopicPartition(topic, partition)])
        self._own.incremental_assign([TopicPartition(topic, partition, offset)])

    def give_back(self) -> None:
        """The consumer sees all partitions again."""
        self._consumer.incremental_assign(self._own.assigned())
        self._has_given_back = True

    def close(self) -> None:
        self._own.close()

    def _consume(self, _: int, __: int, places: Any, count: int) -> int:
        self._texts.clear()
        messages = self._own.consume(count, 0.0)
        for number, message in enumerate(messages):
            topic = self._topics.setdefault(
                message.topic(), ctypes.create_string_buffer(message.topic().encode())
            )
            value, key, error = message.value(), message.key(), message.error()
            if error is not None:
                value = error.str().encode()  # as the client spells errors
            one = RdMessage(
                0 if error is None else error.code(),
                ctypes.addressof(topic),
                message.partition(),
                value,
                len(value or b""),
                key,
                len(key or b""),
                message.offset(),
            )
            places[number] = ctypes.addressof(one)
            self.given[ctypes.addressof(one)] = one, message
        return len(messages)

    def _destroy(self, at: int) -> None:
        del self.given[at]

    def _headers(self, at: int, out: Any) -> int:
        out[0] = at
        return 0 if self.given[at][1].headers() else NO_HEADERS

    def _header_at(self, at: int, number: int, name: Any, value: Any, size: Any) -> int:
        headers = self.given[at][1].headers()
        if number >= len(headers):
            return NO_HEADERS
        text, content = headers[number]
        spelled = b"\xff" if headers == UNREADABLE else text.encode()
        self._texts += spelled, content
        name[0] = spelled
        value[0], size[0] = content, len(content or b"")
        return 0


@dataclass
class FailingCore:
    """The core's functions; it takes messages and then fails."""

    functions: Functions

    def __getattr__(self, name: str) -> Any:
        return getattr(self.functions, name)

    def firn_consume_take(self, *arguments: Any) -> int:
        """Whatever came is lost."""
        self.functions.firn_consume_take(*arguments)
        return Status.PANICKED
