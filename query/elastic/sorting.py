"""The order of hits, the values that stand for a hit's place in it, and where `search_after` goes on.

Rows come by time; of one time by index, then by their Kafka coordinates. The last value of a place is exact:
the id of the row and its index.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from lake.clock import epoch_us
from query.elastic.date_math import period_of
from query.elastic.elastic_error import ElasticError, malformed, unsupported
from query.elastic.fields import TIME
from query.model.instant import rfc3339
from query.model.problem import BadRequestError
from query.model.table_view import EPOCH
from query.search.results import Cursor, parse_cursor
from query.search.search import SearchRequest

KEYS_MAX = 10
_US = timedelta(microseconds=1)
_TIMES = frozenset({TIME, "timestamp"})
_TIES = frozenset({"_doc", "_shard_doc", "_id"})
_OPTIONS = frozenset({"order", "unmapped_type", "format", "numeric_type", "missing", "mode"})


@dataclass(frozen=True, slots=True)
class SortKey:
    """One value of a hit's place: `time`, `tie` or `score`. `form`: how a time is written."""

    kind: str
    form: str = ""


@dataclass(frozen=True, slots=True)
class Sort:
    """`is_given`: the request asked for an order, so hits say their place in it."""

    keys: tuple[SortKey, ...] = (SortKey("time"),)
    newest_first: bool = True
    is_given: bool = False


@dataclass(frozen=True, slots=True)
class Place:
    """Where the page before ended: at a row of an index, or (`index` None) at a time and all of its rows."""

    end: datetime
    index: str | None = None
    cursor: Cursor | None = None


def read_sort(written: Any) -> Sort:
    """The order that a request asks for. Raises ElasticError."""
    if written in (None, [], {}):
        return Sort()
    listed = written if isinstance(written, list) else [written]
    named: list[tuple[str, Any]] = []
    for each in listed:
        if isinstance(each, str):
            name, colon, order = each.partition(":")
            named.append((name, order if colon else None))
        elif isinstance(each, Mapping):
            named += each.items()
        else:
            raise malformed("[sort] is a list of names and objects")
    if len(named) > KEYS_MAX:
        raise ElasticError(f"[sort] has {len(named)} keys, at most {KEYS_MAX} are allowed")
    keys = [_key(name, options) for name, options in named]
    orders = [is_newest for key, is_newest in keys if key.kind == "time"]
    ties = [is_newest for key, is_newest in keys if key.kind == "tie"]
    if len(set(orders)) > 1:
        raise malformed("[sort] names the time in both directions")
    newest_first = orders[0] if orders else ties[0] if ties else True
    return Sort(tuple(key for key, _ in keys), newest_first, True)


def _key(name: str, written: Any) -> tuple[SortKey, bool]:
    """A key, and whether the newest come first by it."""
    options = {"order": written} if written is None or isinstance(written, str) else written
    if not isinstance(options, Mapping):
        raise malformed(f"[sort] does not know what is said of {str(name)[:60]}")
    for option in options:
        if option not in _OPTIONS:
            raise unsupported(f"sort.{str(option)[:60]}")
    kind = "time" if name in _TIMES else "tie" if name in _TIES else "score" if name == "_score" else ""
    if not kind:
        raise unsupported(f"sort by {str(name)[:100]}", f"rows come by time: sort by {TIME}, _doc or _score")
    order = str(options.get("order") or ("desc" if kind == "score" else "asc")).lower()
    if order not in ("asc", "desc"):
        raise malformed("[sort] goes asc or desc")
    form = "nanos" if options.get("numeric_type") == "date_nanos" else ""
    return SortKey(kind, str(options.get("format") or form)), order == "desc"


def place_values(sort: Sort, at: datetime, row_id: str, index: str) -> list[Any]:
    """The values that stand for a hit's place."""
    tie = f"{row_id}@{index}"
    found = [
        time_value(at, key.form) if key.kind == "time" else tie if key.kind == "tie" else None
        for key in sort.keys
    ]
    return found if any(key.kind == "tie" for key in sort.keys) else [*found, tie]


def time_value(at: datetime, form: str) -> Any:
    """A time as a request wants it: milliseconds since 1970, unless it says otherwise."""
    if not form or form.startswith("epoch_millis"):
        return epoch_us(at) // 1_000
    if form.startswith("epoch_second"):
        return epoch_us(at) // 1_000_000
    if form == "nanos":
        return epoch_us(at) * 1_000
    return rfc3339(at) if "nanos" in form else at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"


def read_place(values: Any, sort: Sort, now: datetime) -> Place:
    """Where a request goes on. Raises ElasticError."""
    if not isinstance(values, list) or not values or len(values) > KEYS_MAX + 1:
        raise malformed("[search_after] takes the values of `sort` of the last hit")
    for value in values:
        if isinstance(value, str) and "@" in value:
            row_id, _, index = value.partition("@")
            try:
                cursor = parse_cursor(row_id)
                return Place(EPOCH + timedelta(microseconds=cursor.timestamp_us), index, cursor)
            except (BadRequestError, OverflowError):
                raise malformed("[search_after] is damaged; take `sort` of the last hit") from None
    key = next((key for key in sort.keys if key.kind == "time"), SortKey("time"))
    at = period_of(values[0], now, form=key.form)
    return Place(at.start if sort.newest_first else at.end)


def after_place(
    search: SearchRequest, place: Place, index: str, *, newest_first: bool
) -> tuple[SearchRequest | None, Cursor | None]:
    """The question to a table for what comes after a place; None: nothing does. Indices of one time come in
    the order of their names."""
    if place.index == index:
        return search, place.cursor
    is_behind = place.index is not None and index > place.index
    start, end = search.start, search.end
    if newest_first:
        end = min(end, place.end + _US if is_behind else place.end)
    else:
        start = max(start, place.end if is_behind or place.index is None else place.end + _US)
    return (replace(search, start=start, end=end), None) if start < end else (None, None)
