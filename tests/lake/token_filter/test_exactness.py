"""No filter hides a row that matches: questions cut out of random texts, asked DuckDB row by row."""

import os
import random
from collections.abc import Callable

import duckdb
import numpy as np
import pytest
from sqlglot import exp

from lake.token_filter.letters import CODE_POINTS, letters
from query.language.search_sql import compile_search
from tests.lake.token_filter.support.questions import SCHEMA, RowFilters, Tally, questions, rows

# The long proof asks 100,000.
QUESTIONS = int(os.environ.get("FIRN_FILTER_QUESTIONS", "200"))
SEED = int(os.environ.get("FIRN_TEST_SEED", "1"))
ROWS, QUESTIONS_OF_ROWS, ASKED_AT_ONCE = 100, 1_000, 100


@pytest.mark.long
def test_no_row_that_matches_is_hidden(record_property: Callable[[str, object], None]) -> None:
    """Words, phrases and wildcards, with a field and without, in every script and any case, and what AND, OR
    and NOT make of them; the filters pass over most of what does not match."""
    tally = Tally()
    while tally.questions < QUESTIONS:
        draw = random.Random(SEED * 1_000_000 + tally.questions)
        table = rows(ROWS, draw)
        filters = RowFilters(table)
        asked = questions(min(QUESTIONS_OF_ROWS, QUESTIONS - tally.questions), table, draw)
        with duckdb.connect() as database:
            database.execute("SET threads = 1")
            database.register("arrow", table)
            database.execute("CREATE TABLE rows AS SELECT * FROM arrow")
            for first in range(0, len(asked), ASKED_AT_ONCE):
                some = asked[first : first + ASKED_AT_ONCE]
                conditions = [compile_search(question, SCHEMA).condition for question in some]
                wanted = [
                    exp.alias_(exp.Coalesce(this=condition, expressions=[exp.false()]), f"asked{at}")
                    for at, condition in enumerate(conditions)
                ]
                select = exp.select(*wanted).from_("rows").order_by(exp.column("_offset", quoted=True))
                found = database.execute(select.sql(dialect="duckdb")).fetchnumpy()
                for at, question in enumerate(some):
                    tally.take(question, np.asarray(found[f"asked{at}"], bool), filters.may_match(question))
    record_property("questions", tally.questions)
    record_property("matches", tally.matches)
    record_property("rows_passed_over", tally.passed_over)
    assert tally.matches > tally.questions
    assert tally.passed_over > ROWS * tally.questions / 2


@pytest.mark.long
def test_the_engine_lowers_no_letter_into_another_token() -> None:
    """Every character that there is: its small letter makes the same runs and the same pairs."""
    with duckdb.connect() as database:
        found = database.execute(
            "SELECT lower(chr(i::INT)) FROM range(1, ?) t(i) WHERE i NOT BETWEEN 55296 AND 57343 ORDER BY i",
            [CODE_POINTS],
        ).fetchall()
    code_points = [i for i in range(1, CODE_POINTS) if not 0xD800 <= i <= 0xDFFF]
    check_lowered(code_points, [lowered for (lowered,) in found])


def check_lowered(code_points: list[int], lowered: list[str]) -> None:
    """The characters that an engine lowers are the same for the tokenizer before and after."""
    table = letters()
    assert len(code_points) == len(lowered)
    for code_point, small in zip(code_points, lowered, strict=True):
        assert len(small) == 1, hex(code_point)
        assert table[code_point] == table[ord(small)], hex(code_point)
        if small.isascii() and (small.isalnum() or small == "_"):
            assert chr(code_point).lower()[0] == small, hex(code_point)
            assert chr(code_point).isascii() or code_point in (0x0130, 0x212A), hex(code_point)


@pytest.mark.parametrize("code_point", [0x0130, 0x212A])
def test_two_characters_count_as_ascii(code_point: int) -> None:
    """They have ASCII for their small letters, and are no part of a pair."""
    assert chr(code_point).lower()[0].isascii()
    assert letters()[code_point] == 0
