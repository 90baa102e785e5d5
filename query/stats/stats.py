"""Figures over the rows that a search finds: one statement on the engine that the search would take, whatever
is grouped by and computed. Ends with the same basis as a page of the search: what was read, what is missing.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlglot import exp

from lake.log_schema import LogSchema
from query.executors.executor import from_source
from query.language.search_sql import column
from query.model.cancellation import Run
from query.model.problem import Problem, refuse
from query.search.search import Progress, Searcher, SearchRequest, SearchStats
from query.stats.groups import Group
from query.stats.measures import Measure

GROUPS_MAX = 10_000
# Of one question: more would be statements that engines take seconds to plan.
GROUPINGS_MAX, MEASURES_MAX = 8, 1_000


@dataclass(frozen=True, slots=True)
class Order:
    """By the key or measure at this place of a row; missing ones come last."""

    place: int
    is_descending: bool = False


@dataclass(frozen=True, slots=True)
class StatsRequest:
    """`groups` from the outermost one on; none: all rows are one. Rows come in the given order, else in that
    of their keys, at most `groups_max` of them."""

    search: SearchRequest
    groups: tuple[Group, ...]
    measures: tuple[Measure, ...]
    order: tuple[Order, ...] = ()
    groups_max: int = GROUPS_MAX


@dataclass(frozen=True, slots=True)
class StatsAnswer:
    """A row has the keys of its group, then the measures. `is_cut`: there are more groups."""

    rows: list[tuple[Any, ...]]
    is_cut: bool
    basis: SearchStats


def stats(searcher: Searcher, asked: StatsRequest, run: Run, progress: Progress | None = None) -> StatsAnswer:
    """Computes them; who looks on gives the `progress`. Raises BadRequestError, NotFoundError,
    UnavailableError."""
    _check(asked)
    progress = progress or Progress()

    def compute() -> StatsAnswer:
        prepared = searcher.prepare(asked.search)
        progress.begin(prepared)
        files, plan = prepared.plan.files, prepared.plan
        condition = prepared.condition_in(plan.start, plan.end, files=files)
        is_exact = prepared.executor.reads_files
        select, warnings = statement(asked, prepared.view.schema, condition, is_exact=is_exact)
        fetched = searcher.fetch(
            prepared, files, select, run, progress, bytes_max=searcher.settings.search.page_bytes_max
        )
        found = fetched.rows if fetched else []
        is_cut = len(found) > asked.groups_max or (fetched is not None and fetched.cut)
        basis = searcher.basis(prepared, progress)
        return StatsAnswer(
            [to_row(asked, each) for each in found[: asked.groups_max]],
            is_cut,
            replace(basis, warnings=tuple(dict.fromkeys((*basis.warnings, *warnings)))),
        )

    return searcher.retried(compute)


def _check(asked: StatsRequest) -> None:
    if not asked.measures:
        raise refuse("nothing is asked of the rows; count() is the least")
    if len(asked.groups) > GROUPINGS_MAX or len(asked.measures) > MEASURES_MAX:
        raise refuse(
            f"at most {GROUPINGS_MAX} groupings and {MEASURES_MAX:,} figures at a time; ask for less at once"
        )


def statement(
    asked: StatsRequest, schema: LogSchema, condition: exp.Expression | None, *, is_exact: bool
) -> tuple[exp.Select, tuple[Problem, ...]]:
    """The statement over a table with this schema, and what is to be said of the fields it names. `is_exact`:
    the engine has percentiles that are. Raises BadRequestError."""
    values = [each.expression(schema) for each in asked.groups]
    values += [each.expression(schema, is_exact=is_exact) for each in asked.measures]
    named = [exp.alias_(value.sql, _name(at), quoted=True) for at, value in enumerate(values)]
    select = exp.select(*named, copy=False).from_(from_source(), copy=False)
    if condition is not None:
        select = select.where(condition, copy=False)
    if asked.groups:
        select = _grouped(select, asked)
    return select, tuple(said for value in values for said in value.warnings)


def _grouped(select: exp.Select, asked: StatsRequest) -> exp.Select:
    places = range(len(asked.groups))
    chosen = {each.place for each in asked.order}
    every = (*asked.order, *(Order(at) for at in places if at not in chosen))
    ordered = [
        exp.Ordered(this=column(_name(each.place)), desc=each.is_descending, nulls_first=False)
        for each in every
    ]
    grouped = select.group_by(*(exp.Literal.number(at + 1) for at in places), copy=False)
    return grouped.order_by(*ordered, copy=False).limit(asked.groups_max + 1, copy=False)


def _name(at: int) -> str:
    """A name that no column of a record has: those are folded."""
    return f"Figure {at}"


def to_row(asked: StatsRequest, found: Sequence[Any]) -> tuple[Any, ...]:
    """What an engine gave for a group, as a row of the answer."""
    keys = zip(asked.groups, found, strict=False)
    measures = zip(asked.measures, found[len(asked.groups) :], strict=True)
    return (*(group.key(value) for group, value in keys), *(each.value(value) for each, value in measures))
