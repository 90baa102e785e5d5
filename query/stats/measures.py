"""What is computed of the rows of a group, as SQL that both engines read the same way."""

from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal

from sqlglot import exp

from lake.log_schema import LogSchema
from query.language.search_language import parse_search
from query.language.search_sql import columns_of, compile_search
from query.model.problem import refuse
from query.stats.values import Value, number_of, times_of, value_of, whole_number_of

Kind = Literal["count", "values", "distinct", "min", "max", "sum", "avg", "percentile"]
_DECIMAL = exp.DataType.build("DECIMAL(38, 0)")


@dataclass(frozen=True, slots=True)
class Measure:
    """`count`: rows; `values`: rows with a value; `distinct`: different values, exactly; `min`, `max` of
    numbers or times; `sum`, `avg` of numbers; `percentile`: of numbers, `percent` 0 to 100, one of the
    values by DuckDB, close to one by Trino (`approx_percentile`). `where`: a query; only its rows count."""

    kind: Kind
    field: str | None = None
    percent: float | None = None
    where: str = ""

    def expression(self, schema: LogSchema, *, is_exact: bool) -> Value:
        """`is_exact`: the engine has percentiles that are. Raises BadRequestError."""
        made = self._aggregate(schema, is_exact=is_exact)
        compiled = compile_search(parse_search(self.where), schema)
        if compiled.condition is None:
            return made
        filtered = exp.Filter(this=made.sql, expression=exp.Where(this=compiled.condition))
        return Value(filtered, (*made.warnings, *compiled.warnings))

    def value(self, found: Any) -> Any:
        """What an engine gave, as the value."""
        return int(found) if isinstance(found, Decimal) else found

    def _aggregate(self, schema: LogSchema, *, is_exact: bool) -> Value:
        if self.kind == "count":
            return Value(exp.Count(this=exp.Star()))
        if self.field is None:
            raise refuse(f"{self.kind} of what? It needs a field")
        if self.kind in ("values", "distinct"):
            value = value_of(self.field, schema)
            counted = exp.Distinct(expressions=[value.sql]) if self.kind == "distinct" else value.sql
            return Value(exp.Count(this=counted), value.warnings)
        if self.kind in ("min", "max"):
            value = self._comparable(schema, self.field)
            return Value((exp.Min if self.kind == "min" else exp.Max)(this=value.sql), value.warnings)
        if self.kind == "sum" and (whole := whole_number_of(self.field, schema)) is not None:
            return Value(exp.Sum(this=exp.cast(whole.sql, _DECIMAL)))
        number = number_of(self.field, schema)
        if self.kind == "percentile":
            return Value(_percentile(number.sql, self.percent, is_exact=is_exact), number.warnings)
        return Value((exp.Sum if self.kind == "sum" else exp.Avg)(this=number.sql), number.warnings)

    def _comparable(self, schema: LogSchema, field: str) -> Value:
        found = columns_of(field, schema)
        if found and found[0].kind == "timestamptz":
            return times_of(field, schema)
        return whole_number_of(field, schema) or number_of(field, schema)


def _percentile(number: exp.Expression, percent: float | None, *, is_exact: bool) -> exp.Expression:
    if percent is None or not 0 <= percent <= 100:
        raise refuse("a percentile lies between 0 and 100")
    kind = exp.Quantile if is_exact else exp.ApproxQuantile
    return kind(this=number, quantile=exp.Literal.number(repr(percent / 100)))
