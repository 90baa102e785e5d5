"""What stands between the pipes, as values.

error | stats count(), p95(latency) as slow by service, bucket(5m)
status:500 | top 20 uri
"took" | extract "took {ms}ms" | where ms > 500 | fields timestamp, ms | sort -ms | limit 10
severity:error | patterns 20
"""

from dataclasses import dataclass

from sqlglot import exp

from query.stats.groups import Group
from query.stats.measures import Measure


@dataclass(frozen=True, slots=True)
class Stats:
    """Figures by groups, each with the column that it becomes."""

    measures: tuple[tuple[str, Measure], ...]
    groups: tuple[tuple[str, Group], ...]


@dataclass(frozen=True, slots=True)
class Extract:
    """Columns of the parts of a text: `pattern` is alternately text and, where `names` has one, a part."""

    texts: tuple[str, ...]
    names: tuple[str, ...]
    field: str


@dataclass(frozen=True, slots=True)
class Where:
    """Rows that a condition holds for, as it was read; `text` is how it was written."""

    condition: exp.Expression
    text: str


@dataclass(frozen=True, slots=True)
class Fields:
    """These columns, in this order."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Sort:
    """By columns, each with whether the largest come first."""

    by: tuple[tuple[str, bool], ...]


@dataclass(frozen=True, slots=True)
class Limit:
    """The first rows."""

    rows: int


@dataclass(frozen=True, slots=True)
class Patterns:
    """The most frequent patterns of a field's texts; always the last stage, as no engine makes them."""

    rows: int
    field: str


Stage = Stats | Extract | Where | Fields | Sort | Limit | Patterns


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A search, and the stages behind it."""

    query: str
    stages: tuple[Stage, ...]
