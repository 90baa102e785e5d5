"""What may be stored as the group's offsets: never past a record that still waits."""

from hypothesis import given
from hypothesis import strategies as st

from ingest.kafka.offsets import RECOMMIT_S, Offsets
from ingest.model.raw_rows import pack_envelope
from ingest.route.buffer import RECORD_OVERHEAD_BYTES, RawRecord, TableBuffer
from ingest.route.buffers import Buffers
from lake.tenant import TableId, TenantId

TABLES = [TableId(TenantId(name), "logs") for name in "abc"]


def _record(source: int, offset: int, value: bytes = b"v", key: bytes | None = None) -> RawRecord:
    return RawRecord(source, offset, 1_000, key, (), value)


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 1)), max_size=30), st.sets(st.integers(0, 2)))
def test_lowest_is_below_every_record_that_waits(routed: list[tuple[int, int]], flushed: set[int]) -> None:
    """Per source: the lowest offset in any buffer, else the routed position."""
    buffers, offsets, following = Buffers(), Offsets(), {0: 10, 1: 500}
    waiting: list[tuple[int, int, int]] = []
    for table, source in routed:
        buffers.add(TABLES[table], 0.0, *_record(source, following[source]))
        waiting.append((table, source, following[source]))
        following[source] += 2  # gaps, as transactions leave them
        offsets.routed[source] = following[source] - 1
    for table in flushed:
        if any(TABLES[table] == buffer.table for buffer in buffers):
            buffers.take(TABLES[table])
    left = [(source, offset) for table, source, offset in waiting if table not in flushed]
    lowest = offsets.lowest(buffers)
    for source, position in offsets.routed.items():
        assert lowest[source] == min([offset for s, offset in left if s == source], default=position)


def test_a_partition_whose_oldest_record_waits_too_long_is_named() -> None:
    """Beyond `flush.replay_records_max` the table that holds a partition's offset back is to be flushed,
    whatever its size."""
    buffers, offsets = Buffers(), Offsets()
    for source, offset, table in ((0, 10, 0), (0, 11, 1), (0, 500, 1), (1, 3, 1)):
        buffers.add(TABLES[table], 0.0, *_record(source, offset))
        offsets.routed[source] = offset + 1
    offsets.lowest(buffers)
    assert offsets.behind(490) == [0]
    assert offsets.behind(491) == []
    oldest = buffers.oldest(0)
    assert oldest is not None
    assert oldest.table == TABLES[0]


def test_only_what_moved_is_stored_and_once_an_hour_everything() -> None:
    """Kafka forgets offsets that are never repeated."""
    offsets = Offsets(stored_at_s=0.0)
    assert offsets.to_store({0: 5, 1: 7}, 10.0) == {0: 5, 1: 7}
    offsets.note_stored({0: 5, 1: 7}, 10.0)
    assert offsets.to_store({0: 5, 1: 8}, 20.0) == {1: 8}
    assert offsets.to_store({0: 5, 1: 7}, 20.0) == {}
    assert offsets.to_store({0: 5, 1: 7}, 10.0 + RECOMMIT_S) == {0: 5, 1: 7}


def test_record_comes_back_with_key_and_headers() -> None:
    """All lies together as bytes, which are what it costs, and comes back."""
    buffer = TableBuffer(TABLES[0], 0.0)
    records = [
        _record(0, 1),
        _record(1, 2, b"", b"key"),
        RawRecord(0, 2**62, -1, None, (("h", None), ("h", b"\xff")), b"x" * 100),
    ]
    for record in records:
        buffer.add(*record)
    assert [buffer.record(at) for at in range(len(buffer))] == records
    values = sum(len(record.value or b"") for record in records)
    envelopes = sum(len(pack_envelope(record.key, record.headers)) for record in records[1:])
    assert buffer.size_bytes == values + envelopes + 3 * RECORD_OVERHEAD_BYTES
    assert buffer.first_offsets == {0: 1, 1: 2}
