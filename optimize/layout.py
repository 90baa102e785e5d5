"""How a table's merged files are written, as the table itself says.

| what | where |
|---|---|
| sort keys, before the time | the table's sort order: `WRITE ORDERED BY` in Spark, `sorted_by` in Trino |
| Bloom filters | `write.parquet.bloom-filter-enabled.column.NAME`: `parquet_bloom_filter_columns` |
| zstd level | `write.parquet.compression-level`, by column `firn.zstd-level.column.NAME` |
| columns without a dictionary | `firn.dictionary-enabled.column.NAME=false` |

A name that is no column, or a value that is no number, counts as not given: a table must not stop being
maintained for it.
"""

from collections.abc import Mapping
from typing import Any

from lake.log_schema import TIMESTAMP, LogSchema
from lake.settings import OptimizeSettings
from optimize.merge_job import FileLayout

BLOOM = "write.parquet.bloom-filter-enabled.column."
LEVEL = "write.parquet.compression-level"
COLUMN_LEVEL = "firn.zstd-level.column."
DICTIONARY = "firn.dictionary-enabled.column."


def layout_of(metadata: Mapping[str, Any], schema: LogSchema, settings: OptimizeSettings) -> FileLayout:
    """The layout of a table by its metadata (Iceberg's JSON)."""
    properties: Mapping[str, str] = metadata.get("properties", {})

    def named(prefix: str, wanted: str) -> tuple[str, ...]:
        return tuple(
            column.name
            for column in schema.columns
            if properties.get(prefix + column.name, "").lower() == wanted
        )

    levels = ((column.name, _level(properties.get(COLUMN_LEVEL + column.name))) for column in schema.columns)
    return FileLayout(
        zstd_level=_level(properties.get(LEVEL)) or settings.merge.zstd_level,
        row_group_rows=settings.merge.row_group_rows,
        sort_by=tuple(dict.fromkeys((*_sort_keys(metadata, schema), TIMESTAMP))),
        bloom=named(BLOOM, "true"),
        plain=named(DICTIONARY, "false"),
        zstd_levels=tuple((name, level) for name, level in levels if level is not None),
        token_filter=settings.merge.token_filter,
        delta_text=settings.merge.delta_text,
    )


def _level(value: str | None) -> int | None:
    return int(value) if value is not None and value.isdecimal() and 1 <= int(value) <= 22 else None


def _sort_keys(metadata: Mapping[str, Any], schema: LogSchema) -> tuple[str, ...]:
    """Columns of the default sort order up to the first that is ordered downwards or by a transform."""
    names = {column.id: column.name for column in schema.columns}
    order = next(
        (
            o
            for o in metadata.get("sort-orders", ())
            if o["order-id"] == metadata.get("default-sort-order-id")
        ),
        None,
    )
    keys: list[str] = []
    for field in order["fields"] if order else ():
        name = names.get(field["source-id"])
        if name is None or field["transform"] != "identity" or field["direction"] != "asc":
            break
        keys.append(name)
    return tuple(keys)
