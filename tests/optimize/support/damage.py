"""Faults that a Parquet file may suffer after it was written."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq


def without_a_row(path: Path) -> None:
    table = pq.read_table(path)
    pq.write_table(table.slice(1), path, store_schema=False)


def with_a_changed_value(path: Path) -> None:
    table = pq.read_table(path)
    at = table.column_names.index("message")
    messages = table.column(at).to_pylist()
    messages[len(messages) // 2] = messages[len(messages) // 2][:-1] + "?"
    pq.write_table(
        table.set_column(at, table.schema.field(at), pa.array(messages, pa.string())),
        path,
        store_schema=False,
    )


def with_a_row_twice(path: Path) -> None:
    table = pq.read_table(path)
    pq.write_table(
        pa.concat_tables([table.slice(0, table.num_rows - 1), table.slice(0, 1)]), path, store_schema=False
    )


def with_a_flipped_byte(path: Path) -> None:
    """In the header of a page."""
    group = pq.ParquetFile(path).metadata.row_group(0)
    column = group.column(group.num_columns // 2)
    data = bytearray(path.read_bytes())
    data[column.data_page_offset + 1] ^= 0x10
    path.write_bytes(data)


def truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def removed(path: Path) -> None:
    path.unlink()
