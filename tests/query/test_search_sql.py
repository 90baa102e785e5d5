"""From queries to SQL: golden pairs in both dialects, types, unknown fields."""

import re
from pathlib import Path

import duckdb
import pytest
import sqlglot
from hypothesis import given
from hypothesis import strategies as st
from sqlglot import exp

from lake.log_schema import LogSchema, new_log_schema
from lake.marks import Range, TopicPartition
from query.language.letter_case import word_class
from query.language.search_language import parse_search
from query.language.search_sql import compile_search, within_offsets
from query.language.text_match import as_trino_filters
from query.model.problem import BadRequestError

GOLDEN = Path(__file__).parents[1] / "golden" / "search.txt"
TYPES = {
    "bytes": "long",
    "took": "double",
    "ok": "boolean",
    "day": "date",
    "id": "uuid",
    "amount": "decimal(12, 2)",
}


def schema() -> LogSchema:
    names = (
        *("path", "status", "http_status", "bytes", "bytes__string", "took", "ok", "day", 'we"ird'),
        *("id", "amount"),
    )
    made = new_log_schema().with_strings({name: (100 + at, f"/{name}") for at, name in enumerate(names)}, 1)
    fields = [{**field, "type": TYPES.get(field["name"], field["type"])} for field in made.json["fields"]]
    return LogSchema({**made.json, "fields": fields})


def sql_of(query: str, dialect: str) -> str:
    """The condition as the engine gets it, `W` for the characters of words."""
    condition = compile_search(parse_search(query), schema()).condition
    if condition is None:
        return "every row"
    select = exp.select("1").where(condition)
    if dialect == "trino":
        select = as_trino_filters(select, lambda: False)
    sql: str = select.args["where"].this.sql(dialect=dialect)
    return sql.replace(word_class(), "W")


def golden_blocks() -> list[tuple[str, str, str]]:
    """(query, SQL of Trino, SQL of DuckDB) per block of the golden file."""
    blocks = re.split(r"^=== query\n", GOLDEN.read_text(), flags=re.MULTILINE)[1:]
    found = []
    for block in blocks:
        query, rest = block.split("\n--- trino\n")
        trino, duck = rest.split("\n--- duckdb\n")
        found.append((query, trino, duck.removesuffix("\n\n").removesuffix("\n")))
    return found


@pytest.mark.parametrize("block", golden_blocks(), ids=lambda block: block[0][:40])
def test_queries_become_the_sql_of_the_golden_file(block: tuple[str, str, str]) -> None:
    """Each golden query compiles to exactly the SQL that was looked at and kept, in both dialects."""
    query, trino, duck = block
    assert sql_of(query, "trino") == trino
    assert sql_of(query, "duckdb") == duck


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("bytes:many", "holds numbers"),
        ("ok:maybe", "true or false"),
        ("timestamp:yesterday", "holds times"),
        ('""', "empty quotes"),
        ("bytes:[a TO 5]", "holds numbers"),
        ("amount:many", "holds numbers"),
        ("id:123e4567", "compared as a whole"),
        ("id:123e4567*", "compared as a whole"),
    ],
)
def test_a_value_that_does_not_fit_its_field_is_refused_with_an_example(query: str, says: str) -> None:
    """The sentence names the field's type and shows what can be written."""
    with pytest.raises(BadRequestError, match=says) as caught:
        compile_search(parse_search(query), schema())
    assert caught.value.problem.suggestion


def test_an_unknown_field_is_a_warning_with_the_nearest_name() -> None:
    """The search goes on, matches nothing in that part, and says which field was probably meant."""
    compiled = compile_search(parse_search("stauts:500"), schema())
    assert compiled.condition == exp.false()
    assert [warning.suggestion for warning in compiled.warnings] == ["did you mean status?"]


def test_names_may_be_written_with_dots_and_capitals() -> None:
    """`http.Status` is the column http_status."""
    assert sql_of("http.Status:500", "trino") == sql_of("http_status:500", "trino")


def test_committed_offsets_become_a_condition_on_identity() -> None:
    """Rows of these offsets, per topic and partition; none are no rows."""
    committed = {
        TopicPartition("t'1", 0): (Range(0, 5),),
        TopicPartition("t'1", 1): (Range(2, 7), Range(9, 11)),
    }
    sql = within_offsets(committed).sql("trino").replace('"', "")
    assert sql.count("'t''1'") == 2  # once for each partition
    assert [
        sql.count(f"_offset < {end}") + sql.count(f"_offset >= {start}")
        for start, end in ((0, 5), (2, 7), (9, 11))
    ] == [1, 2, 2]
    assert within_offsets({}) == exp.false()


@given(
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), min_size=1, max_size=30),
    st.sampled_from(["message", "path", 'we"ird', "nope"]),
)
def test_no_text_of_a_query_leaves_its_literal(text: str, field: str) -> None:
    """Whatever is searched for, both dialects read the SQL back as one expression over existing columns, and
    DuckDB runs it."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    condition = compile_search(
        parse_search(f'{field.replace(chr(34), chr(92) + chr(34))}:"{escaped}"'), schema()
    ).condition
    assert condition is not None
    for dialect in ("trino", "duckdb"):
        statements = sqlglot.parse(f"SELECT 1 FROM t WHERE {condition.sql(dialect=dialect)}", dialect=dialect)
        assert len(statements) == 1
        assert statements[0] is not None
        assert {column.name for column in statements[0].find_all(exp.Column)} <= {"message", "path", 'we"ird'}
        assert {table.name for table in statements[0].find_all(exp.Table)} == {"t"}
    values = "SELECT 'x' AS message, 'y' AS path, 'z' AS \"we\"\"ird\""
    duckdb.sql(f"SELECT count(*) FROM ({values}) t WHERE {condition.sql(dialect='duckdb')}").fetchall()
