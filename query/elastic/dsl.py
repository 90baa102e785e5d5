"""Elasticsearch's query DSL as a tree of the search language: what combines queries, and who reads which."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import combinations
from math import comb
from typing import Any

from lake.log_schema import LogSchema
from query.elastic.elastic_error import ElasticError, malformed, object_of, only_known, unsupported
from query.elastic.fields import Field, field_of
from query.language.search_language import (
    CHARACTERS_MAX,
    TERMS_MAX,
    All,
    Either,
    Everything,
    Node,
    Not,
    parse_search,
)
from query.language.search_text import NOTHING, all_nodes, any_node

DEPTH_MAX = 15
CLAUSES_MAX = TERMS_MAX
# Of one query, before it becomes text: fields times words.
LEAVES_MAX = 5_000
_BOOL = frozenset({"must", "filter", "should", "must_not", "minimum_should_match", "boost", "_name"})
_EVERY = frozenset({"boost", "_name"})


@dataclass(slots=True)
class Asked:
    """One table that a query is asked of, at one time. `clauses`, `leaves`, `characters` (of query strings):
    those read and made so far, `depth`: where the reader is."""

    schema: LogSchema
    index: str
    now: datetime
    clauses: int = 0
    depth: int = 0
    leaves: int = 0
    characters: int = 0

    def field(self, name: Any) -> Field:
        """A field by its name. Raises ElasticError."""
        if not isinstance(name, str) or not name or len(name) > 300:
            raise malformed("the name of a field is a text of 300 characters at most")
        return field_of(name, self.schema)

    def spend(self, leaves: int) -> None:
        """Notes how many parts a query becomes. Raises ElasticError for too many."""
        self.leaves += leaves
        if self.leaves > LEAVES_MAX:
            raise ElasticError("too many words over too many fields; search for less at a time")

    def parse(self, text: str) -> Node:
        """The tree of a query string. Raises BadRequestError, also where all of a query are too long."""
        self.characters += len(text)
        if self.characters > CHARACTERS_MAX:
            raise ElasticError(f"the query strings have more than {CHARACTERS_MAX:,} characters together")
        return parse_search(text)


Reader = Callable[[Any, Asked], Node]


def read_query(query: Any, asked: Asked) -> Node:
    """The tree of a query. Raises ElasticError, BadRequestError for what is wrong or not supported."""
    if query is None:
        return Everything()
    if asked.depth >= DEPTH_MAX:
        raise ElasticError(f"the query is nested more than {DEPTH_MAX} levels deep; write it flatter")
    asked.clauses += 1
    if asked.clauses > CLAUSES_MAX:
        raise ElasticError(f"the query has more than {CLAUSES_MAX:,} clauses; search for less at a time")
    named = object_of(query, "query")
    if len(named) != 1:
        raise malformed('a query is an object with one name in it, as {"match": {...}}')
    ((name, body),) = named.items()
    reader = READERS.get(name)
    if reader is None:
        raise unsupported(f"query.{str(name)[:60]}", f"these are: {', '.join(sorted(READERS))}")
    asked.depth += 1
    node = reader(body, asked)
    asked.depth -= 1
    return node


def _bool(body: Any, asked: Asked) -> Node:
    given = object_of(body, "bool")
    only_known(given, "bool", _BOOL)
    must = [*_clauses(given, "must", asked), *_clauses(given, "filter", asked)]
    unwanted = [Not(each) for each in _clauses(given, "must_not", asked)]
    should = _clauses(given, "should", asked)
    least = needed(given.get("minimum_should_match"), len(should), default=0 if must else 1)
    return all_nodes(*must, *([at_least(least, should)] if should else []), *unwanted)


def _clauses(given: Mapping[str, Any], name: str, asked: Asked) -> list[Node]:
    clauses = given.get(name) or []
    listed = clauses if isinstance(clauses, list) else [clauses]
    return [read_query(each, asked) for each in listed]


def needed(written: Any, of: int, *, default: int) -> int:
    """How many of so many clauses `minimum_should_match` means. Raises ElasticError."""
    if written is None:
        return min(default, of)
    text = str(written).strip()
    try:
        if text.endswith("%"):
            share = int(text[:-1])
            count = of * abs(share) // 100
            count = count if share >= 0 else of - count
        else:
            count = int(text)
            count = count if count >= 0 else of + count
    except ValueError:
        raise unsupported(f"minimum_should_match: {text[:40]}", "a number or a percentage is") from None
    return max(0, count)


def at_least(count: int, nodes: list[Node]) -> Node:
    """Rows that so many of the trees match. Raises ElasticError where that takes too many choices."""
    if count <= 0:
        return Everything()
    if count > len(nodes):
        return NOTHING
    if 1 < count < len(nodes) and comb(len(nodes) - 1, count - 1) * sum(map(_leaves, nodes)) > TERMS_MAX:
        raise unsupported(f"minimum_should_match: {count} of {len(nodes)}", "it takes too many choices")
    if count == len(nodes):
        return all_nodes(*nodes)
    return (
        any_node(*nodes)
        if count == 1
        else any_node(*(all_nodes(*each) for each in combinations(nodes, count)))
    )


def _leaves(node: Node) -> int:
    if isinstance(node, All | Either):
        return sum(map(_leaves, node.children))
    return _leaves(node.child) if isinstance(node, Not) else 1


def _match_all(body: Any, _: Asked) -> Node:
    only_known(object_of(body, "match_all"), "match_all", _EVERY)
    return Everything()


def _match_none(body: Any, _: Asked) -> Node:
    only_known(object_of(body, "match_none"), "match_none", _EVERY)
    return NOTHING


def _constant_score(body: Any, asked: Asked) -> Node:
    given = object_of(body, "constant_score")
    only_known(given, "constant_score", _EVERY | {"filter"})
    return read_query(given.get("filter"), asked)


READERS: dict[str, Reader] = {
    "bool": _bool,
    "match_all": _match_all,
    "match_none": _match_none,
    "constant_score": _constant_score,
}


def reads(name: str) -> Callable[[Reader], Reader]:
    """Registers the reader of a query by its name."""

    def register(reader: Reader) -> Reader:
        READERS[name] = reader
        return reader

    return register
