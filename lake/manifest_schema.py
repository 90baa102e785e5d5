"""The Avro schemas of Firn's manifests (Iceberg spec, "Manifests"), format versions 2 and 3."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

import orjson

from lake.avro import schema_field, schema_json
from lake.data_file import ROW_LINEAGE
from lake.manifest_list import DATA_MANIFEST, DELETE_MANIFEST
from lake.span import Unit
from lake.table_layout import BUCKET_FIELD, PARTITION_FIELD


def _avro_map(value: str, key_id: int, value_id: int) -> dict[str, Any]:
    pair = {
        "type": "record",
        "name": f"k{key_id}_v{value_id}",
        "fields": [schema_field("key", "int", key_id), schema_field("value", value, value_id)],
    }
    return {"type": "array", "logicalType": "map", "items": pair}


_BEFORE_PARTITION = [
    schema_field("content", "int", 134),
    schema_field("file_path", "string", 100),
    schema_field("file_format", "string", 101),
]
_AFTER_PARTITION = [
    schema_field("record_count", "long", 103),
    schema_field("file_size_in_bytes", "long", 104),
    schema_field("column_sizes", _avro_map("long", 117, 118), 108, optional=True),
    schema_field("value_counts", _avro_map("long", 119, 120), 109, optional=True),
    schema_field("null_value_counts", _avro_map("long", 121, 122), 110, optional=True),
    schema_field("nan_value_counts", _avro_map("long", 138, 139), 137, optional=True),
    schema_field("lower_bounds", _avro_map("bytes", 126, 127), 125, optional=True),
    schema_field("upper_bounds", _avro_map("bytes", 129, 130), 128, optional=True),
    schema_field("key_metadata", "bytes", 131, optional=True),
    schema_field("split_offsets", {"type": "array", "items": "long", "element-id": 133}, 132, optional=True),
    schema_field("equality_ids", {"type": "array", "items": "int", "element-id": 136}, 135, optional=True),
    schema_field("sort_order_id", "int", 140, optional=True),
]


def _entry_schema(field_id: int, name: str, transform: str, *more: Mapping[str, Any]) -> str:
    # A day is a date to Iceberg's Java library.
    kind: Any = {"type": "int", "logicalType": "date"} if transform == Unit.DAY else "int"
    partition = {
        "type": "record",
        "name": "r102",
        "fields": [schema_field(name, kind, field_id, optional=True)],
    }
    file_fields = [*_BEFORE_PARTITION, schema_field("partition", partition, 102), *_AFTER_PARTITION, *more]
    fields = [
        schema_field("status", "int", 0),
        schema_field("snapshot_id", "long", 1, optional=True),
        schema_field("sequence_number", "long", 3, optional=True),
        schema_field("file_sequence_number", "long", 4, optional=True),
        schema_field("data_file", {"type": "record", "name": "r2", "fields": file_fields}, 2),
    ]
    return schema_json({"type": "record", "name": "manifest_entry", "fields": fields})


_REFERENCED = schema_field("referenced_data_file", "string", 143, optional=True)
_SINCE_V3 = (
    schema_field("first_row_id", "long", 142, optional=True),
    _REFERENCED,
    schema_field("content_offset", "long", 144, optional=True),
    schema_field("content_size_in_bytes", "long", 145, optional=True),
)
# By format version and content: what `DataFile.to_avro` encodes. Data files of version 2 refer to no other.
_LATER_FIELDS: Mapping[tuple[int, int], tuple[Mapping[str, Any], ...]] = {
    (2, DATA_MANIFEST): (),
    (2, DELETE_MANIFEST): (_REFERENCED,),
    (ROW_LINEAGE, DATA_MANIFEST): _SINCE_V3,
    (ROW_LINEAGE, DELETE_MANIFEST): _SINCE_V3,
}


@cache
def entries_schema(version: int, content: int, field_id: int, name: str, transform: str) -> str:
    """As JSON, by format version, content, and the one field of the partition spec."""
    return _entry_schema(field_id, name, transform, *_LATER_FIELDS[version, content])


_PARTITIONS = frozenset({PARTITION_FIELD, BUCKET_FIELD, *(unit.field for unit in Unit)})


@dataclass(frozen=True, slots=True)
class Layout:
    """How the records of a manifest lie that has one of these schemas: the name of its partition field, and
    how many fields a file has after those of all versions and contents."""

    partition: str
    later_fields: int


@lru_cache(maxsize=64)
def layout_of(schema: str) -> Layout | None:
    """By the schema as the file has it; None where it is none of these, letter by letter."""
    with suppress(ValueError, KeyError, TypeError, IndexError, StopIteration):
        file = next(field for field in orjson.loads(schema)["fields"] if field["name"] == "data_file")["type"]
        (field,) = next(each for each in file["fields"] if each["name"] == "partition")["type"]["fields"]
        if field["name"] not in _PARTITIONS:
            return None
        transform = Unit.DAY if isinstance(field["type"][1], dict) else ""
        for later in ((), (_REFERENCED,), _SINCE_V3):
            if _entry_schema(field["field-id"], field["name"], transform, *later) == schema:
                return Layout(field["name"], len(later))
    return None
