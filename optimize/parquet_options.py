"""How Arrow's writer is to write a merged file."""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from lake.token_filter.builder import GROUP_ROWS_MAX
from optimize.column_encodings import PLAIN, encoding_of
from optimize.merge_job import FileLayout

# A page is compressed by itself, and long texts repeat over more than Arrow's 1 MiB. Pages of short values
# end earlier, by their rows.
PAGE_BYTES = 8 * 1024 * 1024


def row_group_rows(layout: FileLayout) -> int:
    """Rows of a row group."""
    return min(layout.row_group_rows, GROUP_ROWS_MAX)


def parquet_options(
    rows: pa.Table, fields: Sequence[Mapping[str, Any]], layout: FileLayout
) -> dict[str, Any]:
    """Arguments of `pyarrow.parquet.ParquetWriter` for rows with these fields, as a schema's JSON spells
    them. The first row group stands for all."""
    own_levels = dict(layout.zstd_levels)
    group = rows.slice(0, row_group_rows(layout))
    dictionary = list[str]()
    encodings, levels = dict[str, str](), dict[str, int]()
    for field in fields:
        name = field["name"]
        chosen = encoding_of(
            field["type"],
            group.column(name),
            own_levels.get(name, layout.zstd_level),
            dictionary=name not in layout.plain,
            delta_text=layout.delta_text,
        )
        paths = leaf_paths([field])
        levels |= dict.fromkeys(paths, own_levels.get(name, chosen.zstd_level))
        if chosen.encoding is None:
            dictionary += paths
        elif chosen.encoding != PLAIN:  # what Arrow takes by itself
            encodings |= dict.fromkeys(paths, chosen.encoding)
    return {
        "compression": "zstd",
        "compression_level": levels,
        "use_dictionary": dictionary or False,
        "column_encoding": encodings,
        "bloom_filter_options": _bloom(layout, rows.column_names) or None,
        "data_page_size": PAGE_BYTES,
        "write_page_index": True,
        "store_schema": False,
    }


def _bloom(layout: FileLayout, names: Sequence[str]) -> dict[str, dict[str, Any]]:
    return {name: {"ndv": layout.row_group_rows, "fpp": 0.01} for name in names if name in layout.bloom}


def leaf_paths(fields: Sequence[Mapping[str, Any]], prefix: str = "") -> list[str]:
    """Paths of the leaves in Parquet's order."""
    paths = []
    for f in fields:
        kind, path = f["type"], prefix + f["name"]
        if isinstance(kind, str):
            paths.append(path)
        elif kind["type"] == "struct":
            paths += leaf_paths(kind["fields"], f"{path}.")
        elif kind["type"] == "list":
            paths += leaf_paths([{"name": "element", "type": kind["element"]}], f"{path}.list.")
        else:
            paths += leaf_paths(
                [{"name": "key", "type": kind["key"]}, {"name": "value", "type": kind["value"]}],
                f"{path}.key_value.",
            )
    return paths
