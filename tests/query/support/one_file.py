"""A table of one file and the engine in this process over it, without a catalog: for what is only about
conditions, figures and stages."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from sqlglot import exp

from lake.catalog_client import TableName
from lake.log_schema import LogSchema, new_log_schema
from lake.settings import QuerySettings
from lake.snapshot import Totals
from query.executors.embedded import EmbeddedExecutor
from query.executors.executor import Source
from query.files.file_index import LiveFile
from query.model.cancellation import Run
from query.model.table_view import TableView, table_id
from tests.query.support.reference import START, TYPES, records

IDENTITY = {
    "observed_timestamp": START,
    "_topic": "t",
    "_topic_id": "i",
    "_topic_partition": 0,
    "_index": 0,
}


@dataclass(frozen=True)
class OneFile:
    """`rows`: what lies in it, each with its place as offset."""

    source: Source
    engine: EmbeddedExecutor
    rows: list[dict[str, Any]]

    def run(self, select: exp.Select) -> list[tuple[Any, ...]]:
        """What the engine gives."""
        return self.engine.fetch(self.source, select, Run(60.0)).rows


def schema() -> LogSchema:
    """Of the records of `reference`."""
    names = {
        "path": (101, "/path"),
        "status": (102, "/status"),
        **{name: (110 + at, f"/{name}") for at, name in enumerate(TYPES)},
    }
    made = new_log_schema().with_strings(names, 1)
    return LogSchema(
        {
            **made.json,
            "fields": [
                {**field, "type": TYPES.get(field["name"], field["type"])} for field in made.json["fields"]
            ],
        }
    )


def one_file(folder: Path, count: int, seed: int) -> OneFile:
    """So many of the records of a seed."""
    return file_of(folder, [{**record} for record in records(count, seed)])


def file_of(folder: Path, given: list[dict[str, Any]]) -> OneFile:
    """These records."""
    rows = [{**row, **IDENTITY, "_offset": at} for at, row in enumerate(given)]
    arrow, path = schema().arrow, folder / "rows.parquet"
    pq.write_table(
        pa.table({name: [row.get(name) for row in rows] for name in arrow.names}, schema=arrow), path
    )
    name = TableName("t", "logs")
    view = TableView(table_id("t", "logs"), name, "u", schema(), True, 1, None, None, Totals(), {}, {}, {})
    file = LiveFile(f"file://{path}", len(rows), 1, 0, 1, None, None, None, None)
    engine = EmbeddedExecutor(
        QuerySettings(state=str(folder)),
        lambda uris, _: [uri.removeprefix("file://") for uri in uris],
        lambda: [folder],
    )
    return OneFile(Source(view, [file]), engine, rows)
