"""Searches in process pass over deleted rows."""

import random
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyroaring import BitMap64
from sqlglot import exp

from lake.catalog_client import TableName
from lake.data_file import EQUALITY_DELETES, POSITION_DELETES, DataFile
from lake.deletes.dead_rows import DeleteFiles
from lake.log_schema import LogSchema, new_log_schema
from lake.manifest import ManifestEntry, Status
from lake.settings import QuerySettings
from lake.snapshot import Totals
from query.executors.embedded import EmbeddedExecutor
from query.executors.executor import Source, from_source
from query.files.file_index import LiveFile, LiveFiles
from query.language.search_language import Everything
from query.model.cancellation import Run
from query.model.table_view import TableView, table_id
from query.search.file_planner import DEAD_ROWS_MAX, plan_files
from tests.query.support.reference import START

FILES, ROWS = 4, 1_000
# Columns that have the names which DuckDB gives to a row's place.
OWN = {"n": (101, "/n"), "file_index": (102, "/file_index"), "file_row_number": (103, "/file_row_number")}


def _schema() -> LogSchema:
    return new_log_schema().with_strings(OWN, 1)


def _file(path: Path, first: int) -> LiveFile:
    names = range(first, first + ROWS)
    columns: dict[str, list[object]] = {name: [f"{n:06}" for n in names] for name in OWN}
    identity = {"_topic": "t", "_topic_id": "i", "_topic_partition": 0, "_index": 0}
    times = {"timestamp": START, "observed_timestamp": START}
    columns |= {name: [value] * ROWS for name, value in (identity | times).items()}
    columns["_offset"] = list(names)
    arrow = _schema().arrow
    table = pa.table({name: columns.get(name, [None] * ROWS) for name in arrow.names}, schema=arrow)
    pq.write_table(table, path, row_group_size=100)
    return LiveFile(f"file://{path}", ROWS, 1, 0, 1, None, None, None, None)


def _view() -> TableView:
    name = TableName("t", "logs")
    return TableView(table_id("t", "logs"), name, "u", _schema(), True, 1, None, None, Totals(), {}, {}, {})


@pytest.mark.parametrize("seed", range(5))
def test_dead_rows_are_not_found(tmp_path: Path, seed: int) -> None:
    """Some of none, some and all rows of files, by conditions that leave out row groups and whole files."""
    rng = random.Random(seed)
    files = [_file(tmp_path / f"{at}.parquet", at * ROWS) for at in range(FILES)]
    dead = {}
    for file in files:
        count = rng.choice((0, 1, 400, ROWS))
        if count:
            dead[file.uri] = BitMap64(rng.sample(range(ROWS), count))
    engine = EmbeddedExecutor(
        QuerySettings(state=str(tmp_path)),
        lambda uris, _: [uri.removeprefix("file://") for uri in uris],
        lambda: [tmp_path],
    )
    for low in (0, 550, 1_990, 3_999):
        wanted = exp.GTE(this=exp.column("file_row_number", quoted=True), expression=_text(f"{low:06}"))
        select = exp.select(exp.column("n"), exp.column("file_index")).from_(from_source()).where(wanted)
        found = engine.fetch(Source(_view(), files, lambda: dead), select, Run(60.0)).rows
        alive = [n for n in _alive(files, dead) if n >= low]
        assert sorted(found) == [(f"{n:06}", f"{n:06}") for n in alive]


def _text(text: str) -> exp.Expression:
    return exp.Literal.string(text)


def _alive(files: list[LiveFile], dead: Mapping[str, BitMap64]) -> list[int]:
    return [
        at * ROWS + row
        for at, file in enumerate(files)
        for row in range(ROWS)
        if row not in dead.get(file.uri, BitMap64())
    ]


@pytest.mark.parametrize(
    ("content", "rows", "only_trino"),
    [
        (POSITION_DELETES, 5, False),
        (POSITION_DELETES, DEAD_ROWS_MAX + 1, True),
        (EQUALITY_DELETES, 5, True),
    ],
)
def test_what_only_trino_applies(*, content: int, rows: int, only_trino: bool) -> None:
    """Deletes by values, and more positions than are held in this process."""
    live = LiveFile("file:///a", 10, 1, 0, 1, None, None, None, None)
    delete = DataFile("file:///d", 7, rows, 1, content, referenced_data_file="file:///a")
    deletes = DeleteFiles.of([ManifestEntry(Status.ADDED, delete, 1, 2, 2)])
    view = LiveFiles((live,), has_deletes=True, deletes=deletes)
    before, after = START.replace(year=1969), START.replace(year=1970)
    assert plan_files(view, before, after, Everything(), _schema()).only_trino is only_trino
