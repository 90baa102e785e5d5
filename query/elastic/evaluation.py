"""Aggregations, evaluated: one statement a level, over every table that the search is about.

`evaluated` asks (it yields questions and is sent what all tables answered together), so that it need not know
who asks the tables, and in whose turn.
"""

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from query.elastic.aggregations import Aggregations, Bucket, Metric
from query.elastic.elastic_error import TOO_MANY, ElasticError
from query.elastic.figures import COUNT, check_tables, measures_of, place_in, together
from query.elastic.group_order import metric_of, ordered
from query.elastic.translation import Filter, OneOf
from query.stats.groups import ByValue, Group
from query.stats.measures import Measure
from query.stats.stats import GROUPS_MAX, Order, StatsAnswer

STATEMENTS_MAX = 100


@dataclass(frozen=True, slots=True)
class Wanted:
    """One statement, the same for every table. `is_top`: only the first groups are wanted."""

    groups: tuple[Group, ...]
    measures: tuple[Measure, ...]
    filters: tuple[Filter, ...] = ()
    order: tuple[Order, ...] = ()
    groups_max: int = GROUPS_MAX
    is_top: bool = False


@dataclass(frozen=True, slots=True)
class Counted:
    """What the tables answered: figures by the keys of their group. `left_out`: rows at most of a group that
    a table did not tell; None where every table told all."""

    rows: dict[tuple[Any, ...], tuple[Any, ...]]
    left_out: int | None = None


Asking = Generator[Wanted, Counted, "Answered"]


@dataclass(frozen=True, slots=True)
class Level:
    """A bucket aggregation with what was counted for it. `by_parent`: its groups by the keys of the groups
    around; of queries the names in place of keys."""

    bucket: Bucket
    by_parent: Mapping[tuple[Any, ...], list[tuple[Any, tuple[Any, ...]]]]
    under: Mapping[Any, "Answered"] = field(default_factory=dict)
    others: int = 0
    left_out: int = 0


@dataclass(frozen=True, slots=True)
class Answered:
    """One level of aggregations, counted: its metrics where they stand alone, and its buckets."""

    metrics: tuple[Metric, ...]
    figures: Mapping[tuple[Any, ...], Sequence[Any]]
    levels: tuple[Level, ...]


def evaluated(asked: Aggregations, tables: int) -> Asking:
    """Counts the aggregations of a search over so many tables. Raises ElasticError."""
    check_tables(_measures(asked), tables)
    figures: Mapping[tuple[Any, ...], Sequence[Any]] = {}
    if asked.metrics:
        counted = yield Wanted((), tuple(each for metric in asked.metrics for each in measures_of(metric)))
        figures = counted.rows
    levels = yield from _levels(asked.buckets, (), (), tables)
    return Answered(asked.metrics, figures, levels)


def _measures(asked: Aggregations) -> list[Measure]:
    own = [each for metric in asked.metrics for each in measures_of(metric)]
    under = [_measures(Aggregations(each.metrics, each.buckets)) for each in asked.buckets]
    return [*own, *(measure for each in under for measure in each)]


def _levels(
    buckets: Sequence[Bucket], groups: tuple[Group, ...], filters: tuple[Filter, ...], tables: int
) -> Generator[Wanted, Counted, tuple[Level, ...]]:
    levels: tuple[Level, ...] = ()
    for bucket in buckets:
        levels += ((yield from _level(bucket, groups, filters, tables)),)
    return levels


def _level(
    bucket: Bucket, groups: tuple[Group, ...], filters: tuple[Filter, ...], tables: int
) -> Generator[Wanted, Counted, Level]:
    measures = (COUNT, *(each for metric in bucket.metrics for each in measures_of(metric)))
    if bucket.group is None:
        return (yield from _by_queries(bucket, measures, groups, filters, tables))
    own = (*groups, bucket.group)
    wanted = _wanted(bucket, measures, own, filters, tables)
    counted = yield wanted
    by_parent: dict[tuple[Any, ...], list[tuple[Any, tuple[Any, ...]]]] = {}
    for keys, figures in counted.rows.items():
        if keys[-1] is not None or bucket.keeps_missing:
            by_parent.setdefault(keys[:-1], []).append((keys[-1], figures))
    others = 0
    if wanted.is_top and bucket.group is not None and isinstance(bucket.group, ByValue):
        all_rows = COUNT if bucket.keeps_missing else Measure("values", bucket.group.field)
        every = (yield Wanted((), (all_rows,), filters)).rows if counted.left_out is not None else {}
        told = sum(figures[0] for _, figures in by_parent.get((), ()))
        others = max(0, int(every.get((), (0,))[0] or 0) - told)
    level = Level(bucket, by_parent, others=others, left_out=counted.left_out or 0 if tables > 1 else 0)
    if not bucket.buckets:
        return level
    within = (*filters, *_only_top(bucket, by_parent, groups))
    under = Answered((), {}, (yield from _levels(bucket.buckets, own, within, tables)))
    return Level(bucket, by_parent, {None: under}, level.others, level.left_out)


def _by_queries(
    bucket: Bucket,
    measures: tuple[Measure, ...],
    groups: tuple[Group, ...],
    filters: tuple[Filter, ...],
    tables: int,
) -> Generator[Wanted, Counted, Level]:
    by_parent: dict[tuple[Any, ...], list[tuple[Any, tuple[Any, ...]]]] = {}
    under: dict[Any, Answered] = {}
    for name, query in bucket.named.items():
        within = (*filters, query)
        counted = yield Wanted(groups, measures, within)
        for keys, figures in counted.rows.items():
            by_parent.setdefault(keys, []).append((name, figures))
        under[name] = Answered((), {}, (yield from _levels(bucket.buckets, groups, within, tables)))
    return Level(bucket, by_parent, under)


def _wanted(
    bucket: Bucket,
    measures: tuple[Measure, ...],
    groups: tuple[Group, ...],
    filters: tuple[Filter, ...],
    tables: int,
) -> Wanted:
    """The statement of a bucket. Of terms alone only the first are asked for, where SQL can order them."""
    by, is_descending = bucket.order
    metric = metric_of(bucket, by)
    place = 0 if by == "_key" else 1 if by == "_count" else None
    if metric is not None and metric.kind not in ("avg", "stats"):
        before = bucket.metrics[: bucket.metrics.index(metric)]
        place = 2 + sum(len(measures_of(each)) for each in before) + place_in(metric, by)
    if bucket.kind != "terms" or len(groups) > 1 or place is None:
        return Wanted(groups, measures, filters)
    most = bucket.size + 1 if tables == 1 and bucket.count_min <= 1 else GROUPS_MAX
    return Wanted(
        groups, measures, filters, (Order(place, is_descending),), min(most, GROUPS_MAX), is_top=True
    )


def _only_top(
    bucket: Bucket,
    by_parent: Mapping[tuple[Any, ...], list[tuple[Any, tuple[Any, ...]]]],
    groups: tuple[Group, ...],
) -> tuple[Filter, ...]:
    """What leaves the rows of other terms out of the levels below."""
    if bucket.kind != "terms" or groups or bucket.keeps_missing or not isinstance(bucket.group, ByValue):
        return ()
    keys = [key for key, _ in ordered(bucket, by_parent.get((), []))[: bucket.size]]
    if not keys or not all(isinstance(key, str | int) for key in keys):
        return ()
    return (OneOf(bucket.group.field, tuple(keys)),)


def counted_together(wanted: Wanted, answers: Sequence[StatsAnswer]) -> Counted:
    """What several tables answered, as one answer. Raises ElasticError where there are more groups than may
    be."""
    rows: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    left_out: int | None = None
    width = len(wanted.groups)
    for answer in answers:
        if answer.is_cut and not (wanted.is_top and len(answer.rows) >= wanted.groups_max):
            raise too_many_buckets()
        if answer.is_cut:
            left_out = (left_out or 0) + int(answer.rows[-1][width] or 0)
        for row in answer.rows:
            keys, figures = row[:width], row[width:]
            rows[keys] = together(wanted.measures, rows[keys], figures) if keys in rows else figures
    return Counted(rows, left_out)


def too_many_buckets() -> ElasticError:
    """The error for more groups than one answer may have."""
    return ElasticError(
        f"Trying to create too many buckets. Must be less than or equal to: [{GROUPS_MAX}]. Choose wider "
        "intervals, a shorter time range, or fewer terms",
        TOO_MANY,
    )
