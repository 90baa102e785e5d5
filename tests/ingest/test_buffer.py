"""When a table's buffer is due: by age, by size, under memory pressure the largest first."""

import pytest

from ingest.buffer import RECORD_OVERHEAD_BYTES, Buffers, RawRecord
from lake.tenant import TableId, TenantId


def _buffers(**waiting: tuple[float, int]) -> Buffers:
    """Buffers by table: since when (seconds), and how many bytes they hold."""
    buffers = Buffers()
    for name, (since_s, size) in waiting.items():
        buffers.add(_table(name), RawRecord(0, 0, 0, None, (), b"x" * (size - RECORD_OVERHEAD_BYTES)), since_s)
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
def test_due_by_age_by_size_and_under_pressure_the_largest_first(excess: int, busy: str, due: set[str]) -> None:
    """Old and large buffers always; while bytes are in excess, the largest of the rest; a table with a flush in flight waits."""
    buffers = _buffers(old=(0.0, 100), huge=(9.0, 5_000), large=(9.0, 2_000), small=(9.0, 400), tiny=(9.0, 300))
    found = buffers.due(10.0, interval_s=10.0, flush_bytes=5_000, excess_bytes=excess, busy={_table(busy)})
    assert {table.tenant.name for table in found} == due


def test_taking_a_buffer_gives_its_bytes_back() -> None:
    """What is taken is no longer accounted, and the next record starts a new buffer with its own age."""
    buffers = _buffers(a=(1.0, 1_000), b=(2.0, 500))
    assert buffers.size_bytes == 1_500
    assert len(buffers.take(_table("a"))) == 1
    assert (buffers.size_bytes, len(buffers)) == (500, 1)
    buffers.add(_table("a"), RawRecord(0, 1, 0, None, (), b""), 7.0)
    assert [buffer.since_s for buffer in buffers if buffer.table == _table("a")] == [7.0]
