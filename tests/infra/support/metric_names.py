"""The metrics that the rooms define, and what an expression of Prometheus says of them."""

import re
from collections.abc import Iterator
from functools import cache

from prometheus_client import REGISTRY, Counter, Histogram
from prometheus_client.metrics import MetricWrapperBase

import catalog.model.metrics  # noqa: F401
import lake.audit.trail_metrics
import lake.certificate_ends
import lake.http_metrics
import lake.metrics  # noqa: F401
import query.sql.sql_readers  # noqa: F401

# What Prometheus adds to whatever it asks.
ADDED = {"job", "instance", "le"}
_NAME = re.compile(r"\bfirn_\w+\b")
_SELECTED = re.compile(r"\b(firn_\w+)\{([^}]*)\}")
_LABEL = re.compile(r"(\w+)\s*[=!]~?")
_GROUPED = re.compile(r"\b(?:by|without) \(([^)]*)\)\s*\(\s*(?:\w+\()*(firn_\w+)")


@cache
def labels_of_metrics() -> dict[str, set[str]]:
    """Each series that services show, with its labels: of all metrics that those imported here define."""
    found: dict[str, set[str]] = {}
    for collector in set(REGISTRY._collector_to_names):
        if isinstance(collector, MetricWrapperBase):
            suffixes = [""]
            if isinstance(collector, Counter):
                suffixes = ["_total"]
            elif isinstance(collector, Histogram):
                suffixes = ["_bucket", "_sum", "_count"]
            for suffix in suffixes:
                found[f"{collector._name}{suffix}"] = {*collector._labelnames, *ADDED}
    return found


def told_wrongly(expression: str) -> Iterator[str]:
    """A sentence for every metric that nobody defines, and every label that a metric has not."""
    known = labels_of_metrics()
    for name in _NAME.findall(expression):
        if name not in known:
            yield f"there is no metric {name}"
    pairs = [(name, _LABEL.findall(labels)) for name, labels in _SELECTED.findall(expression)]
    pairs += [(name, re.findall(r"\w+", labels)) for labels, name in _GROUPED.findall(expression)]
    for name, labels in pairs:
        for label in labels:
            if label not in known.get(name, {label}):
                yield f"{name} has no label {label}"
