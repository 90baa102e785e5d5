"""Manifests, format versions 2 and 3 (Iceberg spec, "Manifests").

By hand because it is the hot path of fan-out: a tenth of a millisecond or two a commit instead of tens
through a table library.
"""

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import cache
from typing import Any

import orjson

from lake.avro import container, integer, optional_integer, read_container, schema_field, schema_json
from lake.data_file import DATA, ROW_LINEAGE, DataFile, data_file_from_avro
from lake.errors import ProtocolError, TooLargeError
from lake.manifest_list import DATA_MANIFEST, DELETE_MANIFEST, ManifestFile
from lake.span import Unit


class Status(IntEnum):
    """Of a manifest entry."""

    EXISTING = 0
    ADDED = 1
    DELETED = 2


@dataclass(frozen=True, slots=True)
class ManifestEntry:
    """A file in a manifest. For added files snapshot id and sequence numbers are None: the reader inherits
    them from the manifest list."""

    status: Status
    file: DataFile
    snapshot_id: int | None = None
    sequence_number: int | None = None
    file_sequence_number: int | None = None


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
def _entries_schema(version: int, content: int, field_id: int, name: str, transform: str) -> str:
    return _entry_schema(field_id, name, transform, *_LATER_FIELDS[version, content])


_INT = struct.Struct("<i")
# Of one manifest, whoever wrote it; Firn's have at most `lake.commit.MANIFEST_ENTRIES_MAX`, and five maps
# over a thousand columns for each.
ENTRIES_MAX = 250_000
VALUES_MAX = 25_000_000
ENTRY_BLOCK_BYTES_MAX = 4 * 1024 * 1024


def write_manifest(
    uri: str,
    entries: Sequence[ManifestEntry],
    *,
    schema: Mapping[str, Any],
    spec: Mapping[str, Any],
    snapshot_id: int,
    sequence_number: int,
    version: int = 2,
) -> tuple[bytes, ManifestFile]:
    """The bytes of a manifest, and its line for the manifest list.

    All entries hold the same kind of file (data or deletes), of partitions of `spec`, which has one field.
    `snapshot_id` and `sequence_number` are those of the snapshot that adds it.
    """
    content = DATA_MANIFEST if entries[0].file.content == DATA else DELETE_MANIFEST
    metadata = {
        "schema": orjson.dumps(schema).decode(),
        "schema-id": str(schema.get("schema-id", 0)),
        "partition-spec": orjson.dumps(spec["fields"]).decode(),
        "partition-spec-id": str(spec["spec-id"]),
        "format-version": str(version),
        "content": "deletes" if content == DELETE_MANIFEST else "data",
    }
    encoded = (_entry(entry, snapshot_id, version) for entry in entries)
    field = spec["fields"][0]
    entries_schema = _entries_schema(version, content, field["field-id"], field["name"], field["transform"])
    data = container(entries_schema, encoded, metadata)
    return data, _summarise(uri, len(data), entries, spec["spec-id"], content, snapshot_id, sequence_number)


def _entry(entry: ManifestEntry, snapshot_id: int, version: int) -> bytes:
    return b"".join(
        [
            integer(entry.status),
            optional_integer(snapshot_id if entry.status is not Status.EXISTING else entry.snapshot_id),
            optional_integer(entry.sequence_number),
            optional_integer(entry.file_sequence_number),
            entry.file.to_avro(version),
        ]
    )


def _summarise(
    uri: str,
    length: int,
    entries: Sequence[ManifestEntry],
    spec_id: int,
    content: int,
    snapshot_id: int,
    sequence_number: int,
) -> ManifestFile:
    files = dict.fromkeys(Status, 0)
    rows = dict.fromkeys(Status, 0)
    for entry in entries:
        files[entry.status] += 1
        rows[entry.status] += entry.file.rows
    values = [value for entry in entries if (value := entry.file.partition_value) is not None]
    partition = {
        "contains_null": len(values) < len(entries),
        "contains_nan": False,
        "lower_bound": _INT.pack(min(values)) if values else None,
        "upper_bound": _INT.pack(max(values)) if values else None,
    }
    carried = [
        entry.sequence_number
        for entry in entries
        if entry.status is not Status.DELETED and entry.sequence_number is not None
    ]
    return ManifestFile(
        uri=uri,
        length=length,
        spec_id=spec_id,
        content=content,
        sequence_number=sequence_number,
        min_sequence_number=min([sequence_number, *carried]),
        snapshot_id=snapshot_id,
        added_files=files[Status.ADDED],
        existing_files=files[Status.EXISTING],
        deleted_files=files[Status.DELETED],
        added_rows=rows[Status.ADDED],
        existing_rows=rows[Status.EXISTING],
        deleted_rows=rows[Status.DELETED],
        partitions=[partition],
    )


def read_manifest(data: bytes, manifest: ManifestFile) -> list[ManifestEntry]:
    """All entries of a manifest; ids and sequence numbers are inherited from its line in the manifest list
    (spec, "Sequence Number Inheritance", "First Row ID Inheritance"). Raises ProtocolError."""
    what = f"manifest {manifest.uri}"
    entries: list[ManifestEntry] = []
    values, row_id = 0, manifest.first_row_id
    try:
        for record in read_container(data, what, block_bytes_max=ENTRY_BLOCK_BYTES_MAX):
            entry = _read_entry(record, manifest)
            if row_id is not None and entry.file.first_row_id is None and entry.status is not Status.DELETED:
                entry, row_id = (
                    replace(entry, file=replace(entry.file, first_row_id=row_id)),
                    row_id + entry.file.rows,
                )
            entries.append(entry)
            values += entry.file.values_described
            if len(entries) > ENTRIES_MAX or values > VALUES_MAX:
                limits = f"{ENTRIES_MAX:,} files or {VALUES_MAX:,} counts and bounds of columns"
                raise TooLargeError(
                    f"{what} holds more than {limits}; run Spark's rewrite_manifests, or roll the table back"
                )
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise ProtocolError(
            f"{what} is not as the Iceberg specification has it ({error!r}); restore it or roll the table "
            "back"
        ) from error
    return entries


def _read_entry(record: Mapping[str, Any], manifest: ManifestFile) -> ManifestEntry:
    status = Status(record["status"])
    inherits = status is Status.ADDED
    sequence, file_sequence, snapshot = (
        record.get("sequence_number"),
        record.get("file_sequence_number"),
        record.get("snapshot_id"),
    )
    return ManifestEntry(
        status,
        data_file_from_avro(record["data_file"]),
        manifest.snapshot_id if snapshot is None else snapshot,
        manifest.sequence_number if sequence is None and inherits else sequence,
        manifest.sequence_number if file_sequence is None and inherits else file_sequence,
    )
