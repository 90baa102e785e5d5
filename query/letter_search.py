"""Which dead letters a search would have found, had they become rows: their fields as far as they can be read, and their whole text as message."""

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
from sqlglot import exp

from lake.catalog_client import TableName
from lake.log_schema import MESSAGE, OFFSET, SYSTEM_COLUMNS, TIMESTAMP, LogSchema, fold, new_log_schema
from lake.snapshot import Totals
from lake.tenant import TenantId
from query.cancellation import Run
from query.executors.executor import Executor, Source, from_source
from query.file_index import LiveFile
from query.ingest_gateway import IngestGateway
from query.instant import parse_period
from query.search_language import parse_search
from query.search_sql import all_of, column, compile_search, within
from query.table_view import EPOCH, TableView, table_id

LETTERS_MAX = 5_000
PAGE = 500
_DEPTH_MAX = 20


@dataclass(frozen=True, slots=True)
class FoundLetters:
    """Ids of matching letters; `more`: older ones were not looked at."""

    ids: tuple[str, ...]
    looked_at: int
    more: bool


def find_letters(ingest: IngestGateway, executor: Executor, tenant: TenantId, query: str, start: datetime, end: datetime, run: Run) -> FoundLetters:
    """The letters of a tenant that match. `executor` reads files. Raises UnavailableError where ingest does not answer, BadQuestionError."""
    letters, more = list[dict[str, Any]](), False
    for letter in _letters(ingest, tenant):
        run.check()
        if len(letters) == LETTERS_MAX:
            more = True
            break
        letters.append(ingest.letter(letter["id"], None))
    matching = _matching(executor, letters, query, start, end, run) if letters else []
    return FoundLetters(tuple(str(letters[at]["id"]) for at in matching), len(letters), more)


def _letters(ingest: IngestGateway, tenant: TenantId) -> Iterator[dict[str, Any]]:
    before: str | None = None
    while True:
        page = ingest.letters(tenant, limit=PAGE, before=before)
        yield from page["dead_letters"]
        before = page["next"]
        if before is None:
            return


def _matching(executor: Executor, letters: Sequence[Mapping[str, Any]], query: str, start: datetime, end: datetime, run: Run) -> list[int]:
    rows = [_row(letter, at) for at, letter in enumerate(letters)]
    names = sorted({name for row in rows for name in row if name not in SYSTEM_COLUMNS})
    schema = new_log_schema().with_strings({name: (1_000 + at, name) for at, name in enumerate(names)}, 1)
    kept = [field for field in schema.json["fields"] if field["name"] in (TIMESTAMP, MESSAGE, OFFSET, *names)]
    arrow = LogSchema({"fields": kept}).arrow
    condition = all_of([within(start, end), compile_search(parse_search(query), schema).condition])
    select = exp.select(column(OFFSET)).from_(from_source()).where(condition)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "letters.parquet"
        pq.write_table(pa.table({name: [row.get(name) for row in rows] for name in arrow.names}, schema=arrow), path)
        file = LiveFile(f"file://{path}", len(rows), path.stat().st_size, 0, 1, None, None, None, None)
        view = TableView(table_id("letters", "logs"), TableName("", ""), "", schema, True, None, None, None, Totals(), {}, {}, {})
        return sorted(int(row[0]) for row in executor.fetch(Source(view, [file]), select, run).rows)


def _row(letter: Mapping[str, Any], at: int) -> dict[str, Any]:
    text = str(letter.get("value") or letter.get("value_base64") or "")
    try:
        fields = dict(_flat(orjson.loads(text), "", 0))
    except orjson.JSONDecodeError:
        fields = {}
    period = parse_period(str(letter["timestamp"]))
    own = {name: value for name, value in fields.items() if name not in SYSTEM_COLUMNS}
    return {**own, TIMESTAMP: period.start if period else EPOCH, MESSAGE: text, OFFSET: at}


def _flat(value: Any, prefix: str, depth: int) -> Iterator[tuple[str, str]]:
    if not isinstance(value, dict) or depth > _DEPTH_MAX:
        return
    for key, each in value.items():
        name = fold(f"{prefix}_{key}" if prefix else str(key)).replace(".", "_")
        if isinstance(each, dict):
            yield from _flat(each, name, depth + 1)
        elif each is not None:
            yield name, each if isinstance(each, str) else orjson.dumps(each).decode()
