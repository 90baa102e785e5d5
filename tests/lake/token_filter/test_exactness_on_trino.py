"""No filter hides a row that matches on Trino either: the same questions, asked a table by the executor of
searches."""

import os
import random
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest
from sqlglot import exp

from lake.log_schema import LogSchema
from lake.snapshot import Totals
from lake.storage import open_storage
from lake.token_filter.letters import CODE_POINTS
from query.executors.executor import Source, from_source
from query.executors.trino import TrinoExecutor
from query.files.file_index import LiveFile
from query.language.search_sql import column, compile_search
from query.model.cancellation import Run
from query.model.table_view import TableView, table_id
from tests.lake.token_filter.support.questions import RowFilters, Tally, questions, rows
from tests.lake.token_filter.test_exactness import check_lowered
from tests.optimize.support.small_files import SmallFiles, hour_of
from tests.stack.support.line import Line
from tests.stack.support.waiting import fresh

pytestmark = pytest.mark.stack

# The long proof asks 10,000.
QUESTIONS = int(os.environ.get("FIRN_FILTER_QUESTIONS_TRINO", "120"))
SEED = int(os.environ.get("FIRN_TEST_SEED", "1"))
ROWS, ASKED_AT_ONCE = 250, 60


def a_table(line: Line, tenant: str, table: pa.Table) -> SmallFiles:
    """The rows in a table of a tenant."""
    made = SmallFiles(line.catalog, open_storage(), tenant)
    hour = hour_of(table.column("timestamp")[0].as_py())
    made.commit({hour: dict(zip(table.column_names, table.columns, strict=True))}, table.num_rows)
    return made


def with_ids_of(table: pa.Table, schema: LogSchema) -> pa.Table:
    """The rows with the field ids that they have in their table."""
    arrow = schema.arrow
    return pa.table([table.column(field.name).cast(field.type) for field in arrow], schema=arrow)


def test_no_row_that_matches_on_trino_is_hidden(
    line: Line, record_property: Callable[[str, object], None]
) -> None:
    """Words, phrases and wildcards, with a field and without, in every script and any case."""
    draw, tenant = random.Random(SEED), fresh("exact")
    table = rows(ROWS, draw)
    made = a_table(line, tenant, table)
    schema = made.state.schema
    filters, tally = RowFilters(with_ids_of(table, schema), schema), Tally()
    state = made.state
    view = TableView(
        table_id(tenant, "logs"),
        made.name,
        state.uuid,
        schema,
        True,
        state.head,
        None,
        None,
        Totals(),
        {},
        {},
        {},
    )
    file = LiveFile("of the table", ROWS, 1, 0, 1, None, None, None, None)
    engine = TrinoExecutor(line.query_settings())
    while tally.questions < QUESTIONS:
        asked = questions(min(ASKED_AT_ONCE, QUESTIONS - tally.questions), table, draw)
        wanted = [
            exp.alias_(
                exp.Coalesce(this=compile_search(question, schema).condition, expressions=[exp.false()]),
                f"asked{at}",
            )
            for at, question in enumerate(asked)
        ]
        select = exp.select(column("_offset"), *wanted).from_(from_source())
        found = sorted(engine.fetch(Source(view, [file]), select, Run(120.0)).rows)
        assert [row[0] for row in found] == list(range(ROWS))
        for at, question in enumerate(asked, start=1):
            matched = np.array([row[at] for row in found], bool)
            tally.take(question, matched, filters.may_match(question))
    record_property("questions", tally.questions)
    record_property("matches", tally.matches)
    record_property("rows_passed_over", tally.passed_over)
    assert tally.matches > tally.questions
    assert tally.passed_over > ROWS * tally.questions / 2


def test_trino_lowers_no_letter_into_another_token(line: Line) -> None:
    """Every character that there is: its small letter makes the same runs and the same pairs."""
    numbers = (
        f"SELECT h * 4096 + l AS i FROM UNNEST(sequence(0, {CODE_POINTS // 4096 - 1})) AS a(h) "
        "CROSS JOIN UNNEST(sequence(0, 4095)) AS b(l)"
    )
    found = line.sql(
        f"SELECT i, lower(chr(i)) FROM ({numbers}) WHERE i > 0 AND i NOT BETWEEN 55296 AND 57343"
    )
    assert len(found) == CODE_POINTS - 1 - 2_048
    check_lowered([i for i, _ in found], [small for _, small in found])
