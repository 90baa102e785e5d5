"""By what columns of merged files are encoded, and with which zstd level."""

import random
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lake.log_schema import LogSchema
from lake.settings import OptimizeSettings
from lake.storage import local_path, open_storage
from optimize.column_encodings import QUICK_LEVEL, ColumnEncoding, encoding_of
from optimize.compaction import write_file
from optimize.merge_job import FileLayout

ROWS = 5_000
LEVEL = 10
DRAWS = random.Random(1)
TEMPLATES = (
    "order {} was refused, as no store has so many of article {} left at this hour of the day",
    "connection {} of client {} was closed by the peer before the answer was sent in full",
    "worker {} took over the shard {} from its predecessor and goes on where that had stopped",
)
START = datetime(2026, 11, 20, tzinfo=UTC)


def ids() -> list[str]:
    return [uuid.UUID(int=DRAWS.getrandbits(128), version=4).hex for _ in range(ROWS)]


def moments() -> list[str]:
    """Ascending times as shippers write them."""
    steps = [DRAWS.randrange(1, 2_000_000) for _ in range(ROWS)]
    return [(START + timedelta(microseconds=sum(steps[:at]))).isoformat() for at in range(ROWS)]


def sentences() -> list[str]:
    return [DRAWS.choice(TEMPLATES).format(at, DRAWS.randrange(1_000)) for at in range(ROWS)]


def chosen(values: list[Any], kind: str = "string", **how: Any) -> ColumnEncoding:
    column = pa.chunked_array([pa.array(values, pa.string() if kind == "string" else pa.int64())])
    return encoding_of(kind, column, LEVEL, **{"delta_text": True} | how)


def test_text_that_repeats_has_a_dictionary() -> None:
    """Its level is the quick one where the places in it are most of it: those nothing makes smaller."""
    few = [f"service-{DRAWS.randrange(40)}" for _ in range(ROWS)]
    long = [each * 5 for each in sentences()[: ROWS // 4]]
    assert chosen(few) == ColumnEncoding(None, QUICK_LEVEL)
    assert chosen([DRAWS.choice(long) for _ in range(ROWS)]) == ColumnEncoding(None, LEVEL)


def test_ids_are_encoded_by_their_lengths_and_compressed_quickly() -> None:
    """Hex digits of random ids are four bits each, whatever the level."""
    assert chosen(ids()) == ColumnEncoding("DELTA_LENGTH_BYTE_ARRAY", QUICK_LEVEL)


def test_times_as_text_share_their_beginnings() -> None:
    """Each is written by how much it shares with the one before."""
    assert chosen(moments()).encoding == "DELTA_BYTE_ARRAY"


def test_text_that_is_all_different_gets_the_level_that_it_pays_for() -> None:
    """Sentences have no dictionary and are compressed as the layout says."""
    assert chosen(sentences()) == ColumnEncoding("PLAIN", LEVEL)


def test_deltas_of_text_have_to_be_asked_for() -> None:
    """Readers that do not know them get PLAIN."""
    for each in (ids(), moments()):
        assert encoding_of("string", pa.chunked_array([pa.array(each)]), LEVEL).encoding == "PLAIN"
    assert not FileLayout().delta_text
    assert not OptimizeSettings().merge.delta_text


def test_dictionaries_can_be_forbidden() -> None:
    """A table may say so of a column."""
    assert chosen(["a", "b"] * ROWS, dictionary=False).encoding != chosen(["a", "b"] * ROWS).encoding


def test_whole_numbers_and_times_are_deltas() -> None:
    """Of every length."""
    for kind in ("long", "int", "timestamptz", "timestamp"):
        assert chosen([1, 2, 3], kind) == ColumnEncoding("DELTA_BINARY_PACKED", LEVEL)


@pytest.mark.parametrize("values", [[], [None], [None] * ROWS, [""], ["", None] * ROWS, ["é" * 40_000]])
def test_what_says_little_is_encoded_all_the_same(values: list[str | None]) -> None:
    """No value, NULLs, empty and very long texts."""
    assert 1 <= chosen(values).zstd_level <= LEVEL


def test_a_level_below_the_quick_one_is_kept() -> None:
    """A table that wants little CPU gets it."""
    column = pa.chunked_array([pa.array(ids())])
    assert encoding_of("string", column, 1).zstd_level == 1


def test_a_file_has_the_encodings_that_were_chosen(tmp_path: Any) -> None:
    """Read back, it has the rows; without the choice it would be larger by more than a tenth."""
    values = {"id": ids(), "at": moments(), "text": sentences(), "few": ["a", "b"] * (ROWS // 2)}
    fields = [
        {"id": at, "name": name, "required": False, "type": "string"} for at, name in enumerate(values, 1)
    ]
    rows = pa.table(values, schema=LogSchema({"fields": fields}).arrow)
    layout = FileLayout(zstd_level=LEVEL, token_filter=False, delta_text=True)
    file = write_file(open_storage(), f"file://{tmp_path}/a.parquet", 0, rows, fields, layout)
    path = local_path(file.uri)
    group = pq.read_metadata(path).row_group(0)
    found = {group.column(at).path_in_schema: group.column(at).encodings for at in range(len(values))}
    assert "DELTA_LENGTH_BYTE_ARRAY" in found["id"]
    assert "DELTA_BYTE_ARRAY" in found["at"]
    assert "RLE_DICTIONARY" in found["few"]
    assert "RLE_DICTIONARY" not in found["text"]
    assert pq.read_table(path).equals(rows.cast(pq.read_schema(path)))
    usual = pa.BufferOutputStream()
    pq.write_table(rows, usual, compression="zstd", compression_level=3, store_schema=False)
    assert file.size_bytes < 0.9 * usual.tell()
