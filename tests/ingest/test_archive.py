"""Files of an archive: which ones a pattern names, and the records of each kind."""

import base64
import bz2
import gzip
import io
import os
from collections.abc import Iterator
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from infra.local.supervisor import Stack
from ingest.backfill import archive_reader
from ingest.backfill.archive import UnusableFileError, current, find_files
from ingest.backfill.archive_reader import read_batches
from lake.backfill_mark import source_id
from lake.errors import NotFoundError, SettingsError
from lake.settings import StorageSettings
from lake.storage import AnyStorage

LOCAL = AnyStorage(StorageSettings())
LINES = b'{"a":1}\r\nline two\n\n  \nlast, without end'
RECORDS = [(0, b'{"a":1}'), (1, b"line two"), (2, None), (3, None), (4, b"last, without end")]


def _put(folder: Path, *names: str) -> None:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(LINES)


def _records(path: Path | str, storage: AnyStorage = LOCAL) -> list[tuple[int, bytes | None]]:
    (file,) = find_files([str(path)], storage)
    return [each for batch in read_batches(file, storage) for each in enumerate(batch.values, batch.first)]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("a.gz", ["a.gz"]),
        ("*.gz", ["a.gz", "b.gz"]),
        ("?.log", ["c.log"]),
        ("**/*.gz", ["a.gz", "b.gz", "x/c.gz", "x/y/d.gz"]),
        ("x/**", ["x/c.gz", "x/y/d.gz", "x/y/e[1].log"]),
        ("x/*/*.gz", ["x/y/d.gz"]),
        ("[ac].*", ["a.gz", "c.log"]),
        ("[!a].gz", ["b.gz"]),
        ("x/y/e[1].log", ["x/y/e[1].log"]),
        ("*/c.gz", ["x/c.gz"]),
    ],
)
def test_pattern_names_files(tmp_path: Path, pattern: str, expected: list[str]) -> None:
    """Wild characters stay within a name, two stars go through folders, and a name that holds wild characters
    is found as it is."""
    _put(tmp_path, "a.gz", "b.gz", "c.log", "x/c.gz", "x/y/d.gz", "x/y/e[1].log")
    for spelled in (f"{tmp_path}/{pattern}", f"file://{tmp_path}/{pattern}", f"file:{tmp_path}/{pattern}"):
        assert [
            file.uri.removeprefix(f"file://{tmp_path}/") for file in find_files([spelled], LOCAL)
        ] == expected


def test_files_of_several_patterns_come_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that two patterns name is read once; relative paths are of the working directory."""
    _put(tmp_path, "a.gz", "b.gz")
    monkeypatch.chdir(tmp_path)
    files = find_files(["*.gz", "a.gz", f"{tmp_path}/a.*"], LOCAL)
    assert [file.uri for file in files] == [f"file://{tmp_path}/a.gz", f"file://{tmp_path}/b.gz"]
    assert files[0].source == source_id(f"file:{tmp_path}/a.gz") != files[1].source
    assert files[0].size == len(LINES)


def test_pattern_that_names_nothing_is_an_error(tmp_path: Path) -> None:
    """Nothing found, a folder, an empty name: each says what to do."""
    _put(tmp_path, "x/a.gz")
    with pytest.raises(NotFoundError, match="no file matches"):
        find_files([f"{tmp_path}/x/a.gz", f"{tmp_path}/*.zip"], LOCAL)
    with pytest.raises(SettingsError, match=r"is a folder; write .*/x/\*\*"):
        find_files([f"{tmp_path}/x"], LOCAL)
    with pytest.raises(SettingsError, match="empty"):
        find_files([""], LOCAL)


def test_file_that_is_written_to_is_no_longer_current(tmp_path: Path) -> None:
    """Size or time of last change tell; so does its absence."""
    _put(tmp_path, "a", "b", "c")
    files = find_files([f"{tmp_path}/*"], LOCAL)
    assert [current(file, LOCAL) for file in files] == [True] * 3
    (tmp_path / "a").write_bytes(LINES + b"more")
    os.utime(tmp_path / "b", ns=(1, 1))
    (tmp_path / "c").unlink()
    assert [current(file, LOCAL) for file in files] == [False] * 3
    with pytest.raises(UnusableFileError, match="is gone"):
        list(read_batches(files[2], LOCAL))


@pytest.mark.parametrize(
    "packed",
    [
        LINES,
        gzip.compress(LINES),
        gzip.compress(LINES[:9]) + gzip.compress(LINES[9:]),
        zstandard.compress(LINES),
        zstandard.compress(LINES[:9]) + zstandard.compress(LINES[9:]),
    ],
    ids=["plain", "gzip", "gzip in parts", "zstd", "zstd in parts"],
)
def test_lines_are_numbered(tmp_path: Path, packed: bytes) -> None:
    """However a file is packed and whatever it is called: its lines in order, without their ends; blank ones
    have numbers too."""
    (tmp_path / "x").write_bytes(packed)
    assert _records(tmp_path / "x") == RECORDS
    (tmp_path / "x").write_bytes(b"")
    assert _records(tmp_path / "x") == []


@given(
    st.lists(st.sampled_from([b"a", b"bc ", b"\n", b"\r\n", b"\r", b" "])).map(b"".join), st.integers(1, 40)
)
def test_lines_are_the_same_wherever_reading_stops(text: bytes, at_once: int) -> None:
    """A line or its end may lie in several of the parts that are read."""
    expected = [line.rstrip(b"\r\n") if line.strip() else None for line in io.BytesIO(text)]
    assert [line for lines in archive_reader._lines(io.BytesIO(text), at_once) for line in lines] == expected


@pytest.mark.long
@pytest.mark.parametrize(
    "pack", [gzip.compress, zstandard.ZstdCompressor(write_checksum=True).compress], ids=["gzip", "zstd"]
)
def test_file_that_is_cut_off_is_told(tmp_path: Path, pack: Any) -> None:
    """Records come up to the damage, then an error that names the record; no half record."""
    lines = [b'{"n":%d,"x":"%s"}' % (n, os.urandom(20).hex().encode()) for n in range(20_000)]
    whole = pack(b"\n".join(lines))
    damaged = bytearray(whole)
    damaged[len(whole) // 2] ^= 0xFF
    for data in (whole[: len(whole) // 2], whole[:-1], bytes(damaged)):
        (tmp_path / "x").write_bytes(data)
        (file,) = find_files([str(tmp_path / "x")], LOCAL)
        found = list[bytes | None]()
        with pytest.raises(UnusableFileError, match="damaged or cut off") as raised:
            found.extend(value for batch in read_batches(file, LOCAL) for value in batch.values)
        assert f"beyond record {len(found) - 1} " in str(raised.value)
        assert len(found) > 5_000
        assert found == lines[: len(found)] or data == bytes(
            damaged
        )  # other bytes show by the checksum, at the end


def test_line_without_end_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of another kind, one line of gigabytes, does not fill the memory."""
    monkeypatch.setattr(archive_reader, "LINE_BYTES_MAX", 1_000)
    (tmp_path / "x").write_bytes(b"short\n" + b"x" * 998 + b"\n" + b"y" * 1_001)
    (file,) = find_files([str(tmp_path / "x")], LOCAL)
    with pytest.raises(UnusableFileError, match="line of more than 1,000 bytes at record 2"):
        list(read_batches(file, LOCAL))


def test_compression_that_is_not_known_gives_its_bytes(tmp_path: Path) -> None:
    """What is not recognised is read as lines: its bytes become dead letters, not nothing."""
    (tmp_path / "x.bz2").write_bytes(bz2.compress(LINES))
    assert b"".join(value or b"" for _, value in _records(tmp_path / "x.bz2")).startswith(b"BZh")


def test_rows_of_parquet_are_json_objects(tmp_path: Path) -> None:
    """Every kind of column, to the last digit; NULL is left out."""
    moment = datetime(2024, 3, 1, 10, 0, 0, 123456)  # noqa: DTZ001 - a time that names no zone
    columns: dict[str, Any] = {
        "ns": pa.array([1_709_290_800_123_456_789, None], pa.timestamp("ns", "Europe/Berlin")),
        "local": pa.array([moment, None], pa.timestamp("us")),
        "text": ["ü ☃", None],
        "word": pa.array(["a", "b"]).dictionary_encode(),
        "big": pa.array([2**64 - 1, 0], pa.uint64()),
        "decimal": pa.array([Decimal("12345678901234567890.10"), None], pa.decimal128(30, 2)),
        "float": pa.array([0.1, float("nan")]),
        "bytes": pa.array([b"plain", b"\xff"], pa.binary()),
        "day": pa.array([date(2024, 3, 1), None]),
        "span": pa.array([timedelta(seconds=1.5), None], pa.duration("us")),
        "nested": [{"at": [1, 2], "inf": float("inf")}, None],
        "map": pa.array([[("k", 1)], []], pa.map_(pa.string(), pa.int64())),
    }
    pq.write_table(pa.table(columns), tmp_path / "x", row_group_size=1)
    (_, first), (number, second) = _records(tmp_path / "x")
    assert first is not None
    assert second is not None
    assert b'"decimal":12345678901234567890.10' in first
    assert b'"inf":Infinity' in first
    told = orjson.loads(first.replace(b"Infinity", b"null"))
    assert told["ns"] == "2024-03-01T11:00:00.123456789Z"
    assert told["local"] == "2024-03-01T10:00:00.123456"
    assert (told["text"], told["word"], told["big"], told["float"]) == ("ü ☃", "a", 2**64 - 1, 0.1)
    assert (told["bytes"], told["day"], told["span"], told["map"]) == ("plain", "2024-03-01", 1.5, {"k": 1})
    assert told["nested"]["at"] == [1, 2]
    assert number == 1
    assert b'"float":NaN' in second
    other = orjson.loads(second.replace(b"NaN", b"null"))
    assert other == {
        "word": "b",
        "big": 0,
        "float": None,
        "bytes": base64.b64encode(b"\xff").decode(),
        "map": [],
    }


def test_parquet_that_is_damaged_is_told(tmp_path: Path) -> None:
    """A footer that is cut off, two columns of one name: an error, not some of the rows."""
    pq.write_table(pa.table({"a": [1, 2]}), tmp_path / "x")
    (tmp_path / "x").write_bytes((tmp_path / "x").read_bytes()[:-10])
    pq.write_table(pa.table([[1], [2]], names=["a", "a"]), tmp_path / "y")
    for name in "xy":
        with pytest.raises(UnusableFileError, match="cannot be read"):
            _records(tmp_path / name)


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AnyStorage]:
    """A storage that reaches an S3-compatible store."""
    with Stack(tmp_path_factory.mktemp("s3"), warehouse="s3://firn-warehouse/tables", tied=True) as stack:
        stack.start("s3")
        own = stack.environment()
        yield AnyStorage(
            StorageSettings.load(
                s3__endpoint=own["FIRN_STORAGE_S3__ENDPOINT"],
                s3__access_key_id=own["FIRN_STORAGE_S3__ACCESS_KEY_ID"],
                s3__secret_access_key=SecretStr(own["FIRN_STORAGE_S3__SECRET_ACCESS_KEY"]),
            )
        )


@pytest.mark.stack
def test_archive_on_s3(s3: AnyStorage, tmp_path: Path) -> None:
    """Objects are found by patterns, read by parts, and told apart by their etags."""
    root = "s3://firn-warehouse/archive"
    pq.write_table(pa.table({"n": range(1_000)}), tmp_path / "t", row_group_size=100)
    large = b"".join(b'{"n":%d}\n' % n for n in range(300_000))
    data = {
        "x/a.gz": gzip.compress(LINES),
        "x/y/b.zst": zstandard.compress(LINES),
        "t.parquet": (tmp_path / "t").read_bytes(),
        "large.json": large,
    }
    for name, content in data.items():
        s3.write(f"{root}/{name}", content)
    assert [
        file.uri for file in find_files([f"{root}/**/*.gz", "s3a://firn-warehouse/archive/x/**"], s3)
    ] == [f"{root}/x/a.gz", f"{root}/x/y/b.zst"]
    assert _records(f"{root}/x/a.gz", s3) == _records(f"{root}/x/y/b.zst", s3) == RECORDS
    assert _records(f"{root}/t.parquet", s3) == [(n, b'{"n":%d}' % n) for n in range(1_000)]
    assert _records(f"{root}/large.json", s3)[-1] == (299_999, b'{"n":299999}')
    (file,) = find_files([f"{root}/large.json"], s3)
    assert current(file, s3)
    s3.write(f"{root}/large.json", large[::-1])
    assert not current(file, s3)
