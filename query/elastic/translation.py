"""A query of the DSL as a question to the search of one table: text of the search language, and the time
range taken out of it, by which whole files are passed over."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from lake.log_schema import SYSTEM_FIELDS, TIMESTAMP, LogSchema
from lake.tenant import TableId
from query.elastic.dsl import Asked, read_query
from query.elastic.index_names import index_name
from query.elastic.text_queries import string_node
from query.elastic.value_queries import exact, text_of
from query.language.search_language import CHARACTERS_MAX, TERMS_MAX, All, Between, Everything, Node
from query.language.search_sql import columns_of
from query.language.search_text import NOTHING, all_nodes, any_node, to_text
from query.model.instant import EARLIEST, LATEST, Period, parse_period
from query.model.point_in_time import PointInTime
from query.search.search import SearchRequest

# Values that a level of groups is narrowed to.
ONE_OF_MAX = TERMS_MAX // 4
# What a query is checked against where no table is asked.
NO_TABLE = LogSchema({"fields": list(SYSTEM_FIELDS)})


@dataclass(frozen=True, slots=True)
class OneOf:
    """Rows where a field is one of some values and nothing more."""

    field: str
    values: tuple[Any, ...]


Filter = dict[str, Any] | OneOf


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked of every table alike: a query, the query string of an address (`q`), and what other rows
    are left out."""

    query: Any
    query_string: str
    now: datetime
    filters: tuple[Filter, ...] = ()


def search_of(
    question: Question, table: TableId, schema: LogSchema, pin: PointInTime | None = None
) -> SearchRequest:
    """The question to one table. Raises ElasticError, BadRequestError."""
    times, rest = split_times(node_of(question, index_name(table), schema), schema)
    if times.end <= times.start:
        times, rest = Period(times.start, times.start + timedelta(microseconds=1)), NOTHING
    return SearchRequest(
        table, times.start, times.end, "" if isinstance(rest, Everything) else to_text(rest), pin
    )


def node_of(question: Question, index: str, schema: LogSchema) -> Node:
    """The tree of a question. Raises ElasticError, BadRequestError."""
    asked = Asked(schema, index, question.now)
    node = read_query(question.query, asked)
    if question.query_string:
        node = all_nodes(node, string_node(question.query_string, asked))
    return all_nodes(node, *_filter_nodes(question.filters, asked, node))


def _filter_nodes(filters: Sequence[Filter], asked: Asked, node: Node) -> list[Node]:
    found: list[Node] = []
    for each in filters:
        if not isinstance(each, OneOf):
            found.append(read_query(each, asked))
        elif len(each.values) <= ONE_OF_MAX:  # it only saves work: groups of other values are left out anyway
            field = asked.field(each.field)
            one = any_node(*(exact(field, text_of(value, "terms")) for value in each.values))
            is_short = len(to_text(all_nodes(node, *found, one))) <= CHARACTERS_MAX * 3 // 4
            found += [one] if is_short else []
    return found


def split_times(node: Node, schema: LogSchema) -> tuple[Period, Node]:
    """The time range that every match lies in, as far as it stands alone, and what is left of the query."""
    start, end = EARLIEST, LATEST
    left: list[Node] = []
    parts = [node]
    while parts:
        part = parts.pop(0)
        if isinstance(part, All):
            parts[:0] = part.children
            continue
        bounds = _row_times(part, schema)
        if bounds is None:
            left.append(part)
            continue
        start, end = max(start, bounds.start), min(end, bounds.end)
    return Period(start, end), all_nodes(*left)


def _row_times(node: Node, schema: LogSchema) -> Period | None:
    """The stretch of time that a range of the rows' times is; None for anything else."""
    if not isinstance(node, Between):
        return None
    found = columns_of(node.field, schema)
    if len(found) != 1 or found[0].name != TIMESTAMP:
        return None
    low = None if node.low is None else parse_period(node.low)
    high = None if node.high is None else parse_period(node.high)
    if (node.low is not None and low is None) or (node.high is not None and high is None):
        return None  # the search says what is wrong with it
    start = EARLIEST if low is None else low.start if node.low_included else low.end
    end = LATEST if high is None else high.end if node.high_included else high.start
    return Period(start, end)
