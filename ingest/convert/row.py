"""One record laid out as the columns of its table, for whoever looks at single records."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ingest.convert.flat_records import FlatRecords
from ingest.convert.layout import lay_out
from ingest.convert.line_records import read_lines
from ingest.convert.terms import Terms
from ingest.convert.text_columns import TextColumns
from ingest.decode.decoder import Fields
from ingest.route.buffer import YEAR_1_MS, YEAR_10000_MS, no_date
from lake.errors import Rejected
from lake.log_schema import ERRORS, OVERFLOW, TIMESTAMP


@dataclass(slots=True)
class Row:
    """One record as columns. `values` holds the dynamic columns and `severity`, `message`; `errors` what
    `_errors` holds; `origins` the paths that time, severity and message came from."""

    timestamp_us: int
    values: dict[str, Any]
    errors: Sequence[Mapping[str, str | None]]
    overflow: str | None = None
    origins: Mapping[str, str] = field(default_factory=dict)


def row_of(fields: Fields, timestamp_ms: int, terms: Terms) -> Row | Rejected:
    """Lays out one decoded record. `timestamp_ms`: its Kafka timestamp."""
    if not YEAR_1_MS <= timestamp_ms < YEAR_10000_MS:
        return no_date(timestamp_ms)
    kafka_us = np.array([timestamp_ms * 1000])
    laid = lay_out(_columns(fields, kafka_us, terms), kafka_us, terms)
    if laid.rejected:
        return laid.rejected[0][1]
    values = {name: column[0].as_py() for name, column in laid.columns.items()}
    us = laid.columns[TIMESTAMP][0].value
    del values[TIMESTAMP]
    errors, overflow = values.pop(ERRORS, None), values.pop(OVERFLOW, None)
    origins = {name: path for name, one in laid.origins.items() if (path := one.path(0))}
    return Row(us, values, errors or [], overflow, origins)


def _columns(fields: Fields, kafka_us: Any, terms: Terms) -> TextColumns:
    if isinstance(fields, str):
        (line,), _ = read_lines([fields.encode()], kafka_us, terms.local)
        return line.records
    record = FlatRecords()
    record.add(fields)
    return record.columns()
