"""Which messages that Firn's own topics keep a search would have found, had they become rows.

Their fields as far as they can be read, and everything they carry as message: value, key and headers.
"""

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
from sqlglot import exp

from lake.catalog_client import TableName
from lake.log_schema import MESSAGE, OFFSET, SYSTEM_COLUMNS, TIMESTAMP, LogSchema, fold, new_log_schema
from lake.snapshot import Totals
from lake.table_location import TableLocation
from lake.tenant import TenantId
from query.executors.executor import Executor, Source, from_source
from query.files.file_index import LiveFile
from query.language.search_language import parse_search
from query.language.search_sql import all_of, column, compile_search, within
from query.model.cancellation import Run
from query.model.instant import parse_period
from query.model.table_view import EPOCH, TableView, table_id
from query.search.ingest_gateway import IngestGateway

_DEPTH_MAX = 20
Kind = Literal["dead-letters", "parked", "replay"]


@dataclass(frozen=True, slots=True)
class FoundMessage:
    """A message that matches: its partition and offset as `partition:offset`, the stream it is meant for
    where that is known, the parking it is of."""

    id: str
    stream: str
    parking: str


def find_messages(
    ingest: IngestGateway,
    executor: Executor,
    kind: Kind,
    tenant: TenantId,
    query: str,
    start: datetime,
    end: datetime,
    run: Run,
) -> list[FoundMessage]:
    """The messages of a tenant that match. `executor` reads files. Raises UnavailableError where ingest does
    not answer, BadRequestError."""
    found: list[FoundMessage] = []
    for page in ingest.kept_records(kind, tenant):
        run.check()
        places = _matching(executor, page, query, start, end, run) if page else []
        found += [FoundMessage(page[at]["id"], page[at]["stream"], page[at]["parking"]) for at in places]
    return found


def _matching(
    executor: Executor,
    letters: Sequence[Mapping[str, Any]],
    query: str,
    start: datetime,
    end: datetime,
    run: Run,
) -> list[int]:
    rows = [_row(letter, at) for at, letter in enumerate(letters)]
    names = sorted({name for row in rows for name in row if name not in SYSTEM_COLUMNS})
    schema = new_log_schema().with_strings({name: (1_000 + at, name) for at, name in enumerate(names)}, 1)
    kept = [field for field in schema.json["fields"] if field["name"] in (TIMESTAMP, MESSAGE, OFFSET, *names)]
    known = LogSchema({**schema.json, "fields": kept})
    condition = all_of(
        [within(start, end), compile_search(parse_search(query), known, everywhere=True).condition]
    )
    select = exp.select(column(OFFSET)).from_(from_source()).where(condition)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "letters.parquet"
        pq.write_table(
            pa.table(
                {name: [row.get(name) for row in rows] for name in known.arrow.names}, schema=known.arrow
            ),
            path,
        )
        file = LiveFile(f"file://{path}", len(rows), path.stat().st_size, 0, 1, None, None, None, None)
        table_location = TableLocation.at(f"file://{folder}")
        view = TableView(
            table_id("letters", "logs"),
            TableName("", ""),
            "",
            known,
            True,
            None,
            None,
            None,
            Totals(),
            {},
            {},
            {},
            table_location=table_location,
        )
        return sorted(int(row[0]) for row in executor.fetch(Source(view, [file]), select, run).rows)


def _row(letter: Mapping[str, Any], at: int) -> dict[str, Any]:
    text = str(letter["value"] or "")
    try:
        fields = dict(_flat(orjson.loads(text), "", 0))
    except orjson.JSONDecodeError:
        fields = {}
    period = parse_period(str(letter["timestamp"]))
    own = {name: value for name, value in fields.items() if name not in SYSTEM_COLUMNS}
    return {
        **own,
        TIMESTAMP: period.start if period else EPOCH,
        MESSAGE: "\n".join([text, *letter["beside"]]),
        OFFSET: at,
    }


def _flat(value: Any, prefix: str, depth: int) -> Iterator[tuple[str, str]]:
    if not isinstance(value, dict) or depth > _DEPTH_MAX:
        return
    for key, each in value.items():
        name = fold(f"{prefix}_{key}" if prefix else str(key)).replace(".", "_")
        if isinstance(each, dict):
            yield from _flat(each, name, depth + 1)
        elif each is not None:
            yield name, each if isinstance(each, str) else orjson.dumps(each).decode()
