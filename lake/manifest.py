"""Manifests and manifest lists, format version 2 (Iceberg spec, "Manifests" and "Manifest Lists").

By hand because it is the hot path of fan-out: a tenth of a millisecond or two a commit instead of tens through a table library.
"""

import io
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, cast

import fastavro
import orjson

from lake.avro import array, boolean, container, integer, optional, optional_blob, optional_integer, schema_json, text
from lake.data_file import DATA, DataFile, data_file_from_avro
from lake.errors import ProtocolError
from lake.table_layout import PARTITION_FIELD, PARTITION_FIELD_ID


class Status(IntEnum):
    """Of a manifest entry."""

    EXISTING = 0
    ADDED = 1
    DELETED = 2


@dataclass(frozen=True, slots=True)
class ManifestEntry:
    """A file in a manifest. For added files snapshot id and sequence numbers are None: the reader inherits them from the manifest list."""

    status: Status
    file: DataFile
    snapshot_id: int | None = None
    sequence_number: int | None = None
    file_sequence_number: int | None = None


@dataclass(frozen=True, slots=True)
class ManifestFile:
    """One line of a manifest list. `partitions` holds a field summary per partition field, as Avro records."""

    uri: str
    length: int
    spec_id: int
    content: int  # 0: data files, 1: delete files
    sequence_number: int
    min_sequence_number: int
    snapshot_id: int
    added_files: int
    existing_files: int
    deleted_files: int
    added_rows: int
    existing_rows: int
    deleted_rows: int
    partitions: Sequence[Mapping[str, Any]] | None = None

    def to_avro(self) -> bytes:
        """The line of a manifest list, encoded."""
        partitions = None if self.partitions is None else array([_field_summary(each) for each in self.partitions])
        return b"".join(
            [
                text(self.uri),
                *map(integer, (self.length, self.spec_id, self.content, self.sequence_number, self.min_sequence_number, self.snapshot_id)),
                *map(integer, (self.added_files, self.existing_files, self.deleted_files, self.added_rows, self.existing_rows, self.deleted_rows)),
                optional(partitions),
                optional_blob(None),  # key_metadata
            ]
        )

    @property
    def live_files(self) -> int:
        return self.added_files + self.existing_files


def _avro_field(name: str, kind: Any, field_id: int, *, optional: bool = False) -> dict[str, Any]:
    field = {"name": name, "type": ["null", kind] if optional else kind, "field-id": field_id}
    return field | {"default": None} if optional else field


def _avro_map(value: str, key_id: int, value_id: int) -> dict[str, Any]:
    pair = {"type": "record", "name": f"k{key_id}_v{value_id}", "fields": [_avro_field("key", "int", key_id), _avro_field("value", value, value_id)]}
    return {"type": "array", "logicalType": "map", "items": pair}


_PARTITION = {"type": "record", "name": "r102", "fields": [_avro_field(PARTITION_FIELD, "int", PARTITION_FIELD_ID, optional=True)]}
_DATA_FILE = {
    "type": "record",
    "name": "r2",
    "fields": [
        _avro_field("content", "int", 134),
        _avro_field("file_path", "string", 100),
        _avro_field("file_format", "string", 101),
        _avro_field("partition", _PARTITION, 102),
        _avro_field("record_count", "long", 103),
        _avro_field("file_size_in_bytes", "long", 104),
        _avro_field("column_sizes", _avro_map("long", 117, 118), 108, optional=True),
        _avro_field("value_counts", _avro_map("long", 119, 120), 109, optional=True),
        _avro_field("null_value_counts", _avro_map("long", 121, 122), 110, optional=True),
        _avro_field("nan_value_counts", _avro_map("long", 138, 139), 137, optional=True),
        _avro_field("lower_bounds", _avro_map("bytes", 126, 127), 125, optional=True),
        _avro_field("upper_bounds", _avro_map("bytes", 129, 130), 128, optional=True),
        _avro_field("key_metadata", "bytes", 131, optional=True),
        _avro_field("split_offsets", {"type": "array", "items": "long", "element-id": 133}, 132, optional=True),
        _avro_field("equality_ids", {"type": "array", "items": "int", "element-id": 136}, 135, optional=True),
        _avro_field("sort_order_id", "int", 140, optional=True),
    ],
}
_ENTRY = schema_json(
    {
        "type": "record",
        "name": "manifest_entry",
        "fields": [
            _avro_field("status", "int", 0),
            _avro_field("snapshot_id", "long", 1, optional=True),
            _avro_field("sequence_number", "long", 3, optional=True),
            _avro_field("file_sequence_number", "long", 4, optional=True),
            _avro_field("data_file", _DATA_FILE, 2),
        ],
    }
)
_FIELD_SUMMARY = {
    "type": "record",
    "name": "r508",
    "fields": [
        _avro_field("contains_null", "boolean", 509),
        _avro_field("contains_nan", "boolean", 518, optional=True),
        _avro_field("lower_bound", "bytes", 510, optional=True),
        _avro_field("upper_bound", "bytes", 511, optional=True),
    ],
}
_MANIFEST_FILE = schema_json(
    {
        "type": "record",
        "name": "manifest_file",
        "fields": [
            _avro_field("manifest_path", "string", 500),
            _avro_field("manifest_length", "long", 501),
            _avro_field("partition_spec_id", "int", 502),
            _avro_field("content", "int", 517),
            _avro_field("sequence_number", "long", 515),
            _avro_field("min_sequence_number", "long", 516),
            _avro_field("added_snapshot_id", "long", 503),
            _avro_field("added_files_count", "int", 504),
            _avro_field("existing_files_count", "int", 505),
            _avro_field("deleted_files_count", "int", 506),
            _avro_field("added_rows_count", "long", 512),
            _avro_field("existing_rows_count", "long", 513),
            _avro_field("deleted_rows_count", "long", 514),
            _avro_field("partitions", {"type": "array", "items": _FIELD_SUMMARY, "element-id": 508}, 507, optional=True),
            _avro_field("key_metadata", "bytes", 519, optional=True),
        ],
    }
)
_INT = struct.Struct("<i")


def write_manifest(
    uri: str, entries: Sequence[ManifestEntry], *, schema: Mapping[str, Any], spec: Mapping[str, Any], snapshot_id: int, sequence_number: int
) -> tuple[bytes, ManifestFile]:
    """The bytes of a manifest of a table partitioned by hour, and its line for the manifest list.

    All entries hold the same kind of file (data or deletes). `snapshot_id` and `sequence_number` are those of the snapshot that adds it.
    """
    content = 0 if entries[0].file.content == DATA else 1
    metadata = {
        "schema": orjson.dumps(schema).decode(),
        "schema-id": str(schema.get("schema-id", 0)),
        "partition-spec": orjson.dumps(spec["fields"]).decode(),
        "partition-spec-id": str(spec["spec-id"]),
        "format-version": "2",
        "content": "deletes" if content else "data",
    }
    data = container(_ENTRY, (_entry(entry, snapshot_id) for entry in entries), metadata)
    return data, _summarise(uri, len(data), entries, spec["spec-id"], content, snapshot_id, sequence_number)


def _entry(entry: ManifestEntry, snapshot_id: int) -> bytes:
    return b"".join(
        [
            integer(entry.status),
            optional_integer(snapshot_id if entry.status is not Status.EXISTING else entry.snapshot_id),
            optional_integer(entry.sequence_number),
            optional_integer(entry.file_sequence_number),
            entry.file.to_avro(),
        ]
    )


def _field_summary(summary: Mapping[str, Any]) -> bytes:
    contains_nan = summary.get("contains_nan")
    return b"".join(
        [
            boolean(summary["contains_null"]),
            optional(None if contains_nan is None else boolean(contains_nan)),
            optional_blob(summary.get("lower_bound")),
            optional_blob(summary.get("upper_bound")),
        ]
    )


def _summarise(uri: str, length: int, entries: Sequence[ManifestEntry], spec_id: int, content: int, snapshot_id: int, sequence_number: int) -> ManifestFile:
    files = dict.fromkeys(Status, 0)
    rows = dict.fromkeys(Status, 0)
    for entry in entries:
        files[entry.status] += 1
        rows[entry.status] += entry.file.rows
    hours = [entry.file.hour for entry in entries if entry.file.hour is not None]
    partition = {
        "contains_null": len(hours) < len(entries),
        "contains_nan": False,
        "lower_bound": _INT.pack(min(hours)) if hours else None,
        "upper_bound": _INT.pack(max(hours)) if hours else None,
    }
    carried = [entry.sequence_number for entry in entries if entry.status is not Status.DELETED and entry.sequence_number is not None]
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


def write_manifest_list(manifests: Iterable[ManifestFile], *, snapshot_id: int, parent_id: int | None, sequence_number: int) -> bytes:
    """The bytes of a snapshot's manifest list."""
    metadata = {
        "snapshot-id": str(snapshot_id),
        "parent-snapshot-id": "null" if parent_id is None else str(parent_id),
        "sequence-number": str(sequence_number),
        "format-version": "2",
    }
    return container(_MANIFEST_FILE, (manifest.to_avro() for manifest in manifests), metadata)


def read_manifest_list(data: bytes) -> list[ManifestFile]:
    """The lines of a manifest list, also those that other engines wrote. Raises ProtocolError where the bytes are no manifest list."""
    return [
        ManifestFile(
            uri=line["manifest_path"],
            length=line["manifest_length"],
            spec_id=line["partition_spec_id"],
            content=line.get("content") or 0,
            sequence_number=line.get("sequence_number") or 0,
            min_sequence_number=line.get("min_sequence_number") or 0,
            snapshot_id=line["added_snapshot_id"],
            added_files=_count(line, "added_files_count", "added_data_files_count"),
            existing_files=_count(line, "existing_files_count", "existing_data_files_count"),
            deleted_files=_count(line, "deleted_files_count", "deleted_data_files_count"),
            added_rows=_count(line, "added_rows_count"),
            existing_rows=_count(line, "existing_rows_count"),
            deleted_rows=_count(line, "deleted_rows_count"),
            partitions=line.get("partitions"),
        )
        for line in _read(data, "manifest list")
    ]


def read_manifest(data: bytes, manifest: ManifestFile) -> list[ManifestEntry]:
    """All entries of a manifest, ids and sequence numbers inherited from its line in the manifest list (spec, "Sequence Number Inheritance")."""
    entries = []
    for record in _read(data, f"manifest {manifest.uri}"):
        status = Status(record["status"])
        inherits = status is Status.ADDED
        sequence, file_sequence, snapshot = record.get("sequence_number"), record.get("file_sequence_number"), record.get("snapshot_id")
        entries.append(
            ManifestEntry(
                status,
                data_file_from_avro(record["data_file"]),
                manifest.snapshot_id if snapshot is None else snapshot,
                manifest.sequence_number if sequence is None and inherits else sequence,
                manifest.sequence_number if file_sequence is None and inherits else file_sequence,
            )
        )
    return entries


def _count(line: Mapping[str, Any], *names: str) -> int:
    return next((int(line[name]) for name in names if line.get(name) is not None), 0)


def _read(data: bytes, what: str) -> Iterator[dict[str, Any]]:
    try:
        yield from cast("Iterator[dict[str, Any]]", fastavro.reader(io.BytesIO(data)))
    except (ValueError, EOFError, KeyError, IndexError) as error:
        raise ProtocolError(f"{what} is not readable Avro ({error}); the file is damaged, restore it or roll the table back") from error
