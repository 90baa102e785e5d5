"""How far the in-process engine is within one statement, and that it ends half-way."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from sqlglot import exp

from lake.catalog_client import TableName
from lake.clock import epoch_us
from lake.log_schema import new_log_schema
from lake.settings import QuerySettings
from lake.snapshot import Totals
from query.executors.embedded import EmbeddedExecutor
from query.executors.executor import Fetched, Source, from_source
from query.files.file_index import LiveFile
from query.files.filter_pack import RowGroup
from query.model.cancellation import CancelledError, Run, TimeOverError
from query.model.table_view import TableView, table_id
from tests.query.support.guarded import START
from tests.stack.support.waiting import pause, wait_for

ROWS = 1_000_000
PATIENCE_S = 120.0
QUICK, ENDLESS = 20, 600  # conditions: a second or two, a minute and more


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Source:
    """One file of many row groups, whose texts are all different."""
    schema = new_log_schema()
    numbers = pa.array(range(ROWS), pa.int64())
    texts = pc.binary_join_element_wise(
        "row", numbers.cast(pa.string()), pc.multiply(numbers, 2_654_435_761).cast(pa.string()), " "
    )
    times = pa.array([epoch_us(START)], pa.int64()).take(pa.array([0] * ROWS)).cast(pa.timestamp("us", "UTC"))
    columns = {"message": texts, "timestamp": times, "_offset": numbers}
    table = pa.table(
        {each.name: columns.get(each.name, pa.nulls(ROWS, each.type)) for each in schema.arrow},
        schema=pa.schema([each.with_nullable(True) for each in schema.arrow]),
    )
    path = tmp_path_factory.mktemp("file") / "rows.parquet"
    pq.write_table(table, path, row_group_size=50_000)
    view = TableView(
        *(table_id("t", "logs"), TableName("t", "logs"), "u", schema, True, 1, None, None),
        *(Totals(), {}, {}, {}),
    )
    size = path.stat().st_size
    return Source(view, [LiveFile(f"file://{path}", ROWS, size, 0, 1, None, None, None, None)])


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as pool:
        yield pool


@pytest.fixture
def executor(source: Source, tmp_path: Path) -> EmbeddedExecutor:
    (path,) = (Path(file.uri.removeprefix("file://")) for file in source.files)
    return EmbeddedExecutor(QuerySettings(state=str(tmp_path)), lambda *_: [str(path)], lambda: [path.parent])


def count(source: Source, executor: EmbeddedExecutor, conditions: int, run: Run) -> Fetched:
    """Counts rows with one of so many texts, none of which is there."""
    sought = [f"message LIKE '%{at}x%{at + 1}%'" for at in range(conditions)]
    select = exp.select("count(*)").from_(from_source()).where(exp.or_(*sought, dialect="duckdb"))
    return executor.fetch(source, select, run)


@pytest.mark.long
def test_the_share_that_is_done_grows_within_a_statement(
    source: Source, executor: EmbeddedExecutor, pool: ThreadPoolExecutor
) -> None:
    """In more than one step, from any thread, and there is none once the statement has ended."""
    run, shares = Run(PATIENCE_S), [0.0]
    counted = pool.submit(count, source, executor, QUICK, run)
    while not counted.done():
        shares.append(run.share_done)
        pause(0.01)
    assert counted.result().rows == [(0,)]
    grown = [share for share in shares if 0.0 < share < 1.0]
    assert grown == sorted(grown)
    assert len(set(grown)) >= 3
    assert run.share_done == 0.0


@pytest.mark.long
def test_a_statement_ends_when_its_caller_leaves(
    source: Source, executor: EmbeddedExecutor, pool: ThreadPoolExecutor
) -> None:
    """Long before it would be done: the thread that ran it is free, and says why."""
    run = Run(PATIENCE_S)
    counted = pool.submit(count, source, executor, ENDLESS, run)
    wait_for(lambda: run.share_done > 0.0, PATIENCE_S / 3, "the first rows being read")
    assert run.share_done < 0.5
    run.cancel()
    with pytest.raises(CancelledError, match="caller has gone"):
        counted.result(PATIENCE_S / 4)


@pytest.mark.long
def test_a_scan_waits_for_the_other_one_of_its_tenant(
    source: Source, executor: EmbeddedExecutor, pool: ThreadPoolExecutor
) -> None:
    """And nobody else does, nor does who reads few rows; its wait is told apart from work."""
    run = Run(PATIENCE_S)
    counted = pool.submit(count, source, executor, ENDLESS, run)
    wait_for(lambda: run.share_done > 0.0, PATIENCE_S / 3, "the first rows being read")
    late = Run(3.0)
    with pytest.raises(TimeOverError):
        count(source, executor, 1, late)
    assert late.waited_s > 0.0
    others = replace(source, view=replace(source.view, id=table_id("other", "logs")))
    assert count(others, executor, 1, Run(PATIENCE_S)).rows == [(0,)]
    few = replace(source, groups={source.files[0].uri: [RowGroup(0, 50_000)]})
    assert count(few, executor, 1, Run(PATIENCE_S)).rows == [(0,)]
    assert not counted.done()
    run.cancel()
    with pytest.raises(CancelledError):
        counted.result(PATIENCE_S)
