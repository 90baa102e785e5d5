"""Manifests, format versions 2 and 3 (Iceberg spec, "Manifests").

By hand because it is the hot path of fan-out: a tenth of a millisecond or two a commit instead of tens
through a table library.
"""

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any

import orjson

from lake.avro import container, integer, optional_integer, read_container
from lake.data_file import DATA, DataFile, data_file_from_avro
from lake.errors import ProtocolError, TooLargeError
from lake.manifest_list import DATA_MANIFEST, DELETE_MANIFEST, ManifestFile
from lake.manifest_records import Record, Reference, own_records, own_references
from lake.manifest_schema import entries_schema


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
    avro_schema = entries_schema(version, content, field["field-id"], field["name"], field["transform"])
    data = container(avro_schema, encoded, metadata)
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
    files, rows = [0] * len(Status), [0] * len(Status)
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
        for record in _records(data, what):
            entry = _entry_of(record, manifest)
            if row_id is not None and entry.file.first_row_id is None and entry.status is not Status.DELETED:
                entry, row_id = (
                    replace(entry, file=replace(entry.file, first_row_id=row_id)),
                    row_id + entry.file.rows,
                )
            entries.append(entry)
            values += record.values
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


def read_references(data: bytes, manifest: ManifestFile) -> list[Reference]:
    """The files that a manifest names, for a fraction of what its entries take. Raises ProtocolError."""
    own = own_references(data, ENTRY_BLOCK_BYTES_MAX, ENTRIES_MAX)
    if own is not None:
        return own
    return [Reference.to(entry.file, entry.status) for entry in read_manifest(data, manifest)]


def _records(data: bytes, what: str) -> Iterable[Record]:
    own = own_records(data, ENTRY_BLOCK_BYTES_MAX, ENTRIES_MAX)
    if own is not None:
        return own
    return map(_record, read_container(data, what, block_bytes_max=ENTRY_BLOCK_BYTES_MAX))


def _record(record: Mapping[str, Any]) -> Record:
    file = data_file_from_avro(record["data_file"])
    return Record(
        record["status"],
        record.get("snapshot_id"),
        record.get("sequence_number"),
        record.get("file_sequence_number"),
        file,
        file.values_described,
    )


def _entry_of(record: Record, manifest: ManifestFile) -> ManifestEntry:
    status = Status(record.status)
    inherits = status is Status.ADDED
    snapshot, sequence, file_sequence = (
        record.snapshot_id,
        record.sequence_number,
        record.file_sequence_number,
    )
    return ManifestEntry(
        status,
        record.file,
        manifest.snapshot_id if snapshot is None else snapshot,
        manifest.sequence_number if sequence is None and inherits else sequence,
        manifest.sequence_number if file_sequence is None and inherits else file_sequence,
    )
