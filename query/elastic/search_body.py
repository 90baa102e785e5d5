"""The body of `_search`: what it asks for, checked before any table is."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from fnmatch import fnmatchcase
from typing import Any

from query.elastic.elastic_error import (
    ElasticError,
    check_length,
    malformed,
    number_in,
    object_of,
    unsupported,
)
from query.elastic.sorting import Place, Sort, read_place, read_sort

SIZE, TOTAL_MAX = 10, 10_000
PATTERNS_MAX = 100
_READ = frozenset(
    {"query", "size", "from", "sort", "_source", "fields", "docvalue_fields", "track_total_hits"}
    | {"aggs", "aggregations", "search_after", "pit"}
)
# What changes nothing here: where nothing is ranked, cached or marked.
_IDLE = frozenset(
    {"highlight", "timeout", "version", "seq_no_primary_term", "track_scores", "stats", "stored_fields"}
)
# What means nothing as long as it is empty, false or nothing.
_EMPTY = frozenset({"script_fields", "runtime_mappings", "explain", "profile", "indices_boost", "ext"})


@dataclass(frozen=True, slots=True)
class SourceFilter:
    """Which fields of a row `_source` has; patterns. `is_there` False: there is none."""

    is_there: bool = True
    includes: tuple[str, ...] = ()
    excludes: tuple[str, ...] = ()
    _known: dict[str, bool] = field(default_factory=dict, compare=False)

    def of(self, source: Mapping[str, Any]) -> dict[str, Any]:
        """The part of a row that is asked for."""
        if not self.includes and not self.excludes:
            return dict(source)
        return {name: value for name, value in source.items() if self._has(name)}

    def _has(self, name: str) -> bool:
        if name not in self._known:
            is_included = not self.includes or _fits(name, self.includes)
            self._known[name] = is_included and not _fits(name, self.excludes)
        return self._known[name]


def _fits(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) or name.startswith(f"{pattern}.") for pattern in patterns)


@dataclass(frozen=True, slots=True)
class FieldWish:
    """A field, or a pattern of some, that hits list beside their source. `form`: of times."""

    pattern: str
    form: str = ""


@dataclass(frozen=True, slots=True)
class SearchBody:
    """What a search asks for. `total_max`: up to where matches are counted; None: to the last; 0: not."""

    query: Any
    size: int
    first: int
    sort: Sort
    source: SourceFilter
    fields: tuple[FieldWish, ...]
    total_max: int | None
    aggs: Mapping[str, Any]
    after: Place | None
    pit: str | None

    @property
    def rows(self) -> int:
        """How many rows of each table can be among the hits."""
        return self.first + self.size if self.size else 0


def read_body(body: Any, now: datetime, rows_max: int) -> SearchBody:
    """Reads a body. Raises ElasticError for what is wrong or not supported."""
    given = object_of({} if body is None else body, "body")
    for name, value in given.items():
        if name not in _READ | _IDLE and (name not in _EMPTY or value):
            raise unsupported(str(name)[:60])
    size = number_in(given.get("size", SIZE), "size", 0, 10**9)
    first = number_in(given.get("from", 0), "from", 0, 10**9)
    if first + size > rows_max:
        raise ElasticError(
            f"Result window is too large, from + size must be less than or equal to [{rows_max}] but was "
            f"[{first + size}]; go on with search_after, or use the export of the search API"
        )
    check_length(given.get("query"), "query")
    sort = read_sort(given.get("sort"))
    after = None if given.get("search_after") is None else read_place(given["search_after"], sort, now)
    if after is not None and first:
        raise malformed("[from] is 0 where [search_after] is given")
    pit = given.get("pit")
    aggs = given.get("aggs", given.get("aggregations")) or {}
    check_length(aggs, "aggs")
    return SearchBody(
        given.get("query"),
        size,
        first,
        sort,
        read_source(given.get("_source", True)),
        tuple(map(_wish, [*_list(given, "fields"), *_list(given, "docvalue_fields")])),
        _total_max(given.get("track_total_hits", TOTAL_MAX)),
        object_of(aggs, "aggs"),
        after,
        None if pit is None else str(object_of(pit, "pit").get("id", "")),
    )


def _list(given: Mapping[str, Any], name: str) -> list[Any]:
    listed = given.get(name) or []
    if not isinstance(listed, list) or len(listed) > PATTERNS_MAX:
        raise malformed(f"[{name}] is a list of {PATTERNS_MAX:,} fields at most")
    return listed


def _wish(written: Any) -> FieldWish:
    if isinstance(written, str):
        return FieldWish(written)
    named = object_of(written, "fields")
    if not isinstance(named.get("field"), str):
        raise malformed("[fields] names fields")
    return FieldWish(named["field"], str(named.get("format") or ""))


def _total_max(written: Any) -> int | None:
    if isinstance(written, bool) or str(written).lower() in ("true", "false"):
        return None if str(written).lower() == "true" else 0
    return number_in(written, "track_total_hits", -1, 2**31 - 1) if written not in (-1, "-1") else None


def read_source(written: Any) -> SourceFilter:
    """What of a row is asked for. Raises ElasticError."""
    if written is None or isinstance(written, bool):
        return SourceFilter(written is not False)
    if isinstance(written, str) and written in ("true", "false"):
        return SourceFilter(written == "true")
    if isinstance(written, Mapping):
        for name in written:
            if name not in ("includes", "include", "excludes", "exclude"):
                raise unsupported(f"_source.{str(name)[:60]}")
        includes = _patterns(written.get("includes", written.get("include")))
        return SourceFilter(True, includes, _patterns(written.get("excludes", written.get("exclude"))))
    return SourceFilter(True, _patterns(written))


def _patterns(written: Any) -> tuple[str, ...]:
    listed = written if isinstance(written, list) else [] if written is None else str(written).split(",")
    if len(listed) > PATTERNS_MAX or not all(isinstance(each, str) for each in listed):
        raise malformed(f"[_source] takes {PATTERNS_MAX:,} names of fields at most")
    return tuple(listed)
