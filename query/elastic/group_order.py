"""The order that groups come in."""

from collections.abc import Sequence
from datetime import date
from decimal import Decimal
from typing import Any

from query.elastic.aggregations import Bucket, Metric
from query.elastic.figures import measures_of, order_value

Found = tuple[Any, tuple[Any, ...]]


def metric_of(bucket: Bucket, path: str) -> Metric | None:
    """The metric that `name`, `name.part` or `name[percent]` means; None: it is `_key` or `_count`."""
    name = path.partition(".")[0].partition("[")[0]
    return next((each for each in bucket.metrics if each.name == name), None)


def ordered(bucket: Bucket, found: Sequence[Found]) -> list[Found]:
    """Groups in the order that is asked for; equal ones by their keys, those without a figure last."""
    by, is_descending = bucket.order
    by_key = sorted(found, key=lambda each: _key_order(each[0]))
    metric = metric_of(bucket, by)
    if by == "_key":
        return by_key[::-1] if is_descending else by_key
    values = [each[1][0] if metric is None else _figure(bucket, metric, by, each[1]) for each in by_key]
    sign = -1 if is_descending else 1
    pairs = zip(by_key, values, strict=True)
    in_order = sorted(pairs, key=lambda pair: (pair[1] is None, 0 if pair[1] is None else sign * pair[1]))
    return [each for each, _ in in_order]


def _figure(bucket: Bucket, metric: Metric, path: str, figures: Sequence[Any]) -> Any:
    before = bucket.metrics[: bucket.metrics.index(metric)]
    at = 1 + sum(len(measures_of(each)) for each in before)
    return order_value(metric, path, figures[at : at + len(measures_of(metric))])


def _key_order(key: Any) -> tuple[int, Any]:
    """Numbers before times before texts: a field may have been declared anew in one of several indices."""
    if isinstance(key, bool | int | float | Decimal):
        return 0, key
    return (1, key.isoformat()) if isinstance(key, date) else (2, str(key))
