"""Queries of Elasticsearch's DSL as text of the search language, with the time range taken out."""

from contextlib import suppress
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lake.log_schema import LogSchema
from lake.tenant import TableId, TenantId
from query.elastic.elastic_error import ElasticError
from query.elastic.index_names import chosen, index_name, patterns_of, table_of
from query.elastic.translation import NO_TABLE, OneOf, Question, search_of
from query.language.search_language import CHARACTERS_MAX, parse_search
from query.model.instant import EARLIEST, LATEST
from query.model.problem import BadRequestError
from query.search.results import Cursor
from tests.query.support.elastic_bodies import random_body

NOW = datetime(2026, 11, 27, 12, 34, 56, tzinfo=UTC)
TABLE = TableId(TenantId("acme"), "logs")
TYPES = {
    "bytes": "long",
    "ok": "boolean",
    "took": "double",
    "born": "date",
    "id": "uuid",
    "seen": "timestamptz",
}
TYPES |= dict.fromkeys(("status", "host", "http_method"), "string")


def schema() -> LogSchema:
    """A table with a field of each type."""
    fields = [
        {"id": 100 + at, "name": name, "type": kind, "required": False}
        for at, (name, kind) in enumerate(TYPES.items())
    ]
    return LogSchema({"fields": [*NO_TABLE.json["fields"], *fields]})


def text_of(query: Any, **options: Any) -> str:
    """The query as text."""
    return search_of(Question(query, "", NOW, **options), TABLE, schema()).query


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ({"match_all": {}}, ""),
        ({"match_none": {}}, "NOT *"),
        ({"match": {"message": "a-b c"}}, 'message:"a" OR message:"b" OR message:"c"'),
        ({"match": {"message": "!?"}}, "NOT *"),
        ({"match": {"message": {"query": "!?", "zero_terms_query": "all"}}}, ""),
        ({"match": {"ok": True}}, 'ok:"true"'),
        ({"match": {"host.keyword": "a b"}}, 'host:["a b" TO "a b"]'),
        ({"term": {"status.keyword": "07"}}, 'status:["07" TO "07"] AND status:"07"'),
        ({"term": {"bytes.keyword": 7}}, 'bytes:"7"'),
        ({"term": {"_index": "acme.logs"}}, ""),
        ({"term": {"_index": "acme.other"}}, "NOT *"),
        ({"terms": {"ok": [True, False]}}, 'ok:"true" OR ok:"false"'),
        ({"prefix": {"host.keyword": "a"}}, 'host:["a" TO "a\U0010ffff"}'),
        ({"prefix": {"http.method": "GE"}}, r"http\.method:GE*"),
        ({"wildcard": {"host": r"a*b\*c?"}}, r"host:a*b\*c?"),
        ({"range": {"born": {"gt": "2026-03", "lte": "2026-04-02"}}}, 'born:["2026-04-01" TO "2026-04-03"}'),
        ({"range": {"bytes": {"gte": 1}}}, 'bytes:["1" TO *}'),
        ({"range": {"bytes": {"gte": None}}}, "bytes:*"),
        (
            {"range": {"seen": {"lt": "now-1d/d"}}},
            'seen:{* TO "2026-11-26T00:00:00.000000Z"}',
        ),
        ({"query_string": {"query": "status.keyword:5*"}}, 'status:["5" TO "5\U0010ffff"}'),
        (
            {"bool": {"must": {"match_all": {}}, "should": [{"exists": {"field": "ok"}}]}},
            "",
        ),
        ({"bool": {"should": [], "minimum_should_match": 1}}, ""),
        (
            {"bool": {"must_not": [{"term": {"status": "a"}}, {"term": {"status": "b"}}]}},
            '(NOT status:"a") AND (NOT status:"b")',
        ),
    ],
)
def test_a_query_becomes_text(query: Any, text: str) -> None:
    """As somebody would have written it, and as the parser reads it again."""
    assert text_of(query) == text


def test_times_that_stand_alone_are_the_range() -> None:
    """Of filters within filters; a range inside a choice stays in the query."""
    first = {"range": {"@timestamp": {"gte": "2026-03-04", "format": "strict_date_optional_time"}}}
    last = {"range": {"timestamp": {"lt": 1772618400000}}}
    inner = {"bool": {"must": [last, {"term": {"status": "a"}}]}}
    found = search_of(Question({"bool": {"filter": [first, inner]}}, "host:b", NOW), TABLE, schema())
    assert (found.start, found.end) == (
        datetime(2026, 3, 4, tzinfo=UTC),
        datetime(2026, 3, 4, 10, tzinfo=UTC),
    )
    assert found.query == 'status:"a" AND host:b'
    either = search_of(Question({"bool": {"should": [first, last]}}, "", NOW), TABLE, schema())
    assert (either.start, either.end) == (EARLIEST, LATEST)
    assert either.query.count("timestamp:") == 2
    never = search_of(
        Question({"bool": {"filter": [last, {"range": {"@timestamp": {"gt": "now"}}}]}}, "", NOW),
        TABLE,
        schema(),
    )
    assert (never.end - never.start, never.query) == (timedelta(microseconds=1), "NOT *")


def test_ids_are_rows_by_their_coordinates() -> None:
    """One is a stretch of a microsecond; what is no id is no row's."""
    cursor = Cursor(1_772_618_400_000_007, "topic", 3, 40, 1)
    found = search_of(Question({"ids": {"values": [cursor.to_text(), "x", 5]}}, "", NOW), TABLE, schema())
    assert found.start == datetime(2026, 3, 4, 10, 0, 0, 7, tzinfo=UTC)
    assert found.end - found.start == timedelta(microseconds=1)
    assert found.query == (
        r'_topic_id:["topic" TO "topic"] AND _topic_partition:"3" AND _offset:"40" AND _index:"1"'
    )
    assert text_of({"ids": {"values": ["x"]}}) == "NOT *"


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ({"fuzzy": {}}, "query.fuzzy"),
        ({"match": {"message": {"query": "x", "fuzziness": 1}}}, "match.fuzziness"),
        ({"match_phrase": {"message": {"query": "x", "slop": 2}}}, "match_phrase.slop"),
        ({"bool": {"musst": []}}, "bool.musst"),
        ({"wildcard": {"host.keyword": "*a*"}}, "wildcard inside the keyword host"),
        ({"query_string": {"query": "a b", "default_operator": "OR"}}, "default_operator"),
        ({"terms": {"host": {"index": "x"}}}, "terms lookup"),
        ({"range": {"seen": {"gte": "yesterday"}}}, "failed to parse date"),
        ({"range": {"seen": {"gte": "2026", "time_zone": "Nowhere/At"}}}, "no time zone"),
        ({"bool": {"should": [{"match_all": {}}] * 12, "minimum_should_match": 6}}, "12"),
        ({"a": {}, "b": {}}, "one name"),
        ([], "object"),
        ({"term": {"host": {"value": "x" * 5_000}}}, "characters"),
        ({"query_string": {"query": "(a"}}, "ends too early"),
    ],
)
def test_what_is_not_understood_is_named(query: Any, said: str) -> None:
    """No part of a query is passed over."""
    with pytest.raises(BadRequestError, match=said):
        parse_search(text_of(query))


def test_choices_of_choices_do_not_multiply_without_end() -> None:
    """Each level would take the one below several times."""
    query: Any = {"term": {"host": "a"}}
    for _ in range(12):
        query = {"bool": {"should": [query, query, {"term": {"host": "b"}}], "minimum_should_match": 2}}
    with pytest.raises(ElasticError, match="too many choices"):
        text_of(query)


def test_a_restriction_that_is_too_long_is_left_out() -> None:
    """It saves work and decides nothing."""
    assert text_of(None, filters=(OneOf("host", ("a", "b")),)) == 'host:["a" TO "a"] OR host:["b" TO "b"]'
    assert text_of(None, filters=(OneOf("host", ("x" * CHARACTERS_MAX,)),)) == ""


@given(st.integers(0, 2**32))
def test_generated_queries_are_text_or_an_error(seed: int) -> None:
    """Whatever becomes text is within what the parser reads, or is refused by it with a sentence."""
    body = random_body(Random(seed))
    query = body.get("query") if isinstance(body, dict) else body
    with suppress(BadRequestError):
        parse_search(text_of(query))


NAMES = st.text(st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"]), min_size=1, max_size=20)


@given(NAMES, NAMES)
def test_every_table_has_an_index_name_of_its_own(tenant: str, stream: str) -> None:
    """It has one dot, nothing that a pattern or a list gives a meaning to, and leads back to its table."""
    name = index_name(TableId(TenantId(tenant), stream))
    assert table_of(name) == TableId(TenantId(tenant), stream)
    assert name.count(".") == 1
    assert not set(name) & set("*,/ ")
    assert name[0] not in "-_+"


def test_patterns_choose_among_what_is_known() -> None:
    """Names, stars, everything, and what is left out again."""
    tables = [TableId(TenantId(tenant), stream) for tenant in ("a", "b.c") for stream in ("logs", "audit")]

    def names(expression: str) -> list[str]:
        return list(chosen(patterns_of(expression), lambda _: tables))

    everything = ["a.audit", "a.logs", "b%2Ec.audit", "b%2Ec.logs"]
    assert names("") == names("_all") == names("*") == everything
    assert names("*.logs") == ["a.logs", "b%2Ec.logs"]
    assert names("a.*,-*.audit") == ["a.logs"]
    assert names("c.x,a.logs") == ["a.logs", "c.x"]
    for wrong in ("nodot", "a.b.c", "a.", ".b", "a.%FF"):
        with pytest.raises(ElasticError, match="no such index"):
            names(wrong)
