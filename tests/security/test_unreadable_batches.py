"""Batches that Kafka's client cannot read, and small ones that grow: one dead letter each, and everybody
else's records go on."""

import re
from pathlib import Path

import orjson
import psutil
import pytest

from tests.security.support.hostile_batches import GZIP, ZSTD, Wire, batch, damage, record
from tests.stack.support.forked import family
from tests.stack.support.kafka_topics import Record
from tests.stack.support.line import Line
from tests.stack.support.tool_line import ToolLine
from tests.stack.support.waiting import fresh

pytestmark = [pytest.mark.stack, pytest.mark.finding(3)]

MIB = 1024 * 1024
BOTH_ENGINES = pytest.mark.parametrize("engine", ["local", pytest.param("spark", marks=pytest.mark.prove)])


def broker_logs(line: Line) -> Path:
    """Where the broker keeps the partitions: it was started in its own folder."""
    folder = Path(psutil.Process(line.stack.pid("kafka")).cwd())
    return next(folder.glob("**/meta.properties")).parent


def zstd_bomb(tenant: str) -> bytes:
    """150 MiB of zeros in 4.8 kB."""
    return batch([record(0, bytes(150 * MIB), [(b"tenant", tenant.encode())])], codec=ZSTD)


@BOTH_ENGINES
def test_batches_nobody_can_read_are_stepped_over_and_recorded(line: Line, engine: str) -> None:
    """Bad compression and wrong checksums in front of, between and behind good records, also several at once
    and at the partition's end: each batch is one dead letter with its offsets, all good records are rows, the
    audit is clean, `status` answers, and a restart finds nothing to do."""
    tenant, other, topic = fresh("evil-"), fresh("good-"), line.kafka.topic()
    ours = ToolLine(line, topic, engine=engine)
    wire, good = Wire(line.kafka.bootstrap_servers), 0

    def produce(count: int) -> int:
        nonlocal good
        good += count
        return line.kafka.produce(
            topic,
            [
                Record(orjson.dumps({"n": good - at}), None, (("tenant", other.encode()),))
                for at in range(count)
            ],
        )[0].offset

    bomb, several = (
        zstd_bomb(tenant),
        batch([record(at, b'{"n":1}' * 9, [(b"tenant", tenant.encode())]) for at in range(1_000)]),
    )
    bad: list[tuple[int, int]] = []

    def bombs(count: int) -> None:
        for _ in range(count):
            answer = wire.produce(topic, bomb)
            assert answer is not None
            assert answer.error == 0, "the broker takes it"
            bad.append((answer.offset, answer.offset + 1))

    bombs(1)
    produce(20)
    bombs(3)
    produce(1)
    damaged = wire.produce(topic, several)
    assert damaged is not None
    bad.append((damaged.offset, damaged.offset + 1_000))
    damage(broker_logs(line), topic, damaged.offset)
    produce(10)
    bombs(1)
    try:
        ours.ingester.start()
        end = line.kafka.ends(topic)
        ours.wait_until_stored(topic, end)
        assert line.rows_written(other) == good
        letters = {
            int(letter["offset"]): letter
            for letter in map(orjson.loads, ours.run("dead-letters", "list", "--json").splitlines())
        }
        assert [(at, letters[at]["until"]) for at in sorted(letters)] == bad
        assert {letter["reason"] for letter in letters.values()} == {"unreadable"}
        metrics = ours.ingester.metrics()
        assert f'firn_ingest_ranges_unreadable_total{{topic="{topic}"}} {float(len(bad))}' in metrics
        assert re.search(
            rf'dead_lettered_total{{reason="unreadable"}} {float(sum(last - first for first, last in bad))}',
            metrics,
        )
        assert ours.audit() == {}
        assert (ours.audited["written"], ours.audited["dead_lettered"]) == (
            good,
            sum(last - first for first, last in bad),
        )
        assert ours.json("status")["lag_records"] == 0
        ours.ingester.kill()
        produce(5)
        ours.ingester.start()
        line.wait_for_rows(ours.ingester, other, good)
        assert len(line.kafka.dead_letters(ours.ingester.dead_letter_topic)) == len(bad)
        assert ours.audit() == {}
        replayed = ours.json("dead-letters", "replay", "--all")
        assert replayed["replayed"] == 0, replayed
    finally:
        wire.close()
        ours.ingester.kill()


def test_lag_is_told_while_a_batch_cannot_be_read(line: Line) -> None:
    """`status` looks for the first record behind it instead of waiting for one that never comes."""
    tenant, topic = fresh("evil-"), line.kafka.topic()
    ours, wire = ToolLine(line, topic), Wire(line.kafka.bootstrap_servers)
    assert wire.produce(topic, zstd_bomb(tenant)) is not None
    line.kafka.produce(topic, [Record(b'{"n":1}', None, (("tenant", b"x"),))])
    wire.close()
    assert ours.json("status")["lag_records"] == 2


def test_a_message_that_grows_is_kept_as_small_as_it_came(line: Line) -> None:
    """120 MiB out of 117 kB of gzip: a dead letter whose object in the warehouse is small again, and can be
    read whole."""
    tenant, other, topic = fresh("evil-"), fresh("good-"), line.kafka.topic()
    bomb = batch([record(0, b"[" * (120 * MIB), [(b"tenant", tenant.encode())])], codec=GZIP)
    assert len(bomb) < 130_000
    wire = Wire(line.kafka.bootstrap_servers)
    ours = ToolLine(line, topic)
    try:
        ours.ingester.start()
        wire.produce(topic, bomb)
        line.kafka.produce(topic, [Record(b'{"n":1}', None, (("tenant", other.encode()),))])
        ours.wait_until_stored(topic, {0: 2})
        (letter,) = map(orjson.loads, ours.run("dead-letters", "list", "--json").splitlines())
        assert letter["reason"] == "too_large"
        lies = Path(letter["body"].removeprefix("file://"))
        assert lies.stat().st_size < 130_000
        shown = ours.json("dead-letters", "show", letter["id"])
        assert shown["bytes"] == 120 * MIB
        assert max(process.memory_info().rss for process in family(ours.ingester.pid)) < 400 * MIB
    finally:
        wire.close()
        ours.ingester.kill()
