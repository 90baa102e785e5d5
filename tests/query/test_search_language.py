"""The search language: what is read from a query, and what is said about a wrong one."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from query.language.search_language import (
    All,
    Between,
    Either,
    Everything,
    Exists,
    Match,
    Node,
    Not,
    Wildcard,
    field_names,
    parse_search,
)
from query.model.problem import BadRequestError, Problem


def words(node: Node) -> object:
    """The tree without places, as tuples."""
    if isinstance(node, All | Either):
        return ("and" if isinstance(node, All) else "or", *(words(child) for child in node.children))
    if isinstance(node, Not):
        return ("not", words(node.child))
    if isinstance(node, Exists):
        return ("has", node.field)
    if isinstance(node, Match):
        return (node.field, node.text)
    if isinstance(node, Between):
        return (
            node.field,
            "[" if node.low_included else "{",
            node.low,
            node.high,
            "]" if node.high_included else "}",
        )
    return "everything"


def problem(text: str) -> Problem:
    with pytest.raises(BadRequestError) as caught:
        parse_search(text)
    return caught.value.problem


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("", "everything"),
        ("  *  ", "everything"),
        ("*:*", "everything"),
        ("refused", (None, "refused")),
        ("a b", ("and", (None, "a"), (None, "b"))),
        ("a AND b OR c", ("or", ("and", (None, "a"), (None, "b")), (None, "c"))),
        ("a && b || c", ("or", ("and", (None, "a"), (None, "b")), (None, "c"))),
        (
            "+a -b !c NOT d",
            ("and", (None, "a"), ("not", (None, "b")), ("not", (None, "c")), ("not", (None, "d"))),
        ),
        ('"connection refused"', (None, "connection refused")),
        ('say:"he said \\"no\\""', ("say", 'he said "no"')),
        ("status:(500 OR 502)", ("or", ("status", "500"), ("status", "502"))),
        ("path:/api/v1", ("path", "/api/v1")),
        ("'quoted' it's", ("and", (None, "'quoted'"), (None, "it's"))),
        ("host:10.0.0.1:8080", ("host", "10.0.0.1:8080")),
        ("temperature:-5", ("temperature", "-5")),
        ("status:-x", ("not", ("status", "x"))),
        ("n:[1 TO 5}", ("n", "[", "1", "5", "}")),
        ("n:{* TO -5]", ("n", "{", None, "-5", "]")),
        ("n:>=5", ("n", "[", "5", None, "}")),
        ("n:<5", ("n", "{", None, "5", "}")),
        ("n:>=-5", ("n", "[", "-5", None, "}")),
        ("n:[* TO *]", ("has", "n")),
        ("_errors:*", ("has", "_errors")),
        (r"\*x a\:b", ("and", (None, "*x"), (None, "a:b"))),
    ],
)
def test_queries_are_read_as_lucene_reads_them(text: str, tree: object) -> None:
    """Words, phrases, fields, ranges, wildcards and operators mean what Lucene's syntax says."""
    assert words(parse_search(text)) == tree


def test_wildcards_are_told_from_escaped_ones() -> None:
    """An asterisk is a wildcard, an escaped one is itself."""
    node = parse_search(r"a*b\*c?")
    assert isinstance(node, Match)
    assert node.pieces == ("a", Wildcard.ANY, "b*c", Wildcard.ONE)


@pytest.mark.parametrize(
    ("text", "position", "says"),
    [
        ("(a", 2, "too early"),
        ("a )", 2, "did not expect ')'"),
        ('path:"/api', 5, "never closed"),
        ("a/b [x]", 6, "did not expect ']'"),
        ("x~2", 0, "similar words"),
        ("a >5", 2, "needs a field"),
        ("a:(b:c)", 3, "field inside"),
        ("x\\", 1, "backslash"),
    ],
)
def test_a_wrong_query_is_answered_with_the_place_of_its_fault(text: str, position: int, says: str) -> None:
    """The problem says what is wrong, and where in the text as it was typed."""
    found = problem(text)
    assert says in found.message
    assert found.position == position


def test_huge_and_deep_queries_are_refused_at_once() -> None:
    """A megabyte of query, a thousand words, a thousand parentheses: each is one sentence."""
    assert "characters" in problem("x" * 1_000_000).message
    assert "terms" in problem(" ".join(["x"] * 1_000)).message
    assert "nested" in problem("(" * 1_000 + "x" + ")" * 1_000).message


def test_fields_of_a_query_are_known() -> None:
    """All fields that a query names, at any depth."""
    assert field_names(parse_search("a:1 AND (NOT b:[1 TO 2] OR c:*) d")) == {"a", "b", "c"}


@given(st.text(max_size=300))
@example('"\\')
@example("a:[b TO")
def test_any_text_is_read_or_refused_with_a_sentence(text: str) -> None:
    """No text makes the parser fail otherwise, and positions lie inside the text."""
    try:
        assert parse_search(text) is not None
    except BadRequestError as error:
        found = error.problem
        assert found.message
        assert found.position is None or 0 <= found.position <= len(text)


@given(st.text(st.sampled_from('ab:()[]{}"\\*?-+!&|/~^<>= TO AND'), max_size=60))
def test_any_heap_of_operators_is_read_or_refused(text: str) -> None:
    """The same for texts made of the language's own signs."""
    try:
        parse_search(text)
    except BadRequestError as error:
        found = error.problem
        assert found.message


@given(st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=40))
def test_a_quoted_text_is_searched_as_it_is(text: str) -> None:
    """Whatever stands between quotes, its quotes and backslashes escaped, is the text that is searched."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    assert words(parse_search(f'"{escaped}"')) == (None, text)
    assert isinstance(parse_search(""), Everything)
