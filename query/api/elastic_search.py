"""Elasticsearch's searches: which tables they are about, each asked in a turn of its own, and one answer of
what they gave."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

from fastapi import Request

from lake.errors import NotFoundError
from lake.tenant import TableId, from_identifier
from query.access.access import Caller
from query.api.audited import told_of
from query.api.services import Services, caller_of, services_of
from query.api.turns import run
from query.elastic.aggregations import read_aggregations
from query.elastic.continuation import Scroll, pins_of, pit_text, read_pit, scroll_text
from query.elastic.elastic_error import NOT_THERE, ElasticError, check_length, malformed
from query.elastic.evaluation import STATEMENTS_MAX, Wanted, counted_together, evaluated
from query.elastic.hits import hits_of
from query.elastic.index_names import chosen, is_pattern, patterns_of, table_of, tenant_of_pattern
from query.elastic.rendering import Rendering
from query.elastic.search_body import SearchBody, read_body
from query.elastic.table_parts import Part, TableAsker, said_of
from query.elastic.translation import NO_TABLE, Question, node_of
from query.model.cancellation import Run, TimeOverError
from query.model.point_in_time import PointInTime
from query.stats.stats import StatsAnswer

Answer = TypeVar("Answer")
LISTED_MAX = 1_000


@dataclass(frozen=True, slots=True)
class Indices:
    """The tables of a request. `may_be_gone`: a table that is not there is left out, as it was not named
    alone."""

    tables: Mapping[str, TableId]
    may_be_gone: bool
    pins: Mapping[str, PointInTime] = field(default_factory=dict)


@dataclass(slots=True)
class Asking:
    """One request while it is answered: all of it within the time that one search may take."""

    request: Request
    parts: dict[str, list[Part]] = field(default_factory=dict)
    missed: list[str] = field(default_factory=list)
    read_bytes: int = 0
    began_s: float = field(default_factory=lambda: asyncio.get_running_loop().time())

    @property
    def services(self) -> Services:
        return services_of(self.request)

    @property
    def caller(self) -> Caller:
        return caller_of(self.request)

    @property
    def took_s(self) -> float:
        """Seconds since it came."""
        return asyncio.get_running_loop().time() - self.began_s

    @property
    def timed_out(self) -> bool:
        """Whether something ended before it was done."""
        return bool(self.missed) or any(each.stopped for found in self.parts.values() for each in found)

    def asker(self) -> TableAsker:
        """Asks tables with the caller's key, and tells the audit trail of it."""
        services, caller = self.services, self.caller
        return TableAsker(
            caller.catalog,
            services.searcher(caller),
            services.counts,
            lambda table: services.access.check_stream(caller, table),
            told_of(self.request).asked_also,
        )

    async def turn(
        self, table: TableId | None, ask: Callable[[Run], Answer], *, is_search: bool = True
    ) -> Answer:
        """Asks in a turn of the table's tenant, as one search of it. Raises TimeOverError where the time of
        the request is over."""
        timeout_s = self.services.settings.search.timeout_s
        if self.took_s >= timeout_s:
            raise TimeOverError(f"the request took longer than {timeout_s:g} s")
        return await run(
            self.request,
            ask,
            timeout_s=timeout_s - self.took_s,
            tenant=None if table is None else table.tenant,
            counted_as=table.stream if table is not None and is_search else None,
        )

    def add(self, index: str, part: Part) -> None:
        """Notes what a table gave."""
        self.parts.setdefault(index, []).append(part)
        self.read_bytes += part.read_bytes

    async def each(
        self, indices: Indices, ask: Callable[[TableAsker, TableId, PointInTime | None, Run], Answer]
    ) -> dict[str, Answer]:
        """Asks all tables, one after the other, as far as the time goes. Raises what one of them raises."""
        asker, found = self.asker(), dict[str, Answer]()
        for index, table in indices.tables.items():
            try:
                found[index] = await self.turn(table, partial(ask, asker, table, indices.pins.get(index)))
            except TimeOverError as error:
                self.missed.append(f"stopped early: {error}; {index} was not asked")
            except NotFoundError:
                if not indices.may_be_gone:
                    raise
        return found

    def basis(self) -> dict[str, Any]:
        """What the answer rests on."""
        return said_of(self.parts, self.missed)


async def indices_of(
    asking: Asking, expression: str, *, ignores_missing: bool = False, most: int = LISTED_MAX
) -> Indices:
    """The tables that names and patterns mean. Raises ElasticError, ForbiddenError."""
    patterns = patterns_of(expression)
    has_patterns = any(map(is_pattern, patterns))
    if has_patterns:
        tables = await asking.turn(None, lambda _: chosen(patterns, partial(_known, asking)), is_search=False)
    else:
        tables = chosen(patterns, lambda _: ())
    if len(tables) > most:
        raise ElasticError(
            f"[{expression[:200]}] means {len(tables):,} indices, at most {most:,} may be meant"
        )
    return Indices(tables, ignores_missing or has_patterns)


def _known(asking: Asking, pattern: str) -> list[TableId]:
    """The tables that a pattern may fit and the caller's key reaches."""
    services, caller, named = asking.services, asking.caller, tenant_of_pattern(pattern)
    if named is not None:
        services.access.check_tenant(caller, named)
    found: list[TableId] = []
    for tenant in (named,) if named is not None else services.reached_by(caller, anew=False).tenants:
        try:
            names = [from_identifier(each.name) for each in caller.catalog.tables(tenant.namespace)]
        except NotFoundError:
            continue
        found += [TableId(tenant, name) for name in names if name is not None and caller.who.knows(name)]
        if len(found) > 100 * LISTED_MAX:
            raise ElasticError("there are too many indices; name the tenant, as in tenant.*")
    return found


async def searched(
    asking: Asking,
    expression: str,
    written: Any,
    *,
    query_string: str = "",
    ignores_missing: bool = False,
    scrolls: bool = False,
    scroll: Scroll | None = None,
) -> dict[str, Any]:
    """The answer to `_search`. `scrolls`: it is the first page of a scroll; `scroll`: it is a further one."""
    settings, now = asking.services.settings, asking.services.clock.now()
    body = read_body(written, now, settings.search.page_rows_max)
    aggs = read_aggregations(body.aggs)
    if scrolls and (body.first or not body.size or body.pit is not None):
        raise malformed("a scroll has a [size], and neither [from] nor [pit]")
    indices = await _indices(asking, body, expression, scroll, ignores_missing=ignores_missing)
    question = Question(body.query, query_string, now)
    if not indices.tables:  # what is wrong is told also where no table is asked
        node_of(question, "", NO_TABLE)
    is_counted = scroll is None or scroll.total is None
    parts = await asking.each(
        indices,
        lambda asker, table, pin, current: asker.page(
            table, question, body, current, pin, is_counted=is_counted
        ),
    )
    for index, part in parts.items():
        asking.add(index, part)
    hits = hits_of([part.found for part in parts.values()], body)
    told = told_of(asking.request)
    told.rows = (told.rows or 0) + len(hits)
    total = _total(asking, parts, body) if is_counted else (scroll.total if scroll is not None else None)
    answer: dict[str, Any] = {
        "took": 0,
        "timed_out": False,
        "_shards": shards(len(indices.tables)),
        "hits": {**({} if total is None else {"total": total}), "max_score": None, "hits": hits},
    }
    if body.aggs:
        left = replace(indices, tables={index: indices.tables[index] for index in parts})
        answer["aggregations"] = await _aggregated(asking, left, question, aggs)
    if body.pit is not None:
        answer["pit_id"] = body.pit
    if scrolls or scroll is not None:
        answer["_scroll_id"] = _scroll_id(written, parts, hits, total, scroll)
    told.scanned_bytes = asking.read_bytes
    answer["took"], answer["timed_out"] = int(asking.took_s * 1_000), asking.timed_out
    return {**answer, "_firn": asking.basis()}


async def _indices(
    asking: Asking, body: SearchBody, expression: str, scroll: Scroll | None, *, ignores_missing: bool
) -> Indices:
    pins = pins_of(scroll.pins) if scroll is not None else None if body.pit is None else read_pit(body.pit)
    if pins is None:
        most = asking.services.settings.elasticsearch.indices_max
        return await indices_of(asking, expression, ignores_missing=ignores_missing, most=most)
    if expression:
        raise malformed("[pit] names the indices; leave them out of the address")
    return Indices({name: table_of(name) for name in sorted(pins)}, may_be_gone=False, pins=pins)


def _total(asking: Asking, parts: Mapping[str, Part], body: SearchBody) -> dict[str, Any] | None:
    if body.total_max == 0:
        return None
    value, relation = sum(part.total or 0 for part in parts.values()), "eq"
    if asking.timed_out or any(part.uncounted is not None for part in parts.values()):
        relation = "gte"
    if body.total_max is not None and value > body.total_max:
        value, relation = body.total_max, "gte"
    return {"value": value, "relation": relation}


async def _aggregated(asking: Asking, indices: Indices, question: Question, aggs: Any) -> dict[str, Any]:
    """The aggregations of a search: a statement a level, on every table."""
    steps, statements = evaluated(aggs, len(indices.tables)), 0
    try:
        wanted = next(steps)
        while True:
            statements += 1
            if statements > STATEMENTS_MAX:
                raise ElasticError(
                    f"the aggregations take more than {STATEMENTS_MAX} statements; ask for less"
                )
            wanted = steps.send(counted_together(wanted, await _figures(asking, indices, question, wanted)))
    except StopIteration as done:
        return Rendering(question.now).answer(done.value)


async def _figures(asking: Asking, indices: Indices, question: Question, wanted: Wanted) -> list[StatsAnswer]:
    narrowed = replace(question, filters=wanted.filters)
    found = await asking.each(
        indices, lambda asker, table, pin, current: asker.figures(table, narrowed, wanted, current, pin)
    )
    for index, (_, part) in found.items():
        asking.add(index, part)
    return [answer for answer, _ in found.values()]


def _scroll_id(
    written: Any,
    parts: Mapping[str, Part],
    hits: list[dict[str, Any]],
    total: Mapping[str, Any] | None,
    before: Scroll | None,
) -> str:
    """What asks for the next page."""
    after = [f"{hits[-1]['_id']}@{hits[-1]['_index']}"] if hits else None if before is None else before.after
    if before is not None:
        return scroll_text(replace(before, after=after))
    body = {name: value for name, value in (written or {}).items() if name not in ("aggs", "aggregations")}
    pins = {index: part.pin.to_text() for index, part in parts.items() if part.pin is not None}
    return scroll_text(Scroll(body, pins, after, total))


async def scrolled(asking: Asking, scroll: Scroll) -> dict[str, Any]:
    """The next page of a scroll."""
    body = dict(scroll.body)
    if scroll.after is not None:
        body["search_after"] = scroll.after
    return await searched(asking, "", body, scroll=scroll)


async def counted(
    asking: Asking, expression: str, query: Any, *, query_string: str = "", ignores_missing: bool = False
) -> dict[str, Any]:
    """The answer to `_count`."""
    most = asking.services.settings.elasticsearch.indices_max
    indices = await indices_of(asking, expression, ignores_missing=ignores_missing, most=most)
    check_length(query, "query")
    question = Question(query, query_string, asking.services.clock.now())
    if not indices.tables:
        node_of(question, "", NO_TABLE)
    parts = await asking.each(
        indices, lambda asker, table, pin, current: asker.count(table, question, current, pin)
    )
    for index, part in parts.items():
        asking.add(index, part)
    rows = sum(part.total or 0 for part in parts.values())
    told_of(asking.request).found(rows, asking.read_bytes)
    failed = sum(part.stopped is not None for part in parts.values()) + len(asking.missed)
    return {"count": rows, "_shards": shards(len(indices.tables), failed), "_firn": asking.basis()}


async def pinned(asking: Asking, expression: str) -> str:
    """The id of a point in time of some indices. Raises ElasticError where there is none."""
    most = asking.services.settings.elasticsearch.indices_max
    indices = await indices_of(asking, expression, most=most)
    asker, pins = asking.asker(), dict[str, PointInTime]()
    for index, table in indices.tables.items():
        pins[index] = await asking.turn(table, partial(asker.pin, table), is_search=False)
    if not pins:
        raise ElasticError(f"no such index [{expression[:200]}]", NOT_THERE)
    return pit_text(pins)


def shards(total: int, failed: int = 0) -> dict[str, int]:
    """Tables as Elasticsearch's clients count shards."""
    return {"total": total, "successful": total - failed, "skipped": 0, "failed": failed}
