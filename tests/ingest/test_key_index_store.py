"""The folder of key indexes: what is lost is made again, within a number of bytes, by several processes."""

import errno
import multiprocessing
import os
import stat
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ingest.keys import key_index_file
from ingest.keys.key_hash import hash_keys
from ingest.keys.key_index_file import HEADER_BYTES, ROW_BYTES, KeyIndex, make_index, open_index, write_index
from ingest.keys.key_index_store import LEFT_BEHIND_S, OPEN_MAX, KeyedFile, KeyIndexStore
from ingest.model.trouble import NEVER_PARKED, Cause, trouble_of
from lake.errors import NotFoundError, PrerequisiteError, ProtocolError, UnavailableError
from lake.storage import LocalStorage
from tests.ingest.support.fake_clock import START, FakeClock
from tests.ingest.support.keyed_files import TABLE, Key, KeyedFiles, key_columns

BUDGET = 1_000_000
ROWS = 10
KEYS: list[Key] = [(at, f"n{at}") for at in range(ROWS)]


@pytest.fixture
def table(tmp_path: Path) -> KeyedFiles:
    (tmp_path / "table").mkdir()
    return KeyedFiles(tmp_path / "table")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "indexes"


def store_in(folder: Path, bytes_max: int = BUDGET, open_max: int = OPEN_MAX) -> KeyIndexStore:
    return KeyIndexStore(LocalStorage(), folder, bytes_max, open_max=open_max)


def rows_of(index: KeyIndex, keys: list[Key]) -> list[tuple[int, int]]:
    found = index.find(hash_keys(key_columns(keys)))
    return sorted(zip(found[0].tolist(), found[1].tolist(), strict=True))


ALL_ROWS = [(at, at) for at in range(ROWS)]


def test_an_index_is_made_from_the_data_file_once_and_found_after_a_restart(
    table: KeyedFiles, folder: Path
) -> None:
    file = table.write(KEYS)
    first = store_in(folder)
    assert rows_of(first.index_of(file), KEYS) == ALL_ROWS
    assert first.index_of(file) is first.index_of(file)
    assert (first.counts.made, first.counts.found) == (1, 0)
    second = store_in(folder)
    assert rows_of(second.index_of(file), KEYS) == ALL_ROWS
    assert (second.counts.made, second.counts.found) == (0, 1)


def test_the_index_of_a_file_just_written_needs_no_reading(table: KeyedFiles, folder: Path) -> None:
    file = KeyedFile(TABLE, "s3://nowhere/1.parquet", 5, (2, 1))
    store = store_in(folder)
    store.put(file, hash_keys(key_columns(KEYS)))
    assert rows_of(store.index_of(file), KEYS) == ALL_ROWS
    assert rows_of(store_in(folder).index_of(file), KEYS) == ALL_ROWS


def test_folder_and_files_are_private(table: KeyedFiles, folder: Path) -> None:
    folder.mkdir(mode=0o755)
    store_in(folder).index_of(table.write(KEYS))
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert [stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()] == [0o600]


def test_what_is_damaged_is_made_again(table: KeyedFiles, folder: Path) -> None:
    file = table.write(KEYS)
    store_in(folder).index_of(file)
    (path,) = folder.iterdir()
    content = path.read_bytes()
    for damage in (b"", content[:-1], content[:-1] + b"\x7f", b"PAR1", content[: HEADER_BYTES - 10]):
        path.write_bytes(damage)
        store = store_in(folder)
        assert rows_of(store.index_of(file), KEYS) == ALL_ROWS
        assert (store.counts.damaged, store.counts.made) == (1, 1)
        assert path.read_bytes() == content


def test_the_index_of_another_file_in_its_place_is_made_again(table: KeyedFiles, folder: Path) -> None:
    one, other = table.write(KEYS), table.write(KEYS[::-1])
    store_in(folder).index_of(one)
    (path,) = folder.iterdir()
    foreign = make_index(hash_keys(key_columns(KEYS[::-1])))
    write_index(path, foreign, other.identity())
    assert rows_of(store_in(folder).index_of(one), KEYS) == ALL_ROWS


def test_another_table_uri_size_or_key_is_another_index(table: KeyedFiles, folder: Path) -> None:
    file = table.write(KEYS)
    others = [
        replace(file, table_uuid=UUID(int=8)),
        replace(file, uri=f"{file.uri}x"),
        replace(file, size_bytes=file.size_bytes + 1),
        replace(file, key_ids=(1, 2)),
        replace(file, key_ids=(2,)),
    ]
    assert len({other.identity() for other in [file, *others]}) == 1 + len(others)
    assert replace(file, uri=file.uri.replace("file:///", "file:/")).identity() == file.identity()


def test_a_widened_key_finds_the_rows_of_older_files(table: KeyedFiles, folder: Path) -> None:
    file = table.write(KEYS, pa.int32())
    assert rows_of(store_in(folder).index_of(file), KEYS) == ALL_ROWS


def test_a_renamed_column_is_found_by_its_field_id(table: KeyedFiles, folder: Path) -> None:
    file = table.write(KEYS)
    path = Path(file.uri.removeprefix("file://"))
    rows = pq.read_table(path)
    pq.write_table(rows.rename_columns(["id", "name", "a.b"]), path)
    assert pq.read_schema(path).field(0).metadata == {b"PARQUET:field_id": b"1"}
    assert rows_of(store_in(folder).index_of(file), KEYS) == ALL_ROWS


def test_a_file_without_the_key_is_refused_by_name(table: KeyedFiles, folder: Path) -> None:
    """As if all its keys were NULL, one change would remove all its rows."""
    file = replace(table.write(KEYS), key_ids=(2, 77))
    with pytest.raises(ProtocolError, match=r"0\.parquet has no column with the field id 77"):
        store_in(folder).index_of(file)


def test_a_data_file_that_is_gone_or_no_parquet_is_said_to_be(table: KeyedFiles, folder: Path) -> None:
    file = table.write(KEYS)
    path = Path(file.uri.removeprefix("file://"))
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(ProtocolError, match="cannot be read as Parquet"):
        store_in(folder).index_of(file)
    path.unlink()
    with pytest.raises(NotFoundError):
        store_in(folder).index_of(file)


def test_a_damaged_page_is_no_index(table: KeyedFiles, folder: Path) -> None:
    file = table.write(KEYS, group=ROWS)
    path = Path(file.uri.removeprefix("file://"))
    content = bytearray(path.read_bytes())
    content[4:40] = b"\xff" * 36
    path.write_bytes(content)
    with pytest.raises(ProtocolError, match="cannot be read as Parquet"):
        store_in(folder).index_of(file)
    assert not list(folder.glob("*.keys"))


def test_an_empty_data_file_has_an_empty_index(table: KeyedFiles, folder: Path) -> None:
    file = table.write([])
    assert rows_of(store_in(folder).index_of(file), KEYS) == []
    assert len(store_in(folder).index_of(file)) == 0


def test_the_folder_stays_within_its_bytes_and_keeps_what_was_used_last(
    table: KeyedFiles, folder: Path
) -> None:
    each = HEADER_BYTES + ROW_BYTES * ROWS
    store = store_in(folder, 4 * each)
    files = [table.write(KEYS) for _ in range(4)]
    for at, file in enumerate(files[:3]):
        store.index_of(file)
        _used_at(folder, at)
    kept = store.index_of(files[0])  # used again: the second is the oldest now
    for file in [files[3], table.write(KEYS)]:
        store.index_of(file)
        assert _held(folder) <= 4 * each
    assert store.counts.removed > 0
    assert rows_of(kept, KEYS) == ALL_ROWS
    again = store_in(folder, 4 * each)
    again.index_of(files[0])
    assert again.counts.found == 1
    again.index_of(files[1])
    assert again.counts.made == 1


def _held(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())


def _used_at(folder: Path, s: int) -> None:
    """The newest file was used so many seconds after 1970; the others keep their time."""
    newest = max(folder.iterdir(), key=lambda path: path.stat().st_mtime_ns)
    os.utime(newest, (s, s))


def test_an_index_larger_than_all_bytes_is_made_and_used_nevertheless(
    table: KeyedFiles, folder: Path
) -> None:
    store = store_in(folder, 0)
    for file in [table.write(KEYS), table.write(KEYS)]:
        assert rows_of(store.index_of(file), KEYS) == ALL_ROWS
        assert len(list(folder.iterdir())) == 1


def test_few_indexes_are_open_at_once(table: KeyedFiles, folder: Path) -> None:
    store = store_in(folder, open_max=2)
    files = [table.write(KEYS) for _ in range(4)]
    for file in files * 2:
        assert rows_of(store.index_of(file), KEYS) == ALL_ROWS
    assert (store.counts.made, store.counts.found) == (4, 4)


def test_what_is_forgotten_is_gone_from_the_disk(table: KeyedFiles, folder: Path) -> None:
    store = store_in(folder)
    files = [table.write(KEYS) for _ in range(3)]
    other = replace(files[0], table_uuid=UUID(int=8))
    for file in [*files, other]:
        store.index_of(file)
    store.forget(files[0])
    store.forget(files[0])
    assert len(list(folder.iterdir())) == 3
    store.index_of(files[0])
    assert store.counts.made == 5


def test_what_a_dead_process_left_half_written_is_removed_after_an_hour(
    table: KeyedFiles, folder: Path
) -> None:
    clock = FakeClock()
    store = KeyIndexStore(LocalStorage(), folder, 0, clock=clock)
    left, young = folder / ".tmp-left", folder / ".tmp-young"
    now_s = clock.now().timestamp()
    for path, written_s in ((left, now_s - LEFT_BEHIND_S - 1), (young, now_s)):
        path.write_bytes(b"half")
        os.utime(path, (written_s, written_s))
    store.index_of(table.write(KEYS))
    assert (left.exists(), young.exists()) == (False, True)
    assert START.timestamp() < now_s


def test_a_folder_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(UnavailableError, match="file"):
        store_in(tmp_path / "file")


def test_a_folder_of_another_user_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also by a symbolic link to it: who may exchange an index decides which rows a change replaces."""
    folder.mkdir(mode=0o777)
    link = folder.with_name("link")
    link.symlink_to(folder)
    monkeypatch.setattr(os, "geteuid", lambda: folder.stat().st_uid + 1)
    for path in (folder, link):
        with pytest.raises(PrerequisiteError, match=r"key_index\.folder"):
            store_in(path)


def test_a_symbolic_link_in_place_of_an_index_is_not_followed(table: KeyedFiles, folder: Path) -> None:
    """What it names stays, and the index takes its place."""
    file = table.write(KEYS)
    store_in(folder).index_of(file)
    (path,) = folder.iterdir()
    path.unlink()
    other = folder.with_name("other")
    other.write_bytes(b"theirs")
    path.symlink_to(other)
    store = store_in(folder)
    assert rows_of(store.index_of(file), KEYS) == ALL_ROWS
    assert (store.counts.damaged, other.read_bytes(), path.is_symlink()) == (1, b"theirs", False)


def test_a_full_disk_is_nobodys_fault(
    table: KeyedFiles, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sentence says what to do; no table is parked for it, and nothing half written is left."""
    file, store = table.write(KEYS), store_in(folder)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(key_index_file, "_header", full)
        with pytest.raises(PrerequisiteError, match="is full; free space") as told:
            store.index_of(file)
    assert trouble_of(told.value, Cause.STORAGE).cause in NEVER_PARKED
    assert list(folder.iterdir()) == []
    assert rows_of(store.index_of(file), KEYS) == ALL_ROWS


@pytest.mark.parametrize("umask", [0, 0o077])
def test_indexes_are_private_whatever_the_umask(table: KeyedFiles, folder: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        store_in(folder).index_of(table.write(KEYS))
    finally:
        os.umask(before)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert [stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()] == [0o600]


FILE = KeyedFile(TABLE, "file:///nowhere/1.parquet", 5, (2, 1))
RACED_ROWS, RACES = 2_000, 60


def _raced() -> KeyIndex:
    return make_index(hash_keys([pa.array(np.arange(RACED_ROWS))]))


def _race(folder: Path) -> None:
    index = _raced()
    for _ in range(RACES):
        write_index(folder / "one.keys", index, FILE.identity())


@pytest.mark.long
def test_two_processes_that_make_the_same_index_never_show_half_of_it(tmp_path: Path) -> None:
    """Whoever opens it sees none or a whole one, at any moment."""
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=_race, args=(tmp_path,)) for _ in range(2)]
    seen = 0
    for writer in writers:
        writer.start()
    try:
        while any(writer.is_alive() for writer in writers):
            index = open_index(tmp_path / "one.keys", FILE.identity())
            assert index is None or isinstance(index, KeyIndex), index
            seen += index is not None
            writers[0].join(0.001)
    finally:
        for writer in writers:
            writer.kill()
            writer.join()
    assert [writer.exitcode for writer in writers] == [0, 0]
    assert seen
    assert os.listdir(tmp_path) == ["one.keys"]
    last = open_index(tmp_path / "one.keys", FILE.identity())
    assert isinstance(last, KeyIndex)
    assert np.array_equal(last.hashes.low, _raced().hashes.low)
