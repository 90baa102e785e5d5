"""The index of one data file: what it finds, and that nothing damaged or foreign is trusted."""

import os
import stat
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.keys.key_hash import HASH_VERSION, KeyHashes
from ingest.keys.key_index_file import (
    HEADER_BYTES,
    ROW_BYTES,
    KeyIndex,
    Unusable,
    make_index,
    open_index,
    write_index,
)

IDENTITY = b"i" * 32
# Few values of each half: the same key, and keys that have only one half in common, occur often.
KEYS = st.lists(st.tuples(st.sampled_from([0, 1, 2**63, 2**64 - 1]), st.integers(0, 2)), max_size=25)
Key = tuple[int, int]


def hashes_of(keys: list[Key]) -> KeyHashes:
    return KeyHashes(
        np.array([key[0] for key in keys], np.uint64), np.array([key[1] for key in keys], np.uint64)
    )


def pairs(index: KeyIndex, sought: list[Key]) -> list[tuple[int, int]]:
    keys, rows = index.find(hashes_of(sought))
    return sorted(zip(keys.tolist(), rows.tolist(), strict=True))


@given(KEYS, KEYS)
def test_all_rows_of_a_key_are_found_and_no_others(keys: list[Key], sought: list[Key]) -> None:
    index = make_index(hashes_of(keys))
    expected = [(at, row) for at, key in enumerate(sought) for row, held in enumerate(keys) if key == held]
    assert pairs(index, sought) == expected
    assert index.doubled == sum(keys.count(key) > 1 for key in keys)


@given(keys=KEYS)
def test_a_mapped_index_is_the_one_that_was_written(
    tmp_path_factory: pytest.TempPathFactory, keys: list[Key]
) -> None:
    path = tmp_path_factory.mktemp("index") / "one.keys"
    write_index(path, make_index(hashes_of(keys)), IDENTITY)
    assert path.stat().st_size == HEADER_BYTES + ROW_BYTES * len(keys)
    index = open_index(path, IDENTITY)
    assert isinstance(index, KeyIndex)
    sought = sorted(set(keys))
    expected = [(at, row) for at, key in enumerate(sought) for row, held in enumerate(keys) if key == held]
    assert pairs(index, sought) == expected
    index.let_go()
    assert pairs(index, sought) == expected
    assert (len(index), index.doubled) == (len(keys), sum(keys.count(key) > 1 for key in keys))


def test_a_million_rows_of_one_key_are_found_as_any_others() -> None:
    keys = KeyHashes(np.full(1_000_000, 5, np.uint64), np.full(1_000_000, 6, np.uint64))
    index = make_index(keys)
    assert index.doubled == 1_000_000
    assert len(index.find(hashes_of([(5, 6), (5, 7)]))[0]) == 1_000_000


@pytest.fixture
def written(tmp_path: Path) -> Path:
    path = tmp_path / "one.keys"
    write_index(path, make_index(hashes_of([(9, 1), (3, 1), (4, 1), (4, 2)])), IDENTITY)
    return path


def test_only_its_owner_reads_it_and_nothing_else_is_left_in_the_folder(written: Path) -> None:
    assert stat.S_IMODE(written.stat().st_mode) == 0o600
    assert os.listdir(written.parent) == [written.name]


def test_what_could_not_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "one.keys").mkdir()
    with pytest.raises(IsADirectoryError):
        write_index(tmp_path / "one.keys", make_index(hashes_of([(1, 1)])), IDENTITY)
    assert os.listdir(tmp_path) == ["one.keys"]


def test_any_changed_byte_is_noticed(written: Path) -> None:
    """But for the last four of the header, which nobody reads."""
    content = written.read_bytes()
    for at in range(len(content)):
        changed = bytearray(content)
        changed[at] ^= 0x40
        written.write_bytes(changed)
        assert isinstance(open_index(written, IDENTITY), Unusable) or HEADER_BYTES - 4 <= at < HEADER_BYTES


def test_any_other_length_is_noticed(written: Path) -> None:
    content = written.read_bytes()
    for length in range(len(content)):
        written.write_bytes(content[:length])
        assert isinstance(open_index(written, IDENTITY), Unusable)
    written.write_bytes(content + b"\0")
    assert isinstance(open_index(written, IDENTITY), Unusable)


def test_the_index_of_another_data_file_is_not_taken(written: Path) -> None:
    assert open_index(written, b"j" * 32) == Unusable("it is the index of another data file")


def forged(*, version: int = 1, rows: int = 2, high: tuple[int, int] = (1, 2), row: int = 1) -> bytes:
    """An index whose CRCs are right, whatever it says."""
    body = struct.pack("<4Q2I", *high, 0, 0, 0, row)
    header = struct.pack(
        "<8sHHIQQ32s", b"firnkeys", version, HASH_VERSION, zlib.crc32(body), rows, 0, IDENTITY
    )
    return header + struct.pack("<II", zlib.crc32(header), 0) + body


@pytest.mark.parametrize(
    "content",
    [
        forged(version=2),
        forged(rows=3),
        forged(rows=2**60),
        forged(high=(2, 1)),
        forged(row=2),
        b"",
        b"PAR1" * 100,
    ],
    ids=["version", "rows", "many rows", "order", "row number", "empty", "something else"],
)
def test_what_its_crc_does_not_show_is_looked_at_too(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "one.keys"
    path.write_bytes(content)
    assert isinstance(open_index(path, IDENTITY), Unusable)


def test_the_forged_index_is_right_where_nothing_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "one.keys").write_bytes(forged())
    assert isinstance(open_index(tmp_path / "one.keys", IDENTITY), KeyIndex)


def test_links_pipes_and_folders_are_no_index(written: Path) -> None:
    folder = written.parent
    (folder / "link").symlink_to(written)
    os.mkfifo(folder / "pipe")
    (folder / "folder").mkdir()
    for name in ("link", "pipe", "folder"):
        assert isinstance(open_index(folder / name, IDENTITY), Unusable)
    assert open_index(folder / "absent", IDENTITY) is None
