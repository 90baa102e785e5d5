"""Decodes the records of manifests that Firn has written, which are nearly all that it reads.

By hand, as they are written: a library makes a map of each pair of a column and a count, a hundred and more
for a file. Here these are passed over, and decoded for who looks at them (`column_maps.py`); the record
itself is kept as it is, so that whoever lists the file in another manifest encodes nothing. A file of any
other schema, and one that is not as its schema says, is left to the library, which says what is wrong.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from lake.avro import stored_blocks
from lake.column_maps import (
    ColumnMap,
    Decode,
    blobs_by_column,
    blobs_end,
    is_present,
    long_at,
    numbers_by_column,
    numbers_end,
    optional_long_at,
)
from lake.data_file import DataFile, encoded_as, is_deletion_vector
from lake.manifest_schema import Layout, layout_of
from lake.span import Partition, Span, span_in
from lake.table_layout import BUCKET_FIELD, PARTITION_FIELD

_Found = TypeVar("_Found")
DELETED = 2  # the status of what a manifest only says is gone


@dataclass(frozen=True, slots=True)
class Record:
    """One record. `values`: how many counts and bounds of columns it holds."""

    status: int
    snapshot_id: int | None
    sequence_number: int | None
    file_sequence_number: int | None
    file: DataFile
    values: int


class Reference(NamedTuple):
    """A file that a manifest names. `partition`: None where others may lie in the same file, of whatever
    partition, as deletion vectors do, and where it is of none. `is_live`: added or kept; else the manifest
    says that it is gone."""

    uri: str
    partition: Partition | None
    is_live: bool = True

    @classmethod
    def to(cls, file: DataFile, status: int = 0) -> "Reference":
        return cls(file.uri, None if file.is_deletion_vector else file.partition, status != DELETED)


def own_records(data: bytes, block_bytes_max: int, records_max: int) -> list[Record] | None:
    """The records of a manifest; None where they are to be read by the library, as more than `records_max`
    are: it decodes them one after the other."""
    return _own(data, block_bytes_max, records_max, _records)


def own_references(data: bytes, block_bytes_max: int, records_max: int) -> list[Reference] | None:
    """The files that a manifest names, for who wants to know no more of them: all else is passed over. None
    as of `own_records`."""
    return _own(data, block_bytes_max, records_max, _references)


def _own(
    data: bytes,
    block_bytes_max: int,
    records_max: int,
    decode: Callable[[bytes, int, Layout], Iterator[_Found]],
) -> list[_Found] | None:
    found = stored_blocks(data, block_bytes_max)
    if found is None:
        return None
    schema, blocks = found
    layout = layout_of(schema)
    if layout is None or sum(count for count, _ in blocks) > records_max:
        return None
    try:
        return [record for count, block in blocks for record in decode(block, count, layout)]
    except (ValueError, IndexError, OverflowError):  # of texts that are none as well
        return None


def _records(block: bytes, count: int, layout: Layout) -> Iterator[Record]:
    at = 0
    for _ in range(count):
        status, at = long_at(block, at)
        if not 0 <= status <= DELETED:
            raise ValueError("no status")
        snapshot_id, at = optional_long_at(block, at)
        sequence_number, at = optional_long_at(block, at)
        file_sequence_number, at = optional_long_at(block, at)
        file, values, at = _file(block, at, layout)
        yield Record(status, snapshot_id, sequence_number, file_sequence_number, file, values)
    _expect_end(block, at)


def _references(block: bytes, count: int, layout: Layout) -> Iterator[Reference]:
    at = 0
    for _ in range(count):
        status, at = long_at(block, at)
        if not 0 <= status <= DELETED:
            raise ValueError("no status")
        content, at = long_at(block, _optional_longs_end(block, at, 3))
        uri, at = _text(block, at)
        file_format, at = _text(block, at)
        value, at = optional_long_at(block, at)
        at = _maps(block, numbers_end(block, at, 2))[1]
        _expect_no_key(block, at)
        at = _optional_longs_end(block, _list_end(block, _list_end(block, at + 1)), 1)
        if layout.later_fields > 1:
            at = _optional_longs_end(block, at, 1)
        if layout.later_fields:
            at = _optional_text(block, at)[1]
        if layout.later_fields > 1:
            at = _optional_longs_end(block, at, 2)
        hour, bucket, span = _partition(layout.partition, value)
        partition = span or (hour if bucket is None else bucket)
        is_vector = is_deletion_vector(content, file_format)
        yield Reference(uri, None if is_vector else partition, status != DELETED)
    _expect_end(block, at)


def _expect_end(block: bytes, at: int) -> None:
    if at != len(block):
        raise ValueError("records that do not end with their block")


def _expect_no_key(block: bytes, at: int) -> None:
    if is_present(block, at):
        raise ValueError("a key, which Firn writes none of")


def _file(block: bytes, begin: int, layout: Layout) -> tuple[DataFile, int, int]:
    """A file, how many values its maps hold, and where its record ends."""
    content, at = long_at(block, begin)
    uri, at = _text(block, at)
    file_format, at = _text(block, at)
    value, at = optional_long_at(block, at)
    rows, at = long_at(block, at)
    size, at = long_at(block, at)
    maps, at = _maps(block, at)
    _expect_no_key(block, at)
    offsets, at = _numbers(block, at + 1)
    equality_ids, at = _numbers(block, at)
    sort_order_id, at = optional_long_at(block, at)
    record = block[begin:at]
    first_row_id, at = optional_long_at(block, at) if layout.later_fields > 1 else (None, at)
    referenced, at = _optional_text(block, at) if layout.later_fields else (None, at)
    offset, at = optional_long_at(block, at) if layout.later_fields > 1 else (None, at)
    length, at = optional_long_at(block, at) if layout.later_fields > 1 else (None, at)
    sizes, counts, nulls, nans, lower, upper = (
        None if each is None else ColumnMap(record, each[0] - begin, each[1], decode)
        for each, decode in zip(maps, _DECODE, strict=True)
    )
    hour, bucket, span = _partition(layout.partition, value)
    found = DataFile(
        uri,
        hour,
        rows,
        size,
        content,
        sizes,
        counts,
        nulls,
        nans,
        lower,
        upper,
        offsets,
        equality_ids,
        sort_order_id,
        file_format,
        first_row_id,
        referenced,
        offset,
        length,
        bucket,
        span,
    )
    return encoded_as(found, record), sum(each[1] for each in maps if each is not None), at


# The maps of a file, in their order.
_DECODE: tuple[Decode[Any], ...] = (*[numbers_by_column] * 4, *[blobs_by_column] * 2)


def _maps(block: bytes, at: int) -> tuple[list[tuple[int, int] | None], int]:
    """Where each map begins and how many pairs it has (None: it is null), and where the last ends."""
    found = list[tuple[int, int] | None]()
    for decode in _DECODE:
        if not is_present(block, at):
            found.append(None)
            at += 1
            continue
        count, at = long_at(block, at + 1)
        if not 0 <= count <= len(block):
            raise ValueError("no such map")
        found.append((at, count))
        if count:
            is_of_numbers = decode is numbers_by_column
            at = _end(
                block, numbers_end(block, at, 2 * count) if is_of_numbers else blobs_end(block, at, count)
            )
    return found, at


def _optional_longs_end(block: bytes, at: int, count: int) -> int:
    """Where so many unions of null and a long end."""
    for _ in range(count):
        at = numbers_end(block, at + 1, 1) if is_present(block, at) else at + 1
    return at


def _list_end(block: bytes, at: int) -> int:
    """Where a union of null and a list of numbers ends."""
    if not is_present(block, at):
        return at + 1
    count, at = long_at(block, at + 1)
    if not 0 <= count <= len(block):
        raise ValueError("no such list")
    return _end(block, numbers_end(block, at, count)) if count else at


def _partition(name: str, value: int | None) -> tuple[int | None, int | None, Span | None]:
    """Hour, bucket and span that a partition is."""
    if name == PARTITION_FIELD:
        return value, None, None
    return (None, value, None) if name == BUCKET_FIELD else (None, None, span_in({name: value}))


def _end(block: bytes, at: int) -> int:
    """Where an array ends whose items end there."""
    if block[at]:
        raise ValueError("an array of several blocks")
    return at + 1


def _text(block: bytes, at: int) -> tuple[str, int]:
    length, at = long_at(block, at)
    if length < 0:
        raise ValueError("a negative length")
    return block[at : at + length].decode(), at + length


def _optional_text(block: bytes, at: int) -> tuple[str | None, int]:
    return _text(block, at + 1) if is_present(block, at) else (None, at + 1)


def _numbers(block: bytes, at: int) -> tuple[list[int] | None, int]:
    if not is_present(block, at):
        return None, at + 1
    count, at = long_at(block, at + 1)
    if not 0 <= count <= len(block):
        raise ValueError("no such list")
    found = list[int]()
    for _ in range(count):
        number, at = long_at(block, at)
        found.append(number)
    return found, _end(block, at) if count else at
