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
| `unavailable` | columns of the row that keep what another row has; NULL: there are none |
| `of_high`, `of_low` | the hash of that row's key; the same key where there are none |
| `key_0`, `key_1`... | the key's values |
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ingest.keys.key_hash import KeyHashes

NO_FILE = -1
_KEY = "key_"
_NUMBERS = ("high", "low", "source", "offset", "file", "row", "truncated")
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
    unavailable: pa.Array | None = None
    values_of: KeyHashes | None = None

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
        if self.unavailable is not None and self.values_of is not None:
            columns["unavailable"] = self.unavailable
            columns["of_high"] = pa.array(self.values_of.high, pa.uint64())
            columns["of_low"] = pa.array(self.values_of.low, pa.uint64())
        return pa.table(columns | {f"{_KEY}{at}": key for at, key in enumerate(self.keys)})

    @classmethod
    def of(cls, table: pa.Table) -> "KeyedSteps":
        """Those that `to_arrow` has put into a table."""
        numbers = {name: table.column(name).to_numpy() for name in _NUMBERS}
        unavailable = values_of = None
        if "unavailable" in table.column_names:
            unavailable = _one(table.column("unavailable"))
            values_of = KeyHashes(*(_filled(table, name) for name in ("high", "low")))
        return cls(
            KeyHashes(numbers["high"], numbers["low"]),
            numbers["source"],
            numbers["offset"],
            _one(table.column("order")),
            numbers["file"],
            numbers["row"],
            numbers["truncated"],
            [_one(table.column(name)) for name in table.column_names if name.startswith(_KEY)],
            unavailable,
            values_of,
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
        self.parts = [_all_truncated(part) for part in self.parts]

    def packed(self) -> bytes:
        """All of them, to be read by `unpack_steps`."""
        return pack_steps(_together(self.parts).combine_chunks())


def pack_steps(steps: pa.Table) -> bytes:
    """The bytes of steps, as a table has them."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, steps.schema, options=_COMPRESSED) as writer:
        writer.write_table(steps)
    return bytes(sink.getvalue().to_pybytes())


def unpack_steps(data: bytes) -> KeyedSteps:
    """The steps that were packed."""
    return KeyedSteps.of(pa.ipc.open_file(pa.py_buffer(data)).read_all())


def join_steps(parts: Sequence[tuple[KeyedSteps, Sequence[int], int]]) -> KeyedSteps:
    """Steps of several flushes as of one: with each, the numbers that its sources have together, and that of
    its first file."""
    tables = []
    for steps, sources, first_file in parts:
        numbers = np.asarray(sources, np.int32)
        moved = replace(
            steps,
            source=numbers[steps.source],
            file=np.where(steps.file >= 0, steps.file + first_file, NO_FILE).astype(np.int32),
        )
        tables.append(moved.to_arrow())
    return KeyedSteps.of(_together(tables))


def _together(tables: Sequence[pa.Table]) -> pa.Table:
    """The rows of all tables. Where nothing was done to a key, nothing tells what the key's types are."""
    filled = [table for table in tables if len(table)]
    if len(filled) < 2:
        return filled[0] if filled else tables[0]
    return pa.concat_tables(filled, promote_options="permissive")


def _all_truncated(part: pa.Table) -> pa.Table:
    at = part.column_names.index("truncated")
    return part.set_column(at, part.field(at), pa.array(np.ones(len(part), np.bool_)))


def _filled(table: pa.Table, name: str) -> Any:
    """The hashes of rows whose values are kept; of other steps, and of parts without any, their own."""
    return pc.coalesce(table.column(f"of_{name}"), table.column(name)).to_numpy()


def _one(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
