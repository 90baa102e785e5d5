"""A manifest list that grows by a line with every commit, and is kept for every table of a node."""

import random
from pathlib import Path

import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import read_manifest_list as theirs

from lake.avro import read_container
from lake.errors import ProtocolError
from lake.manifest_list import ManifestFile, ManifestList, read_manifest_list, write_manifest_list

KEPT_BYTES_MAX = 9 * 1024


def _line(number: int) -> ManifestFile:
    """As different from one another as the lines of a table are: by the random id of the snapshot in the name
    of the file, and by counts."""
    snapshot_id = number * 7_919 * 10**14 % 2**63
    hour = (494_000 + number).to_bytes(4, "little")
    summary = {"contains_null": False, "contains_nan": False, "lower_bound": hour, "upper_bound": hour}
    uri = f"s3://bucket/warehouse/9b/9b112de8-cf39-45ef-a5a3-79fba948f64b/metadata/{snapshot_id:016x}-m0.avro"
    return ManifestFile(
        uri, 7_000 + number, 0, 0, number, number, snapshot_id, 1, 0, 0, 20 * number, 0, 0, [summary]
    )


@pytest.mark.parametrize("count", [0, 1, 20, 200])
def test_list_that_has_grown_is_the_list_of_all(count: int, tmp_path: Path) -> None:
    """Line by line or at once, small or deflated: the same lines in the same order, for us and for
    PyIceberg."""
    lines = [_line(number) for number in range(count)]
    grown = ManifestList()
    for line in reversed(lines):
        grown = grown.after([line])
    assert grown == ManifestList.of(lines)
    assert (len(grown), list(grown)) == (count, lines)
    if lines:
        assert (grown[0], grown[-1], grown[1:3]) == (lines[0], lines[-1], tuple(lines[1:3]))
    path = tmp_path / "list.avro"
    path.write_bytes(write_manifest_list(grown, snapshot_id=5, parent_id=4, sequence_number=count))
    assert read_manifest_list(path.read_bytes()) == lines
    listed = [
        (one.manifest_path, one.manifest_length)
        for one in theirs(PyArrowFileIO().new_input(f"file://{path}"))
    ]
    assert listed == [(line.uri, line.length) for line in lines]


def test_lists_of_many_tables_take_little_memory() -> None:
    """A node has one for each of its tables, with a line for every commit since the last maintenance; objects
    would take a kilobyte for each line."""
    for count in (30, 60, 120):
        assert len(ManifestList.of(_line(number) for number in range(count)).block.stored) < KEPT_BYTES_MAX


@pytest.mark.long
@pytest.mark.parametrize("count", [3, 200], ids=["plain", "deflated"])
def test_damaged_list_is_told_as_such(count: int) -> None:
    """Whatever bits of the file are wrong or missing: one kind of error, which concerns this table alone."""
    whole = write_manifest_list(
        ManifestList.of(map(_line, range(count))), snapshot_id=5, parent_id=4, sequence_number=count
    )
    draws, refused = random.Random(1), 0
    for _ in range(1_000):
        damaged = bytearray(whole)
        damaged[draws.randrange(len(whole))] ^= 1 << draws.randrange(8)
        try:
            list(
                read_container(
                    bytes(damaged if draws.random() < 0.7 else damaged[: draws.randrange(len(whole))]),
                    "manifest list",
                )
            )
        except ProtocolError:
            refused += 1
    assert refused > 500
