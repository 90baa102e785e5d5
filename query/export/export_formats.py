"""Rows as files: NDJSON, CSV, Parquet. Each writer is opened for one part and holds one batch."""

import csv
import io
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, BinaryIO, Literal, Protocol

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from lake.log_schema import LogSchema, arrow_type
from query.search.results import plain_row

_FORMULA_SIGNS = ("=", "+", "-", "@", "＝", "＋", "－", "＠")
_SKIPPED = "\t\r\n \x00\ufeff\xa0'\""
_NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")

Format = Literal["ndjson", "csv", "parquet"]


class PartWriter(Protocol):
    """Writes the rows of a part."""

    rows: int

    def write(self, batch: list[tuple[Any, ...]]) -> None:
        """Rows in the order of the columns."""

    def close(self) -> None:
        """Writes what is kept back; the file stays open."""


class _Ndjson:
    """A JSON object per line; columns without a value are left out."""

    def __init__(
        self,
        file: BinaryIO,
        schema: LogSchema,  # noqa: ARG002
        columns: Sequence[str],
        *,
        is_first: bool,  # noqa: ARG002
        spreadsheet_safe: bool = False,  # noqa: ARG002
    ) -> None:
        self._file, self._columns, self.rows = file, columns, 0

    def write(self, batch: list[tuple[Any, ...]]) -> None:
        lines = (
            {
                name: value
                for name, value in zip(self._columns, plain_row(row), strict=True)
                if value is not None
            }
            for row in batch
        )
        self._file.write(b"".join(orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE) for line in lines))
        self.rows += len(batch)

    def close(self) -> None:
        """Nothing is kept back."""


class _Csv:
    """RFC 4180 with a header; lists and structures as JSON. `spreadsheet_safe`: see `text_cell`."""

    def __init__(
        self,
        file: BinaryIO,
        schema: LogSchema,  # noqa: ARG002
        columns: Sequence[str],
        *,
        is_first: bool,
        spreadsheet_safe: bool = False,
    ) -> None:
        self._file, self.rows, self._as_text = file, 0, spreadsheet_safe
        if is_first:
            self._write([list(columns)])

    def write(self, batch: list[tuple[Any, ...]]) -> None:
        self._write(
            [
                [
                    orjson.dumps(value).decode() if isinstance(value, list | dict) else value
                    for value in plain_row(row)
                ]
                for row in batch
            ]
        )
        self.rows += len(batch)

    def _write(self, rows: list[list[Any]]) -> None:
        text = io.StringIO(newline="")
        csv.writer(text).writerows(
            [[text_cell(value) for value in row] for row in rows] if self._as_text else rows
        )
        self._file.write(text.getvalue().encode())

    def close(self) -> None:
        """Nothing is kept back."""


class _Parquet:
    """The table's own types."""

    def __init__(
        self,
        file: BinaryIO,
        schema: LogSchema,
        columns: Sequence[str],
        *,
        is_first: bool,  # noqa: ARG002
        spreadsheet_safe: bool = False,  # noqa: ARG002
    ) -> None:
        kinds = {column.name: column.kind for column in schema.columns}
        self._schema = pa.schema([pa.field(name, arrow_type(kinds[name])) for name in columns])
        self._writer = pq.ParquetWriter(file, self._schema, compression="zstd")
        self.rows = 0

    def write(self, batch: list[tuple[Any, ...]]) -> None:
        arrays = [
            pa.array([_for_arrow(row[at]) for row in batch], field.type)
            for at, field in enumerate(self._schema)
        ]
        self._writer.write_table(pa.table(arrays, schema=self._schema))
        self.rows += len(batch)

    def close(self) -> None:
        self._writer.close()


def text_cell(value: Any) -> Any:
    """A cell that no spreadsheet calculates: texts that begin like a formula get an apostrophe before them,
    numbers stay numbers.

    OWASP, "CSV Injection": = + - @, also in their wide forms, and what a spreadsheet skips before them.
    """
    if (
        not isinstance(value, str)
        or not value.lstrip(_SKIPPED).startswith(_FORMULA_SIGNS)
        or _NUMBER.fullmatch(value)
    ):
        return value
    return f"'{value}"


def _for_arrow(value: Any) -> Any:
    """Trino gives structures as named tuples."""
    if isinstance(value, list):
        return [_for_arrow(each) for each in value]
    names = getattr(value, "__annotations__", {}).get("names") if isinstance(value, tuple) else None
    return dict(zip(names, value, strict=True)) if names else value


WRITERS: Mapping[Format, Callable[..., PartWriter]] = {"ndjson": _Ndjson, "csv": _Csv, "parquet": _Parquet}
