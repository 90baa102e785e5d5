"""What a word is, over texts of many scripts and letters whose two cases are odd: both engines give what the
plain filter of `reference.py` gives, in every form that a condition takes."""

import os
import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sqlglot import exp

from lake.token_filter.alphabet import alphabet_of
from query.language.letter_case import simple_lower, spellings
from query.language.search_language import Either, Match, Node, Not, Piece, Span, Wildcard, parse_search
from query.language.search_sql import compile_search
from query.language.sql_parts import column, text_literal
from query.language.text_match import as_duckdb_filters, as_trino_filters, text_match
from tests.query.support.one_file import schema
from tests.query.support.reference import lower, matches
from tests.stack.support.line import Sql

ROWS = 60
QUERIES = int(os.environ.get("FIRN_SEARCH_QUERIES", "10"))  # the long proof has many times as many
QUESTIONS, QUESTIONS_OF_TRINO, AT_ONCE = QUERIES * 50, QUERIES * 25, 50
FIELDS = ("message", "path", "status")
# Latin, Greek, Cyrillic, Hangul, Han, Kana, Thai; letters whose small one has other bytes or is of no word,
# capitals that few engines know, sigmas, digraphs with a third case, combining marks, blanks, what patterns
# read.
PARTS = (
    *("time", "OUT", "Refused", "a", "B", "k", "I", "s", "404", "7", "_", "-", ".", "/", " ", "  "),
    *(
        "\u0130",
        "\u0131",
        "\u212a",
        "\u017f",
        "\u00df",
        "\u1e9e",
        "\u00e9",
        "\u00c9",
        "e\u0301",
        "\u212b",
        "\u00e5",
    ),
    *("\u03a3", "\u03c3", "\u03c2", "\u2126", "\u03c9", "\u03f4", "\u03b8", "\u0345", "\u0416", "\u0451"),
    *("\u01c4", "\u01c5", "\u01c6", "\u023a", "\u2c65", "\u023e", "\u0181", "\u0253", "\u2c7e", "\u023f"),
    *(
        "\ua7dc",
        "\u019b",
        "\u1c89",
        "\u1c8a",
        "\ua7cb",
        "\u0264",
        "\U00010d50",
        "\U00010d70",
        "\u13a0",
        "\u10d0",
    ),
    *("\ud55c\uad6d", "\u6771\u4eac", "\u30c6", "\u0e44\u0e17", "\U0001f4a9", "\ufb01", "\u0301"),
    *("\t", "\n", "\r", "\x1f", "'", '"', "%", "\\", "*", "?", "[", "(", "^", "$", "|"),
)
Row = Mapping[str, str | None]


def random_text(r: random.Random, parts: int = 7) -> str:
    return "".join(r.choices(PARTS, k=r.randint(0, parts)))


def random_rows(r: random.Random) -> list[Row]:
    return [{name: r.choice([None, *[random_text(r)] * 4]) for name in FIELDS} for _ in range(ROWS)]


def random_pieces(r: random.Random, rows: Sequence[Row]) -> tuple[Piece, ...]:
    """A part of a text that is there, its letters in any case, some of them wildcards."""
    text = r.choice([text for row in rows for text in row.values() if text])
    at = r.randrange(len(text))
    pieces: list[Piece] = []
    for character in text[at : at + r.randint(1, 6)]:
        spelled = r.choice(spellings(simple_lower(character)))
        piece = r.choices((spelled, Wildcard.ANY, Wildcard.ONE), (14, 1, 1))[0]
        last = pieces[-1] if pieces else None
        if isinstance(piece, str) and isinstance(last, str):
            pieces[-1] = last + piece
        elif not (piece is last is Wildcard.ANY):
            pieces.append(piece)
    return tuple(pieces) if pieces != [Wildcard.ANY] else random_pieces(r, rows)


def random_question(r: random.Random, rows: Sequence[Row]) -> Node:
    field = r.choice([None, *FIELDS])
    match = Match(field, random_pieces(r, rows), True, Span(0, 1))
    other = Match(None, random_pieces(r, rows), True, Span(0, 1))
    return r.choices((match, Not(match), Either((match, other))), (8, 1, 1))[0]


def condition(question: Node) -> exp.Expression:
    found = compile_search(question, schema()).condition
    assert found is not None
    return found


def as_duckdb_gets(found: exp.Expression) -> str:
    return str(as_duckdb_filters(exp.select("1").where(found)).args["where"].this.sql("duckdb"))


def as_trino_gets(found: exp.Expression, dialect: str = "trino") -> str:
    select = as_trino_filters(exp.select("1").where(found), lambda: dialect == "trino")
    return str(select.args["where"].this.sql(dialect=dialect))


def tried(
    questions: Sequence[Node], rows: Sequence[Row], ask: Callable[[list[Node]], list[tuple[Any, ...]]]
) -> int:
    """Compares what an engine gives with the plain filter; how many rows were found. `ask` gives for each row
    whether it matches each question."""
    hits = 0
    for at in range(0, len(questions), AT_ONCE):
        asked = list(questions[at : at + AT_ONCE])
        for question, found in zip(asked, zip(*ask(asked), strict=True), strict=True):
            wanted = [matches(question, row) for row in rows]
            assert [bool(each) for each in found] == wanted, question
            hits += sum(wanted)
    return hits


@pytest.fixture
def parquet(tmp_path: Path) -> Iterator[Callable[[Sequence[Row], Sequence[str]], list[tuple[Any, ...]]]]:
    """Evaluates conditions over rows that lie in a Parquet file, with and without dictionaries."""
    with duckdb.connect() as connection:

        def ask(rows: Sequence[Row], conditions: Sequence[str]) -> list[tuple[Any, ...]]:
            empty = {name: None for name in schema().by_name if name not in FIELDS}
            table = pa.table(
                {
                    "n": range(len(rows)),
                    **{name: pa.array([row[name] for row in rows], pa.string()) for name in FIELDS},
                    **{name: pa.nulls(len(rows), pa.string()) for name in empty},
                }
            )
            path = tmp_path / "rows.parquet"
            pq.write_table(table, path, use_dictionary=["message", "path"])
            return connection.execute(f"SELECT {', '.join(conditions)} FROM '{path}' ORDER BY n").fetchall()

        yield ask


@pytest.mark.long
def test_duckdb_finds_what_the_plain_filter_finds(
    parquet: Callable[[Sequence[Row], Sequence[str]], list[tuple[Any, ...]]],
) -> None:
    """Thousands of random questions over random rows."""
    r = random.Random(23)
    hits = 0
    for _ in range(QUESTIONS // 500):
        rows = random_rows(r)
        questions = [random_question(r, rows) for _ in range(500)]
        hits += tried(
            questions,
            rows,
            lambda asked: parquet(rows, [as_duckdb_gets(condition(q)) for q in asked]),  # noqa: B023
        )
    assert hits > QUESTIONS


@pytest.mark.long
def test_every_form_of_a_condition_means_the_same(
    parquet: Callable[[Sequence[Row], Sequence[str]], list[tuple[Any, ...]]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Columns one by one, by two, all in one text; and both forms for Trino, as DuckDB reads them."""
    r = random.Random(24)
    rows = random_rows(r)
    columns = [column(name) for name in FIELDS]
    for _ in range(300):
        pieces = random_pieces(r, rows)
        wanted = [matches(Match(None, pieces, True, Span(0, 1)), row) for row in rows]
        forms = [text_match(columns, pieces, patterns).sql("duckdb") for patterns in (1, 2, 3)]
        for most in (0, 1_000):
            monkeypatch.setattr("query.language.text_match.TRINO_CONDITIONS_MAX", most)
            forms.append(as_trino_gets(text_match(columns, pieces), "duckdb"))
        for form, found in zip(forms, zip(*parquet(rows, forms), strict=True), strict=True):
            assert [bool(each) for each in found] == wanted, (pieces, form)


@pytest.mark.long
def test_columns_of_ascii_are_asked_without_a_pattern(
    parquet: Callable[[Sequence[Row], Sequence[str]], list[tuple[Any, ...]]],
) -> None:
    """Words at the beginning, at the end, between all other characters, alone; in texts, numbers, ids."""
    r = random.Random(25)
    ascii_parts = [*(part for part in PARTS if part.isascii()), *map(chr, range(1, 128))]
    hits = without = 0
    for _ in range(30):
        parts = r.choice([ascii_parts, list("0123456789"), list("0123456789."), list("aBcdef012-")])
        rows: list[Row] = [
            {name: r.choice([None, *["".join(r.choices(parts, k=r.randint(0, 4)))] * 4]) for name in FIELDS}
            for _ in range(ROWS)
        ]
        alphabets = [alphabet_of("".join(row[name] or "" for row in rows)) for name in FIELDS]
        questions = [random_pieces(r, rows) for _ in range(50)]
        columns = [column(name) for name in FIELDS]
        forms = [as_duckdb_gets(text_match(columns, pieces, 2, alphabets)) for pieces in questions]
        for pieces, form, found in zip(
            questions, forms, zip(*parquet(rows, forms), strict=True), strict=True
        ):
            wanted = [matches(Match(None, pieces, True, Span(0, 1)), row) for row in rows]
            assert [bool(each) for each in found] == wanted, (pieces, form)
            hits += sum(wanted)
            without += "REGEXP" not in form
    assert hits > 1_000
    assert without > 500


@pytest.mark.parametrize("joint", ["\x1f", "\n", "\x1f\n\r\t "])
def test_no_match_reaches_from_one_column_into_another(joint: str) -> None:
    """Whatever stands between columns that share a pattern may stand in a query too."""
    for patterns in (1, 3):
        sql = text_match([column("x"), column("y")], (f"a{joint}b",), patterns).sql("duckdb")
        for x, y, wanted in (("a", "b", False), (f"a{joint}", "b", False), (f"a{joint}b", None, True)):
            found = duckdb.execute(f"SELECT {sql} FROM (SELECT $1 AS x, $2 AS y)", [x, y]).fetchall()
            assert found == [(wanted,)], (x, y)


@pytest.mark.long
def test_wide_tables_have_few_patterns() -> None:
    """Of one word and of many: each costs its compilation."""
    wide = schema().with_strings({f"c{at}": (1_000 + at, f"/c{at}") for at in range(400)}, 2)
    for query, patterns_max in (("refused", 32), (" OR ".join(f"w{at}" for at in range(24)), 128)):
        made = compile_search(parse_search(query), wide).condition
        assert made is not None
        assert 0 < len(list(made.find_all(exp.RegexpExtract))) <= patterns_max
        assert len(list(made.find_all(exp.Like))) == 405 * len(query.split(" OR "))


def test_what_trino_would_not_compile_is_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond a number of conditions, or of characters, columns share a pattern there too."""
    for setting, most in (("TRINO_CONDITIONS_MAX", 4), ("TRINO_CHARACTERS_MAX", 500)):
        with monkeypatch.context() as patched:
            assert "CONCAT_WS" not in as_trino_gets(condition(parse_search("refused")))
            patched.setattr(f"query.language.text_match.{setting}", most)
            assert as_trino_gets(condition(parse_search("refused"))).count("REGEXP_LIKE") == 1


def test_what_trino_evaluates_row_by_row_is_joined() -> None:
    """NOT, and ranges of numbers in text, keep it from dictionaries; then one pattern a row is least."""
    for query in ("NOT refused", "refused NOT status:7", "refused status:>7", "refused _errors:wrong_type"):
        assert as_trino_gets(condition(parse_search(query))).count("CONCAT_WS('\x1f', \"message\"") == 1
    for query in ("refused", "refused bytes:7", "refused status:7 timestamp:2026-11-21", "refused status:*"):
        assert "CONCAT_WS" not in as_trino_gets(condition(parse_search(query)))


@pytest.mark.long
def test_the_spellings_of_a_letter_are_those_of_the_rule() -> None:
    """Every code point is among them, all are one letter, and none is special in a regular expression."""
    for character in map(chr, range(1, 0x20000)):
        assert character in spellings(lower(character)) or 0xD800 <= ord(character) <= 0xDFFF
        if len(every := spellings(lower(character))) > 1:
            assert {lower(each) for each in every} == {lower(character)}
            assert set(every).isdisjoint("]^-\\[&~")


def runs(text: str) -> list[str]:
    """Maximal runs of ASCII word characters as a token filter cuts them."""
    return re.findall("[0-9a-z_]+", text.translate({0x130: "i", 0x212A: "k"}).lower())


def demanded(pieces: Sequence[Piece]) -> set[str]:
    """The runs of a query that touch no wildcard."""
    text = "".join(piece if isinstance(piece, str) else "\0" for piece in pieces)
    folded = text.translate({0x130: "i", 0x212A: "k"}).lower()
    return set(re.findall("(?<![0-9a-z_\0])[0-9a-z_]+(?![0-9a-z_\0])", folded))


@pytest.mark.long
def test_what_matches_has_the_tokens_of_the_query() -> None:
    """What a token filter relies on (`letter_case.py`)."""
    r = random.Random(25)
    demands = 0
    for _ in range(40):
        rows = random_rows(r)
        for _ in range(50):
            pieces = random_pieces(r, rows)
            for row in rows:
                for name in FIELDS:
                    if matches(Match(name, pieces, True, Span(0, 1)), row):
                        assert demanded(pieces) <= set(runs(row[name] or "")), (pieces, row[name])
                        demands += len(demanded(pieces))
    assert demands > 500
    ascii_spelled = {
        each for small in map(chr, range(128)) for each in spellings(small) if not each.isascii()
    }
    assert ascii_spelled == {"\u0130", "\u212a"}


def in_sql(texts: Sequence[str | None]) -> str:
    literals = ("NULL" if text is None else text_literal(text).sql("trino") for text in texts)
    return f"ARRAY[{', '.join(literals)}]"


@pytest.mark.stack
def test_trino_finds_what_the_plain_filter_finds(trino: Sql) -> None:
    """The same of Trino: many rows and many questions in each statement."""
    r = random.Random(26)
    rows = random_rows(r)
    names, as_null = ", ".join(FIELDS), "CAST(NULL AS VARCHAR)"
    columns = ", ".join(in_sql([row[name] for row in rows]) for name in FIELDS)
    source = (
        f"(SELECT {names}, n, {as_null} AS severity, {as_null} AS _overflow "
        f"FROM UNNEST({columns}) WITH ORDINALITY AS t ({names}, n))"
    )

    def ask(asked: list[Node]) -> list[tuple[Any, ...]]:
        conditions = ", ".join(as_trino_gets(condition(question)) for question in asked)
        return trino(f"SELECT {conditions} FROM {source} ORDER BY n")

    questions = [random_question(r, rows) for _ in range(QUESTIONS_OF_TRINO)]
    assert tried(questions, rows, ask) > QUESTIONS_OF_TRINO
