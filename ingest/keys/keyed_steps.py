"""What a flush does to the keys of its table, step by step, as it goes from who writes it to who commits it.

A table of Arrow with a row for each step that won in its part of the flush:

| column | what it says |
|---|---|
| `high`, `low` | the hash of the key |
| `source` | which of the flush's topic-partitions, in the order of `KeyedRows.partitions` |
| `offset` | of the message |
| `order` | what orders changes where offsets do not: the source's position or time; NULL: not known |
| `file`, `row` | where the row lies in the flush's files; -1 where the step leaves no row |
| `truncated` | a later message of the flush emptied the table |
| `key_0`, `key_1`... | the key's values |
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ingest.keys.key_hash import KeyHashes

NO_FILE = -1
_COMPRESSED = pa.ipc.IpcWriteOptions(compression="zstd")


@dataclass(frozen=True, slots=True, eq=False)
class KeyedSteps:
    """The steps as arrays of one length. `keys`: a column for each of the key's."""

    hashes: KeyHashes
    source: NDArray[np.int32]
    offset: NDArray[np.int64]
    order: pa.Array
    file: NDArray[np.int32]
    row: NDArray[np.int64]
    truncated: NDArray[np.bool_]
    keys: Sequence[pa.Array]

    def __len__(self) -> int:
        return len(self.offset)

    def to_arrow(self) -> pa.Table:
        """The same as a table."""
        columns = {
            "high": pa.array(self.hashes.high, pa.uint64()),
            "low": pa.array(self.hashes.low, pa.uint64()),
            "source": pa.array(self.source, pa.int32()),
            "offset": pa.array(self.offset, pa.int64()),
            "order": self.order,
            "file": pa.array(self.file, pa.int32()),
            "row": pa.array(self.row, pa.int64()),
            "truncated": pa.array(self.truncated, pa.bool_()),
        }
        return pa.table(columns | {f"key_{at}": key for at, key in enumerate(self.keys)})

    @classmethod
    def of(cls, table: pa.Table) -> "KeyedSteps":
        """Those that `to_arrow` has put into a table."""
        numbers = {name: table.column(name).to_numpy() for name in table.column_names[:8] if name != "order"}
        return cls(
            KeyHashes(numbers["high"], numbers["low"]),
            numbers["source"],
            numbers["offset"],
            _one(table.column("order")),
            numbers["file"],
            numbers["row"],
            numbers["truncated"],
            [_one(table.column(name)) for name in table.column_names[8:]],
        )


@dataclass(slots=True)
class StepSpool:
    """Steps of a flush, compressed as they come: they are many more than are looked at at a time."""

    parts: list[pa.Table] = field(default_factory=list)

    def add(self, steps: KeyedSteps) -> None:
        """Takes over the steps of one part."""
        self.parts.append(steps.to_arrow())

    def truncate(self) -> None:
        """The table is empty from here on: no row of a step so far is left."""
        at = 7
        self.parts = [
            part.set_column(at, part.field(at), pa.repeat(pa.scalar(True), len(part))) for part in self.parts
        ]

    def packed(self) -> bytes:
        """All of them, to be read by `unpack_steps`."""
        together = pa.concat_tables(self.parts, promote_options="permissive").combine_chunks()
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, together.schema, options=_COMPRESSED) as writer:
            writer.write_table(together)
        return bytes(sink.getvalue().to_pybytes())


def unpack_steps(data: bytes) -> KeyedSteps:
    """The steps that `StepSpool.packed` gave."""
    return KeyedSteps.of(pa.ipc.open_file(pa.py_buffer(data)).read_all())


def join_steps(parts: Sequence[tuple[KeyedSteps, Sequence[int], int]]) -> KeyedSteps:
    """Steps of several flushes as of one: with each, the numbers that its sources have together, and that of
    its first file."""
    tables = []
    for steps, sources, first_file in parts:
        numbers = np.asarray(sources, np.int32)
        moved = KeyedSteps(
            steps.hashes,
            numbers[steps.source],
            steps.offset,
            steps.order,
            np.where(steps.file >= 0, steps.file + first_file, NO_FILE).astype(np.int32),
            steps.row,
            steps.truncated,
            steps.keys,
        )
        tables.append(moved.to_arrow())
    if len(tables) == 1:
        return KeyedSteps.of(tables[0])
    return KeyedSteps.of(pa.concat_tables(tables, promote_options="permissive"))


def _one(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
