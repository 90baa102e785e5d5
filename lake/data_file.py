"""Data files and delete files: what a manifest says about one of them (Iceberg spec, "Manifests", struct
`data_file`)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from operator import attrgetter
from typing import Any

from lake.avro import NULL, array, integer, optional, optional_blobs, optional_integer, optional_numbers, text
from lake.bounds import Encoding, encoding_of
from lake.span import Partition, Span, hours_of, span_in
from lake.table_layout import BUCKET_FIELD, PARTITION_FIELD

DATA, POSITION_DELETES, EQUALITY_DELETES = 0, 1, 2
PARQUET, PUFFIN = "PARQUET", "PUFFIN"
# The format version from which on every row has an id (Iceberg spec, "Row Lineage").
ROW_LINEAGE = 3


@dataclass(frozen=True, slots=True)
class DataFile:
    """One live or removed file of a table. Maps go from field id to a count, or to a bound in Iceberg's
    single-value encoding.

    A deletion vector is a part of a Puffin file: `content_size_in_bytes` bytes from `content_offset` on, and
    `rows` counts the positions in it.
    """

    uri: str
    hour: int | None  # partition value, hours since 1970-01-01T00Z; None: it is of another spec
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
    file_format: str = PARQUET
    first_row_id: int | None = (
        None  # of tables of format version 3; None: the reader inherits it from the manifest
    )
    referenced_data_file: str | None = None  # of position deletes: the one data file whose rows they remove
    content_offset: int | None = None
    content_size_in_bytes: int | None = None
    bucket: int | None = None  # partition value of a keyed table
    span: Span | None = None  # the day or month of a file that maintenance made of cold hours
    # The fields that manifests of all format versions have, encoded: of a file that came out of a manifest,
    # and see `packed`. A file in which `replace` puts something else has none: what it says is encoded anew.
    encoded: bytes | None = field(default=None, init=False, compare=False)

    @property
    def partition(self) -> Partition | None:
        """What it is in: an hour, a bucket or a span; None: a partition of somebody else's spec."""
        return self.span or (self.hour if self.bucket is None else self.bucket)

    @property
    def partition_value(self) -> int | None:
        """The partition's value as manifests have it."""
        partition = self.partition
        return partition.value if isinstance(partition, Span) else partition

    @property
    def hours(self) -> range | None:
        """The hours since 1970-01-01T00Z that its rows can be of; None where its partition does not tell."""
        place = self.span or self.hour
        return None if place is None else hours_of(place)

    @property
    def place(self) -> tuple[str, int | None]:
        """What tells it from every other file of a table: deletion vectors of one Puffin file have its URI,
        and differ by where they begin."""
        return self.uri, self.content_offset

    @property
    def is_deletion_vector(self) -> bool:
        """Whether it is a part of a Puffin file, which tables have from format version 3 on."""
        return is_deletion_vector(self.content, self.file_format)

    @property
    def content_bytes(self) -> int:
        """What is its own of the file: other deletion vectors may lie in the same one."""
        return self.size_bytes if self.content_size_in_bytes is None else self.content_size_in_bytes

    @property
    def values_described(self) -> int:
        """How many counts and bounds of columns it holds."""
        described = (
            self.column_sizes,
            self.value_counts,
            self.null_counts,
            self.nan_counts,
            self.lower_bounds,
            self.upper_bounds,
        )
        return sum(map(len, filter(None, described)))

    def __reduce__(self) -> tuple[Any, ...]:
        """By a call, as `lake.pickling` has it."""
        return _unpickled, (_OF_INIT(self), self.encoded)

    def packed(self) -> "DataFile":
        """The same file for who only lists it in a manifest: its counts and bounds are encoded already, and
        nobody can look at them any more. Nothing of it may be replaced."""
        if self.encoded is not None:
            return self
        bare = replace(
            self,
            column_sizes=None,
            value_counts=None,
            null_counts=None,
            nan_counts=None,
            lower_bounds=None,
            upper_bounds=None,
        )
        return encoded_as(bare, self._encoded())

    def to_avro(self, version: int = 2) -> bytes:
        """The record of the manifest's Avro schema in this format version, encoded."""
        encoded = self._encoded() if self.encoded is None else self.encoded
        return b"".join([encoded, *self._later_fields(version)])

    def _encoded(self) -> bytes:
        return b"".join(
            [
                integer(self.content),
                text(self.uri),
                text(self.file_format),
                optional_integer(self.partition_value),
                integer(self.rows),
                integer(self.size_bytes),
                self._metrics(),
                NULL,  # key_metadata
                _optional_list(self.split_offsets),
                _optional_list(self.equality_ids),
                optional_integer(self.sort_order_id),
            ]
        )

    def _metrics(self) -> bytes:
        return b"".join(
            [
                optional_numbers(self.column_sizes),
                optional_numbers(self.value_counts),
                optional_numbers(self.null_counts),
                optional_numbers(self.nan_counts),
                optional_blobs(self.lower_bounds),
                optional_blobs(self.upper_bounds),
            ]
        )

    def _later_fields(self, version: int) -> list[bytes]:
        """The fields that `lake.manifest` gives manifests of deletes, and all manifests from format version 3
        on."""
        referenced = optional(None if self.referenced_data_file is None else text(self.referenced_data_file))
        if version < ROW_LINEAGE:
            return [] if self.content == DATA else [referenced]
        return [
            optional_integer(self.first_row_id),
            referenced,
            optional_integer(self.content_offset),
            optional_integer(self.content_size_in_bytes),
        ]


def is_deletion_vector(content: int, file_format: str) -> bool:
    """Whether a file of this content and format is one, see `DataFile.is_deletion_vector`."""
    return content == POSITION_DELETES and file_format in (PUFFIN, PUFFIN.lower())


def _optional_list(numbers: Sequence[int] | None) -> bytes:
    return optional(None if numbers is None else array([integer(number) for number in numbers]))


# Of a data file as `listed_file` describes it: its content, its format, and what comes behind its row groups.
_BEGIN, _FORMAT, _END = integer(DATA), text(PARQUET), NULL + optional_integer(0)


def listed_file(uri: str, hour: int, rows: int, size: int, metrics: bytes, first_group: int) -> DataFile:
    """Describes a data file of one row group for who only lists it in a manifest, as `DataFile.packed` does.
    `metrics`: its counts and bounds, encoded from `column_sizes` to `upper_bounds`; `first_group`: where the
    row group begins."""
    # What `_encoded` says of such a file: to make one without these fields first would take twice as long.
    encoded = b"".join(
        [
            _BEGIN,
            text(uri),
            _FORMAT,
            optional_integer(hour),
            integer(rows),
            integer(size),
            metrics,
            NULL,
            _optional_list([first_group]),
            _END,
        ]
    )
    return encoded_as(DataFile(uri, hour, rows, size, split_offsets=[first_group]), encoded)


_OF_INIT = attrgetter(*(each.name for each in fields(DataFile) if each.init))


def _unpickled(values: Sequence[Any], encoded: bytes | None) -> DataFile:
    file = DataFile(*values)
    return file if encoded is None else encoded_as(file, encoded)


def encoded_as(file: DataFile, encoded: bytes) -> DataFile:
    """A file that was just made, with what its fields are encoded."""
    object.__setattr__(file, "encoded", encoded)
    return file


def data_file_from_avro(record: Mapping[str, Any]) -> DataFile:
    """Reads the Avro record of a manifest entry; files in partitions of other specs than Firn's have none."""
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
        first_row_id=record.get("first_row_id"),
        referenced_data_file=record.get("referenced_data_file"),
        content_offset=record.get("content_offset"),
        content_size_in_bytes=record.get("content_size_in_bytes"),
        bucket=record["partition"].get(BUCKET_FIELD),
        span=span_in(record["partition"]),
    )


def encodings_of(parquet: Any) -> list[Encoding | None]:
    """How the statistics of each leaf column are to be read, by a footer of such files. This takes longer
    than all else that is looked up to describe a small file."""
    columns = [parquet.schema.column(at) for at in range(parquet.num_columns)]
    return [encoding_of(column.physical_type, column.logical_type.to_json()) for column in columns]


def describe_parquet(
    uri: str,
    hour: int | None,
    size: int,
    parquet: Any,
    leaves: Sequence[int],
    encodings: Sequence[Encoding | None] | None = None,
) -> DataFile:
    """Describes a written file from its footer (`pyarrow.parquet.FileMetaData`). `leaves`: field ids of the
    leaf columns in order; `encodings`: those of such files, where they are known.

    Bounds are given where Parquet's statistics hold them in every row group with values, and bound the
    column's type: see `lake/bounds.py`.
    """
    encodings = encodings_of(parquet) if encodings is None else encodings
    columns = {leaf: _ColumnStatistics() for leaf in leaves}
    offsets = []
    for group_at in range(parquet.num_row_groups):
        group = parquet.row_group(group_at)
        for at, leaf in enumerate(leaves):  # several may have no id
            chunk = group.column(at)
            columns[leaf].add(chunk, encodings[at])
            if at == 0:
                offsets.append(_first_page(chunk))
    return DataFile(
        uri=uri,
        hour=hour,
        rows=parquet.num_rows,
        size_bytes=size,
        column_sizes={leaf: column.size_bytes for leaf, column in columns.items()},
        value_counts={leaf: column.values for leaf, column in columns.items()},
        null_counts={leaf: column.nulls for leaf, column in columns.items() if column.nulls is not None},
        lower_bounds={leaf: low for leaf, column in columns.items() if (low := column.lower()) is not None},
        upper_bounds={leaf: high for leaf, column in columns.items() if (high := column.upper()) is not None},
        split_offsets=offsets,
    )


def _first_page(chunk: Any) -> int:
    """Where a row group begins in its file, by the chunk of its first column."""
    offset: int = chunk.dictionary_page_offset if chunk.has_dictionary_page else chunk.data_page_offset
    return offset


@dataclass(slots=True)
class _ColumnStatistics:
    """What the row groups of a file say of one column, put together. `nulls` None: some group does not say.
    `unbounded`: some group has values and no bounds that may be used."""

    size_bytes: int = 0
    values: int = 0
    nulls: int | None = 0
    low: Any = None
    high: Any = None
    unbounded: bool = False
    encoding: Encoding | None = None  # of the bounds that there are

    def add(self, chunk: Any, encoding: Encoding | None) -> None:
        """Takes the column's part of a row group. `encoding`: how Parquet writes its bounds; None: in no way
        that is known."""
        self.size_bytes += chunk.total_compressed_size
        self.values += chunk.num_values
        statistics = chunk.statistics
        if statistics is None or statistics.null_count is None:  # as Spark writes columns of long texts
            self.nulls, self.unbounded = None, True
            return
        if self.nulls is not None:
            self.nulls += statistics.null_count
        if statistics.has_min_max:
            self._bound(statistics, encoding)
        elif statistics.null_count < chunk.num_values:
            self.unbounded = True

    def _bound(self, statistics: Any, encoding: Encoding | None) -> None:
        low = None if encoding is None else encoding.value(statistics.min_raw)
        high = None if encoding is None else encoding.value(statistics.max_raw)
        if low is None or high is None:
            self.unbounded = True
            return
        self.encoding = encoding
        self.low = low if self.low is None else min(self.low, low)
        self.high = high if self.high is None else max(self.high, high)

    def lower(self) -> bytes | None:
        """The lower bound as manifests have it; None: there is none."""
        if self.unbounded or self.low is None or self.encoding is None:
            return None
        return self.encoding.lower(self.low)

    def upper(self) -> bytes | None:
        """The upper bound; None: there is none, or none that is short enough."""
        if self.unbounded or self.high is None or self.encoding is None:
            return None
        return self.encoding.upper(self.high)


def _mapping(pairs: Sequence[Mapping[str, Any]] | None) -> dict[int, Any] | None:
    return None if pairs is None else {pair["key"]: pair["value"] for pair in pairs}
