"""`python -m tests.benchmarks.key_index --json`: what the index of keys costs: made from a data file of a
million rows, made of a flush, and asked for 10,000 keys in 10 million rows of 40 files.

Nothing runs but this process. The last line of the output is one JSON object with --json: CPU seconds of this
process, its memory in MB, bytes on disk.
"""

import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any
from uuid import UUID

import numpy as np
import orjson
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import typer
from numpy.typing import NDArray
from pyroaring import BitMap64

from ingest.keys.column_reader import ColumnReader
from ingest.keys.key_hash import hash_keys
from ingest.keys.key_index_store import KeyedFile, KeyIndexStore
from ingest.keys.key_lookup import find_live_rows, verified_rows
from ingest.keys.last_change import last_changes
from lake.storage import LocalStorage

TABLE = UUID(int=1)
BUDGET_BYTES = 4 * 1024**3
SHARE_DELETED = 10  # one row of so many
TIMES = 5
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), metadata={b"PARQUET:field_id": b"1"}),
        pa.field("customer", pa.string(), metadata={b"PARQUET:field_id": b"2"}),
        pa.field("body", pa.string(), metadata={b"PARQUET:field_id": b"3"}),
    ]
)
KEY_IDS = (2, 1)


def key_of(numbers: NDArray[np.int64]) -> list[pa.Array]:
    """The key's columns of the rows with these numbers: a text of 21 bytes and a whole number."""
    texts = [f"customer-{number % 100_003:012d}" for number in numbers.tolist()]
    return [pa.array(texts), pa.array(numbers)]


def write_file(folder: Path, name: str, numbers: NDArray[np.int64]) -> KeyedFile:
    """A data file with these rows, in an order of its own."""
    texts, ids = key_of(numbers)
    body = pa.array(["x" * 40] * len(numbers))
    path = folder / f"{name}.parquet"
    pq.write_table(pa.table([ids, texts, body], schema=SCHEMA), path, compression="zstd")
    return KeyedFile(TABLE, f"file://{path}", path.stat().st_size, KEY_IDS)


def cpu_s(what: Callable[[], object]) -> float:
    """The CPU seconds of one call."""
    start = time.process_time()
    what()
    return time.process_time() - start


def best_cpu_s(what: Callable[[], object]) -> float:
    """The least CPU seconds of several calls."""
    return min(cpu_s(what) for _ in range(TIMES))


def rss_mb() -> float:
    """The memory that this process has now."""
    return float(round(psutil.Process().memory_info().rss / 1024**2, 1))


def peak_rss_mb() -> float:
    """The most memory that this process had."""
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1)


def measure_making(folder: Path, rows: int, result: dict[str, Any]) -> None:
    """Measures what is done once a file, and once a flush."""
    numbers = np.random.default_rng(1).permutation(rows)
    file = write_file(folder, "one", numbers)
    columns = key_of(numbers)
    result["hash_cpu_s"] = best_cpu_s(lambda: hash_keys(columns))
    hashes = hash_keys(columns)
    store = KeyIndexStore(LocalStorage(), folder / "making", BUDGET_BYTES)
    result["index_of_a_flush_cpu_s"] = best_cpu_s(lambda: store.put(file, hashes))
    result["index_bytes"] = sum(path.stat().st_size for path in (folder / "making").iterdir())
    store.forget(file)
    result["index_of_a_file_cpu_s"] = cpu_s(lambda: store.index_of(file))
    partitions, offsets = np.zeros(rows, np.int32), np.arange(rows)
    halved = hash_keys(key_of(numbers % (rows // 2)))
    result["last_changes_cpu_s"] = best_cpu_s(lambda: last_changes(halved, partitions, offsets))
    order = pa.array(offsets)
    result["last_changes_by_order_cpu_s"] = best_cpu_s(
        lambda: last_changes(halved, partitions, offsets, order)
    )


def measure_look_up(folder: Path, rows: int, files: int, keys: int, result: dict[str, Any]) -> None:
    """Measures the look-up in indexes that were made before, by a store that has opened none of them."""
    random = np.random.default_rng(2)
    parts = np.array_split(random.permutation(rows), files)
    named = [write_file(folder, f"part-{at}", part) for at, part in enumerate(parts)]
    maker = KeyIndexStore(LocalStorage(), folder / "indexes", BUDGET_BYTES, open_max=1)
    result["indexes_cpu_s"] = cpu_s(lambda: [maker.index_of(file) for file in named])
    deleted = {
        file.uri: BitMap64(range(0, len(part), SHARE_DELETED))
        for file, part in zip(named, parts, strict=True)
    }
    columns = key_of(random.choice(rows, keys, replace=False))
    hashes = hash_keys(columns)
    store = KeyIndexStore(LocalStorage(), folder / "indexes", BUDGET_BYTES)
    del parts
    result["rss_before_mb"] = rss_mb()
    result["first_look_up_cpu_s"] = cpu_s(lambda: find_live_rows(store, hashes, named, deleted))
    start = time.monotonic()
    result["look_up_cpu_s"] = best_cpu_s(lambda: find_live_rows(store, hashes, named, deleted))
    result["look_up_s"] = (time.monotonic() - start) / TIMES
    result["rss_after_mb"] = rss_mb()
    found = find_live_rows(store, hashes, named, deleted)
    result["found"] = len(found)
    result["verify_cpu_s"] = cpu_s(lambda: verified_rows(ColumnReader(LocalStorage()), found, columns, named))
    result["peak_rss_mb"] = peak_rss_mb()


def main(
    rows: Annotated[int, typer.Option(help="rows of the one file")] = 1_000_000,
    table_rows: Annotated[int, typer.Option(help="rows of the table")] = 10_000_000,
    files: Annotated[int, typer.Option(help="data files of the table")] = 40,
    keys: Annotated[int, typer.Option(help="keys that are looked up at once")] = 10_000,
    json: Annotated[bool, typer.Option("--json", help="print only the result")] = False,
) -> None:
    """Measures, and prints what was found."""
    result: dict[str, Any] = {"rows": rows, "table_rows": table_rows, "files": files, "keys": keys}
    with tempfile.TemporaryDirectory() as folder:
        measure_making(Path(folder), rows, result)
        measure_look_up(Path(folder), table_rows, files, keys, result)
    rounded = {name: round(value, 4) if isinstance(value, float) else value for name, value in result.items()}
    if not json:
        for name, value in rounded.items():
            sys.stdout.write(f"{name:30} {value}\n")
        return
    sys.stdout.write(orjson.dumps(rounded).decode() + "\n")


if __name__ == "__main__":
    typer.run(main)
