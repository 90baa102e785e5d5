"""What a word is and how wildcards match: the same on both engines, for every code point, and in one pass
over the text."""

import os
import random
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import cache
from typing import Any

import duckdb
import pyarrow as pa
import pytest
import trino as trino_client
from sqlglot import exp

from infra.local.service import host_port
from infra.local.supervisor import Stack
from lake.log_schema import new_log_schema
from lake.settings import QuerySettings
from query.executors.trino import TrinoExecutor
from query.language.letter_case import CAPITAL_OF, LOWER_OF_NEWEST
from query.language.search_language import Match, Wildcard, parse_search
from query.language.search_sql import compile_search
from query.language.text_match import as_trino_filters
from query.language.word_pattern import word_pattern
from query.model.cancellation import Run
from query.model.problem import BadRequestError
from tests.query.support.reference import is_word, lower, matches
from tests.stack.support.line import Sql

# Beyond these planes there are ideographs alone, which the long proof looks at as well.
PLANES = 17 if os.environ.get("FIRN_PROVE") else 2
CODE_POINTS = [point for point in range(1, PLANES * 0x10000) if not 0xD800 <= point <= 0xDFFF]
# A table of all of them in Trino, whose `sequence` has at most 10,000 entries.
IN_TRINO = (
    "(SELECT point, {text} AS message FROM (SELECT a * 1024 + b AS point FROM "
    f"UNNEST(sequence(0, {PLANES * 64 - 1})) t(a) CROSS JOIN UNNEST(sequence(0, 1023)) u(b))"
    " WHERE point > 0 AND point NOT BETWEEN 55296 AND 57343) AS source"
)


def condition(query: str) -> exp.Expression:
    found = compile_search(parse_search(query), new_log_schema()).condition
    assert found is not None
    return found


def as_trino_asks(query: str) -> str:
    """The condition as the API sends it to a Trino with Joni."""
    select = as_trino_filters(exp.select("point").where(condition(query)), lambda: True)
    return str(select.args["where"].this.sql(dialect="trino"))


@pytest.fixture(scope="module")
def duck() -> Iterator[Callable[[str], list[Any]]]:
    """`duck(what)`: an expression of SQL over all code points in DuckDB, in their order, with `letter` as
    each of them."""
    with closing(duckdb.connect()) as connection:
        connection.register("points", pa.table({"point": CODE_POINTS}))
        connection.execute("CREATE TABLE letters AS SELECT point, chr(point::INTEGER) AS letter FROM points")

        def ask(what: str) -> list[Any]:
            answer = connection.execute(f"SELECT {what} FROM letters ORDER BY point").to_arrow_table()
            values: list[Any] = answer.column(0).to_pylist()
            return values

        yield ask


def is_no_word(letter: str) -> bool:
    """Whether a word may end beside it."""
    return not is_word(lower(letter))


# A query, a text with `{}` for each code point, and which of them the rule says are found.
TRIED: tuple[tuple[str, str, Callable[[str], bool]], ...] = (
    ("message:x", "x{}", is_no_word),
    ("message:x", "{}x", is_no_word),
    ("message:x*y", "x{}y", lambda letter: letter not in " \t\n\r\x1f"),
    ("message:\u019b", "{}", lambda letter: letter in "\u019b\ua7dc"),
)


@cache  # two of them have one rule, and each engine is tried by all
def found_by(rule: Callable[[str], bool]) -> list[bool]:
    """What a rule says of each code point, in their order."""
    return [rule(chr(point)) for point in CODE_POINTS]


def concatenated(text: str, letter: str) -> str:
    """A text with `{}` in it as SQL."""
    before, after = text.split("{}")
    return " || ".join(
        part for part in (f"'{before}'" if before else "", letter, f"'{after}'" if after else "") if part
    )


@pytest.mark.long
@pytest.mark.finding(15)
def test_every_code_point_is_in_a_word_or_not_for_duckdb(
    duck: Callable[[str], list[Any]],
) -> None:
    """DuckDB finds the code points that the rule says."""
    for query, text, rule in TRIED:
        sql = condition(query).sql(dialect="duckdb").replace('"message"', f"({concatenated(text, 'letter')})")
        assert duck(sql) == found_by(rule), (query, text)


@pytest.mark.finding(15)
@pytest.mark.stack
def test_every_code_point_is_in_a_word_or_not_for_trino(trino: Sql) -> None:
    """The same of a real Trino, in one statement each."""
    for query, text, rule in TRIED:
        sql = (
            f"SELECT point FROM {IN_TRINO.format(text=concatenated(text, 'chr(point)'))} WHERE "
            f"{as_trino_asks(query)}"
        )
        wanted = {point for point, is_found in zip(CODE_POINTS, found_by(rule), strict=True) if is_found}
        assert {point for (point,) in trino(sql)} == wanted, (query, text)


@pytest.mark.long
@pytest.mark.finding(15)
def test_duckdb_lowers_as_the_rule_says(duck: Callable[[str], list[Any]]) -> None:
    """Where its `LOWER` does not give the rule's letter it leaves one of those that are looked for in both
    cases."""
    letters = map(chr, CODE_POINTS)
    different = {
        letter
        for letter, lowered in zip(letters, duck("lower(letter)"), strict=True)
        if lowered != lower(letter)
    }
    assert different <= set(LOWER_OF_NEWEST)


@pytest.mark.finding(15)
@pytest.mark.stack
def test_trino_lowers_as_the_rule_says(trino: Sql) -> None:
    """The same of Trino."""
    rows = trino(
        f"SELECT point, lower(message) FROM {IN_TRINO.format(text='chr(point)')} WHERE lower(message) <> "
        "message"
    )
    lowered: dict[int, str] = dict(rows)
    assert {
        chr(point) for point in CODE_POINTS if lowered.get(point, chr(point)) != lower(chr(point))
    } <= set(LOWER_OF_NEWEST)
    assert set(CAPITAL_OF) == {small for small in CAPITAL_OF if lower(small) == small}


@pytest.mark.finding(15)
@pytest.mark.stack
def test_a_newest_letter_is_found_in_both_cases(trino: Sql) -> None:
    """Whichever of the two is asked for, both engines find both."""
    for capital, small in LOWER_OF_NEWEST.items():
        for asked in (capital, small):
            letters = (
                f"(SELECT point, chr(point) AS message FROM (VALUES {ord(capital)}, {ord(small)}, 97) "
                "AS t (point)) AS source"
            )
            sql = f"SELECT point FROM {letters} WHERE {as_trino_asks(f'message:{asked}')}"
            assert {point for (point,) in trino(sql)} == {ord(capital), ord(small)}
            for letter in (capital, small, "a"):
                found = duckdb.execute(
                    f"SELECT {condition(f'message:{asked}').sql(dialect='duckdb')} FROM (SELECT $1 AS "
                    "message)",
                    [letter],
                ).fetchall()
                assert found == [(letter != "a",)]


def random_words(count: int, seed: int) -> list[str]:
    """Words of few different characters, with wildcards: most match something."""
    random_ = random.Random(seed)
    return [
        "".join(random_.choices("ab*?-.", weights=(4, 3, 3, 1, 1, 1), k=random_.randint(2, 7)))
        for _ in range(count)
    ]


def usable(words: Sequence[str]) -> list[str]:
    """Those that are matches, by the parser's own judgement."""
    kept = []
    for word in words:
        try:
            node = parse_search(f"message:{word}")
        except BadRequestError:
            continue
        if isinstance(node, Match) and Wildcard.ANY in node.pieces:
            kept.append(word)
    return kept


@pytest.mark.finding(22)
@pytest.mark.stack
def test_wildcards_match_alike_in_one_pass(trino: Sql) -> None:
    """Random words over random texts: DuckDB's pattern, Trino's, Python's own of the same pattern, and the
    plain filter agree."""
    random_ = random.Random(22)
    texts = ["".join(random_.choices("aab-. \n", k=random_.randint(0, 12))) for _ in range(150)]
    listed = ", ".join("'" + text + "'" for text in texts)
    hits = 0
    for word in usable(random_words(150, 23))[:80]:
        query = f"message:{word}"
        wanted = [matches(parse_search(query), {"message": text}) for text in texts]
        sql = (
            f"SELECT {as_trino_asks(query)} FROM UNNEST(ARRAY[{listed}]) WITH ORDINALITY AS t (message, n) "
            "ORDER BY n"
        )
        assert [bool(row[0]) for row in trino(sql)] == wanted, word
        duck_sql = (
            f"SELECT {condition(query).sql(dialect='duckdb')} FROM (SELECT UNNEST($1) AS message, "
            "UNNEST($2) AS n) ORDER BY n"
        )
        assert [
            bool(row[0]) for row in duckdb.execute(duck_sql, [texts, list(range(len(texts)))]).fetchall()
        ] == wanted, word
        hits += sum(wanted)
    assert hits > 500


# Texts that nearly match: a library that goes back takes for each the second to fourth power of its length.
NEARLY = {
    "message:a*a*a*b": ("'x b ' || array_join(repeat('a', 10000), '')", "x b " + "a" * 10_000),
    "message:a*b": ("'x b ' || array_join(repeat('-a', 10000), '')", "x b " + "-a" * 10_000),
    "message:?*?*?*b": ("'x b ' || array_join(repeat('a', 10000), '')", "x b " + "a" * 10_000),
}


@pytest.mark.finding(22)
@pytest.mark.stack
def test_no_word_makes_trino_go_back(stack: Stack) -> None:
    """Processor time of a real Trino stays what one pass over some megabytes takes."""
    assert TrinoExecutor(
        QuerySettings.load(trino__uri=stack.environment()["FIRN_QUERY_TRINO__URI"])
    )._has_atomic_groups(Run(60.0))
    host, port = host_port(stack.address("trino"))
    connection: Any = trino_client.dbapi.Connection(
        host=host, port=port, user="test", session_properties={"query_max_cpu_time": "20s"}
    )
    with closing(connection):
        cursor = connection.cursor()
        for query, (text, _) in NEARLY.items():
            cursor.execute(
                f"SELECT count(*) FROM (SELECT {text} AS message FROM UNNEST(sequence(1, 20))) WHERE "
                f"{as_trino_asks(query)}"
            )
            assert cursor.fetchall() == [[0]]
            assert cursor.stats["cpuTimeMillis"] < 10_000, query


@pytest.mark.finding(22)
def test_the_executor_sends_the_pattern_that_passes_once() -> None:
    """Where Trino's library knows atomic groups; where it does not (RE2J) the plain one, which that library
    reads in one pass."""
    for library, wanted in ((True, "(?>"), (False, "[^ ")):
        trino = TrinoExecutor(QuerySettings())
        trino._atomic_groups = library
        select = exp.select("message").where(condition("message:a*a*b"))
        sql = trino._as_filtered(select, Run(1.0)).sql(dialect="trino")
        assert wanted in sql
        assert ("(?>" in sql) is library


@pytest.mark.finding(22)
def test_the_pattern_passes_over_a_text_once() -> None:
    """Processor time of Python's own library, which goes back as Joni does: a quarter of a million characters
    in a moment."""
    for query, (_, text) in NEARLY.items():
        node = parse_search(query)
        assert isinstance(node, Match)
        once = word_pattern(node.pieces).once
        assert once is not None
        before_s = time.process_time()
        assert re.search(once, text * 20) is None
        assert time.process_time() - before_s < 10.0


@pytest.mark.long
@pytest.mark.finding(22)
def test_both_patterns_match_what_the_plain_filter_matches() -> None:
    """Random words over random texts, in Python's own library."""
    random_ = random.Random(24)
    for word in usable(random_words(600, 25)):
        node = parse_search(f"message:{word}")
        assert isinstance(node, Match)
        pattern = word_pattern(node.pieces)
        for _ in range(40):
            text = "".join(random_.choices("aab-. \n", k=random_.randint(0, 12)))
            wanted = matches(node, {"message": text})
            for each in (pattern.plain, pattern.once or pattern.plain):
                assert (re.search(each, text) is not None) == wanted, (word, text, each)


@pytest.mark.finding(22)
def test_a_word_has_a_bounded_number_of_wildcards() -> None:
    """More of them are refused with a sentence."""
    with pytest.raises(BadRequestError, match="more than 32 wildcards"):
        condition("message:" + "a*" * 40 + "b")
