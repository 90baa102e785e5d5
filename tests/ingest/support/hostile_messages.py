"""`python -m tests.ingest.support.hostile_messages`: messages of Kafka that ask the native core for memory,
or are noise, in a process that gets the stated bound (core/README.md) and no more; an allocation beyond it
ends the process."""

import json
import random
import resource
import sys
from collections.abc import Iterator
from itertools import count

import confluent_kafka

from ingest.core import library
from ingest.core.consumption import Consumption
from ingest.kafka.header_workaround import UNREADABLE
from ingest.model.raw_rows import Envelope
from tests.ingest.support.fake_kafka import FakeBroker, FakeConsumer, Headers
from tests.ingest.support.fake_queue import FakeQueue
from tests.ingest.support.json_comparison import limit_memory

NAMES_BYTES_MAX = 16 << 20
KEPT_BYTES_MAX = 32 << 20
# Of each byte of a batch: its envelope twice, its value once, its name once, all with room to grow.
TIMES_BATCH = 4
BATCH_BYTES_MAX = 24_000_000
# Python's own: the batch twice, as the broker's and the client's, and as it is read.
PYTHON_BYTES = 250_000_000
VALUE_BYTES_MAX = 20_000_000
RULES = b"htenant\0ft\0odd\0\0k.hstream\0fs\0\0"
SEED = 7
Sent = tuple[bytes | None, bytes | None, Headers]  # value, key, headers


def floods() -> Iterator[list[Sent]]:
    """Messages, each list for one call."""
    draw, number = random.Random(SEED), count()
    for _ in range(20):  # noise
        yield [_noise(draw) for _ in range(500)]
    for _ in range(10):  # names that never come again, as long as names may be
        yield [(b"v", b"%01024d" % next(number), ()) for _ in range(8_000)]
    yield [(b'{"t":"%d"}' % next(number), None, ()) for _ in range(20_000)]
    yield [(b"x" * VALUE_BYTES_MAX, b"k", ()), (b"v", b"k", ())]
    yield [(b"v", b"x" * 20_000_000, ()), (b"v", b"k", ())]
    yield [(b"v", b"k", [("tenant", b"x" * 20_000_000)])]
    yield [(b"v", b"k", [("h", None)] * 200_000)]
    yield [(b'{"t":"' + b"\\u20ac" * 3_000_000 + b'"}', None, ())]
    yield [(b'{"t":' * 2_000_000, None, ()), (b'{"a":' + b"[" * 10_000_000, None, ()), (b"{" * 100, b"k", ())]


def _noise(draw: random.Random) -> Sent:
    """Something of a record, a key and headers."""
    pieces = [b"{", b"}", b"[", b'"', b"\\", b":", b",", b"t", b"odd", b'{"t":"', b"\\ud800", b"\xff", b"\0"]
    value = b"".join(draw.choices(pieces, k=draw.randrange(12))) + draw.randbytes(draw.randrange(6))
    names = ("tenant", "stream", "", "é")
    headers: Headers = [
        (draw.choice(names), draw.choice([None, b"", draw.randbytes(3)])) for _ in range(draw.randrange(4))
    ]
    return (
        draw.choice([None, value, value]),
        draw.choice([None, b"", draw.randbytes(2)]),
        UNREADABLE if draw.random() < 0.1 else headers,
    )


def main() -> None:
    """Feeds them all to one consumption, holds what it gives against what was sent, and prints how far its
    process grew."""
    broker = FakeBroker()
    broker.create_topic("t")
    consumer = FakeConsumer(broker, "g")
    consumer.incremental_assign([confluent_kafka.TopicPartition("t", 0, 0)])
    functions = library.load()
    assert not isinstance(functions, library.Absent), functions.reason
    queue = FakeQueue(consumer)
    taking = Consumption(functions, queue, VALUE_BYTES_MAX)
    taking.add("t", 0, 7, RULES)
    taking.divert("t", 0)
    before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    limit_memory(NAMES_BYTES_MAX + KEPT_BYTES_MAX + TIMES_BATCH * BATCH_BYTES_MAX + PYTHON_BYTES)
    messages = 0
    for batch in floods():
        first = broker.partitions["t", 0].end
        for value, key, headers in batch:
            broker.append("t", value, key=key, headers=headers)
        found = dict[int, tuple[bytes | None, Envelope]]()
        for run in taking.take(len(batch), 0.0).runs:
            for group in run.groups:
                read = group.read()
                for at, envelope in enumerate(read.opened):
                    found[read.offsets[at]] = read.value(at), envelope
        assert found == {
            offset: (value, Envelope(key, None if headers is UNREADABLE else tuple(headers)))
            for offset, (value, key, headers) in enumerate(batch, first)
        }
        assert not queue.given
        broker.retain("t", 0, first + len(batch))
        messages += len(batch)
    grown_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kb
    sys.stdout.write(json.dumps({"messages": messages, "grown_mb": grown_kb // 1_000}) + "\n")


if __name__ == "__main__":
    main()
