"""Pipes behind a search: what is read, what is computed, by both engines, and what is refused."""

import math
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlglot import exp

from lake.catalog_client import CatalogClient
from lake.clock import SystemClock
from lake.storage import local_path, open_storage
from query.executors.embedded import EmbeddedExecutor
from query.executors.executor import Executor
from query.executors.trino import TrinoExecutor
from query.files.file_index import FileIndex
from query.language.search_language import parse_search
from query.language.search_sql import compile_search
from query.model.cancellation import Run
from query.model.problem import BadRequestError
from query.pipes.pipe_language import parse_pipeline
from query.pipes.pipes import piped
from query.pipes.relation import Relation, after, rows_of_search
from query.pipes.stages import Extract, Limit, Sort, Stats
from query.search.lag import UnknownLag
from query.search.search import Searcher, SearchRequest
from query.stats.groups import ByTime, ByValue
from query.stats.measures import Measure
from tests.query.support.log_table import LogTable, fresh_tenant
from tests.query.support.one_file import file_of, one_file, schema
from tests.query.support.reference import START, TYPES, matches, records
from tests.query.test_stats import END, number, warehouse
from tests.stack.support.line import Line

ROWS = 400
# Functions that stages make of what they are asked.
KNOWN = (
    *(exp.AggFunc, exp.And, exp.Or, exp.Case, exp.If, exp.Cast, exp.TryCast, exp.Coalesce, exp.Floor),
    *(exp.Nullif, exp.RegexpLike, exp.TimeToUnix, exp.StrPosition, exp.Substring, exp.Lower),
)
Row = Mapping[str, Any]


def test_a_pipeline_is_a_search_and_its_stages() -> None:
    """Two pipes are an OR of the search; quotes keep pipes, commas and words."""
    read = parse_pipeline('a || "b|c" | stats count(), p95(took) as slow by path, bucket(5m) | top 3 uri')
    assert read.query == 'a || "b|c"'
    assert read.stages == (
        Stats(
            (("count", Measure("count")), ("slow", Measure("percentile", "took", 95.0))),
            (("path", ByValue("path")), ("bucket", ByTime(300))),
        ),
        Stats((("count", Measure("count")),), (("uri", ByValue("uri")),)),
        Sort((("count", True),)),
        Limit(3),
    )
    extract = parse_pipeline('| extract "it\'s {a}, by {b}" from "by"').stages
    assert extract == (Extract(("it's ", ", by ", ""), ("a", "b"), "by"),)


def _relation(text: str) -> Relation:
    pipeline = parse_pipeline(text)
    relation = rows_of_search(schema(), None, pipeline.stages, newest_first=True)
    for stage in pipeline.stages:
        relation = after(relation, stage, is_exact=True)
    return relation


@pytest.mark.parametrize(
    ("text", "at", "said"),
    [
        ("a | b", 4, "there is no stage 'b'"),
        ("a |", 3, "no stage between two pipes"),
        ("a | stats", 4, "computes nothing"),
        ("a | stats sum()", 4, "sum() is not known"),
        ("a | stats count(), count()", 4, "two columns would be named 'count'"),
        ("a | stats count() by bucket(5 parsecs)", 4, "no stretch of time"),
        ("a | limit 5 | limit many", 14, "'many' is no number of rows"),
        ("a | where", 4, "a condition has 1 to"),
        ("a | where took >", 4, "is no condition"),
        ("a | where upper(path) = 'X'", None, "is no column"),
        ("a | where path = (SELECT 1)", None, "no value to compare with"),
        ("a | where secrets.path = 'x'", None, "is no column"),
        ('a | extract "took"', 4, "a pattern has parts in braces"),
        ('a | extract "{a}{b}"', 4, "by which they are told apart"),
        ("a | where path like '%a_'", None, "% or _, not both"),
        ("a | fields path, path", 4, "each once"),
        ("a | fields pth", None, "did you mean path?"),
        ("a | sort -tok", None, "did you mean took?"),
        ('a | where "took > 1', 10, "this quote is never closed"),
        ("a" + " | limit 1" * 21, None, "at most 20 stages"),
    ],
)
def test_what_cannot_be_read_is_told_with_its_place(text: str, at: int | None, said: str) -> None:
    with pytest.raises(BadRequestError) as refused:
        _relation(text)
    problem = refused.value.problem
    assert said in f"{problem.message} {problem.suggestion}"
    assert at is None or problem.position == at


# Each as it is written, and the same in Python.
PIPELINES: dict[str, Callable[[Sequence[Row]], list[Any]]] = {
    "| stats count() by severity": lambda rows: sorted(
        Counter(row.get("severity") for row in rows).items(),
        key=lambda each: (each[0] is None, each[0] or ""),
    ),
    "GET | stats count() as n, sum(bytes) as total | where n > 0": lambda rows: [
        (
            len(found := [row for row in rows if matches(parse_search("GET"), row)]),
            sum(row["bytes"] for row in found if row["bytes"] is not None),
        )
    ],
    "| where status >= 404 and not path = '/API' | stats count()": lambda rows: [
        (
            sum(
                (found := number(row.get("status"))) is not None
                and found >= 404
                and row.get("path") != "/API"
                for row in rows
            ),
        )
    ],
    "| where path in ('/API', '') or ok = true | stats count()": lambda rows: [
        (sum(row.get("path") in ("/API", "") or row.get("ok") is True for row in rows),)
    ],
    "| where path like '/a%' and took between -3 and 0.5 | stats count()": lambda rows: [
        (
            sum(
                (row.get("path") or "").startswith("/a")
                and row["took"] is not None
                and -3 <= row["took"] <= 0.5
                for row in rows
            ),
        )
    ],
    '| extract "/api/{kind}/items" from path | stats count(kind) as n, count() as every': lambda rows: [
        (sum(row.get("path") == "/api/v1/items" for row in rows), len(rows))
    ],
    "| where path ilike '%api%' | stats count()": lambda rows: [
        (sum("api" in (row.get("path") or "").lower() for row in rows),)
    ],
    "| where path like '/___' | stats count()": lambda rows: [
        (sum(len(row.get("path") or "") == 4 for row in rows),)
    ],
    "| stats max(took) as most by path | where most > 1 | stats count()": lambda rows: [
        (
            sum(
                max(
                    (row["took"] for row in rows if row.get("path") == path and row["took"] is not None),
                    default=-math.inf,
                )
                > 1
                for path in {row.get("path") for row in rows}
            ),
        )
    ],
    "| where bytes = 10 | sort took, -_offset | fields _offset | limit 5": lambda rows: [
        (row["_offset"],)
        for row in sorted(
            (row for row in rows if row["bytes"] == 10),
            key=lambda row: (row["took"] is None, row["took"] or 0, -row["_offset"]),
        )[:5]
    ],
    "| limit 7 | where severity is not null | fields _offset": lambda rows: [
        (row["_offset"],)
        for row in sorted(rows, key=lambda row: (row["timestamp"], row["_offset"]), reverse=True)[:7]
        if row.get("severity") is not None
    ],
    "| stats count() by bucket(day, Europe/Berlin) | fields count": lambda rows: [(len(rows),)],
}


def test_the_embedded_engine_gives_what_python_does(tmp_path: Path) -> None:
    table = one_file(tmp_path, ROWS, 21)
    for text, expected in PIPELINES.items():
        pipeline = parse_pipeline(text)
        condition = compile_search(parse_search(pipeline.query), schema()).condition
        relation = rows_of_search(schema(), condition, pipeline.stages, newest_first=True)
        for stage in pipeline.stages:
            relation = after(relation, stage, is_exact=True)
        assert table.run(relation.first(1_000)) == expected(table.rows), text


def parts_of(stage: Extract, text: str | None) -> tuple[str | None, ...]:
    """The parts of a text, one after the other; none where one of the texts between them is missing."""
    none = (None,) * len(stage.names)
    begins = -1 if text is None else text.find(stage.texts[0])
    if text is None or begins < 0:
        return none
    rest, found = text[begins + len(stage.texts[0]) :], list[str | None]()
    for ends in stage.texts[1:]:
        if ends and ends not in rest:
            return none
        part, _, behind = rest.partition(ends) if ends else (rest.partition("\n")[0], "", rest)
        found.append(part or None)
        rest = behind
    return tuple(found)


@pytest.mark.long
def test_parts_are_what_stands_between_texts(tmp_path: Path) -> None:
    """In messages of few characters, where texts stand often, nowhere and over each other."""
    draws = random.Random(26)
    messages = [
        None,
        *("".join(draws.choices("ab %'\\\nÄ💩", k=draws.randint(0, 12))) for _ in range(ROWS)),
    ]
    table = file_of(tmp_path, [{"timestamp": START, "message": each} for each in messages])
    found = 0
    for _ in range(60):
        texts = tuple(
            "".join(draws.choices("ab %'\\Ä💩", k=draws.randint(1, 2))) for _ in range(draws.randint(2, 4))
        )
        texts = (draws.choice(["", texts[0]]), *texts[1:-1], draws.choice(["", texts[-1]]))
        stage = Extract(texts, tuple(f"part{at}" for at in range(len(texts) - 1)), "message")
        relation = after(rows_of_search(schema(), None, [stage], newest_first=False), stage, is_exact=True)
        width = len(stage.names)
        rows = [row[:width] for row in table.run(relation.first(1_000))]
        assert rows == [parts_of(stage, each) for each in messages], stage
        found += sum(row != (None,) * width for row in rows)
    assert found > ROWS


def test_a_part_may_be_called_anything(tmp_path: Path) -> None:
    """Also as what it is made of might be."""
    table = file_of(tmp_path, [{"timestamp": START, "message": "took 5 ms of 7"}])
    for name in ("rest", "text", "stage", "source", "select"):
        relation = _relation(f'| extract "took {{{name}}} ms of {{other}}" | fields {name}, other')
        assert table.run(relation.first(10)) == [("5", "7")], name


def test_no_pattern_goes_back(tmp_path: Path) -> None:
    """Patterns that take engines minutes for one row, which nothing interrupts, where they go back."""
    table = file_of(tmp_path, [{"timestamp": START, "message": "a" * 20_000}])
    parts = "a".join(f"{{part{at}}}" for at in range(12))
    for text in (
        "| where message like '%a%a%a%a%a%a%a%b' | stats count()",
        "| where message ilike '%A%a%A%a%A%a%A%b' | stats count()",
        f'| extract "{parts}b" | where part0 is not null | stats count()',
    ):
        assert table.run(_relation(text).first(10)) == [(0,)], text


@pytest.mark.stack
def test_both_engines_give_what_python_does(line: Line, tmp_path: Path) -> None:
    table = LogTable(line.catalog, fresh_tenant("pipes"), types=TYPES)
    rows = table.append(records(ROWS, 22), rows_per_file=100)
    settings = line.query_settings(state=str(tmp_path))
    embedded = EmbeddedExecutor(
        settings,
        lambda uris, _: [str(local_path(uri)) for uri in uris],
        lambda: [local_path(warehouse(line))],
    )
    engines: tuple[Executor, ...] = (embedded, TrinoExecutor(settings))
    searcher = Searcher(
        line.catalog, FileIndex(open_storage()), engines, settings, UnknownLag(), SystemClock()
    )
    for text, expected in PIPELINES.items():
        for engine in ("duckdb", "trino"):
            asked = SearchRequest(table.id, START, END, text, engine=engine)
            found = piped(searcher, asked, Run(60.0))
            assert found.basis.engine == engine
            assert [tuple(row) for row in found.rows] == expected(rows), (text, engine)


@pytest.mark.stack
def test_the_api_answers_with_columns_and_what_they_rest_on(
    api: httpx.Client, catalog_client: CatalogClient
) -> None:
    """As the search does: range, pin, warnings; what is wrong is told with its place."""
    table = LogTable(catalog_client, fresh_tenant("piped"), types=TYPES)
    rows = table.append(records(ROWS, 24))
    asked = {"tenant": table.tenant, "from": START.isoformat(), "to": END.isoformat()}
    found = api.post(
        "/v1/pipe", json={**asked, "query": "| stats count() as n by bucket(week) | sort -n"}
    ).json()
    assert found["columns"] == [{"name": "bucket", "type": "timestamptz"}, {"name": "n", "type": "long"}]
    assert (found["rows"], found["more"]) == ([["2026-02-02T00:00:00Z", len(rows)]], False)
    assert found["scanned"]["rows"] == len(rows)
    cut = api.post("/v1/pipe", json={**asked, "query": "| top path", "limit": 1, "pin": found["pin"]}).json()
    assert (len(cut["rows"]), cut["more"], cut["pinned"]) == (1, True, True)
    warned = api.post("/v1/pipe", json={**asked, "query": "| stats avg(tok)"}).json()
    assert (warned["rows"], warned["warnings"][0]["suggestion"]) == ([[None]], "did you mean took?")
    wrong = api.post("/v1/pipe", json={**asked, "query": "a | tops path"})
    assert (wrong.status_code, wrong.json()["error"]["position"]) == (400, 4)


def test_no_text_of_a_pipeline_becomes_sql(tmp_path: Path) -> None:
    """Anything between pipes is read, or refused in a sentence; what is read runs, and reads nothing but the
    table."""
    table = one_file(tmp_path, 20, 23)
    random_ = random.Random(23)
    words = [
        *(
            "stats",
            "count()",
            "by",
            "path",
            ",",
            "as",
            "x",
            "where",
            "took",
            ">",
            "5",
            "'",
            '"',
            "\\",
            "(",
            ")",
        ),
        *(
            "--",
            ";",
            "/*",
            "union",
            "select",
            "read_text('/etc/passwd')",
            "extract",
            '"{a} b"',
            "from",
            "sort",
        ),
        *(
            "-took",
            "limit",
            "3",
            "top",
            "|",
            "||",
            "fields",
            "{",
            "}",
            "\x00",
            "💩",
            "1e400",
            "current_user",
            "::int",
        ),
    ]
    ran = 0
    for _ in range(3_000):
        text = "| " + " ".join(random_.choices(words, k=random_.randint(1, 9)))
        try:
            sql = _relation(text).first(10)
        except BadRequestError:
            continue
        read = {each.name for each in sql.find_all(exp.Table)} | {
            type(each).__name__ for each in sql.find_all(exp.Func, exp.Command) if not isinstance(each, KNOWN)
        }
        assert read == {"source"}, text
        ran += 1
        if ran % 10 == 0:
            table.run(sql)
    assert ran > 20


def test_the_types_of_columns_are_told() -> None:
    columns = _relation("| stats count() as n, avg(took), max(timestamp) by path").schema.columns
    assert [(each.name, each.kind) for each in columns] == [
        ("path", "string"),
        ("n", "long"),
        ("avg_took", "double"),
        ("max_timestamp", "timestamptz"),
    ]
