"""Counted aggregations as they are answered."""

from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from decimal import Decimal
from math import floor, isfinite
from typing import Any

from lake.clock import epoch_us
from query.elastic.aggregations import Bucket
from query.elastic.date_math import added, period_of
from query.elastic.evaluation import Answered, Level, too_many_buckets
from query.elastic.figures import measures_of, metric_answer
from query.elastic.group_order import ordered
from query.elastic.time_formats import time_text
from query.model.instant import LATEST
from query.search.results import plain_row
from query.stats.groups import ByNumber, ByTime
from query.stats.stats import GROUPS_MAX

_UNITS = {"day": (1, "d"), "week": (1, "w"), "month": (1, "M"), "quarter": (3, "M"), "year": (1, "y")}
Found = tuple[Any, tuple[Any, ...]]


class Rendering:
    """Writes one answer, whose buckets it counts. `now`: of dates that are written as math."""

    def __init__(self, now: datetime) -> None:
        self._now = now
        self._buckets = 0

    def answer(self, answered: Answered, parent: tuple[Any, ...] = ()) -> dict[str, Any]:
        """The aggregations within a group. Raises ElasticError for too many buckets."""
        alone = answered.figures.get(parent)
        told = _metrics(answered.metrics, alone)
        return told | {level.bucket.name: self._level(level, parent) for level in answered.levels}

    def _level(self, level: Level, parent: tuple[Any, ...]) -> dict[str, Any]:
        bucket, found = level.bucket, list(level.by_parent.get(parent, []))
        if bucket.group is None:
            return self._of_queries(level, dict(found), parent)
        if bucket.kind == "terms":
            return self._terms(level, found, parent)
        ends = [each for each in self._reached(bucket) if each is not None]
        if bucket.count_min == 0:
            found = self._filled(bucket, found, ends)
        wanted = [each for each in ordered(bucket, found) if each[1][0] >= bucket.count_min]
        made = [self._bucket(level, each, parent) for each in wanted]
        return {"buckets": {_key_text(each): each for each in made} if bucket.is_keyed else made}

    def _terms(self, level: Level, found: list[Found], parent: tuple[Any, ...]) -> dict[str, Any]:
        bucket = level.bucket
        wanted = [each for each in ordered(bucket, found) if each[1][0] >= bucket.count_min]
        shown, rest = wanted[: bucket.size], wanted[bucket.size :]
        return {
            "doc_count_error_upper_bound": level.left_out,
            "sum_other_doc_count": level.others + sum(figures[0] for _, figures in rest),
            "buckets": [self._bucket(level, each, parent) for each in shown],
        }

    def _bucket(self, level: Level, found: Found, parent: tuple[Any, ...]) -> dict[str, Any]:
        self._count()
        key, figures = found
        made = (
            _key(level.bucket, key) | {"doc_count": figures[0]} | _metrics(level.bucket.metrics, figures[1:])
        )
        under = level.under.get(None)
        return made if under is None else made | self.answer(under, (*parent, key))

    def _of_queries(
        self, level: Level, found: dict[Any, tuple[Any, ...]], parent: tuple[Any, ...]
    ) -> dict[str, Any]:
        bucket, made = level.bucket, {}
        for name in bucket.named:
            self._count()
            figures = found.get(name) or (0, *[None] * sum(len(measures_of(each)) for each in bucket.metrics))
            low, high = bucket.bounds.get(name, (None, None))
            ends = {end: value for end, value in (("from", low), ("to", high)) if value is not None}
            told = {**ends, "doc_count": figures[0], **_metrics(bucket.metrics, figures[1:])}
            made[name] = told | self.answer(level.under[name], parent)
        if bucket.kind == "filter":
            return made[""]
        if bucket.is_keyed:
            return {"buckets": made}
        return {
            "buckets": [
                ({"key": name} if bucket.kind == "range" else {}) | told for name, told in made.items()
            ]
        }

    def _filled(self, bucket: Bucket, found: list[Found], ends: list[Any]) -> list[Found]:
        """With the empty groups between the first and the last."""
        known = dict(found)
        keys = sorted([*(key for key in known if key is not None), *ends])
        if not keys:
            return found
        nothing = (0, *[None] * sum(len(measures_of(each)) for each in bucket.metrics))
        filled: list[Found] = []
        for key in _steps(bucket, keys[0], keys[-1]):
            filled.append((key, known.get(key, nothing)))
            if len(filled) > GROUPS_MAX:
                raise too_many_buckets()
        return filled

    def _reached(self, bucket: Bucket) -> Iterator[Any]:
        """The groups that `extended_bounds` reach."""
        for bound in bucket.reaches or ():
            if bound is None:
                yield None
            elif isinstance(bucket.group, ByNumber):
                width, offset = bucket.group.width, bucket.group.offset
                steps = (float(bound) - offset) / width
                if not isfinite(steps):
                    raise too_many_buckets()
                yield floor(steps) * width + offset
            else:
                at = period_of(bound, self._now, bucket.zone or UTC, bucket.form).start
                yield _start_of(bucket, at)

    def _count(self) -> None:
        self._buckets += 1
        if self._buckets > GROUPS_MAX:
            raise too_many_buckets()


def _metrics(metrics: Sequence[Any], figures: Sequence[Any] | None) -> dict[str, Any]:
    told, at = {}, 0
    for metric in metrics:
        width = len(measures_of(metric))
        told[metric.name] = metric_answer(metric, None if figures is None else figures[at : at + width])
        at += width
    return told


def _start_of(bucket: Bucket, at: datetime) -> datetime:
    """The beginning of the bucket that a time is in."""
    group, zone = bucket.group, bucket.zone or UTC
    assert isinstance(group, ByTime)
    if group.width_s is not None:
        seconds = epoch_us(at) // 1_000_000 - group.offset_s
        start_s = seconds // group.width_s * group.width_s + group.offset_s
        return at + timedelta(microseconds=start_s * 1_000_000 - epoch_us(at))
    local = at.astimezone(zone).replace(hour=0, minute=0, second=0, microsecond=0, tzinfo=None)
    if group.calendar == "week":
        local -= timedelta(days=local.weekday())
    elif group.calendar == "quarter":
        local = local.replace(day=1, month=(local.month - 1) // 3 * 3 + 1)
    elif group.calendar in ("month", "year"):
        local = local.replace(day=1, month=local.month if group.calendar == "month" else 1)
    return local.replace(tzinfo=zone).astimezone(UTC)


def _steps(bucket: Bucket, first: Any, last: Any) -> Iterator[Any]:
    """The keys from the first group to the last."""
    group, zone = bucket.group, bucket.zone or UTC
    if isinstance(group, ByNumber):
        steps = (last - first) / group.width
        if not steps <= GROUPS_MAX:
            raise too_many_buckets()
        begin = round((first - group.offset) / group.width)
        yield from ((begin + at) * group.width + group.offset for at in range(round(steps) + 1))
        return
    assert isinstance(group, ByTime)
    key = first
    while key <= last and key < LATEST:
        yield key
        key = (
            key + timedelta(seconds=group.width_s) if group.width_s else _next(key, str(group.calendar), zone)
        )


def _next(key: datetime, calendar: str, zone: tzinfo) -> datetime:
    count, unit = _UNITS[calendar]
    try:
        local = added(key.astimezone(zone).replace(tzinfo=None), count, unit)
        return local.replace(tzinfo=zone).astimezone(UTC)
    except (OverflowError, ValueError):  # behind the last year that there is
        return LATEST


def _key(bucket: Bucket, key: Any) -> dict[str, Any]:
    if isinstance(key, bool):
        return {"key": int(key), "key_as_string": "true" if key else "false"}
    if isinstance(key, datetime):
        text = time_text(key, bucket.form, bucket.zone or UTC)
        return {"key": epoch_us(key) // 1_000, "key_as_string": text}
    if isinstance(key, date) and not isinstance(key, datetime):
        at = datetime.combine(key, time(), UTC)
        return {"key": epoch_us(at) // 1_000, "key_as_string": key.isoformat()}
    return {"key": float(key) if isinstance(key, Decimal) else plain_row([key])[0]}


def _key_text(made: dict[str, Any]) -> str:
    return str(made.get("key_as_string", made["key"]))
