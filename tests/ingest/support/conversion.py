"""Messages straight through the converter, without any service."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from ingest.convert import json_records
from ingest.convert.converter import convert
from ingest.convert.terms import TimeLimits
from ingest.convert.work import Converted, ConverterLimits
from ingest.model.source import Source
from ingest.route.buffer import RawRecord, TableBuffer
from lake.log_schema import INDEX, OFFSET, LogSchema, new_log_schema
from lake.settings import FormatName
from lake.tenant import TableId, TenantId

TABLE = TableId(TenantId("t"), "logs")
KAFKA_MS = 1_795_210_000_000  # 2026-11-20T21:26:40Z
ANY_TIME = TimeLimits(None, None)


def converted(
    bodies: Sequence[bytes],
    form: FormatName = "auto",
    *,
    times_ms: Sequence[int] | None = None,
    time_zone: str = "UTC",
    limits: ConverterLimits | None = None,
    schema: LogSchema | None = None,
) -> Converted:
    """Converts messages with offsets 0, 1, ... of one partition."""
    buffer = TableBuffer(TABLE, 0.0)
    for offset, body in enumerate(bodies):
        buffer.add(*RawRecord(0, offset, KAFKA_MS if times_ms is None else times_ms[offset], None, (), body))
    sources = [Source("topic", "id", 0, form, time_zone)]
    return convert(
        buffer,
        sources,
        schema or new_log_schema(),
        [0],
        limits or ConverterLimits(100, 1_000, ANY_TIME),
    )


def rows_of(result: Converted) -> dict[tuple[int, int], dict[str, Any]]:
    """Rows by offset and index, without what is NULL, `_errors` as tuples."""
    plain: list[dict[str, Any]] = [{} for _ in range(result.rows.num_rows)]
    # Most columns of real logs are NULL in most rows.
    for name, column in zip(result.rows.column_names, result.rows.columns, strict=True):
        places = np.flatnonzero(column.is_valid().to_numpy()).tolist()
        for at, value in zip(places, column.drop_null().to_pylist(), strict=True):
            plain[at][name] = value
    rows = {}
    for row in plain:
        assert (row[OFFSET], row[INDEX]) not in rows, "an identity comes twice"
        if "_errors" in row:
            row["_errors"] = [(error["field"], error["value"], error["reason"]) for error in row["_errors"]]
        rows[row[OFFSET], row[INDEX]] = row
    return rows


def in_order(result: Converted) -> Converted:
    """The same with its rows by identity and its columns by name, whatever their encoding: what two ways to
    convert the same messages have in common."""
    rows = result.rows.select(sorted(result.rows.column_names))
    plain = [
        field.with_type(field.type.value_type) if pa.types.is_dictionary(field.type) else field
        for field in rows.schema
    ]
    identity = [(OFFSET, "ascending"), (INDEX, "ascending")] if rows.num_columns else []
    return replace(result, rows=rows.cast(pa.schema(plain)).sort_by(identity) if identity else rows)


def fields_of(body: bytes | str, form: FormatName = "auto", **options: Any) -> dict[str, Any]:
    """The one row of one message, without the columns that say where it came from; the time as RFC 3339."""
    result = converted([body.encode() if isinstance(body, str) else body], form, **options)
    assert not result.rejected
    (row,) = rows_of(result).values()
    system = ("_topic", "_topic_id", "_topic_partition", OFFSET, INDEX, "observed_timestamp")
    return {name: value for name, value in row.items() if name not in system} | {
        "timestamp": row["timestamp"].isoformat()
    }


def without_core(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets every record take the exact path, as where there is no core."""
    monkeypatch.setattr(json_records, "core_of", lambda _: None)
