"""Queries for words: `match`, `match_phrase`, `multi_match`, `query_string`, `simple_query_string`.

A query string is read by the same parser as the search page's, so a blank means AND.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from fnmatch import fnmatchcase
from itertools import groupby
from typing import Any

from query.elastic.date_math import period_of, to_us_text
from query.elastic.dsl import Asked, at_least, needed, reads
from query.elastic.elastic_error import ElasticError, malformed, object_of, only_known, unsupported
from query.elastic.value_queries import HERE, exact, pattern_of, term_of, text_of
from query.language.letter_case import is_word_character, simple_lower
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
)
from query.language.search_sql import text_columns
from query.language.search_text import NOTHING, all_nodes, any_node
from query.model.instant import parse_period

WORDS_MAX = 200
FIELDS_MAX = 100
_ANYWHERE = frozenset({"*", "_all"})
# What has no meaning where nothing is ranked, or says what is so anyway.
_IDLE = frozenset({"boost", "_name", "lenient", "tie_breaker", "auto_generate_synonyms_phrase_query"})
_MATCH = _IDLE | {"query", "operator", "minimum_should_match", "zero_terms_query"}
_PHRASE = _IDLE | {"query", "slop", "zero_terms_query"}
_MULTI = _MATCH | {"fields", "type", "slop"}
_STRING = _IDLE | {
    "query",
    "fields",
    "default_field",
    "default_operator",
    "analyze_wildcard",
    "flags",
    "type",
}
_STRING |= {"allow_leading_wildcard", "rewrite", "enable_position_increments", "escape"}


def words_in(text: str) -> list[str]:
    """The words of a text, as the search knows them. Raises ElasticError for too many."""
    runs = groupby(text, key=lambda each: is_word_character(simple_lower(each)))
    words = ["".join(run) for is_word, run in runs if is_word]
    if len(words) > WORDS_MAX:
        raise ElasticError(f"the text has {len(words):,} words, at most {WORDS_MAX} are searched for at once")
    return words


def _words_node(name: str | None, text: str, given: dict[str, Any], asked: Asked) -> Node:
    """Some of the words of a text, or all of them."""
    field = None if name is None else asked.field(name)
    if name is not None and field is not None and (field.is_whole or not field.is_text or name[:1] == "_"):
        return term_of(name, text, asked, "match")
    target = None if field is None else field.name
    words = words_in(text)
    asked.spend(len(words))
    if not words:
        return Everything() if given.get("zero_terms_query") == "all" else NOTHING
    operator = str(given.get("operator", "or")).lower()
    if operator not in ("or", "and"):
        raise malformed("[match] takes the operators and, or")
    least = (
        len(words) if operator == "and" else needed(given.get("minimum_should_match"), len(words), default=1)
    )
    return at_least(max(1, least), [Match(target, (word,), True, HERE) for word in words])


def _phrase_node(name: str | None, text: str, asked: Asked, *, is_prefix: bool = False) -> Node:
    field = None if name is None else asked.field(name)
    if name is not None and field is not None and not is_prefix and (field.is_whole or not field.is_text):
        return term_of(name, text, asked, "match_phrase")
    target = None if field is None else field.name
    if not text.strip():
        return NOTHING
    return Match(target, (text, Wildcard.ANY) if is_prefix else (text,), not is_prefix, HERE)


def _of_words(body: Any, what: str, known: frozenset[str]) -> tuple[str | None, str, dict[str, Any]]:
    named = object_of(body, what)
    if len(named) != 1:
        raise malformed(f"[{what}] names one field")
    ((name, given),) = named.items()
    options = given if isinstance(given, dict) else {"query": given}
    only_known(options, what, known)
    _refuse_slop(options, what)
    return None if name in _ANYWHERE else name, text_of(options.get("query"), what), options


def _refuse_slop(given: dict[str, Any], what: str) -> None:
    if given.get("slop") not in (None, 0, "0"):
        raise unsupported(f"{what}.slop", "words of a phrase stand side by side")


@reads("match")
def _match(body: Any, asked: Asked) -> Node:
    name, text, given = _of_words(body, "match", _MATCH)
    return _words_node(name, text, given, asked)


@reads("match_phrase")
def _match_phrase(body: Any, asked: Asked) -> Node:
    name, text, _ = _of_words(body, "match_phrase", _PHRASE)
    return _phrase_node(name, text, asked)


@reads("match_phrase_prefix")
def _match_phrase_prefix(body: Any, asked: Asked) -> Node:
    name, text, _ = _of_words(body, "match_phrase_prefix", _PHRASE)
    return _phrase_node(name, text, asked, is_prefix=True)


@reads("multi_match")
def _multi_match(body: Any, asked: Asked) -> Node:
    given = dict(object_of(body, "multi_match"))
    only_known(given, "multi_match", _MULTI)
    _refuse_slop(given, "multi_match")
    text, kind = text_of(given.get("query"), "multi_match"), given.get("type", "best_fields")
    names = _names(given.get("fields"), asked)
    if kind in ("phrase", "phrase_prefix"):
        return any_node(*(_phrase_node(each, text, asked, is_prefix=kind != "phrase") for each in names))
    if kind in ("best_fields", "most_fields"):
        return any_node(*(_words_node(each, text, given, asked) for each in names))
    if kind != "cross_fields":
        raise unsupported(f"multi_match.type: {str(kind)[:40]}")
    words = words_in(text)
    found = [any_node(*(_words_node(name, word, {}, asked) for name in names)) for word in words]
    is_and = str(given.get("operator", "or")).lower() == "and"
    least = len(words) if is_and else needed(given.get("minimum_should_match"), len(words), default=1)
    return at_least(max(1, least), found)


def _names(fields: Any, asked: Asked) -> list[str | None]:
    """The fields that are named, patterns as the text fields that they fit; None: any text field."""
    listed = fields if isinstance(fields, list) else [] if fields is None else [fields]
    names: list[str | None] = []
    for each in listed:
        name = text_of(each, "fields").partition("^")[0]
        if name in _ANYWHERE:
            return [None]
        if "*" in name:
            names += [column.name for column in text_columns(asked.schema) if fnmatchcase(column.name, name)]
        else:
            names.append(name)
    if len(names) > FIELDS_MAX:
        raise ElasticError(f"{len(names):,} fields are named, at most {FIELDS_MAX} may be; or take [*]")
    asked.spend(len(names))
    return names or ([None] if not listed else [])


@reads("query_string")
def _query_string(body: Any, asked: Asked) -> Node:
    return _string_node(body, "query_string", asked)


@reads("simple_query_string")
def _simple_query_string(body: Any, asked: Asked) -> Node:
    return _string_node(body, "simple_query_string", asked)


def _string_node(body: Any, what: str, asked: Asked) -> Node:
    given = object_of(body, what)
    only_known(given, what, _STRING)
    if str(given.get("default_operator", "and")).lower() != "and":
        raise unsupported(f"{what}.default_operator: or", "a blank means AND; write OR between the words")
    node = asked.parse(text_of(given.get("query"), what))
    return adapted(node, _names(given.get("fields", given.get("default_field")), asked), asked)


def string_node(text: str, asked: Asked) -> Node:
    """The tree of a query string without options, as `q=` of an address has it."""
    return adapted(asked.parse(text), [None], asked)


def adapted(node: Node, names: list[str | None], asked: Asked) -> Node:
    """A tree of the search language with what only Elasticsearch's query strings have: words of given
    fields, `_exists_`, keywords, math in times."""
    if isinstance(node, All | Either):
        children = tuple(adapted(child, names, asked) for child in node.children)
        return all_nodes(*children) if isinstance(node, All) else any_node(*children)
    if isinstance(node, Not):
        return Not(adapted(node.child, names, asked))
    if isinstance(node, Everything):
        return node
    if node.field is None:
        asked.spend(len(names))
        return any_node(*_in_fields(node, names, lambda each: adapted(each, names, asked)))
    return _leaf(node, node.field, asked)


def _in_fields(
    node: Exists | Match | Between, names: list[str | None], adapt: Callable[[Node], Node]
) -> Iterator[Node]:
    for name in names:
        yield node if name is None else adapt(replace(node, field=name))


def _leaf(node: Exists | Match | Between, name: str, asked: Asked) -> Node:
    if isinstance(node, Match) and name == "_exists_":
        return Exists(asked.field(node.text).name, HERE)
    if isinstance(node, Match) and name in ("_id", "_index"):
        return term_of(name, node.text, asked)
    field = asked.field(name)
    if isinstance(node, Match) and field.is_whole:
        return exact(field, node.text) if node.is_phrase else pattern_of(field, _pattern(node))
    if isinstance(node, Between) and field.is_time:
        bounds = [_time_bound(each, asked) for each in (node.low, node.high)]
        return replace(node, field=field.name, low=bounds[0], high=bounds[1])
    return replace(node, field=field.name)


def _pattern(node: Match) -> str:
    """The pieces of a word as `wildcard` has them."""
    escaped = (
        piece.value if isinstance(piece, Wildcard) else "".join(f"\\{each}" for each in piece)
        for piece in node.pieces
    )
    return "".join(escaped)


def _time_bound(text: str | None, asked: Asked) -> str | None:
    """A bound in words that the search language has."""
    if text is None or parse_period(text) is not None:
        return text
    return to_us_text(period_of(text, asked.now).start)
