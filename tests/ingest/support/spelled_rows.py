"""Schemas of rows, and rows spelled as JSON that fit them, nearly fit them, or do not."""

import base64
import json
from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from ingest.changes.unavailable import DEFAULT_PLACEHOLDER, placeholder

UNAVAILABLE = placeholder(DEFAULT_PLACEHOLDER)
BASE64 = base64.b64encode(DEFAULT_PLACEHOLDER.encode()).decode()
TIME, CONNECT = "io.debezium.time", "org.apache.kafka.connect.data"
KINDS: list[dict[str, Any]] = [
    *({"type": kind} for kind in ("boolean", "int8", "int32", "int64", "float", "double", "string", "bytes")),
    {"type": "int32", "name": f"{TIME}.Date"},
    {"type": "int64", "name": f"{TIME}.MicroTime"},
    {"type": "int64", "name": f"{TIME}.MicroTimestamp"},
    {"type": "int64", "name": f"{TIME}.NanoTimestamp"},
    {"type": "string", "name": f"{TIME}.ZonedTimestamp"},
    {"type": "string", "name": "io.debezium.data.Uuid"},
    {"type": "bytes", "name": f"{CONNECT}.Decimal", "parameters": {"scale": "2"}},
    {"type": "array", "items": {"type": "string"}},
    {"type": "map", "keys": {"type": "string"}, "values": {"type": "int32"}},
    {"type": "struct", "fields": []},
]
NAMES = ("id", "Größe", "a b", "def", "timestamp", "f0", "tenant", "ID", "")
EDGES = [0, -1, 2**31, 2**31 - 1, -(2**31) - 1, 2**63, 2**63 - 1, -(2**63), 86_400_000_000, 10**30]
# Spelled as JSON: what a decoder might take for something else is not to be taken for it.
spelled = st.one_of(
    st.sampled_from(["null", "true", "1.0", "1e3", "-0", "-0.0", "1E400", "NaN", "Infinity", '"\\ud800"']),
    st.sampled_from(EDGES).map(str),
    st.integers().map(str),
    st.floats().map(json.dumps),
    st.text(max_size=8).map(json.dumps),
    st.sampled_from([*UNAVAILABLE.texts, "2026-11-23T10:20:00Z", "AQI=", "-", "null"]).map(json.dumps),
    st.sampled_from([[DEFAULT_PLACEHOLDER], ["a"], {DEFAULT_PLACEHOLDER: DEFAULT_PLACEHOLDER}, {"a": 1}]).map(
        json.dumps
    ),
)
fields = st.lists(
    st.tuples(st.sampled_from(NAMES), st.sampled_from(KINDS)), unique_by=lambda field: field[0], max_size=6
)
# Names of the schema, some of them twice, and others.
members = st.lists(st.tuples(st.sampled_from((*NAMES, "other")), spelled), max_size=8)


def row_text(row: Sequence[tuple[str, str]]) -> bytes:
    """The JSON of a row."""
    return ("{" + ",".join(f"{json.dumps(name)}:{value}" for name, value in row) + "}").encode()
