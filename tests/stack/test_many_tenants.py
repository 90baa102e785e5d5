"""Ten thousand tenants on one node, every fifth of them new within a minute: memory keeps within its budget,
and after a restart, and none waits too long."""

import random
import threading
import time
from bisect import bisect
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import accumulate
from pathlib import Path

import pytest

from lake.catalog_client import CatalogClient, TableName
from lake.marks import MARKS_PROPERTY, Marks, TopicPartition, parse_marks
from lake.tenant import to_identifier
from tests.stack.support.forked import family
from tests.stack.support.ingester import Ingester
from tests.stack.support.line import Line
from tests.stack.support.visibility import Watcher, catalog_database
from tests.stack.support.waiting import fresh, pause, wait_for

pytestmark = [pytest.mark.stack, pytest.mark.prove]

MIB = 1024 * 1024
TENANTS, NEW, BUDGET_BYTES = 8_000, 2_000, 512 * MIB
FLOW_S, FLUSH_S, VISIBLE_S = 60.0, 30.0, 90.0
# Two processes with their libraries, what Kafka's client has fetched ahead, and a group of tables as rows and
# as a file.
FIXED_BYTES = 640 * MIB
# The records that wait in Kafka; beside it counts what the machine did for others while our processes were
# ready to run.
SLACK_S = 20.0
PART, LAG_MAX = 20_000, 100_000
TEXT = "x" * 300


class Flow:
    """Records of ever more tenants. `sent`: per tenant, of its records the partition, offset and Kafka's time
    in ms."""

    def __init__(self, line: Line, topic: str, running: Ingester, *, zipf: bool) -> None:
        self.line, self.topic, self.running = line, topic, running
        self.names = [f"{fresh('many-')}-{at}" for at in range(TENANTS + NEW)]
        self.sent: dict[str, list[tuple[int, int, int]]] = {}
        self._draw = random.Random(1)
        self._weights = list(accumulate(1 / (at + 1) if zipf else 1.0 for at in range(TENANTS + NEW)))

    def run(self) -> None:
        """First the old tenants, then the new ones come in, one after the other, while the old ones go on."""
        for count in (TENANTS, TENANTS + NEW):
            began_s, before = time.monotonic(), len(self.sent)
            while (share := (time.monotonic() - began_s) / FLOW_S) < 1:
                self._part(before + int((count - before) * share))
            self._part(count)

    def once_each(self) -> None:
        """One more record of every tenant, all at once."""
        for name in self.names:
            self._produce(name)
        assert self.line.kafka.producer.flush(60) == 0

    def _part(self, count: int) -> None:
        """A part of the flow, at the pace at which the node reads; each of the first `count` tenants has a
        record by its end."""
        self.running.wait_until(lambda: self._lag() < LAG_MAX, 120, "records being read")
        unseen = range(len(self.sent), count)
        whole = self._weights[max(0, count - 1)]
        chosen = [bisect(self._weights, self._draw.random() * whole) for _ in range(PART - len(unseen))]
        for at in (*unseen, *chosen):
            self._produce(self.names[at])
        assert self.line.kafka.producer.flush(60) == 0

    def _produce(self, tenant: str) -> None:
        producer = self.line.kafka.producer
        producer.produce(
            self.topic, self._value(), headers=[("tenant", tenant.encode())], on_delivery=self._note(tenant)
        )
        producer.poll(0)

    def _value(self) -> bytes:
        return b'{"message":"%s","status":%d,"latency_ms":%.3f}' % (
            TEXT.encode(),
            self._draw.randrange(100, 600),
            self._draw.random(),
        )

    def _note(self, tenant: str) -> Callable[..., None]:
        places = self.sent.setdefault(tenant, [])

        def delivered(error: object, message: object) -> None:
            assert error is None
            places.append((message.partition(), message.offset(), message.timestamp()[1]))  # type: ignore[attr-defined]

        return delivered

    def is_written(self) -> bool:
        """Whether the node has read all that was sent and holds nothing."""
        status = self.running.status()
        routed = {
            entry["partition"]: entry["routed"]
            for entry in status["partitions"]
            if entry["topic"] == self.topic
        }
        unread = any(
            routed.get(partition, 0) <= offset
            for places in self.sent.values()
            for partition, offset, _ in places[-1:]
        )
        return not (unread or status["buffered_bytes"] or status["in_flight_bytes"])

    def _lag(self) -> int:
        return sum(
            partition["end"] - partition["routed"] for partition in self.running.status()["partitions"]
        )


@contextmanager
def kept_waiting(line: Line, running: Ingester) -> Iterator[list[float]]:
    """Seconds for which threads of the node, of Kafka and of the catalog were ready to run and the machine
    did something else, meanwhile."""
    kept = [0.0]
    roots = [running.pid, line.stack.pid("kafka"), line.stack.pid("catalog")]
    before = _waited_ns(roots)
    try:
        yield kept
    finally:
        kept[0] = sum(max(0, ns - before.get(thread, 0)) for thread, ns in _waited_ns(roots).items()) / 1e9


def _waited_ns(roots: Sequence[int]) -> dict[str, int]:
    """By thread; a thread that has ended is left out, and one that ends meanwhile."""
    waited = {}
    for process in [one for root in roots for one in family(root)]:
        for file in Path(f"/proc/{process.pid}/task").glob("*/schedstat"):
            with suppress(OSError):
                waited[str(file)] = int(file.read_text().split()[1])
    return waited


@contextmanager
def peak_of(pid: int) -> Iterator[list[int]]:
    """The largest sum of resident bytes of a process and its children, meanwhile."""
    peak, ended = [0], threading.Event()

    def watch() -> None:
        while not ended.is_set():
            peak[0] = max(peak[0], sum(process.memory_info().rss for process in family(pid)))
            pause(0.2)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield peak
    finally:
        ended.set()
        thread.join()


def _table(tenant: str) -> TableName:
    return TableName(to_identifier(tenant), "logs")


def _rows_and_versions(
    watcher: Watcher, catalog: CatalogClient, tenant: str
) -> tuple[int, list[tuple[float, Marks]]]:
    """The rows of a table, and when each version of it was first there, with its marks."""
    snapshots = sorted(
        catalog.load_table(_table(tenant))["metadata"]["snapshots"],
        key=lambda snapshot: snapshot["sequence-number"],
    )
    versions = [
        (
            watcher.seen_s[_table(tenant), int(s["sequence-number"]) - 1],
            parse_marks(s["summary"][MARKS_PROPERTY]),
        )
        for s in snapshots
    ]
    return int(snapshots[-1]["summary"]["total-records"]), versions


def _longest_wait_s(
    versions: list[tuple[float, Marks]], sent: Iterable[tuple[int, int, int]], topic_id: str
) -> float:
    """The longest time that a record was not visible."""
    oldest_ms: Counter[int] = Counter()  # of each version
    for partition, offset, timestamp_ms in sent:
        version = next(
            at
            for at, (_, marks) in enumerate(versions)
            if marks.of(TopicPartition(topic_id, partition)) > offset
        )
        oldest_ms[version] = min(timestamp_ms, oldest_ms[version] or timestamp_ms)
    return max(versions[version][0] - timestamp_ms / 1000 for version, timestamp_ms in oldest_ms.items())


@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("zipf", [True, False], ids=["Zipf", "uniform"])
def test_ten_thousand_tenants_stay_within_memory_and_none_starves(
    line: Line, ingester: Callable[..., Ingester], record_property: Callable[[str, object], None], zipf: bool
) -> None:
    """Peak memory is the budget and a fixed part; every record is visible in time, once."""
    topic = line.kafka.topic(4)
    running = ingester(
        topic,
        flush__interval_s=FLUSH_S,
        flush__visibility_max_s=VISIBLE_S,
        flush__buffer_bytes_max=BUDGET_BYTES,
    )
    flow = Flow(line, topic, running, zipf=zipf)
    with Watcher(catalog_database(line.stack)) as watcher:
        with peak_of(running.pid) as peak, kept_waiting(line, running) as kept:
            flow.run()
            running.wait_until(flow.is_written, VISIBLE_S + 120, "all records being written")
        assert running.stop() == 0
        with peak_of(running.start().pid) as peak_again, kept_waiting(line, running) as kept_again:
            flow.once_each()
            running.wait_until(
                flow.is_written,
                VISIBLE_S + 120,
                "a record of every table that is not new to the catalog, but to the node",
            )
        names = {_table(tenant) for tenant in flow.sent}
        wait_for(lambda: names <= {table for table, _ in watcher.seen_s}, 30, "the watcher's next look")
    topic_id = line.kafka.topic_id(topic)
    found = {tenant: _rows_and_versions(watcher, line.catalog, tenant) for tenant in flow.sent}
    # The last record of each is that of after the restart.
    longest_s = max(
        _longest_wait_s(versions, flow.sent[tenant][:-1], topic_id) for tenant, (_, versions) in found.items()
    )
    longest_again_s = max(
        _longest_wait_s(versions, flow.sent[tenant][-1:], topic_id) for tenant, (_, versions) in found.items()
    )
    record_property("records", sum(map(len, flow.sent.values())))
    record_property("peak, and peak after a restart, MiB", (peak[0] // MIB, peak_again[0] // MIB))
    record_property("longest wait, and after a restart, s", (round(longest_s, 1), round(longest_again_s, 1)))
    record_property("kept waiting by the machine, s", (round(kept[0], 1), round(kept_again[0], 1)))
    assert len(found) == TENANTS + NEW
    assert {tenant: rows for tenant, (rows, _) in found.items()} == {
        tenant: len(sent) for tenant, sent in flow.sent.items()
    }
    assert max(peak[0], peak_again[0]) <= BUDGET_BYTES + FIXED_BYTES
    assert longest_s <= VISIBLE_S + SLACK_S + kept[0]
    assert (
        longest_again_s <= VISIBLE_S + 2 * SLACK_S + kept_again[0]
    )  # all tables have begun to wait within seconds
