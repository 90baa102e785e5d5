"""Steps of keys that the input tells of, and the rows that keyed tables have, on disk, sorted into buckets by
the hash of the key: all that is known of a key is looked at together, and of one bucket at a time.

| column | what it says |
|---|---|
| `table` | its number |
| `high`, `low` | the hash of the key |
| `source` | the number of the topic-partition; -1: of none that is audited |
| `offset` | of the message |
| `kind` | `ROW` of the table, or what the message does to the key: `PUT`, `DELETE`; with flags |
| `order` | what orders changes where offsets do not, as bytes that sort; NULL: not known |
| `file`, `position` | where a row lies; -1 else |
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ingest.keys.key_hash import KeyHashes

ROW, PUT, DELETE = 0, 1, 2
# Of a message that does something else to another key, by which it is counted; of a dead letter that was
# replayed.
BESIDE, REPLAYED = 4, 8
WHAT = 3  # the kind without its flags
NOWHERE = -1

BUCKET_BITS = 8
BUCKETS = 1 << BUCKET_BITS
# More entries than this are compared in several steps, each with a part of the keys.
ENTRIES_MAX = 1_000_000
WAITING_MAX = 128 * 1024
_PART_BITS = 16
_LONG_SIGN = np.uint64(1 << 63)
SCHEMA = pa.schema(
    [
        ("table", pa.int32()),
        ("high", pa.uint64()),
        ("low", pa.uint64()),
        ("source", pa.int32()),
        ("offset", pa.int64()),
        ("kind", pa.int8()),
        ("order", pa.binary()),
        ("file", pa.int32()),
        ("position", pa.int64()),
    ]
)
Reduce = Callable[[pa.Table], pa.Table]


def entries(table: int, hashes: KeyHashes, **columns: Any) -> pa.Table:
    """Entries of one table. `columns`: arrays of one length, or a number for all; what is not given is
    nowhere, and no order."""
    count = len(hashes)
    arrays: dict[str, Any] = {"table": table, "file": NOWHERE, "position": NOWHERE, **columns}
    arrays |= {"high": hashes.high, "low": hashes.low}
    if "order" not in arrays:
        arrays["order"] = pa.nulls(count, pa.binary())
    return pa.table([_array(arrays[column.name], count, column.type) for column in SCHEMA], schema=SCHEMA)


def _array(values: Any, count: int, kind: pa.DataType) -> Any:
    return pa.repeat(pa.scalar(values, kind), count) if isinstance(values, int) else pa.array(values, kind)


def order_bytes(order: pa.Array) -> pa.Array:
    """What orders changes (int64 or text) as bytes that sort alike."""
    if not pa.types.is_int64(order.type):
        return order.cast(pa.binary())
    numbers = pc.fill_null(order, 0).to_numpy().view(np.uint64) ^ _LONG_SIGN
    offsets = np.arange(len(order) + 1, dtype=np.int32) * 8
    data = pa.Array.from_buffers(
        pa.binary(), len(order), [None, pa.py_buffer(offsets), pa.py_buffer(numbers.byteswap().tobytes())]
    )
    return pc.if_else(order.is_valid(), data, pa.scalar(None, pa.binary()))


@dataclass
class KeySpool:
    """Files in a folder of its own. `reduce` may take entries away before they are written, from those of one
    part of the input: others may come before and after them."""

    folder: Path
    reduce: Reduce
    _waiting: list[pa.Table] = field(default_factory=list)
    _waiting_rows: int = 0
    _sizes: dict[int, int] = field(default_factory=dict)

    def add(self, some: pa.Table) -> None:
        """Adds entries."""
        self._waiting.append(some)
        self._waiting_rows += some.num_rows
        if self._waiting_rows >= WAITING_MAX:
            self.flush()

    def flush(self) -> None:
        """Writes what waits."""
        if not self._waiting_rows:
            return
        some = self.reduce(pa.concat_tables(self._waiting).combine_chunks())
        self._waiting, self._waiting_rows = [], 0
        buckets = _bits(some, 64 - BUCKET_BITS, BUCKETS)
        order = np.argsort(buckets, kind="stable")
        some, buckets = some.take(pa.array(order)), buckets[order]
        ends = np.searchsorted(buckets, np.arange(BUCKETS), side="right")
        begin = 0
        for bucket, end in enumerate(ends.tolist()):
            if end > begin:
                self._append(bucket, some.slice(begin, end - begin))
            begin = end

    def _append(self, bucket: int, part: pa.Table) -> None:
        with self._path(bucket).open("ab") as file, pa.ipc.new_stream(file, SCHEMA) as out:
            out.write_table(part.combine_chunks())
        self._sizes[bucket] = self._sizes.get(bucket, 0) + part.num_rows

    def _path(self, bucket: int) -> Path:
        return self.folder / f"{bucket}.keys"

    def parts(self) -> Iterator[pa.Table]:
        """Everything, in parts: all entries of a key are in one."""
        self.flush()
        for bucket, size in sorted(self._sizes.items()):
            steps = 1 + size // ENTRIES_MAX
            for step in range(steps):
                yield self._load(bucket, step, steps)

    def _load(self, bucket: int, step: int, steps: int) -> pa.Table:
        found = [SCHEMA.empty_table()]
        with self._path(bucket).open("rb") as file:
            size = file.seek(0, 2)
            file.seek(0)
            while file.tell() < size:
                part = pa.ipc.open_stream(file).read_all()
                if steps > 1:
                    among = _bits(part, 64 - BUCKET_BITS - _PART_BITS, 1 << _PART_BITS) * steps >> _PART_BITS
                    part = part.filter(pa.array(among == step))
                found.append(part)
        return pa.concat_tables(found).combine_chunks()


def _bits(some: pa.Table, shift: int, count: int) -> NDArray[np.int64]:
    high: NDArray[np.uint64] = some.column("high").to_numpy()
    return (high >> np.uint64(shift)).astype(np.int64) & (count - 1)


def columns_of(some: pa.Table) -> Mapping[str, NDArray[Any]]:
    """The columns of entries as arrays of numpy, but for `order`."""
    return {name: some.column(name).to_numpy() for name in some.column_names if name != "order"}
