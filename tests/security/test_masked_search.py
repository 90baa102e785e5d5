"""The search for masked bytes finds what is there, wherever it lies."""

import gzip
import os
from io import BytesIO
from pathlib import Path

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.security.support.masked_bytes import masked_bytes_found

SECRET = b"hunter2secret"


def _parquet() -> bytes:
    table = pa.table({"a": [f"x{at}" for at in range(100)], "l": [[{"v": SECRET.decode()}]] * 100})
    file = BytesIO()
    pq.write_table(table, file, compression="zstd", write_statistics=False)
    return file.getvalue()


def _avro() -> bytes:
    schema = {"type": "record", "name": "r", "fields": [{"name": "b", "type": "bytes"}]}
    file = BytesIO()
    fastavro.writer(file, schema, [{"b": SECRET}] * 100, codec="deflate")
    return file.getvalue()


@pytest.mark.parametrize(
    ("name", "data", "times"),
    [
        ("plain.log", b"a " + SECRET + b" b " + SECRET, 2),
        ("columns.parquet", _parquet(), 100),
        ("manifest.avro", _avro(), 100),
        ("metadata.json.gz", gzip.compress(SECRET, mtime=0), 1),
        ("archive.zst", pa.compress(SECRET, "zstd", asbytes=True), 1),
        (f"{SECRET.decode()}.txt", b"", 1),
        ("others", b"hunter2", 0),
    ],
)
def test_bytes_in_files_are_counted(tmp_path: Path, name: str, data: bytes, times: int) -> None:
    """In folders of the folder, compressed or not, and in the name; twice where they lie plain in a
    compressed file."""
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / name).write_bytes(data)
    found = masked_bytes_found([SECRET, b"absent"], [tmp_path])
    assert times * len(SECRET) <= found <= 2 * times * len(SECRET)


def test_what_was_written_before_is_passed_over(tmp_path: Path) -> None:
    """By the time of the last write, so that a log counts that is written on."""
    for name, written_s in (("before", 1_000), ("since", 2_000)):
        (tmp_path / name).write_bytes(SECRET)
        os.utime(tmp_path / name, (written_s, written_s))
    assert masked_bytes_found([SECRET], [tmp_path], since_s=2_000) == len(SECRET)


def test_bytes_in_messages_are_counted() -> None:
    """In keys, values, names and values of headers."""
    messages = [(SECRET, SECRET, [(SECRET.decode(), SECRET), ("none", None)]), (None, None, [])]
    assert masked_bytes_found([SECRET], messages=messages) == 4 * len(SECRET)
