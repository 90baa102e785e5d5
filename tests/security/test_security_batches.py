"""Hostile batches beside live traffic: nothing else is lost, doubled or stopped. FIRN_SECURITY_BATCHES: how
many."""

import os
import random
import struct
from collections.abc import Callable

import orjson
import pytest

from tests.security.support.hostile_batches import GZIP, LZ4, SNAPPY, ZSTD, Wire, batch, damage, record
from tests.security.test_unreadable_batches import MIB, broker_logs
from tests.stack.support.kafka_topics import Record
from tests.stack.support.line import Line
from tests.stack.support.tool_line import ToolLine
from tests.stack.support.waiting import fresh

pytestmark = [pytest.mark.stack, pytest.mark.finding(3)]

BATCHES = int(os.environ.get("FIRN_SECURITY_BATCHES", "40"))
SEED = int(os.environ.get("FIRN_TEST_SEED", "1"))
PARTITIONS = 2
# So many of the live records come with every hostile batch.
LIVE = 5
Make = Callable[[random.Random, bytes], bytes]


def _records(choice: random.Random, tenant: bytes, count: int | None = None) -> list[bytes]:
    count = choice.randint(1, 50) if count is None else count
    return [
        record(at, orjson.dumps({"n": at, "x": "y" * choice.randint(0, 200)}), [(b"tenant", tenant)])
        for at in range(count)
    ]


def _bad_compression(choice: random.Random, tenant: bytes) -> bytes:
    return batch(
        _records(choice, tenant),
        codec=choice.choice((GZIP, SNAPPY, LZ4, ZSTD)),
        body=choice.randbytes(choice.randint(1, 5_000)),
    )


def _unknown_codec(choice: random.Random, tenant: bytes) -> bytes:
    return batch(
        _records(choice, tenant), codec=choice.choice((5, 6, 7)), body=b"".join(_records(choice, tenant))
    )


def _wrong_checksum(choice: random.Random, tenant: bytes) -> bytes:
    return batch(_records(choice, tenant), codec=choice.choice((0, GZIP)), wrong_checksum=True)


def _truncated(choice: random.Random, tenant: bytes) -> bytes:
    whole = batch(_records(choice, tenant))
    return whole[: choice.randint(1, len(whole) - 1)]


def _truncated_inside(choice: random.Random, tenant: bytes) -> bytes:
    records = _records(choice, tenant, 5)
    records[-1] = records[-1][: len(records[-1]) // 2]
    return batch(records, codec=choice.choice((0, GZIP)))


def _wrong_count(choice: random.Random, tenant: bytes) -> bytes:
    made = bytearray(batch(_records(choice, tenant), wrong_checksum=False))
    struct.pack_into(">i", made, 57, choice.choice((-1, 0, 7_777, 2**31 - 1)))
    return bytes(made)


def _huge_headers(choice: random.Random, tenant: bytes) -> bytes:
    many = [(choice.randbytes(6), b"v" * 20) for _ in range(choice.choice((1, 1_000, 9_000)))]
    return batch(
        [record(0, b'{"a":1}', [(b"h", b"x" * choice.choice((10, 100_000))), *many, (b"tenant", tenant)])],
        codec=choice.choice((0, GZIP)),
    )


class Bombs:
    """Made once: what takes long to compress."""

    def __init__(self, tenant: bytes) -> None:
        grown = {ZSTD: bytes(150 * MIB), GZIP: b"[" * (40 * MIB), LZ4: b"0" * (40 * MIB)}
        self._made = [
            batch([record(0, text, [(b"tenant", tenant)])], codec=codec) for codec, text in grown.items()
        ]

    def __call__(self, choice: random.Random, _: bytes) -> bytes:
        return choice.choice(self._made)


def test_hostile_batches_harm_nobody_else(line: Line, record_property: Callable[[str, object], None]) -> None:
    """Bad compression, unknown codecs, wrong checksums, truncated batches and records, wrong counts, bombs,
    huge headers, batches damaged on the broker's disk: what the broker takes is rows or dead letters; the
    live tenant's records are rows once each; one ingester lives through all of it."""
    choice, evil, good = random.Random(SEED), fresh("evil-"), fresh("good-")
    topic = line.kafka.topic(partitions=PARTITIONS)
    ours, wire = ToolLine(line, topic), Wire(line.kafka.bootstrap_servers)
    kinds: dict[str, Make] = {
        "bad compression": _bad_compression,
        "codec": _unknown_codec,
        "checksum": _wrong_checksum,
        "truncated": _truncated,
    }
    kinds |= {
        "truncated inside": _truncated_inside,
        "count": _wrong_count,
        "headers": _huge_headers,
        "bomb": Bombs(evil.encode()),
    }
    taken, damaged, sent = dict.fromkeys([*kinds, "damaged"], 0), 0, 0
    try:
        ours.ingester.start()
        process = ours.ingester.pid
        for number in range(BATCHES):
            partition, kind = number % PARTITIONS, choice.choice([*kinds, "damaged"])
            if kind == "damaged":
                answer = wire.produce(topic, batch(_records(choice, evil.encode()), codec=GZIP), partition)
                assert answer is not None
                damage(broker_logs(line), topic, answer.offset, partition)
                damaged += 1
            else:
                answer = wire.produce(topic, kinds[kind](choice, evil.encode()), partition)
            taken[kind] += answer is not None and answer.error == 0
            body = [
                Record(
                    orjson.dumps({"n": sent + at}),
                    None,
                    (("tenant", good.encode()),),
                    partition=at % PARTITIONS,
                )
                for at in range(LIVE)
            ]
            sent += len(line.kafka.produce(topic, body))
        ours.ingester.wait_until(
            lambda: line.kafka.group_offsets(ours.group, topic) == line.kafka.ends(topic),
            120 + BATCHES,
            "all of it read",
        )
        assert ours.ingester.pid == process
        ours.environment["FIRN_INGEST_KAFKA__CHECK_CRCS"] = (
            "false"  # the tools run in this process, which the client must not end
        )
        assert line.sql(f"SELECT count(*), count(DISTINCT n) FROM {line.table(good)}") == [(sent, sent)]
        assert ours.audit() == {}
        letters = [
            orjson.loads(text)
            for text in ours.run("dead-letters", "list", "--limit", "100000", "--json").splitlines()
        ]
        reasons = {letter["reason"] for letter in letters}
        assert reasons <= {"unreadable", "too_large", "undecodable", "tenant_missing"}, reasons
        assert ours.json("status")["lag_records"] == 0
        assert "worker.failed" not in ours.ingester.log()
        restarts = ours.ingester.log().count('"node.restarts"')
        assert restarts == ours.ingester.log().count('"kafka.checksums_off"'), (
            "nothing but the client's own end over a damaged batch, once, restarts workers"
        )
    finally:
        wire.close()
        ours.ingester.kill()
    record_property("batches", str(BATCHES))
    record_property("taken_by_the_broker", str(taken))
    record_property("damaged_on_disk", str(damaged))
    record_property("dead_letters", str(len(letters)))
    record_property("live_records", str(sent))
    record_property("restarts_of_workers", str(restarts))
