"""Manifest lists, format versions 2 and 3 (Iceberg spec, "Manifest Lists").

Every commit writes the list of its predecessor once more with a line or two before it, and a node keeps the
lists of all its tables between commits: some tens of lines for each of ten thousand tables. So they are kept
as the file has them, and decoded for who looks into them.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, overload

from lake.avro import (
    Block,
    array,
    boolean,
    container_of_block,
    integer,
    optional,
    optional_blob,
    optional_integer,
    read_container,
    schema_field,
    schema_json,
    stored_blocks,
    text,
)
from lake.avro_bounds import BLOCK_BYTES_MAX
from lake.column_maps import is_present, long_at, optional_long_at
from lake.data_file import ROW_LINEAGE
from lake.errors import ProtocolError, TooLargeError

MANIFESTS_MAX = 200_000

DATA_MANIFEST, DELETE_MANIFEST = 0, 1


@dataclass(frozen=True, slots=True)
class ManifestFile:
    """One line of a manifest list. `partitions` holds a field summary per partition field, as Avro
    records."""

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
    first_row_id: int | None = None  # of data manifests in tables of format version 3

    def to_avro(self, version: int = 2) -> bytes:
        """The line in this format version, encoded."""
        partitions = (
            None if self.partitions is None else array([_field_summary(each) for each in self.partitions])
        )
        return b"".join(
            [
                text(self.uri),
                *map(
                    integer,
                    (
                        self.length,
                        self.spec_id,
                        self.content,
                        self.sequence_number,
                        self.min_sequence_number,
                        self.snapshot_id,
                    ),
                ),
                *map(
                    integer,
                    (
                        self.added_files,
                        self.existing_files,
                        self.deleted_files,
                        self.added_rows,
                        self.existing_rows,
                        self.deleted_rows,
                    ),
                ),
                optional(partitions),
                optional_blob(None),  # key_metadata
                *([optional_integer(self.first_row_id)] if version >= ROW_LINEAGE else []),
            ]
        )

    @property
    def live_files(self) -> int:
        return self.added_files + self.existing_files


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


_FIELD_SUMMARY = {
    "type": "record",
    "name": "r508",
    "fields": [
        schema_field("contains_null", "boolean", 509),
        schema_field("contains_nan", "boolean", 518, optional=True),
        schema_field("lower_bound", "bytes", 510, optional=True),
        schema_field("upper_bound", "bytes", 511, optional=True),
    ],
}
_FIELDS = [
    schema_field("manifest_path", "string", 500),
    schema_field("manifest_length", "long", 501),
    schema_field("partition_spec_id", "int", 502),
    schema_field("content", "int", 517),
    schema_field("sequence_number", "long", 515),
    schema_field("min_sequence_number", "long", 516),
    schema_field("added_snapshot_id", "long", 503),
    schema_field("added_files_count", "int", 504),
    schema_field("existing_files_count", "int", 505),
    schema_field("deleted_files_count", "int", 506),
    schema_field("added_rows_count", "long", 512),
    schema_field("existing_rows_count", "long", 513),
    schema_field("deleted_rows_count", "long", 514),
    schema_field(
        "partitions", {"type": "array", "items": _FIELD_SUMMARY, "element-id": 508}, 507, optional=True
    ),
    schema_field("key_metadata", "bytes", 519, optional=True),
]


def _line(*more: Mapping[str, Any]) -> str:
    return schema_json({"type": "record", "name": "manifest_file", "fields": [*_FIELDS, *more]})


_LINES = {2: _line(), ROW_LINEAGE: _line(schema_field("first_row_id", "long", 520, optional=True))}
_VERSIONS = {schema: version for version, schema in _LINES.items()}


@dataclass(frozen=True, slots=True)
class ManifestList(Sequence[ManifestFile]):
    """The manifests of a snapshot, the newest first; immutable. Looking into it decodes it, all of it, every
    time."""

    block: Block = field(default_factory=Block)
    version: int = 2

    @classmethod
    def of(cls, manifests: Iterable[ManifestFile], version: int = 2) -> "ManifestList":
        """The list of these manifests, as tables of a format version have it."""
        lines = [manifest.to_avro(version) for manifest in manifests]
        return cls(Block.of(len(lines), b"".join(lines)), version)

    def after(self, newer: Sequence[ManifestFile]) -> "ManifestList":
        """The list with these before its own."""
        lines = [manifest.to_avro(self.version) for manifest in newer]
        return ManifestList(
            Block.of(len(newer) + len(self), b"".join([*lines, self.block.data])), self.version
        )

    def with_row_ids(self, first: int) -> tuple["ManifestList", int]:
        """The list with an id for the first row of every data manifest that has none yet, from `first` on,
        and how many ids were given."""
        lines, following = [], first
        for line in self:
            if line.content == DATA_MANIFEST and line.first_row_id is None:
                line = replace(line, first_row_id=following)
                following += line.added_rows + line.existing_rows
            lines.append(line)
        return ManifestList.of(lines, self.version), following - first

    def __len__(self) -> int:
        return self.block.count

    def __iter__(self) -> Iterator[ManifestFile]:
        return iter(_own_lines(self.block.count, self.block.data, self.version))

    @overload
    def __getitem__(self, index: int) -> ManifestFile: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[ManifestFile]: ...
    def __getitem__(self, index: int | slice) -> ManifestFile | Sequence[ManifestFile]:
        return tuple(self)[index]


def write_manifest_list(
    manifests: ManifestList,
    *,
    snapshot_id: int,
    parent_id: int | None,
    sequence_number: int,
    first_row_id: int | None = None,
) -> bytes:
    """The bytes of a snapshot's manifest list. `first_row_id`: the snapshot's own, from format version 3
    on."""
    metadata = {
        "snapshot-id": str(snapshot_id),
        "parent-snapshot-id": "null" if parent_id is None else str(parent_id),
        "sequence-number": str(sequence_number),
        "format-version": str(manifests.version),
    }
    if first_row_id is not None:
        metadata["first-row-id"] = str(first_row_id)
    return container_of_block(_LINES[manifests.version], manifests.block, metadata)


# Lines as they were read: by the URI their bytes and what they say.
Lines = dict[bytes, tuple[bytes, ManifestFile]]


def read_manifest_list(data: bytes, known: Lines | None = None) -> list[ManifestFile]:
    """The lines of a manifest list, also those that other engines wrote. `known`: lines of the table's other
    lists, which grows: a list has most of its lines from the one before it. Raises ProtocolError where the
    bytes are no manifest list."""
    own = _read_own(data, known)
    if own is not None:
        return own
    try:
        found = [
            _manifest_file(line) for line in islice(read_container(data, "manifest list"), MANIFESTS_MAX + 1)
        ]
    except (KeyError, ValueError, TypeError) as error:
        raise ProtocolError(
            f"a manifest list is not as the Iceberg specification has it ({error!r}); restore it or roll the "
            "table back"
        ) from error
    if len(found) > MANIFESTS_MAX:
        raise TooLargeError(
            f"a manifest list holds more than {MANIFESTS_MAX:,} manifests; run Spark's rewrite_manifests, or "
            "roll the table back"
        )
    return found


def _read_own(data: bytes, known: Lines | None = None) -> list[ManifestFile] | None:
    """The lines of a list that Firn wrote; None where the library is to read it."""
    schema, blocks = stored_blocks(data, BLOCK_BYTES_MAX) or ("", [])
    version = _VERSIONS.get(schema)
    if version is None or sum(count for count, _ in blocks) > MANIFESTS_MAX:
        return None
    try:
        return [line for count, block in blocks for line in _own_lines(count, block, version, known)]
    except (ValueError, IndexError):  # of texts that are none as well
        return None


def _own_lines(count: int, block: bytes, version: int, known: Lines | None = None) -> list[ManifestFile]:
    """Lines as `ManifestFile.to_avro` encodes them. Raises ValueError, IndexError."""
    found, at = list[ManifestFile](), 0
    known = {} if known is None else known
    for _ in range(count):
        begin = at
        length, at = long_at(block, at)
        if length < 0:
            raise ValueError("a negative length")
        uri, at = block[at : at + length], at + length
        encoded, line = known.get(uri, (b"", None))
        if line is not None and block.startswith(encoded, begin):
            at = begin + len(encoded)
        else:
            line, at = _own_line(block, at, uri.decode(), version)
            known[uri] = block[begin:at], line
        found.append(line)
    if at != len(block):
        raise ValueError("lines that do not end with their block")
    return found


def _own_line(block: bytes, at: int, uri: str, version: int) -> tuple[ManifestFile, int]:
    length, at = long_at(block, at)
    spec_id, at = long_at(block, at)
    content, at = long_at(block, at)
    sequence_number, at = long_at(block, at)
    min_sequence_number, at = long_at(block, at)
    snapshot_id, at = long_at(block, at)
    added_files, at = long_at(block, at)
    existing_files, at = long_at(block, at)
    deleted_files, at = long_at(block, at)
    added_rows, at = long_at(block, at)
    existing_rows, at = long_at(block, at)
    deleted_rows, at = long_at(block, at)
    partitions, at = _summaries(block, at)
    if is_present(block, at):
        raise ValueError("a key, which Firn writes none of")
    first_row_id, at = optional_long_at(block, at + 1) if version >= ROW_LINEAGE else (None, at + 1)
    line = ManifestFile(
        uri,
        length,
        spec_id,
        content,
        sequence_number,
        min_sequence_number,
        snapshot_id,
        added_files,
        existing_files,
        deleted_files,
        added_rows,
        existing_rows,
        deleted_rows,
        partitions,
        first_row_id,
    )
    return line, at


def _summaries(block: bytes, at: int) -> tuple[list[dict[str, Any]] | None, int]:
    if not is_present(block, at):
        return None, at + 1
    count, at = long_at(block, at + 1)
    if not 0 <= count <= len(block):
        raise ValueError("an array of several blocks")
    found = []
    for _ in range(count):
        contains_null, at = _boolean(block, at)
        contains_nan, at = _boolean(block, at + 1) if is_present(block, at) else (None, at + 1)
        lower, at = _blob(block, at)
        upper, at = _blob(block, at)
        found.append(
            {
                "contains_null": contains_null,
                "contains_nan": contains_nan,
                "lower_bound": lower,
                "upper_bound": upper,
            }
        )
    if count:
        if block[at]:
            raise ValueError("an array of several blocks")
        at += 1
    return found, at


def _boolean(block: bytes, at: int) -> tuple[bool, int]:
    if block[at] > 1:
        raise ValueError("no boolean")
    return block[at] == 1, at + 1


def _blob(block: bytes, at: int) -> tuple[bytes | None, int]:
    if not is_present(block, at):
        return None, at + 1
    length, at = long_at(block, at + 1)
    if length < 0:
        raise ValueError("a negative length")
    return block[at : at + length], at + length


def _manifest_file(line: Mapping[str, Any]) -> ManifestFile:
    return ManifestFile(
        uri=line["manifest_path"],
        length=line["manifest_length"],
        spec_id=line["partition_spec_id"],
        content=line.get("content") or 0,
        sequence_number=line.get("sequence_number") or 0,
        min_sequence_number=line.get("min_sequence_number") or 0,
        snapshot_id=line["added_snapshot_id"],
        added_files=_files(line, "added_files_count", "added_data_files_count"),
        existing_files=_files(line, "existing_files_count", "existing_data_files_count"),
        deleted_files=_files(line, "deleted_files_count", "deleted_data_files_count"),
        added_rows=line.get("added_rows_count") or 0,
        existing_rows=line.get("existing_rows_count") or 0,
        deleted_rows=line.get("deleted_rows_count") or 0,
        partitions=line.get("partitions"),
        first_row_id=line.get("first_row_id"),
    )


def _files(line: Mapping[str, Any], name: str, by_older_writers: str) -> int:
    count = line.get(name)
    return (line.get(by_older_writers) if count is None else count) or 0
