"""A producer that asks less of its headers than confluent-kafka's, which makes text of their names:
librdkafka itself, as a shipper in C uses it."""

import ctypes
from pathlib import Path

import confluent_kafka

from infra.local.kafka_access import administrator

PRODUCER, COPY = 0, 2
# What follows in the call, rd_kafka_vtype_t of rdkafka.h.
END, TOPIC, VALUE, MSGFLAGS, HEADERS = 0, 1, 4, 7, 10
FLUSH_MS = 30_000


def produce_raw(servers: str, topic: str, value: bytes, header: tuple[bytes, bytes]) -> None:
    """Produces one message with a header whose name may be any bytes; returns when it is acknowledged."""
    library = ctypes.CDLL(
        str(
            next(
                (Path(confluent_kafka.__file__).parents[1] / "confluent_kafka.libs").glob("librdkafka-*.so*")
            )
        )
    )
    for function in ("rd_kafka_conf_new", "rd_kafka_new", "rd_kafka_headers_new"):
        getattr(library, function).restype = ctypes.c_void_p
    number, size, pointer, failure = (
        ctypes.c_int,
        ctypes.c_size_t,
        ctypes.c_void_p,
        ctypes.create_string_buffer(512),
    )
    settings = pointer(library.rd_kafka_conf_new())
    for option, given in administrator(servers).items():
        told = str(given).encode()
        found = library.rd_kafka_conf_set(settings, option.encode(), told, failure, size(len(failure)))
        assert found == 0, failure.value
    producer = pointer(library.rd_kafka_new(number(PRODUCER), settings, failure, size(len(failure))))
    headers, (name, content) = pointer(library.rd_kafka_headers_new(size(1))), header
    assert (
        library.rd_kafka_header_add(
            headers, name, ctypes.c_ssize_t(len(name)), content, ctypes.c_ssize_t(len(content))
        )
        == 0
    )
    of_value = (number(VALUE), value, size(len(value)), number(MSGFLAGS), number(COPY))
    assert (
        library.rd_kafka_producev(
            producer, number(TOPIC), topic.encode(), *of_value, number(HEADERS), headers, number(END)
        )
        == 0
    )
    assert library.rd_kafka_flush(producer, number(FLUSH_MS)) == 0
    library.rd_kafka_destroy(producer)
