"""Data files: what a manifest says about one Parquet file (Iceberg spec, "Manifests", struct `data_file`)."""

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lake.avro import NULL, array, integer, optional, optional_blobs, optional_integer, optional_numbers, text
from lake.table_layout import PARTITION_FIELD

DATA, POSITION_DELETES, EQUALITY_DELETES = 0, 1, 2
# Iceberg's default metrics mode is truncate(16).
BOUND_CHARACTERS = 16

_PHYSICAL = {"INT32": struct.Struct("<i"), "INT64": struct.Struct("<q"), "FLOAT": struct.Struct("<f"), "DOUBLE": struct.Struct("<d")}


@dataclass(frozen=True, slots=True)
class DataFile:
    """One live or removed file of a table. Maps go from field id to a count, or to a bound in Iceberg's single-value encoding."""

    uri: str
    hour: int | None  # partition value, hours since 1970-01-01T00Z
    rows: int
    size_bytes: int
    content: int = DATA
    column_sizes: Mapping[int, int] | None = None
    value_counts: Mapping[int, int] | None = None
    null_counts: Mapping[int, int] | None = None
    nan_counts: Mapping[int, int] | None = None
    lower_bounds: Mapping[int, bytes] | None = None
    upper_bounds: Mapping[int, bytes] | None = None
    split_offsets: Sequence[int] | None = None
    equality_ids: Sequence[int] | None = None
    sort_order_id: int | None = 0
    file_format: str = "PARQUET"

    def to_avro(self) -> bytes:
        """The record of the manifest's Avro schema, encoded."""
        return b"".join(
            [
                integer(self.content),
                text(self.uri),
                text(self.file_format),
                optional_integer(self.hour),
                integer(self.rows),
                integer(self.size_bytes),
                optional_numbers(self.column_sizes),
                optional_numbers(self.value_counts),
                optional_numbers(self.null_counts),
                optional_numbers(self.nan_counts),
                optional_blobs(self.lower_bounds),
                optional_blobs(self.upper_bounds),
                NULL,  # key_metadata
                _optional_list(self.split_offsets),
                _optional_list(self.equality_ids),
                optional_integer(self.sort_order_id),
            ]
        )


def _optional_list(numbers: Sequence[int] | None) -> bytes:
    return optional(None if numbers is None else array([integer(number) for number in numbers]))


def data_file_from_avro(record: Mapping[str, Any]) -> DataFile:
    """Reads the Avro record of a manifest entry; partitions other than by hour have `hour` None."""
    return DataFile(
        uri=record["file_path"],
        hour=record["partition"].get(PARTITION_FIELD),
        rows=record["record_count"],
        size_bytes=record["file_size_in_bytes"],
        content=record.get("content") or DATA,
        column_sizes=_mapping(record.get("column_sizes")),
        value_counts=_mapping(record.get("value_counts")),
        null_counts=_mapping(record.get("null_value_counts")),
        nan_counts=_mapping(record.get("nan_value_counts")),
        lower_bounds=_mapping(record.get("lower_bounds")),
        upper_bounds=_mapping(record.get("upper_bounds")),
        split_offsets=record.get("split_offsets"),
        equality_ids=record.get("equality_ids"),
        sort_order_id=record.get("sort_order_id"),
        file_format=record["file_format"],
    )


def describe_parquet(uri: str, hour: int, size: int, parquet: Any, leaves: Sequence[int]) -> DataFile:
    """Describes a written file from its footer (`pyarrow.parquet.FileMetaData`). `leaves`: field ids of the leaf columns in order.

    Bounds are given where Parquet's statistics hold them; those of text and bytes are cut to 16 characters as Iceberg does.
    """
    sizes, values, nulls = dict.fromkeys(leaves, 0), dict.fromkeys(leaves, 0), dict.fromkeys(leaves, 0)
    lower: dict[int, Any] = {}
    upper: dict[int, Any] = {}
    unbounded: set[int] = set()
    kinds: dict[int, str] = {}
    offsets = []
    for group_at in range(parquet.num_row_groups):
        group = parquet.row_group(group_at)
        for at, leaf in enumerate(leaves):
            chunk = group.column(at)
            sizes[leaf] += chunk.total_compressed_size
            values[leaf] += chunk.num_values
            if at == 0:
                offsets.append(chunk.dictionary_page_offset if chunk.has_dictionary_page else chunk.data_page_offset)
            statistics = chunk.statistics
            if statistics is None:
                unbounded.add(leaf)
                nulls.pop(leaf, None)
                continue
            if leaf in nulls:
                nulls[leaf] += statistics.null_count
            if not statistics.has_min_max:
                if statistics.null_count < chunk.num_values:
                    unbounded.add(leaf)
                continue
            kinds[leaf] = chunk.physical_type
            low, high = statistics.min_raw, statistics.max_raw
            lower[leaf] = low if leaf not in lower else min(lower[leaf], low)
            upper[leaf] = high if leaf not in upper else max(upper[leaf], high)
    bounded = [leaf for leaf in lower if leaf not in unbounded]
    return DataFile(
        uri=uri,
        hour=hour,
        rows=parquet.num_rows,
        size_bytes=size,
        column_sizes=sizes,
        value_counts=values,
        null_counts=nulls,
        lower_bounds={leaf: _bound(kinds[leaf], lower[leaf]) for leaf in bounded},
        upper_bounds={leaf: high for leaf in bounded if (high := _upper_bound(kinds[leaf], upper[leaf])) is not None},
        split_offsets=offsets,
    )


def _bound(physical: str, value: Any) -> bytes:
    if physical == "BOOLEAN":
        return b"\x01" if value else b"\x00"
    if physical in _PHYSICAL:
        return _PHYSICAL[physical].pack(value)
    raw = bytes(value)
    return raw if len(raw) <= BOUND_CHARACTERS else _truncated(raw)[0]


def _upper_bound(physical: str, value: Any) -> bytes | None:
    """The upper bound, its cut text raised by one; None where nothing above it can be written."""
    if physical in _PHYSICAL or physical == "BOOLEAN" or len(value) <= BOUND_CHARACTERS:
        return _bound(physical, value)
    cut, is_text = _truncated(bytes(value))
    if cut == value:
        return cut
    return _raised_text(cut.decode()) if is_text else _raised_bytes(cut)


def _truncated(raw: bytes) -> tuple[bytes, bool]:
    try:
        return raw.decode()[:BOUND_CHARACTERS].encode(), True
    except UnicodeDecodeError:
        return raw[:BOUND_CHARACTERS], False


def _raised_text(text: str) -> bytes | None:
    for at in range(len(text) - 1, -1, -1):
        following = ord(text[at]) + 1
        following = 0xE000 if 0xD800 <= following <= 0xDFFF else following
        if following <= 0x10FFFF:
            return (text[:at] + chr(following)).encode()
    return None


def _raised_bytes(raw: bytes) -> bytes | None:
    for at in range(len(raw) - 1, -1, -1):
        if raw[at] < 0xFF:
            return raw[:at] + bytes([raw[at] + 1])
    return None


def _mapping(pairs: Sequence[Mapping[str, Any]] | None) -> dict[int, Any] | None:
    return None if pairs is None else {pair["key"]: pair["value"] for pair in pairs}
