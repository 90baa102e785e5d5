"""A hot tenant at full speed beside many quiet ones: good files for the one, freshness for the others."""

import random
import time
from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from lake.catalog_client import TableName
from lake.tenant import to_identifier
from tests.stack.support.ingester import Ingester
from tests.stack.support.kafka_topics import Delivered, Record
from tests.stack.support.line import Line
from tests.stack.support.visibility import Watcher, catalog_database, visibility_s
from tests.stack.support.waiting import fresh, wait_for

pytestmark = [pytest.mark.stack, pytest.mark.prove]

MIB = 1024 * 1024
FILE_BYTES, BUFFER_BYTES = 128 * MIB, 512 * MIB
HOT_RECORDS, QUIET_TENANTS, VISIBLE_S = 4_000_000, 1_000, 120.0
# A file is closed after the part of the buffer with which it reaches its size.
GOOD = (100 / 128, 140 / 128)
# What a machine that is busy with other things may add.
SLACK_S = 20.0
PART, LAG_MAX = 20_000, 100_000


def _message(at: int, base_us: int, draw: random.Random) -> bytes:
    moment = datetime.fromtimestamp((base_us + at) / 1_000_000, UTC).isoformat()
    return (
        b'{"timestamp":"%s","level":"INFO","message":"request %d handled for user '
        b'%d","host":"host-%02d","service":"checkout","status":%d,"latency_ms":%.3f,'
        b'"path":"/api/v1/items/%d","request_id":"%032x","trace_id":"%032x","span_id":"%016x","session":"%032x","client_ip":"10.0.%d.%d",'
        b'"user_agent":"Mozilla/5.0 (X11; Linux x86_64) Gecko/20100101 Firefox/140"}'
        % (
            moment.encode(),
            at,
            draw.getrandbits(30),
            at % 50,
            (200, 404)[at & 1],
            draw.random() * 100,
            draw.getrandbits(20),
            draw.getrandbits(128),
            draw.getrandbits(128),
            draw.getrandbits(64),
            draw.getrandbits(128),
            at % 256,
            at % 200,
        )
    )


def _lag(ingester: Ingester) -> int:
    return sum(partition["end"] - partition["routed"] for partition in ingester.status()["partitions"])


def _produce_hot(line: Line, topic: str, tenant: str, first: int, base_us: int, draw: random.Random) -> None:
    producer = line.kafka.producer
    for at in range(first, first + PART):
        producer.produce(topic, _message(at, base_us, draw), headers=[("tenant", tenant.encode())])
        if at % 1_000 == 0:
            producer.poll(0)
    assert producer.flush(60) == 0


def test_files_of_a_hot_tenant_are_large_and_quiet_ones_stay_fresh(
    line: Line, ingester: Callable[..., Ingester], record_property: Callable[[str, object], None]
) -> None:
    """The hot table is flushed when a file has its size, the quiet ones when their time has come; nothing is
    lost or doubled."""
    hot, quiet = fresh("hot-"), [fresh("quiet-") for _ in range(QUIET_TENANTS)]
    topic, draw = line.kafka.topic(2), random.Random(1)
    base_us = int(time.time() // 3_600) * 3_600_000_000  # one hour, and so one open file
    running = ingester(
        topic, flush__interval_s=VISIBLE_S, flush__file_bytes=FILE_BYTES, flush__buffer_bytes_max=BUFFER_BYTES
    )
    parts = HOT_RECORDS // PART
    quiet_sent: dict[str, list[Delivered]] = {tenant: [] for tenant in quiet}
    began_s = time.monotonic()
    with Watcher(catalog_database(line.stack)) as watcher:
        for part in range(parts):
            running.wait_until(lambda: _lag(running) < LAG_MAX, 120, "the hot tenant's records being read")
            _produce_hot(line, topic, hot, part * PART, base_us, draw)
            chosen = [
                quiet[at % QUIET_TENANTS]
                for at in range(part * QUIET_TENANTS // parts, (part + 1) * QUIET_TENANTS // parts)
            ]
            records = [
                Record(b'{"message":"all is quiet"}', headers=(("tenant", tenant.encode()),))
                for tenant in chosen
            ]
            for tenant, delivered in zip(chosen, line.kafka.produce(topic, records), strict=True):
                quiet_sent[tenant].append(delivered)
        for tenant in quiet:
            line.wait_for_rows(running, tenant, len(quiet_sent[tenant]), timeout_s=VISIBLE_S + 60)
        names = {TableName(to_identifier(tenant), "logs") for tenant in quiet}
        wait_for(lambda: names <= {table for table, _ in watcher.seen_s}, 30, "the watcher's next look")
    assert running.stop() == 0
    by_age = int((time.monotonic() - began_s) / VISIBLE_S)  # a busy machine takes longer for the records

    table = line.table(hot)
    (counted,) = line.sql(f"SELECT count(*), count(DISTINCT (_topic_partition, _offset)) FROM {table}")
    assert counted == (parts * PART, parts * PART)
    sizes = [
        size
        for (size,) in line.sql(
            f'SELECT file_size_in_bytes FROM "{to_identifier(hot)}"."logs$files" ORDER BY 1'
        )
    ]
    record_property("files of the hot table, MiB", [round(size / MIB, 1) for size in sizes])
    good = [size for size in sizes if GOOD[0] <= size / FILE_BYTES <= GOOD[1]]
    assert len(good) >= 2
    assert len(sizes) - len(good) <= 1 + by_age, "only the last flush, and those by age, may leave one"

    topic_id = line.kafka.topic_id(topic)
    seen = [
        seconds
        for tenant, sent in quiet_sent.items()
        for seconds in visibility_s(
            watcher, line.catalog, TableName(to_identifier(tenant), "logs"), sent, topic_id
        )
    ]
    record_property("longest wait of a quiet table, s", round(max(seen), 1))
    assert len(seen) == QUIET_TENANTS
    assert max(seen) <= VISIBLE_S + SLACK_S
