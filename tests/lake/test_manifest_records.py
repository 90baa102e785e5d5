"""Manifests and lists of Firn's own schemas are decoded by hand: what comes out is what the library reads."""

import pickle
import random
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

import lake.manifest
import lake.manifest_list
from lake.avro import container
from lake.data_file import EQUALITY_DELETES, POSITION_DELETES, PUFFIN, ROW_LINEAGE, DataFile
from lake.errors import FatalError, TooLargeError
from lake.log_schema import new_log_schema
from lake.manifest import (
    ENTRIES_MAX,
    ENTRY_BLOCK_BYTES_MAX,
    ManifestEntry,
    Status,
    read_manifest,
    read_references,
    write_manifest,
)
from lake.manifest_list import Lines, ManifestFile, ManifestList, read_manifest_list, write_manifest_list
from lake.manifest_records import Reference, own_records, own_references
from lake.span import Span, Unit
from lake.table_layout import BUCKET_FIELD, PARTITION_FIELD

SCHEMA = new_log_schema().with_strings({"a": (16, "/a")}, 1).json
SPECS = {
    name: {
        "spec-id": 0,
        "fields": [{"source-id": 1, "field-id": 1000, "name": field, "transform": transform}],
    }
    for name, field, transform in (
        ("hour", PARTITION_FIELD, "hour"),
        ("bucket", BUCKET_FIELD, "bucket[16]"),
        ("day", Unit.DAY.field, "day"),
        ("month", Unit.MONTH.field, "month"),
    )
}
CASES = [(name, version, content) for name in SPECS for version in (2, ROW_LINEAGE) for content in (0, 1, 2)]


def _file(draws: random.Random, kind: str, content: int, version: int) -> DataFile:
    def numbers() -> dict[int, int] | None:
        count = draws.choice([0, 1, 5, 70])
        keys = draws.sample(range(1, 30_000), count)
        return draws.choice([None, {key: draws.choice([0, 63, 64, 2**40, -3]) for key in keys}])

    def bounds() -> dict[int, bytes] | None:
        keys = draws.sample(range(1, 30_000), draws.choice([0, 1, 40]))
        found = {key: draws.randbytes(draws.choice([0, 8, 63, 64, 300])) for key in keys}
        return draws.choice([None, found, found])

    value = draws.randrange(1, 700_000) if draws.random() < 0.9 else None
    is_vector = content == POSITION_DELETES and version == ROW_LINEAGE
    return DataFile(
        f"file:///t/é{draws.randrange(10**6)}.parquet",
        value if kind == "hour" else None,
        draws.randrange(10**6),
        draws.randrange(10**12),
        content,
        numbers(),
        numbers(),
        numbers(),
        numbers(),
        bounds(),
        bounds(),
        split_offsets=draws.choice([None, [4], [4, 2**33]]),
        equality_ids=[16] if content == EQUALITY_DELETES else None,
        sort_order_id=draws.choice([None, 0, 3]),
        file_format=PUFFIN if is_vector else "PARQUET",
        first_row_id=draws.choice([None, 2**50]) if version == ROW_LINEAGE else None,
        referenced_data_file="file:///t/x.parquet" if content == POSITION_DELETES else None,
        content_offset=4 if is_vector else None,
        content_size_in_bytes=2**20 if is_vector else None,
        bucket=value if kind == "bucket" else None,
        span=Span(Unit(kind), (value or 1) % 20_000) if kind in tuple(Unit) else None,
    )


def _written(seed: int, kind: str, version: int, content: int, count: int = 5) -> tuple[bytes, ManifestFile]:
    draws = random.Random(seed)
    entries = [
        ManifestEntry(
            status,
            _file(draws, kind, content, version),
            *((None,) * 3 if status is Status.ADDED else (2**62 + 1, 7, draws.choice([None, 6]))),
        )
        for status in draws.choices(list(Status), k=count)
    ]
    return write_manifest(
        "file:///t/m.avro",
        entries,
        schema=SCHEMA,
        spec=SPECS[kind],
        snapshot_id=2**62 + 5,
        sequence_number=9,
        version=version,
    )


def _by_library(data: bytes, line: ManifestFile) -> list[ManifestEntry]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lake.manifest, "own_records", lambda *_: None)
        return read_manifest(data, line)


@pytest.mark.parametrize(("kind", "version", "content"), CASES)
@pytest.mark.parametrize("count", [1, 40])  # the last are deflated
def test_entries_are_those_that_the_library_reads(kind: str, version: int, content: int, count: int) -> None:
    """Every field of them, and the bytes of their records in another manifest."""
    data, line = _written(count, kind, version, content, count)
    line = replace(line, first_row_id=1_000 if version == ROW_LINEAGE else None)
    assert own_records(data, ENTRY_BLOCK_BYTES_MAX, ENTRIES_MAX) is not None
    own, theirs = read_manifest(data, line), _by_library(data, line)
    assert own == theirs
    assert [e.file.to_avro(version) for e in own] == [e.file.to_avro(version) for e in theirs]
    assert pickle.loads(pickle.dumps(own)) == own
    for mine, other in zip(own, theirs, strict=True):
        assert dict(mine.file.lower_bounds or {}) == dict(other.file.lower_bounds or {})
        assert mine.file.values_described == other.file.values_described


@pytest.mark.parametrize(("kind", "version", "content"), CASES)
@pytest.mark.parametrize("count", [1, 40])
def test_references_are_those_of_the_entries(kind: str, version: int, content: int, count: int) -> None:
    """Decoded by hand, or where that is left to the library; those that are gone are told apart."""
    data, line = _written(count, kind, version, content, count)
    entries = read_manifest(data, line)
    named = _named(entries)
    assert own_references(data, ENTRY_BLOCK_BYTES_MAX, ENTRIES_MAX) == named == read_references(data, line)
    assert [each.is_live for each in named] == [entry.status is not Status.DELETED for entry in entries]
    assert count == 1 or {each.is_live for each in named} == {True, False}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lake.manifest, "own_references", lambda *_: None)
        assert read_references(data, line) == named


def _named(entries: list[ManifestEntry]) -> list[Reference]:
    return [Reference.to(entry.file, entry.status) for entry in entries]


def test_an_entry_that_says_less_is_written_as_it_is_then() -> None:
    """What an erasure takes out of an entry is not in the bytes that were read, and another name is another
    name."""
    data, line = _written(3, "hour", 2, 0, 1)
    (entry,) = read_manifest(data, line)
    assert entry.file.encoded is not None
    bare = replace(entry.file, lower_bounds=None, upper_bounds=None)
    assert (
        bare.to_avro()
        == replace(_by_library(data, line)[0].file, lower_bounds=None, upper_bounds=None).to_avro()
    )
    assert b"file:///elsewhere" in replace(entry.file, uri="file:///elsewhere").to_avro()


def _damaged(data: bytes, draws: random.Random) -> Iterator[bytes]:
    for _ in range(60):
        at = draws.randrange(len(data))
        yield data[:at] + bytes([draws.randrange(256)]) + data[at + 1 :]
        yield data[:at]
        yield data[:at] + data[at + draws.randrange(1, 30) :]


@pytest.mark.parametrize(("kind", "version", "content"), [("hour", 2, 0), ("day", ROW_LINEAGE, 1)])
def test_of_damaged_bytes_nothing_else_is_read(kind: str, version: int, content: int) -> None:
    """What is decoded by hand all the same is what the library decodes."""
    data, line = _written(11, kind, version, content, 2)
    for damaged in _damaged(data, random.Random(version)):
        if own_records(damaged, ENTRY_BLOCK_BYTES_MAX, ENTRIES_MAX) is not None:
            found: Any = None
            with suppress(FatalError):
                found = read_manifest(damaged, line)
            assert found is None or found == _by_library(damaged, line)
        references = own_references(damaged, ENTRY_BLOCK_BYTES_MAX, ENTRIES_MAX)
        assert (references is None) == (own_records(damaged, ENTRY_BLOCK_BYTES_MAX, ENTRIES_MAX) is None)
        if references is not None:
            with suppress(
                FatalError
            ):  # of bounds that are none, which who reads references alone passes over
                assert references == _named(_by_library(damaged, line))


def test_other_schemas_are_left_to_the_library() -> None:
    """Also one that differs in a letter."""
    data, line = _written(5, "hour", 2, 0, 2)
    other = data.replace(b'"file_format"', b'"file_farmat"')
    assert own_records(other, ENTRY_BLOCK_BYTES_MAX, ENTRIES_MAX) is None
    with pytest.raises(FatalError, match="file_format"):
        read_manifest(other, line)
    assert own_records(container('"int"', [b"\x02"], {}), ENTRY_BLOCK_BYTES_MAX, ENTRIES_MAX) is None
    assert own_records(b"PAR1", ENTRY_BLOCK_BYTES_MAX, ENTRIES_MAX) is None


@pytest.mark.parametrize("version", [2, ROW_LINEAGE])
def test_lists_are_those_that_the_library_reads(version: int) -> None:
    """In memory as well, and of many manifests."""
    summary = {"contains_null": True, "contains_nan": None, "lower_bound": b"", "upper_bound": None}
    _, line = _written(1, "hour", version, 0, 1)
    lines = [
        replace(line, uri=f"file:///t/é{at}.avro", partitions=partitions, added_rows=2**40)
        for at, partitions in enumerate([None, [], [summary]] * 60)
    ]
    if version == ROW_LINEAGE:
        lines[3] = replace(lines[3], first_row_id=5)
    found = ManifestList.of(lines, version)
    data = write_manifest_list(found, snapshot_id=1, parent_id=None, sequence_number=4)
    assert lake.manifest_list._read_own(data) == lines == read_manifest_list(data) == list(found)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lake.manifest_list, "_read_own", lambda *_: None)
        assert read_manifest_list(data) == lines
    draws = random.Random(version)
    short = write_manifest_list(
        ManifestList.of(lines[:4], version), snapshot_id=1, parent_id=None, sequence_number=4
    )
    for damaged in _damaged(short, draws):
        own = lake.manifest_list._read_own(damaged)
        if own is not None:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(lake.manifest_list, "_read_own", lambda *_: None)
                assert read_manifest_list(damaged) == own


def test_lines_that_lists_share_are_decoded_once() -> None:
    """A line that says something else of the same manifest is read as it is."""
    _, line = _written(1, "hour", 2, 0, 1)
    lines = [replace(line, uri=f"file:///t/{at}.avro") for at in range(3)]
    changed = [replace(lines[0], added_rows=77), *lines[1:]]
    first, second = (
        write_manifest_list(ManifestList.of(each), snapshot_id=1, parent_id=None, sequence_number=4)
        for each in (lines, changed)
    )
    known: Lines = {}
    before = read_manifest_list(first, known)
    after = read_manifest_list(second, known)
    assert (before, after) == (lines, changed)
    assert [one is other for one, other in zip(before, after, strict=True)] == [False, True, True]


def test_more_records_than_a_manifest_may_have_are_not_held_together() -> None:
    """Whoever may write a table's files could else have some hundred megabytes of the shortest records made
    objects before they are counted."""
    data, line = _written(1, "hour", 2, 0, 40)
    assert own_records(data, ENTRY_BLOCK_BYTES_MAX, 40) is not None
    assert own_records(data, ENTRY_BLOCK_BYTES_MAX, 39) is None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lake.manifest, "ENTRIES_MAX", 39)
        with pytest.raises(TooLargeError, match="holds more than 39 files"):
            read_manifest(data, line)
