"""Patterns of messages: what is grouped, what is counted as left out, and what hostile messages cost."""

import random
import string
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lake.catalog_client import CatalogClient
from query.language.search_language import parse_search
from query.model.cancellation import CancelledError, Run
from query.model.problem import BadRequestError
from query.pipes.patterns import (
    VALUE,
    WORDS_MAX,
    Grouped,
    group,
    search_of,
    shape_of,
)
from query.pipes.pipe_language import parse_pipeline
from query.pipes.relation import TEXT_CHARACTERS_MAX, after, rows_of_search
from query.pipes.stages import Patterns
from tests.query.support.log_table import LogTable, fresh_tenant
from tests.query.support.one_file import file_of, schema
from tests.query.support.reference import START, TYPES, matches
from tests.query.test_stats import END

CHARACTERS = 200


def grouped(texts: Sequence[str | None], **bounds: int) -> Grouped:
    return group(texts, lambda: None, **{"characters_max": CHARACTERS, **bounds})


def counted(found: Grouped) -> dict[str, int]:
    return {each.text: each.count for each in found.patterns}


def is_whole(found: Grouped) -> bool:
    """Whether every text is counted once."""
    left_out = found.missing + found.forgotten + found.uncompared
    return sum(each.count for each in found.patterns) + left_out == found.read


def test_messages_that_differ_in_values_have_one_pattern() -> None:
    """Numbers, addresses and ids are values at once; names become one when the second is seen."""
    messages = [
        *(f"user {name} logged in from 10.0.0.{at}:443" for at, name in enumerate("abcabc")),
        *(f"GET /api/v{at % 2}/items/{at * 7:x}9 took={at}ms" for at in range(5)),
        "disk  full\ton /dev/sda1",
        "disk full on /dev/sdb2",
        "",
        None,
    ]
    found = grouped(messages)
    assert counted(found) == {
        f"user {VALUE} logged in from {VALUE}": 6,
        f"GET /api/{VALUE}/items/{VALUE} took={VALUE}": 5,
        f"disk full on /dev/{VALUE}": 2,
        "": 1,
    }
    assert [each.example for each in found.patterns] == [messages[0], messages[6], messages[11], ""]
    assert (found.read, found.missing, found.forgotten, found.uncompared, found.cut) == (15, 1, 0, 0, 0)


@pytest.mark.long
@settings(max_examples=100)
@given(
    st.lists(
        st.none()
        | st.lists(
            st.sampled_from(["a", "of", "NOT", "and", "ID", "x9", "é", "Ωm", "東京", "b=", "=b", "<*>", "\n"])
            | st.text(max_size=6),
            max_size=12,
        ).map(" ".join),
        max_size=40,
    )
)
def test_the_search_of_a_pattern_finds_every_message_of_it(texts: list[str | None]) -> None:
    """Whatever is written in messages, and every message is counted once."""
    found = grouped(texts, characters_max=40)
    assert is_whole(found)
    of_shape: dict[str, list[str]] = {}
    for text in texts:
        if text is not None:
            of_shape.setdefault(shape_of(text, 40), []).append(text)
    for pattern in found.patterns:
        search = search_of(pattern.text, "message")
        node = parse_search(search)
        for shape, messages in of_shape.items():
            if fits(shape.split(), pattern.text.split()):
                assert all(matches(node, {"message": each}) for each in messages), (pattern, search)


def fits(words: Sequence[str], pattern: Sequence[str]) -> bool:
    return len(words) == len(pattern) and all(
        each in (word, VALUE) for word, each in zip(words, pattern, strict=True)
    )


@pytest.mark.parametrize(
    ("pattern", "search"),
    [
        ("user <*> logged in", "message:(user logged in)"),
        ("to <*> NOT and 東京", "message:(\\to \\NOT \\and)"),
        ("x<*>y <*>", ""),
        ("took=<*>ms of queue", "message:(took of queue)"),
        ("a a " + "b" * 60, "message:(a)"),
    ],
)
def test_a_search_has_the_words_that_stand_alone(pattern: str, search: str) -> None:
    """No part of a word, no value, and no operator."""
    assert search_of(pattern, "message") == search


def test_frequent_patterns_survive_a_flood_of_others() -> None:
    """A pattern gives way when many others were seen after it, and what it had is told."""
    flood = [" ".join(words(at)) for at in range(2_000)]
    messages = [each for at, text in enumerate(flood) for each in (text, f"served in {at} ms")]
    found = grouped(messages, kept_max=20)
    assert found.patterns[0].count == 2_000
    assert found.patterns[0].text == f"served in {VALUE} ms"
    assert len(found.patterns) == 20
    assert found.forgotten == 2_000 - sum(each.count for each in found.patterns[1:])
    assert is_whole(found)


def words(seed: int, count: int = 8) -> list[str]:
    draws = random.Random(seed)
    return ["".join(draws.choices(string.ascii_letters, k=8)) for _ in range(count)]


def test_messages_that_are_never_alike_are_compared_up_to_a_bound() -> None:
    """All with the same first word and length, so that each is compared with every pattern."""
    messages = [" ".join(["same", *words(at, 50)]) for at in range(300)]
    found = grouped(messages, compared_max=100_000, characters_max=1_000)
    assert 0 < found.uncompared < 300
    assert is_whole(found)
    # What is alike still counts for what it is.
    again = grouped([*messages, messages[0]], compared_max=100_000, characters_max=1_000)
    assert (again.uncompared, again.patterns[0].count) == (found.uncompared, 2)


def test_the_end_of_a_long_message_is_left_out_and_told() -> None:
    found = grouped(["word " * 200, "a" * 1_000 + "1", "b " * (WORDS_MAX + 9)])
    assert found.cut == 2
    assert sorted(len(each.text.split()) for each in found.patterns) == [1, 200 // 5, WORDS_MAX + 1]
    assert all(len(each.example) <= CHARACTERS for each in found.patterns)


@pytest.mark.long
@pytest.mark.parametrize("text", ["a" * 100_000, "a1" * 50_000, "1-" * 50_000, "<*>-" * 25_000, "é_" * 9_000])
def test_no_text_makes_the_search_for_values_go_back(text: str) -> None:
    """Where expressions go back, each of these takes hours; the run would not end."""
    assert len(shape_of(text * 20, len(text) * 20 + 1)) > 0


def test_work_ends_when_nobody_waits_for_it() -> None:
    """Between messages."""
    run = Run(60.0)

    def texts() -> Iterator[str]:
        for at in range(100_000):
            if at == 10:
                run.cancel()
            assert at < 1_000
            yield str(at)

    with pytest.raises(CancelledError):
        group(texts(), run.check, characters_max=CHARACTERS)


@pytest.mark.parametrize(
    ("text", "stage"),
    [
        ("a | patterns", Patterns(100, "message")),
        ("a | patterns 20 from path", Patterns(20, "path")),
        ('a | PATTERNS from "from"', Patterns(100, "from")),
    ],
)
def test_the_stage_says_how_many_and_of_what(text: str, stage: Patterns) -> None:
    assert parse_pipeline(text).stages == (stage,)


@pytest.mark.parametrize(
    ("text", "at", "said"),
    [
        ("a | patterns 20 | limit 3", 4, "behind patterns stands nothing"),
        ("a | patterns | patterns", 4, "behind patterns stands nothing"),
        ("a | patterns many", 4, "'many' is no number of rows"),
        ("a | patterns from", 4, "a field is missing"),
    ],
)
def test_what_cannot_be_read_is_told_with_its_place(text: str, at: int, said: str) -> None:
    with pytest.raises(BadRequestError) as refused:
        parse_pipeline(text)
    assert said in refused.value.problem.message
    assert refused.value.problem.position == at


def test_texts_come_from_the_rows_that_stages_before_give(tmp_path: Path) -> None:
    """The newest first, not longer than they are looked at, of any type as they are written."""
    rows: list[dict[str, Any]] = [
        {"timestamp": START, "message": "x" * 5_000, "bytes": 7},
        {"timestamp": START, "message": None, "bytes": 8},
        {"timestamp": START, "message": "took 5ms", "bytes": None},
    ]
    table = file_of(tmp_path, rows)
    wanted: dict[str, list[str | None]] = {
        "| patterns": ["took 5ms", None, "x" * (TEXT_CHARACTERS_MAX + 1)],
        "| where bytes > 7 | patterns": [None],
        "| patterns from bytes": [None, "8", "7"],
        '| extract "took {ms}" | patterns from ms': ["5ms", None, None],
        "| limit 1 | patterns": ["took 5ms"],
        '| extract "{text} 5ms" | patterns': ["took 5ms", None, "x" * (TEXT_CHARACTERS_MAX + 1)],
        '| extract "{text} 5ms" | patterns from text': ["took", None, None],
        "| stats count() as n by bytes | patterns from bytes": ["7", "8", None],
    }
    for text, expected in wanted.items():
        pipeline = parse_pipeline(text)
        relation = rows_of_search(schema(), None, pipeline.stages, newest_first=True)
        for stage in pipeline.stages:
            relation = after(relation, stage, is_exact=True)
        assert table.run(relation.first(10)) == [(each,) for each in expected], text


@pytest.mark.stack
@pytest.mark.parametrize("engine", ["duckdb", "trino"])
def test_the_api_answers_with_patterns_that_can_be_searched(
    api: httpx.Client, catalog_client: CatalogClient, engine: str
) -> None:
    """With what they rest on; the search of a pattern finds its rows."""
    table = LogTable(catalog_client, fresh_tenant("patterns"), types=TYPES)
    table.append(
        [
            *({"timestamp": START, "message": f"user u{at} logged in", "path": "/in"} for at in range(60)),
            *({"timestamp": START, "message": f"disk {at} is full", "path": "/out"} for at in range(30)),
            {"timestamp": START, "path": "/none"},
        ]
    )
    asked = {
        "tenant": table.tenant,
        "from": START.isoformat(),
        "to": END.isoformat(),
        "engine": engine,
    }
    found = api.post("/v1/pipe", json={**asked, "query": "-path:none | patterns 1"}).json()
    assert [each["name"] for each in found["columns"]] == ["pattern", "count", "share", "example", "search"]
    ((pattern, count, share, example, search),) = found["rows"]
    assert (pattern, count, share) == (f"user {VALUE} logged in", 60, 60 / 90)
    assert example.startswith("user u")
    assert found["sample"] == {
        "rows": 90,
        "is_all": True,
        "missing": 0,
        "of_other_patterns": 30,
        "uncompared": 0,
        "cut": 0,
    }
    assert (found["engine"], found["more"]) == (engine, False)
    counted = api.post("/v1/pipe", json={**asked, "query": f"{search} | stats count()"}).json()
    assert (counted["rows"], counted["sample"]) == ([[60]], None)
    whole = api.post("/v1/pipe", json={**asked, "query": "| patterns", "limit": 1}).json()
    assert (len(whole["rows"]), whole["more"], whole["sample"]["missing"]) == (1, True, 1)
    assert whole["sample"]["of_other_patterns"] == 30
