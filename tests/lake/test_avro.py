"""What we write as Avro is what fastavro reads."""

import io
from typing import Any

import fastavro
from hypothesis import given
from hypothesis import strategies as st

from lake.avro import (
    BLOCK_BYTES,
    array,
    blob,
    container,
    integer,
    optional_blob,
    optional_blobs,
    optional_integer,
    optional_numbers,
    schema_json,
    text,
)

LONGS = st.integers(-(2**63), 2**63 - 1)


def _pairs(value: str) -> dict[str, Any]:
    fields = [{"name": "key", "type": "int"}, {"name": "value", "type": value}]
    return {"type": "array", "items": {"type": "record", "name": f"pair_{value}", "fields": fields}}


SCHEMA = {
    "type": "record",
    "name": "r",
    "fields": [
        {"name": "number", "type": "long"},
        {"name": "text", "type": "string"},
        {"name": "data", "type": "bytes"},
        {"name": "maybe_number", "type": ["null", "long"]},
        {"name": "maybe_data", "type": ["null", "bytes"]},
        {"name": "list", "type": {"type": "array", "items": "long"}},
        {"name": "numbers", "type": ["null", _pairs("long")]},
        {"name": "blobs", "type": ["null", _pairs("bytes")]},
    ],
}
RECORDS = st.fixed_dictionaries(
    {
        "number": LONGS,
        "text": st.text(),
        "data": st.binary(),
        "maybe_number": st.none() | LONGS,
        "maybe_data": st.none() | st.binary(),
        "list": st.lists(LONGS),
        "numbers": st.none() | st.dictionaries(st.integers(0, 2**31 - 1), LONGS),
        "blobs": st.none() | st.dictionaries(st.integers(0, 2**31 - 1), st.binary()),
    }
)


def _encoded(record: dict[str, Any]) -> bytes:
    return b"".join(
        [
            integer(record["number"]),
            text(record["text"]),
            blob(record["data"]),
            optional_integer(record["maybe_number"]),
            optional_blob(record["maybe_data"]),
            array([integer(number) for number in record["list"]]),
            optional_numbers(record["numbers"]),
            optional_blobs(record["blobs"]),
        ]
    )


def _read(file: bytes) -> list[dict[str, Any]]:
    records: list[Any] = list(fastavro.reader(io.BytesIO(file)))
    for record in records:
        for name in ("numbers", "blobs"):
            if record[name] is not None:
                record[name] = {pair["key"]: pair["value"] for pair in record[name]}
    return records


@given(st.lists(RECORDS, max_size=5))
def test_records_come_back(records: list[dict[str, Any]]) -> None:
    """Whatever the values, and be there none."""
    assert _read(container(schema_json(SCHEMA), map(_encoded, records), {"a": "b"})) == records


def test_large_files_are_deflated_in_blocks() -> None:
    """A file of several blocks is smaller than what is in it, and whole; what the header says of it comes
    back."""
    one = {
        "number": 1,
        "text": "x" * 1_000,
        "data": b"",
        "maybe_number": None,
        "maybe_data": None,
        "list": [],
        "numbers": None,
        "blobs": {1: b"y"},
    }
    records = [one | {"number": number} for number in range(3 * BLOCK_BYTES // 1_000)]
    file = container(schema_json(SCHEMA), map(_encoded, records), {"format-version": "2"})
    assert _read(file) == records
    assert len(file) < BLOCK_BYTES
    header = fastavro.reader(io.BytesIO(file)).metadata
    assert (header["format-version"], header["avro.codec"]) == ("2", "deflate")
