"""Identities of records on disk, sorted into buckets of offsets, so that an audit of any length holds one
bucket at a time in memory.

An identity inside its bucket is one int64: the offset relative to the bucket's first, shifted left, and the
index below it. `WHOLE` as index stands for all records of a message. Beside each identity may lie a number
(`note`): an attempt, or which table.
"""

from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lake.marks import TopicPartition

BUCKET_BITS = 18
BUCKET_OFFSETS = 1 << BUCKET_BITS
INDEX_BITS = 32
WHOLE = (1 << INDEX_BITS) - 1
BLOCK_BYTES = 1 << 24


class FoundIn(StrEnum):
    """Where an identity was found."""

    ROWS = "rows"  # note: number of the table
    DEAD = "dead"  # note: attempt
    PARKED = "parked"
    REPLAYED = "replayed"  # note: twice the attempt, and one more where the ingesters have read it
    DROPPED = "dropped"  # rows of dropped tables that may still come back; note: 0


def key_of(offset: int, index: int | None) -> int:
    """An identity in its bucket."""
    return (offset % BUCKET_OFFSETS) << INDEX_BITS | (WHOLE if index is None else index)


def offsets_in(keys: Any) -> Any:
    """The offsets of keys (int64 array), relative to their bucket's first."""
    return pc.shift_right(keys, INDEX_BITS)


class IdentitySpool:
    """Files of identities in a folder of its own. Of interest are only records of the topics `names`; in
    `topics` the name of each partition met is found."""

    def __init__(self, folder: Path, names: frozenset[str]) -> None:
        self._folder = folder
        self.names = names
        self.topics: dict[TopicPartition, str] = {}
        self._numbers: dict[TopicPartition, int] = {}
        self._buckets: dict[TopicPartition, set[int]] = {}
        self._few: dict[tuple[FoundIn, TopicPartition, int], list[tuple[int, int]]] = {}

    def partition(self, topic: str, topic_id: str, partition: int) -> TopicPartition | None:
        """The partition of a record that was found; None where its topic is not of interest."""
        if topic not in self.names:
            return None
        found = TopicPartition(topic_id, partition)
        self.topics[found] = topic
        return found

    def add(
        self, found_in: FoundIn, partition: TopicPartition, offsets: Any, indexes: Any, note: int
    ) -> None:
        """Adds identities: int64 array of offsets, int array of indexes, one note for all."""
        buckets = pc.shift_right(offsets, BUCKET_BITS)
        keys = pc.bit_wise_or(
            pc.shift_left(pc.bit_wise_and(offsets, BUCKET_OFFSETS - 1), INDEX_BITS), indexes.cast(pa.int64())
        )
        distinct = pc.unique(buckets).to_pylist()
        for bucket in distinct:
            chosen = keys if len(distinct) == 1 else keys.filter(pc.equal(buckets, bucket))
            self._append(
                found_in, partition, bucket, chosen, pa.repeat(pa.scalar(note, pa.int64()), len(chosen))
            )

    def add_one(
        self, found_in: FoundIn, partition: TopicPartition, offset: int, index: int | None, note: int = 0
    ) -> None:
        """Adds one identity; `index` None: the whole message. Written with its neighbours, at the latest by
        `load`."""
        bucket = offset >> BUCKET_BITS
        waiting = self._few.setdefault((found_in, partition, bucket), [])
        waiting.append((key_of(offset, index), note))
        if len(waiting) >= 4_096:
            self._write_few(found_in, partition, bucket)

    def _write_few(self, found_in: FoundIn, partition: TopicPartition, bucket: int) -> None:
        if waiting := self._few.pop((found_in, partition, bucket), None):
            keys, notes = zip(*waiting, strict=True)
            self._append(found_in, partition, bucket, pa.array(keys, pa.int64()), pa.array(notes, pa.int64()))

    def _append(
        self, found_in: FoundIn, partition: TopicPartition, bucket: int, keys: Any, notes: Any
    ) -> None:
        path = self._path(found_in, partition, bucket)
        for file, values in ((path, keys), (path.with_suffix(".note"), notes)):
            with file.open("ab") as out:
                for chunk in values.chunks if isinstance(values, pa.ChunkedArray) else [values]:
                    out.write(
                        memoryview(chunk.buffers()[1])[chunk.offset * 8 : (chunk.offset + len(chunk)) * 8]
                    )
        self._buckets.setdefault(partition, set()).add(bucket)

    def _path(self, found_in: FoundIn, partition: TopicPartition, bucket: int) -> Path:
        number = self._numbers.setdefault(partition, len(self._numbers))
        return self._folder / f"{number}-{bucket}-{found_in}.key"

    def partitions(self) -> list[TopicPartition]:
        """Every partition of which there are identities."""
        return sorted({*self._buckets, *(partition for _, partition, _ in self._few)})

    def buckets(self, partition: TopicPartition) -> list[int]:
        """The buckets of a partition that hold identities, in order."""
        return sorted(
            {
                *self._buckets.get(partition, ()),
                *(bucket for _, known, bucket in self._few if known == partition),
            }
        )

    def size(self, found_in: FoundIn, partition: TopicPartition, bucket: int) -> int:
        """How many identities a bucket holds."""
        self._write_few(found_in, partition, bucket)
        path = self._path(found_in, partition, bucket)
        return path.stat().st_size // 8 if path.exists() else 0

    def load(
        self,
        found_in: FoundIn,
        partition: TopicPartition,
        bucket: int,
        first: int = 0,
        end: int = BUCKET_OFFSETS,
    ) -> tuple[Any, Any]:
        """Keys and notes (int64 arrays) of the offsets `[first, end)` of a bucket, relative to its first.
        Reads by blocks, keeps what is asked for."""
        self._write_few(found_in, partition, bucket)
        path = self._path(found_in, partition, bucket)
        found: list[tuple[Any, Any]] = []
        if path.exists():
            low, high = first << INDEX_BITS, end << INDEX_BITS
            for keys, notes in zip(_blocks(path), _blocks(path.with_suffix(".note")), strict=True):
                if (first, end) == (0, BUCKET_OFFSETS):
                    found.append((keys, notes))
                else:
                    inside = pc.and_(pc.greater_equal(keys, low), pc.less(keys, high))
                    found.append((keys.filter(inside), notes.filter(inside)))
        empty = pa.array([], pa.int64())
        return pa.concat_arrays([empty, *(keys for keys, _ in found)]), pa.concat_arrays(
            [empty, *(notes for _, notes in found)]
        )


def _blocks(path: Path) -> Iterator[Any]:
    with path.open("rb") as file:
        while block := file.read(BLOCK_BYTES):
            yield pa.Array.from_buffers(pa.int64(), len(block) // 8, [None, pa.py_buffer(block)])
