"""The in-process engine opens the files of a search and nothing else, and nobody changes its settings."""

from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sqlglot import exp

from lake.catalog_client import TableName
from lake.errors import FirnError
from lake.log_schema import new_log_schema
from lake.settings import QuerySettings
from lake.snapshot import Totals
from query.executors.embedded import EmbeddedExecutor
from query.executors.executor import Source
from query.files.file_index import LiveFile
from query.model.cancellation import Run
from query.model.table_view import TableView, table_id
from query.search.search import select_rows
from tests.query.support.guarded import START

pytestmark = pytest.mark.finding(32)


def table_file(folder: Path, message: str) -> Path:
    """A data file with one row."""
    folder.mkdir(parents=True, exist_ok=True)
    schema = new_log_schema().arrow
    row = {
        "timestamp": START,
        "observed_timestamp": START,
        "message": message,
        "_topic": "t",
        "_topic_id": "i",
        "_topic_partition": 0,
        "_offset": 0,
        "_index": 0,
    }
    pq.write_table(
        pa.table({name: [row.get(name)] for name in schema.names}, schema=schema), folder / "rows.parquet"
    )
    return folder / "rows.parquet"


def found(engine: EmbeddedExecutor, path: Path) -> list[tuple[object, ...]]:
    view = TableView(
        table_id("t", "logs"),
        TableName("t", "logs"),
        "u",
        new_log_schema(),
        True,
        1,
        None,
        None,
        Totals(),
        {},
        {},
        {},
    )
    file = LiveFile(f"file://{path}", 1, 1, 0, 1, None, None, None, None)
    return engine.fetch(
        Source(view, [file]), select_rows(["message"], None, None, newest_first=True), Run(60.0)
    ).rows


def engine_of(state: Path, *roots: Path) -> EmbeddedExecutor:
    return EmbeddedExecutor(
        QuerySettings(state=str(state)),
        lambda uris, _: [uri.removeprefix("file://") for uri in uris],
        lambda: roots,
    )


def test_files_below_the_warehouse_and_those_that_a_plan_names_are_read(tmp_path: Path) -> None:
    """Below the roots by a database of them; elsewhere (a table that was registered from outside) by one for
    exactly these files."""
    engine = engine_of(tmp_path / "state", tmp_path / "warehouse")
    assert found(engine, table_file(tmp_path / "warehouse" / "a", "inside")) == [("inside",)]
    assert found(engine, table_file(tmp_path / "registered", "outside")) == [("outside",)]
    assert found(engine_of(tmp_path / "state2"), table_file(tmp_path / "warehouse", "without roots")) == [
        ("without roots",)
    ]


@pytest.mark.parametrize("in_root", [True, False])
def test_statements_reach_nothing_else(tmp_path: Path, *, in_root: bool) -> None:
    """Whatever text came to run: other files, programs' files, network, extensions and settings are refused
    by DuckDB itself."""
    warehouse = tmp_path / "warehouse"
    engine = engine_of(tmp_path / "state", *([warehouse] if in_root else []))
    inside, other = table_file(warehouse / "a", "inside"), table_file(tmp_path / "elsewhere", "secret")
    with engine._connection([str(inside)]) as connection:
        assert connection.execute("SELECT message FROM read_parquet($1)", [str(inside)]).fetchall() == [
            ("inside",)
        ]
        for statement in (
            f"SELECT * FROM read_parquet('{other}')",
            f"SELECT * FROM read_parquet('{warehouse}/../elsewhere/rows.parquet')",
            "SELECT * FROM read_text('/etc/hostname')",
            "SELECT * FROM glob('/etc/*')",
            f"COPY (SELECT 1) TO '{tmp_path}/written.csv'",
            f"ATTACH '{tmp_path}/other.db'",
            "SELECT * FROM read_parquet('http://127.0.0.1:9/x.parquet')",
            "INSTALL httpfs",
            "SET enable_external_access = true",
            "SET GLOBAL allowed_directories = ['/']",
            "SET lock_configuration = false",
            "SET GLOBAL allowed_configs = ['memory_limit']",
            "SET memory_limit = '64GB'",
            "SET threads = 64",
            "RESET memory_limit",
        ):
            with pytest.raises(duckdb.Error, match=r"(?i)disabled by configuration|has been locked|cannot"):
                connection.execute(statement)
    assert not (tmp_path / "written.csv").exists()


def test_a_search_has_a_bounded_memory(tmp_path: Path) -> None:
    """What needs more is refused with a sentence, and the process is none the worse."""
    warehouse = tmp_path / "warehouse"
    settings = QuerySettings.load(state=str(tmp_path), embedded__memory_bytes=64 * 1024 * 1024)
    engine = EmbeddedExecutor(
        settings, lambda uris, _: [uri.removeprefix("file://") for uri in uris], lambda: [warehouse]
    )
    path = table_file(warehouse, "x" * 1_000)
    view = TableView(
        table_id("t", "logs"),
        TableName("t", "logs"),
        "u",
        new_log_schema(),
        True,
        1,
        None,
        None,
        Totals(),
        {},
        {},
        {},
    )
    file = LiveFile(f"file://{path}", 1, 1, 0, 1, None, None, None, None)
    greedy = exp.select("REPEAT(message, 400000)").from_(exp.to_table("source"))
    with pytest.raises(FirnError, match=r"embedded.memory_bytes|failed"):
        engine.fetch(Source(view, [file]), greedy, Run(60.0))
    assert found(engine, path) == [("x" * 1_000,)]
