"""Which node and worker reads a partition."""

from collections import Counter
from zlib import crc32

from hypothesis import given
from hypothesis import strategies as st

from ingest.model.shares import ALL_SHARES, Shares


@given(st.text(), st.integers(0, 500), st.integers(1, 64))
def test_with_one_share_workers_read_what_they_always_did(topic: str, partition: int, workers: int) -> None:
    """The numbers of the partitions of a topic go round."""
    expected = (crc32(topic.encode()) + partition) % workers
    assert ALL_SHARES.worker_of(topic, partition, workers) == expected


@given(st.data(), st.integers(1, 9), st.integers(1, 4))
def test_every_partition_has_one_node(data: st.DataObject, total: int, workers: int) -> None:
    """However the shares are given out: nobody else reads it, and one of the node's workers does."""
    holder = [data.draw(st.integers(0, total - 1)) for _ in range(total)]
    nodes = [
        Shares(tuple(share for share in range(total) if holder[share] == node), total) for node in set(holder)
    ]
    for partition in range(40):
        readers = [each.worker_of("logs", partition, workers) for each in nodes]
        assert [at for at in readers if at is not None and 0 <= at < workers] == [
            at for at in readers if at is not None
        ]
        assert len(readers) - readers.count(None) == 1


def test_partitions_are_as_many_for_each_node_and_worker() -> None:
    read = Counter(
        (node, Shares((node,), 2).worker_of("logs", partition, 2))
        for node in (0, 1)
        for partition in range(16)
    )
    assert {count for (_, worker), count in read.items() if worker is not None} == {4}
    alone = Counter(Shares((0, 1), 2).worker_of("logs", partition, 2) for partition in range(2))
    assert alone == {0: 1, 1: 1}
