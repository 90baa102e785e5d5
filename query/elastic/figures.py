"""Figures of an aggregation: what is asked of each table for them, how those of several tables become one,
and how they are written."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

from lake.clock import epoch_us
from query.elastic.aggregations import Metric
from query.elastic.elastic_error import unsupported
from query.elastic.time_formats import time_text
from query.elastic.value_queries import HERE
from query.language.search_language import Between
from query.language.search_text import to_text
from query.stats.measures import Measure

# Figures that cannot be put together from those of parts.
_OF_ONE_TABLE = frozenset({"distinct", "percentile"})
_NUMBERS_TO = "1e99"
COUNT = Measure("count")


def measures_of(metric: Metric) -> tuple[Measure, ...]:
    """What is asked of a table for a metric."""
    name = metric.field
    if metric.kind == "percentiles":
        return tuple(Measure("percentile", name, percent) for percent in metric.percents)
    if metric.kind == "cardinality":
        return (Measure("distinct", name),)
    if metric.kind == "value_count":
        return (Measure("values", name),)
    if metric.kind == "avg":
        return (Measure("sum", name), _numbers(name))
    if metric.kind == "stats":
        return (Measure("min", name), Measure("max", name), Measure("sum", name), _numbers(name))
    assert metric.kind in ("min", "max", "sum")
    return (Measure("min" if metric.kind == "min" else "max" if metric.kind == "max" else "sum", name),)


def _numbers(name: str) -> Measure:
    """How many rows have a number: a text may be one, and may be none."""
    is_number = Between(name, f"-{_NUMBERS_TO}", _NUMBERS_TO, True, True, HERE)
    return Measure("values", name, where=to_text(is_number))


def check_tables(measures: Iterable[Measure], tables: int) -> None:
    """Raises ElasticError for figures that several tables cannot have together."""
    for each in measures:
        if tables > 1 and each.kind in _OF_ONE_TABLE:
            name = "cardinality" if each.kind == "distinct" else "percentiles"
            raise unsupported(f"{name} over {tables} indices", f"{name} of one index is")


def together(measures: Sequence[Measure], one: Sequence[Any], other: Sequence[Any]) -> tuple[Any, ...]:
    """The figures of the rows of two groups as those of one. Those of `check_tables` have to be of one
    table; of one table's two groups (rows without a value beside those with the value that stands for it)
    they are those of the larger."""
    return tuple(_both(each, a, b) for each, a, b in zip(measures, one, other, strict=True))


def _both(measure: Measure, one: Any, other: Any) -> Any:
    if one is None or other is None:
        return other if one is None else one
    if measure.kind in ("count", "values", "sum"):
        return one + other
    # A field may be a time in one index and a number in another.
    return (min if measure.kind == "min" else max)(one, other, key=number)


def metric_answer(metric: Metric, found: Sequence[Any] | None) -> dict[str, Any]:
    """A metric as it is answered; `found` None: of no row."""
    values = [number(each) for each in (found or [None] * len(measures_of(metric)))]
    if metric.kind == "percentiles":
        named = {str(percent): value for percent, value in zip(metric.percents, values, strict=True)}
        listed = [
            {"key": percent, "value": value} for percent, value in zip(metric.percents, values, strict=True)
        ]
        return {"values": named if metric.is_keyed else listed}
    if metric.kind == "stats":
        low, high, total, count = values
        average = total / count if count and total is not None else None
        return {"count": count or 0, "min": low, "max": high, "avg": average, "sum": total or 0}
    if metric.kind == "avg":
        total, count = values
        return {"value": total / count if count and total is not None else None}
    value = values[0]
    if metric.kind in ("sum", "cardinality", "value_count"):
        return {"value": value or 0}
    at = (found or [None])[0]
    return {"value": value, **({"value_as_string": time_text(at)} if isinstance(at, datetime) else {})}


def number(value: Any) -> Any:
    """A figure as JSON has it: times as milliseconds since 1970."""
    if isinstance(value, datetime):
        return epoch_us(value) // 1_000
    return float(value) if isinstance(value, Decimal) else value


def place_in(metric: Metric, path: str) -> int:
    """The place among a metric's measures that `name`, `name.part` or `name[percent]` means."""
    part = path.removeprefix(metric.name).strip(".[]")
    if metric.kind == "stats":
        return {"min": 0, "max": 1, "sum": 2, "count": 3}.get(part, 2)
    if metric.kind == "percentiles":
        try:
            return metric.percents.index(float(part))
        except ValueError:
            raise unsupported(f"order by {path[:60]}", "one of the percents is") from None
    return 0


def order_value(metric: Metric, path: str, found: Sequence[Any]) -> Any:
    """The figure that groups are ordered by."""
    answer: Mapping[str, Any] = metric_answer(metric, found)
    if metric.kind == "stats":
        return answer.get(path.partition(".")[2], answer["avg"])
    return number(found[place_in(metric, path)]) if metric.kind == "percentiles" else answer["value"]
