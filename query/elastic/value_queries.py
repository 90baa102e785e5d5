"""Queries for values: `term`, `terms`, `range`, `exists`, `prefix`, `wildcard`, `ids`."""

import re
from datetime import UTC, timedelta
from typing import Any

from lake.log_schema import INDEX, OFFSET, TIMESTAMP, TOPIC_ID, TOPIC_PARTITION
from query.elastic.date_math import period_of, to_us_text, zone_of
from query.elastic.dsl import Asked, reads
from query.elastic.elastic_error import ElasticError, malformed, object_of, only_known, unsupported
from query.elastic.fields import Field
from query.language.search_language import Between, Everything, Exists, Match, Node, Span, Wildcard, pieces_of
from query.language.search_text import NOTHING, all_nodes, any_node
from query.model.problem import BadRequestError
from query.model.table_view import EPOCH
from query.search.results import Cursor, parse_cursor

HERE = Span(0, 1)
VALUES_MAX = 1_024
_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?")
# Behind every text that begins with the one before it.
_LAST = "\U0010ffff"
_TERM = frozenset({"value", "boost", "_name", "case_insensitive"})
_PATTERN = frozenset({"value", "wildcard", "boost", "_name", "rewrite", "case_insensitive"})
_RANGE = frozenset({"gte", "gt", "lte", "lt", "from", "to", "include_lower", "include_upper"})
_RANGE |= {"format", "time_zone", "boost", "relation", "_name"}


def text_of(value: Any, what: str) -> str:
    """A value as the search language writes it. Raises ElasticError."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float | str):
        return str(value)
    raise malformed(f"[{what}] takes a text, a number or a boolean")


def exact(field: Field, text: str) -> Node:
    """Rows where the field is this value and nothing more."""
    if not field.is_text or field.kind is None or not text:
        return Match(field.name, (text,), True, HERE)
    whole = Between(field.name, text, text, True, True, HERE)
    if not _NUMBER.fullmatch(text):
        return whole
    return all_nodes(whole, Match(field.name, (text,), True, HERE))  # else 7 would be 07, as a number


def term_of(name: Any, value: Any, asked: Asked, what: str = "term") -> Node:
    """Rows where a field has a value; a text has it as a word or phrase, `.keyword` as a whole."""
    text = text_of(value, what)
    if name == "_index":
        return Everything() if text == asked.index else NOTHING
    if name == "_id":
        return _ids_node([value])
    field = asked.field(name)
    if field.is_whole:
        return exact(field, text)
    if field.is_time:
        return _between_times(field, {"gte": value, "lte": value}, asked)
    return Match(field.name, (text,), True, HERE)


@reads("term")
def _term(body: Any, asked: Asked) -> Node:
    name, given = _of_field(body, "term", "value", _TERM)
    if given.get("case_insensitive") and asked.field(name).is_whole:
        raise unsupported("term.case_insensitive of a keyword", "words of the field itself match in any case")
    return term_of(name, given.get("value"), asked)


@reads("terms")
def _terms(body: Any, asked: Asked) -> Node:
    given = {key: value for key, value in object_of(body, "terms").items() if key not in ("boost", "_name")}
    if len(given) != 1:
        raise malformed("[terms] names one field")
    ((name, values),) = given.items()
    if not isinstance(values, list):
        raise unsupported("terms lookup", "a list of values is")
    if len(values) > VALUES_MAX:
        raise ElasticError(f"[terms] has {len(values):,} values, at most {VALUES_MAX:,} are allowed")
    if name == "_id":
        return _ids_node(values)
    return any_node(*(term_of(name, value, asked, "terms") for value in values))


@reads("range")
def _range(body: Any, asked: Asked) -> Node:
    given = object_of(body, "range")
    if len(given) != 1:
        raise malformed("[range] names one field")
    ((name, bounds),) = given.items()
    only_known(object_of(bounds, "range"), "range", _RANGE)
    field = asked.field(name)
    limits = {each: bounds[each] for each in ("gte", "gt", "lte", "lt") if bounds.get(each) is not None}
    if bounds.get("from") is not None:
        limits["gte" if bounds.get("include_lower", True) else "gt"] = bounds["from"]
    if bounds.get("to") is not None:
        limits["lte" if bounds.get("include_upper", True) else "lt"] = bounds["to"]
    if not limits:
        return Exists(field.name, HERE)
    if field.is_time or field.kind == "date":
        written = (bounds.get("time_zone", "UTC"), str(bounds.get("format", "")))
        return _between_times(field, limits, asked, *written)
    texts = {each: text_of(value, "range") for each, value in limits.items()}
    low, high = texts.get("gte", texts.get("gt")), texts.get("lte", texts.get("lt"))
    return Between(field.name, low, high, "gte" in texts, "lte" in texts, HERE)


def _between_times(
    field: Field, limits: dict[str, Any], asked: Asked, zone: Any = "UTC", form: str = ""
) -> Node:
    """A bound is a period, which belongs to the range or not as a whole."""
    periods = {each: period_of(value, asked.now, zone_of(zone), form) for each, value in limits.items()}
    low = periods["gte"].start if "gte" in periods else periods["gt"].end if "gt" in periods else None
    high = periods["lte"].end if "lte" in periods else periods["lt"].start if "lt" in periods else None
    if field.kind == "date":
        days = [None if each is None else each.astimezone(UTC).date().isoformat() for each in (low, high)]
        return Between(field.name, days[0], days[1], True, False, HERE)
    texts = [None if each is None else to_us_text(each) for each in (low, high)]
    return Between(field.name, texts[0], texts[1], low is not None, False, HERE)


@reads("exists")
def _exists(body: Any, asked: Asked) -> Node:
    given = object_of(body, "exists")
    only_known(given, "exists", frozenset({"field", "boost", "_name"}))
    return Exists(asked.field(given.get("field")).name, HERE)


@reads("prefix")
def _prefix(body: Any, asked: Asked) -> Node:
    name, given = _of_field(body, "prefix", "value", _PATTERN)
    return prefix_of(asked.field(name), text_of(given.get("value"), "prefix"))


def prefix_of(field: Field, text: str) -> Node:
    """Rows where a word of the field, or of a keyword the whole value, begins so."""
    if not text:
        return Exists(field.name, HERE)
    if field.is_whole and field.is_text:
        return Between(field.name, text, text + _LAST, True, False, HERE)
    return Match(field.name, (text, Wildcard.ANY), False, HERE)


@reads("wildcard")
def _wildcard(body: Any, asked: Asked) -> Node:
    name, given = _of_field(body, "wildcard", "value", _PATTERN)
    return pattern_of(asked.field(name), text_of(given.get("value", given.get("wildcard")), "wildcard"))


def pattern_of(field: Field, pattern: str) -> Node:
    """Rows where a word of the field fits a pattern. Raises ElasticError for a keyword, but where the pattern
    says how the value begins: stars of the search language do not reach over blanks."""
    pieces = pieces_of(pattern)
    if pieces == (Wildcard.ANY,):
        return Exists(field.name, HERE)
    if not field.is_whole or not field.is_text:
        return Match(field.name, pieces, False, HERE) if pieces else NOTHING
    match pieces:
        case (str(text),):
            return exact(field, text)
        case (str(text), Wildcard.ANY):
            return prefix_of(field, text)
    raise unsupported(
        f"wildcard inside the keyword {field.name[:100]}", f"patterns of words in {field.name[:100]} are"
    )


@reads("ids")
def _ids(body: Any, _: Asked) -> Node:
    given = object_of(body, "ids")
    only_known(given, "ids", frozenset({"values", "boost", "_name"}))
    values = given.get("values", [])
    return _ids_node(values if isinstance(values, list) else [values])


def _ids_node(values: list[Any]) -> Node:
    """Rows by the ids that hits have; what is no id is no row's."""
    found = [each for value in values if (each := _cursor(value)) is not None]
    return any_node(*map(_row_node, found))


def _cursor(value: Any) -> Cursor | None:
    try:
        cursor = parse_cursor(value) if isinstance(value, str) else None
        if cursor is not None:
            EPOCH + timedelta(microseconds=cursor.timestamp_us)
    except (BadRequestError, OverflowError):
        return None
    return cursor


def _row_node(row: Cursor) -> Node:
    at = EPOCH + timedelta(microseconds=row.timestamp_us)
    start, end = to_us_text(at), to_us_text(at + timedelta(microseconds=1))
    numbers = ((TOPIC_PARTITION, row.partition), (OFFSET, row.offset), (INDEX, row.index))
    return all_nodes(
        Between(TIMESTAMP, start, end, True, False, HERE),
        Between(TOPIC_ID, row.topic_id, row.topic_id, True, True, HERE),
        *(Match(name, (str(number),), True, HERE) for name, number in numbers),
    )


def _of_field(body: Any, what: str, short: str, known: frozenset[str]) -> tuple[str, dict[str, Any]]:
    """The field of a query, and what is said of it: an object, or its value alone. Raises ElasticError."""
    named = object_of(body, what)
    if len(named) != 1:
        raise malformed(f"[{what}] names one field")
    ((name, given),) = named.items()
    options = given if isinstance(given, dict) else {short: given}
    only_known(options, what, known)
    return name, options
