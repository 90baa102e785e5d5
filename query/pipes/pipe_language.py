"""Reads a search with pipes behind it. The search is read by `query/language/search_language.py`; a condition
of `where` by sqlglot, of whose tree `conditions.py` takes what it knows."""

import re
from collections.abc import Callable, Mapping
from typing import cast

from query.model.problem import BadRequestError, Problem, refuse
from query.pipes.conditions import parse_condition
from query.pipes.parts import split_list, split_pipes, split_word, unquoted
from query.pipes.stages import Extract, Fields, Limit, Patterns, Pipeline, Sort, Stage, Stats, Where
from query.stats.groups import ByNumber, ByTime, ByValue, Calendar, Group
from query.stats.measures import Kind, Measure

STAGES_MAX = 20
ROWS_MAX = 10_000
TOP_ROWS = 10
PATTERN_ROWS = 100
_CALL = re.compile(r"(?P<name>[A-Za-z_][A-Za-z_0-9]*)\s*\((?P<arguments>.*)\)", re.DOTALL)
_WIDTH = re.compile(r"(?P<count>\d{1,9})(?P<unit>[smhdw])")
_UNIT_S = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_CALENDAR = frozenset({"day", "week", "month", "quarter", "year"})
_PERCENTILE = re.compile(r"p(?P<percent>\d{1,2}(\.\d+)?)")
_FUNCTIONS: Mapping[str, Kind] = {
    "count": "count",
    "count_distinct": "distinct",
    "distinct": "distinct",
    "min": "min",
    "max": "max",
    "sum": "sum",
    "avg": "avg",
    "mean": "avg",
}
_PART = re.compile(r"\{([A-Za-z_][A-Za-z_0-9]*)\}")
_NAME = re.compile(r"[^\W\d]\w*")
_HOW_STATS = "write stats count(), p95(latency) as slow by service, bucket(5m)"


def parse_pipeline(text: str) -> Pipeline:
    """Reads a search and its stages. Raises BadRequestError with the place of the stage that is wrong."""
    (_, query), *parts = split_pipes(text)
    if len(parts) > STAGES_MAX:
        raise refuse(f"at most {STAGES_MAX} stages, not {len(parts)}; ask for less at once")
    read = [(at, part, _stages(at, part)) for at, part in parts]
    for at, part, stages in read[:-1]:
        if isinstance(stages[0], Patterns):
            raise refuse(
                "behind patterns stands nothing: they come with the most frequent first",
                position=at + len(part) - len(part.lstrip()),
                length=len(part.strip()),
                suggestion="say how many, as in patterns 20, and take rows away before it",
            )
    return Pipeline(query.strip(), tuple(stage for _, _, stages in read for stage in stages))


def _stages(at: int, part: str) -> tuple[Stage, ...]:
    word, _, rest = part.strip().partition(" ")
    read = _READERS.get(word.lower())
    place, length = at + len(part) - len(part.lstrip()), max(1, len(part.strip()))
    if read is None:
        raise refuse(
            f"there is no stage {word[:40]!r}" if word else "there is no stage between two pipes",
            position=place,
            length=max(1, len(word)),
            suggestion=f"one of {', '.join(_READERS)}; to search for the character put it in quotes",
        )
    try:
        return read(rest.strip())
    except BadRequestError as error:
        wrong: Problem = error.problem
        raise refuse(wrong.message, position=place, length=length, suggestion=wrong.suggestion) from error


def _stats(rest: str) -> tuple[Stage, ...]:
    asked, by = split_word(rest, "by")
    measures = tuple(_measure(each) for each in split_list(asked))
    groups = () if by is None else tuple(_group(each) for each in split_list(by))
    names = [name for name, _ in (*groups, *measures)]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise refuse(f"two columns would be named {twice!r}", suggestion="name one: count() as requests")
    return (Stats(measures, groups),)


def _measure(text: str) -> tuple[str, Measure]:
    called, alias = split_word(text, "as")
    found = _CALL.fullmatch(called)
    if found is None:
        raise refuse(f"{called[:60]!r} computes nothing", suggestion=_HOW_STATS)
    function = found["name"].lower()
    arguments = [unquoted(each) for each in split_list(found["arguments"]) if each]
    measure = _called(function, arguments)
    name = _name(alias) if alias is not None else "_".join([function, *map(_as_name, arguments)])
    return name, measure


def _called(function: str, arguments: list[str]) -> Measure:
    if function == "percentile" and len(arguments) == 2:
        return Measure("percentile", arguments[0], _number(arguments[1]))
    percentile = _PERCENTILE.fullmatch("p50" if function == "median" else function)
    if percentile is not None and len(arguments) == 1:
        return Measure("percentile", arguments[0], float(percentile["percent"]))
    kind = _FUNCTIONS.get(function)
    if kind == "count" and len(arguments) < 2:
        return Measure("values", arguments[0]) if arguments else Measure("count")
    if kind is None or kind == "count" or len(arguments) != 1:
        raise refuse(
            f"{function}({', '.join(arguments)[:60]}) is not known",
            suggestion=f"{', '.join(_FUNCTIONS)} of a field, p50 to p99.9, percentile(field, 99), count()",
        )
    return Measure(kind, arguments[0])


def _group(text: str) -> tuple[str, Group]:
    called, alias = split_word(text, "as")
    found = _CALL.fullmatch(called)
    if found is None:
        field = unquoted(called)
        if not field:
            raise refuse("a field is missing behind `by`", suggestion=_HOW_STATS)
        return (_name(alias) if alias is not None else field), ByValue(field)
    arguments = [unquoted(each) for each in split_list(found["arguments"])]
    function = found["name"].lower()
    if function == "bucket" and 1 <= len(arguments) <= 2:
        return (_name(alias) if alias is not None else "bucket"), _bucket(*arguments)
    if function == "step" and len(arguments) == 2:
        by = ByNumber(arguments[0], _number(arguments[1]))
        return (_name(alias) if alias is not None else arguments[0]), by
    raise refuse(
        f"{called[:60]!r} groups by nothing",
        suggestion="a field, bucket(5m), bucket(day, Europe/Berlin) or step(bytes, 1000)",
    )


def _bucket(width: str, zone: str = "UTC") -> ByTime:
    if width.lower() in _CALENDAR:
        return ByTime(calendar=cast("Calendar", width.lower()), zone=zone)
    found = _WIDTH.fullmatch(width)
    if found is None or zone != "UTC":
        raise refuse(
            f"bucket({width[:40]}) is no stretch of time",
            suggestion="bucket(30s), bucket(5m), bucket(1h), bucket(day, Europe/Berlin)",
        )
    return ByTime(width_s=int(found["count"]) * _UNIT_S[found["unit"]])


def _top(rest: str) -> tuple[Stage, ...]:
    first, _, others = rest.partition(" ")
    rows, fields = (_rows(first), others) if first.isdigit() else (TOP_ROWS, rest)
    groups = tuple(_group(each) for each in split_list(fields))
    return Stats((("count", Measure("count")),), groups), Sort((("count", True),)), Limit(rows)


def _extract(rest: str) -> tuple[Stage, ...]:
    pattern, field = split_word(rest, "from")
    texts = _PART.split(unquoted(pattern))
    names = tuple(texts[1::2])
    if not names or len(set(names)) < len(names):
        raise refuse(
            "a pattern has parts in braces, each of another name",
            suggestion='extract "took {ms}ms", extract "{user} logged in" from text',
        )
    if any(not text for text in texts[2:-2:2]):
        raise refuse("between two parts of a pattern stands a text, by which they are told apart")
    return (Extract(tuple(texts[0::2]), names, "message" if field is None else unquoted(field)),)


def _where(rest: str) -> tuple[Stage, ...]:
    return (Where(parse_condition(rest), rest),)


def _fields(rest: str) -> tuple[Stage, ...]:
    names = tuple(unquoted(each) for each in split_list(rest))
    if not all(names) or len(set(names)) < len(names):
        raise refuse("fields are named one after the other, each once", suggestion="fields timestamp, uri")
    return (Fields(names),)


def _sort(rest: str) -> tuple[Stage, ...]:
    by = list[tuple[str, bool]]()
    for each in split_list(rest.removeprefix("by ")):
        name, is_descending = each.removeprefix("-").strip(), each.startswith("-")
        for word in ("desc", "asc"):
            before, behind = split_word(name, word)
            if behind == "":
                name, is_descending = before, word == "desc"
        if not name:
            raise refuse("sort by what?", suggestion="sort -count, service")
        by.append((unquoted(name), is_descending))
    return (Sort(tuple(by)),)


def _limit(rest: str) -> tuple[Stage, ...]:
    return (Limit(_rows(rest)),)


def _patterns(rest: str) -> tuple[Stage, ...]:
    rows, field = split_word(rest, "from")
    if field == "":
        raise refuse("a field is missing behind `from`", suggestion="patterns 20 from text")
    return (Patterns(_rows(rows) if rows else PATTERN_ROWS, "message" if field is None else unquoted(field)),)


_READERS: Mapping[str, Callable[[str], tuple[Stage, ...]]] = {
    "stats": _stats,
    "top": _top,
    "extract": _extract,
    "where": _where,
    "fields": _fields,
    "sort": _sort,
    "limit": _limit,
    "patterns": _patterns,
}


def _rows(text: str) -> int:
    if not text.isdigit() or not 1 <= int(text[:9]) <= ROWS_MAX:
        raise refuse(f"{text[:20]!r} is no number of rows, which are 1 to {ROWS_MAX:,}")
    return int(text)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise refuse(f"{text[:40]!r} is no number") from None


def _name(text: str) -> str:
    name = unquoted(text)
    if not _NAME.fullmatch(name):
        raise refuse(f"{name[:60]!r} is no name of a column: letters, digits and _")
    return name.lower()


def _as_name(text: str) -> str:
    return re.sub(r"\W+", "_", text).strip("_").lower()
