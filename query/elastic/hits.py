"""Rows as hits."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from fnmatch import fnmatchcase
from heapq import merge
from itertools import islice, takewhile
from typing import Any

from lake.log_schema import TIMESTAMP
from query.elastic.fields import KEYWORD, TIME
from query.elastic.search_body import FieldWish, SearchBody
from query.elastic.sorting import place_values, time_value
from query.search.results import cursor_of, to_json


@dataclass(frozen=True, slots=True)
class Found:
    """The rows of one index, in the order that was asked for. `horizon`: where they broke off before the page
    was full; rows of others beyond it would leave some of these out."""

    index: str
    rows: list[Mapping[str, Any]]
    horizon: datetime | None = None


def hits_of(found: Iterable[Found], body: SearchBody) -> list[dict[str, Any]]:
    """The hits of a page over several indices."""
    indices = sorted(found, key=lambda each: each.index)
    sign = -1 if body.sort.newest_first else 1
    cuts = [
        (sign * each.horizon.timestamp(), at) for at, each in enumerate(indices) if each.horizon is not None
    ]

    def rows_of(at: int, each: Found) -> Iterable[tuple[float, int, str, Mapping[str, Any]]]:
        return ((sign * row[TIMESTAMP].timestamp(), at, each.index, row) for row in each.rows)

    lists = [rows_of(at, each) for at, each in enumerate(indices)]
    merged = merge(*lists, key=lambda row: row[:2])
    within = takewhile(lambda row: not cuts or row[:2] <= min(cuts), merged)
    shown: dict[str, list[tuple[str, str]]] = {}
    return [_hit(row, index, body, shown) for _, _, index, row in islice(within, body.first, body.rows)]


def source_of(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row as `_source` has it: its time, its level, and the fields that have a value."""
    told = to_json(row)
    shown = {
        "observed_timestamp": told["observed_timestamp"],
        "severity": told["severity"],
        "message": told["message"],
        "_errors": told["errors"] or None,
        "_overflow": told["overflow"],
    }
    fields = {name: value for name, value in shown.items() if value is not None}
    return {TIME: told["timestamp"], "level": told["level"], **fields, **told["fields"]}


def _hit(
    row: Mapping[str, Any], index: str, body: SearchBody, shown: dict[str, list[tuple[str, str]]]
) -> dict[str, Any]:
    row_id, source = cursor_of(row).to_text(), source_of(row)
    hit: dict[str, Any] = {"_index": index, "_id": row_id, "_score": None if body.sort.is_given else 1.0}
    if body.source.is_there:
        hit["_source"] = body.source.of(source)
    if body.fields:
        hit["fields"] = _fields(row, source, body.fields, shown)
    if body.sort.is_given or body.pit is not None:
        hit["sort"] = place_values(body.sort, row[TIMESTAMP], row_id, index)
    return hit


def _fields(
    row: Mapping[str, Any],
    source: Mapping[str, Any],
    wishes: Sequence[FieldWish],
    shown: dict[str, list[tuple[str, str]]],
) -> dict[str, list[Any]]:
    """The values of the fields that are wished for, each in a list. `shown`: by a column's name under which
    names and in which form it is shown, kept from row to row."""
    found: dict[str, list[Any]] = {}
    for wish in wishes:
        if wish.pattern in (TIME, TIMESTAMP):
            form = wish.form or "strict_date_optional_time"
            found.setdefault(wish.pattern, [time_value(row[TIMESTAMP], form)])
    for name, value in source.items():
        if name not in shown:
            shown[name] = [] if name == TIME else _names_of(name, wishes)
        for called, form in shown[name]:
            found.setdefault(called, _listed(row, name, value, form))
    return found


def _names_of(name: str, wishes: Sequence[FieldWish]) -> list[tuple[str, str]]:
    fitting = [
        wish
        for wish in wishes
        if fnmatchcase(name, wish.pattern) or name == wish.pattern.removesuffix(KEYWORD)
    ]
    return [(name if "*" in wish.pattern else wish.pattern, wish.form) for wish in fitting]


def _listed(row: Mapping[str, Any], name: str, value: Any, form: str) -> list[Any]:
    at = row.get(name)
    if isinstance(at, datetime) and form:
        return [time_value(at, form)]
    return value if isinstance(value, list) else [value]
