"""When a table's buffer is due: by age, by size, under memory pressure the largest first."""

import tracemalloc
from itertools import pairwise
from typing import Any

import pytest
from confluent_kafka import Message
from hypothesis import given
from hypothesis import strategies as st

from ingest.model.raw_rows import ROW, pack_envelope
from ingest.route.buffer import RECORD_OVERHEAD_BYTES, RawRecord, TableBuffer
from ingest.route.buffers import Buffers, FlushRules
from lake.tenant import TableId, TenantId


def _buffers(**waiting: tuple[float, int]) -> Buffers:
    """Buffers by table: since when (seconds), and how many bytes they hold."""
    buffers = Buffers(large_bytes=1_000)
    for name, (since_s, size) in sorted(waiting.items(), key=lambda item: item[1]):
        buffers.add(
            _table(name), since_s, *RawRecord(0, 0, 0, None, (), b"x" * (size - RECORD_OVERHEAD_BYTES))
        )
    return buffers


def _table(name: str) -> TableId:
    return TableId(TenantId(name), "logs")


@pytest.mark.parametrize(
    ("excess", "busy", "due"),
    [
        (0, "", {"old", "huge"}),
        (0, "o", {"old", "huge"}),
        (6_000, "", {"old", "huge", "large"}),
        (5_000, "", {"old", "huge"}),
        (7_500, "", {"old", "huge", "large", "small"}),
        (10**9, "", {"old", "huge", "large", "small", "tiny"}),
        (0, "old", {"huge"}),
        (6_000, "huge", {"old", "large", "small", "tiny"}),
    ],
)
def test_due_by_age_by_size_and_under_pressure_the_largest_first(
    excess: int, busy: str, due: set[str]
) -> None:
    """Old and large buffers always; while bytes are in excess, the largest of the rest; a table with a flush
    in flight waits."""
    buffers = _buffers(
        old=(0.0, 100), huge=(9.0, 5_000), large=(9.0, 2_000), small=(9.0, 400), tiny=(9.0, 300)
    )
    rules = FlushRules(interval_s=10.0, cold_interval_s=10.0, flush_bytes=5_000)
    found = buffers.due(10.0, rules, excess_bytes=excess, may_flush=lambda table: table != _table(busy))
    assert {table.tenant.name for table in found} == due


@pytest.mark.parametrize(
    ("now_s", "due"), [(9.9, set()), (10.0, {"hot"}), (22.4, {"hot"}), (30.0, {"hot", "cold"})]
)
def test_a_table_with_little_traffic_waits_longer(now_s: float, due: set[str]) -> None:
    """Below `cold_bytes` a buffer is due at the age for cold tables, above it at the ordinary one."""
    buffers = _buffers(hot=(0.0, 1_000), cold=(0.0, 999))
    rules = FlushRules(interval_s=10.0, cold_interval_s=30.0, flush_bytes=5_000, cold_bytes=1_000)
    assert {
        table.tenant.name for table in buffers.due(now_s, rules, excess_bytes=0, may_flush=lambda _: True)
    } == due


def test_tables_with_little_traffic_come_one_after_the_other() -> None:
    """Of thousands that began to wait at once, as after a restart, each part of the last quarter of their
    time has its share; none is later."""
    buffers = _buffers(**{f"table{number}": (0.0, 200) for number in range(2_000)})
    rules = FlushRules(interval_s=10.0, cold_interval_s=80.0, flush_bytes=5_000)
    counts = [
        len(buffers.due(now_s, rules, excess_bytes=0, may_flush=lambda _: True))
        for now_s in (60.0, 65.0, 70.0, 75.0, 80.0)
    ]
    assert counts[0] <= 40
    assert counts[-1] == 2_000
    assert all(350 < later - before < 650 for before, later in pairwise(counts))


def test_taking_a_buffer_gives_its_bytes_back() -> None:
    """What is taken is no longer accounted, and the next record starts a new buffer with its own age."""
    buffers = _buffers(a=(1.0, 1_000), b=(2.0, 500))
    assert buffers.size_bytes == 1_500
    assert len(buffers.take(_table("a"))) == 1
    assert (buffers.size_bytes, len(buffers)) == (500, 1)
    buffers.add(_table("a"), 7.0, *RawRecord(0, 1, 0, None, (), b""))
    assert [buffer.since_s for buffer in buffers if buffer.table == _table("a")] == [7.0]


MESSAGES = st.lists(
    st.tuples(
        st.none() | st.binary(max_size=5),
        st.lists(st.tuples(st.sampled_from("ab"), st.none() | st.binary(max_size=5)), max_size=2),
        st.binary(min_size=1),
    ),
    min_size=1,
    max_size=8,
)


@given(st.lists(st.tuples(st.integers(0, 2), MESSAGES), max_size=5))
def test_messages_added_together_are_those_added_one_by_one(runs: list[tuple[int, list[Any]]]) -> None:
    """The same records at the same cost, whatever their keys and headers; also behind packed ones."""
    alone, together, offset = Buffers(), Buffers(), 0
    for source, run in runs:
        numbered = list(enumerate(run, offset))
        offset += len(run)
        messages = [
            Message(offset=at, timestamp=(1, at * 2), key=key, headers=headers, value=value)
            for at, (key, headers, value) in numbered
        ]
        together.extend(_table("t"), 1.0, source, messages)
        for at, (key, headers, value) in numbered:
            alone.add(_table("t"), 1.0, source, at, at * 2, key, headers or (), value)
        for buffers in (alone, together):
            if source == 2:
                buffers.close_part(_table("t"))
                buffers.pack_beyond(0)
    for one, other in zip(alone, together, strict=True):
        assert list(one.alive()) == list(other.alive())
        assert (one.size_bytes, one.raw_bytes, one.first_offsets) == (
            other.size_bytes,
            other.raw_bytes,
            other.first_offsets,
        )
    assert alone.size_bytes == together.size_bytes


@given(st.lists(st.tuples(st.integers(0, 1), st.lists(st.binary(), min_size=1, max_size=5)), max_size=4))
def test_records_of_a_file_added_together_are_those_added_one_by_one(
    runs: list[tuple[int, list[bytes]]],
) -> None:
    """The same records at the same cost, in one buffer after others of their file or of another one."""
    alone, together, offset = Buffers(), Buffers(), 3
    for source, values in runs:
        waiting = together.extend_values(_table("t"), 1.0, source, offset, 7, values)
        for at, value in enumerate(values, offset):
            last = alone.add(_table("t"), 1.0, source, at, 7, None, (), value)
        assert waiting == last
        offset += len(values) + 1
    assert alone.size_bytes == together.size_bytes
    assert [list(one.alive()) for one in alone] == [list(one.alive()) for one in together]
    assert [one.first_offsets for one in alone] == [one.first_offsets for one in together]


def test_packed_messages_come_back_as_they_were() -> None:
    """What is packed takes less, and every part comes back with coordinates, keys, headers and what became of
    it."""
    buffer = TableBuffer(_table("hot"), 0.0)
    records = [
        RawRecord(
            at % 2,
            100 + at,
            at,
            b"k" if at % 3 else None,
            (("h", None),) if at % 5 == 0 else (),
            b'{"n":%d}' % at * 20,
        )
        for at in range(300)
    ]
    for at, record in enumerate(records):
        if at in (100, 200):
            buffer.dead_lettered, buffer.looked_at = frozenset({at % 7}), len(buffer)
            before = buffer.size_bytes
            buffer.close_part()
            assert buffer.pack() == before - buffer.size_bytes > 0
        buffer.add(*record)
    assert [len(part) for part in buffer.parts()] == [100, 100, 100]
    assert [part.record(at) for part in buffer.parts() for at in range(len(part))] == records
    assert [record for record in records if record not in list(buffer.alive())] == [
        records[100 % 7],
        records[100 + 200 % 7],
    ]
    assert buffer.first_offsets == {0: 100, 1: 101}
    assert buffer.raw_bytes > 3 * buffer.size_bytes - buffer.open_bytes


def test_packed_messages_that_nobody_has_looked_at_are_looked_at_later() -> None:
    """Packing alone does not say that bad messages became dead letters: who converts a part for the first
    time has to make them."""
    buffer = TableBuffer(_table("hot"), 0.0)
    buffer.add(*RawRecord(0, 0, 0, None, (), b"bad"))
    buffer.close_part()
    buffer.pack()
    buffer.add(*RawRecord(0, 1, 0, None, (), b"bad"))
    buffer.looked_at = 1
    buffer.close_part()
    buffer.pack()
    assert [part.looked_at for part in buffer.parts()] == [0, 1]
    for part in buffer.parts():
        part.dead_lettered, part.looked_at = frozenset({0}), 1
    assert [(part.dead_lettered, part.looked_at) for part in buffer.parts()] == [(frozenset({0}), 1)] * 2
    assert list(buffer.alive()) == []


def test_buffers_account_for_what_is_packed() -> None:
    """Packing a table's messages gives bytes back to the budget, and taking them the rest."""
    buffers = _buffers(hot=(0.0, 100_000), cold=(0.0, 500))
    buffers.close_part(_table("hot"))
    buffers.pack_beyond(0)
    assert buffers.size_bytes < 2_000
    assert buffers.take(_table("hot")).raw_bytes == 100_000
    assert buffers.size_bytes == 500


def test_parts_are_packed_where_memory_is_wanted() -> None:
    """What was closed first, and no more than has to be; what is packed stays so when more is closed."""
    buffers = _buffers(first=(0.0, 50_000), second=(0.0, 50_000), taken=(0.0, 50_000), open=(0.0, 1_000))
    second = _table("second")
    for name in ("taken", "second", "first"):
        buffers.close_part(_table(name))
    buffers.take(_table("taken"))
    buffers.pack_beyond(101_000)
    assert buffers.size_bytes == 101_000
    buffers.pack_beyond(100_000)
    assert _packed(buffers) == {"first": [False], "second": [True], "open": []}
    for at in (1, 2):
        buffers.add(second, 0.0, *RawRecord(0, at, 0, None, (), b"y" * 10_000))
        buffers.close_part(second)
    buffers.pack_beyond(buffers.size_bytes - 5_000)
    assert _packed(buffers) == {"first": [False], "second": [True, True, False], "open": []}
    values = [record.value for record in buffers.take(second).alive()]
    assert values == [b"x" * (50_000 - RECORD_OVERHEAD_BYTES), b"y" * 10_000, b"y" * 10_000]


def _packed(buffers: Buffers) -> dict[str, list[bool]]:
    return {each.table.tenant.name: [part.is_packed for part in each.closed] for each in buffers}


def test_messages_as_bytes_are_those_that_were_added() -> None:
    """Those of the core lie between others; the envelope of the one before is only that of the one before."""
    key, headers = b"k", (("h", b"v"),)
    buffer = TableBuffer(_table("t"), 0.0)
    buffer.add(0, 1, 1, key, headers, b"first")
    # The core always spells the first envelope.
    envelope = pack_envelope(None, ())
    rows = ROW.pack(2, 2, len(b"second"), len(envelope), 0, 0)
    assert buffer.append(0, 2, rows, b"second", envelope) == len(rows) + len(b"second") + len(envelope)
    buffer.add(0, 3, 3, key, headers, b"third")
    assert list(buffer.alive()) == [
        RawRecord(0, 1, 1, key, headers, b"first"),
        RawRecord(0, 2, 2, None, (), b"second"),
        RawRecord(0, 3, 3, key, headers, b"third"),
    ]
    buffer.close_part()
    buffer.pack()
    buffer.add(0, 4, 4, key, headers, b"fourth")
    assert buffer.record(0) == RawRecord(0, 4, 4, key, headers, b"fourth")


@given(st.lists(st.binary(max_size=3), max_size=8), st.integers(0, 8), st.integers(0, 8))
def test_a_slice_of_values_is_that_of_their_list(values: list[bytes], first: int, end: int) -> None:
    """And of a slice, too; they begin with the bytes that they begin with."""
    buffer = TableBuffer(_table("t"), 0.0)
    for at, value in enumerate(values):
        buffer.add(0, at, 0, None, (), value)
    for some, expected in (
        (buffer.values[first:end], values[first:end]),
        (buffer.values[1:][first:end], values[1:][first:end]),
    ):
        assert (list(some), [some[at] for at in range(len(some))]) == (expected, expected)
        begins = {value[0] if value else -1 for value in expected}
        assert some.begins == ({-1} if -1 in begins else begins)


def test_small_messages_cost_little_more_than_is_accounted() -> None:
    """A message that comes alone has no object of its own for long, and what is read stays as it was while
    more comes."""
    count, buffer = 20_000, TableBuffer(_table("t"), 0.0)
    tracemalloc.start()
    try:
        for offset in range(count):
            buffer.add(0, offset, offset, None, (), b"%06d" % offset)
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken < 1.5 * buffer.size_bytes
    read, values = buffer.read, [b"%06d" % offset for offset in range(count)]
    buffer.add(0, count, count, None, (), b"one more")
    assert list(read.values) == values
    assert [record.value for record in buffer.alive()] == [*values, b"one more"]


@pytest.fixture
def copied(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The bytes of all values, each time that they are put together."""
    found, together = list[int](), TableBuffer._all_values

    def counted(waiting: TableBuffer) -> bytes:
        found.append(waiting.value_bytes)
        return together(waiting)

    monkeypatch.setattr(TableBuffer, "_all_values", counted)
    return found


def test_small_messages_are_copied_a_few_times(copied: list[int]) -> None:
    """A producer whose messages come one by one does not have all that waits copied for each few of them."""
    buffer = TableBuffer(_table("t"), 0.0)
    for offset in range(20_000):
        buffer.add(0, offset, offset, None, (), b"%06d" % offset)
    assert 0 < sum(copied) < 10 * buffer.value_bytes


def test_what_comes_in_batches_is_never_copied_as_a_whole(copied: list[int]) -> None:
    buffer = TableBuffer(_table("t"), 0.0)
    for first in range(0, 20_000, 100):
        buffer.extend_values(0, first, 1, [b"%024d" % at for at in range(first, first + 100)])
    assert not copied
    assert list(buffer.values) == [b"%024d" % at for at in range(20_000)]
    assert not copied
