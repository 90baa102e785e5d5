"""The guard before people's SQL: what passes, as what, and what does not."""

import random

import pytest
import sqlglot
from hypothesis import given
from hypothesis import strategies as st
from sqlglot import exp

from lake.tenant import TenantId
from query.model.problem import BadRequestError
from query.sql.sql_guard import guard

ACME = TenantId("acme")


class ForeignTenantError(Exception):
    """The caller does not reach this tenant."""


def only_acme(tenant: TenantId) -> None:
    if tenant != ACME:
        raise ForeignTenantError(tenant.name)


@pytest.mark.parametrize(
    ("sql", "runs"),
    [
        ("select * from Logs", 'SELECT * FROM "lake"."acme"."logs" AS "logs"'),
        ('select 1 from acme."my-stream" s;', 'SELECT 1 FROM "lake"."acme"."my_2dstream" AS s'),
        (
            "select a from logs where b = 'x; drop' -- c",
            'SELECT a FROM "lake"."acme"."logs" AS "logs" WHERE b = \'x; drop\'',
        ),
        ("with x as (select 1 a) select * from x", "WITH x AS (SELECT 1 AS a) SELECT * FROM x"),
    ],
)
def test_queries_are_forced_onto_the_callers_tables(sql: str, runs: str) -> None:
    """Every table becomes a full name; comments and what follows a semicolon do not survive."""
    assert guard(sql, ACME, "lake", only_acme) == runs


@pytest.mark.parametrize(
    "sql",
    [
        "drop table logs",
        "insert into logs select 1",
        "delete from logs",
        "update logs set a = 1",
        "select 1; select 2",
        "show tables",
        "explain select 1",
        "set session x = 1",
        "call lake.system.x()",
        "select * into x from logs",
        "create table x as select 1",
        "grant select on logs to x",
        "prepare x from select 1",
        "select * from system.runtime.queries",
        "select * from information_schema.tables",
        "select * from lake.information_schema.tables",
        "use lake.x",
        "select * from table(lake.system.table_changes('a', 'b'))",
        "select * from logs for version as of 3",
        "",
        ";",
        "(" * 500,
        "select \x00",
        "x" * 200_000,
    ],
)
def test_what_is_no_single_query_over_streams_is_refused(sql: str) -> None:
    """Changes, several statements, other catalogs, table functions and system tables are each a sentence."""
    with pytest.raises(BadRequestError):
        guard(sql, ACME, "lake", only_acme)


@pytest.mark.parametrize(
    "sql",
    [
        "select * from globex.logs",
        'select * from "Acme".logs',
        "select (select max(a) from globex.logs)",
        "with x as (select * from globex.logs) select * from x",
        "select * from logs where a in (select b from globex.logs)",
        "select * from logs union all select * from globex.logs",
    ],
)
def test_another_tenants_table_is_asked_for_in_vain(sql: str) -> None:
    """Wherever another tenant's table stands, the check is made for it."""
    with pytest.raises(ForeignTenantError):
        guard(sql, ACME, "lake", only_acme)


PARTS = [
    "select",
    "*",
    "from",
    "logs",
    "globex",
    ".",
    "acme",
    ",",
    "(",
    ")",
    "union",
    "all",
    "with",
    "x",
    "as",
    "where",
    "'",
    '"',
    "--",
    "/*",
    "*/",
    ";",
    "table",
    "lake",
    "in",
    "exists",
    "join",
    "on",
    "true",
    "unnest",
    "lateral",
    "values",
    "1",
    "information_schema",
    "system",
    "tables",
    "insert",
    "into",
    "drop",
    "\n",
    "$",
    "[",
    "]",
]


def check_what_runs(sql: str) -> None:
    """Whatever passes is one query over acme's tables and names defined in itself."""
    try:
        runs = guard(sql, ACME, "lake", only_acme)
    except (BadRequestError, ForeignTenantError):
        return
    trees = sqlglot.parse(runs, dialect="trino")
    assert len(trees) == 1
    assert isinstance(trees[0], exp.Query)
    for table in trees[0].find_all(exp.Table):
        assert (table.catalog, table.db) in (("lake", "acme"), ("", "")), (sql, runs)


@given(st.lists(st.sampled_from(PARTS), max_size=25))
def test_no_heap_of_words_passes_the_guard_into_another_schema(parts: list[str]) -> None:
    """Random SQL fragments are refused, or run on acme's tables alone."""
    check_what_runs(" ".join(parts))


@pytest.mark.long
def test_two_thousand_mutations_of_sound_queries_stay_inside() -> None:
    """Sound queries with fragments put in at random places never reach another schema and never fail
    otherwise."""
    random_ = random.Random(3)
    sound = [
        "select a, count(*) from logs where b = 'c' group by 1",
        "with x as (select * from logs) select * from x join acme.access using (a)",
    ]
    for _ in range(2_000):
        words = random_.choice(sound).split()
        for _ in range(random_.randint(1, 4)):
            words.insert(random_.randint(0, len(words)), random_.choice(PARTS))
        check_what_runs(" ".join(words))
