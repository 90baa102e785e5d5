"""Stages as SQL: each is a SELECT over the one before it, whose columns it knows by name and type."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import Any

from sqlglot import exp

from lake.log_schema import MESSAGE, SEVERITY, SYSTEM_COLUMNS, TIMESTAMP, LogSchema
from query.executors.executor import from_source
from query.language.search_sql import column, columns_of, similar_field, text_literal
from query.model.problem import Problem, refuse
from query.pipes.conditions import condition_over
from query.pipes.stages import Extract, Fields, Limit, Patterns, Sort, Stage, Stats, Where
from query.search.results import ORDER
from query.stats.groups import ByNumber, ByTime, Group
from query.stats.measures import Measure
from query.stats.values import value_of

_FIRST_SHOWN = (TIMESTAMP, SEVERITY, MESSAGE)
# No column of a record has a dot in its name; engines do not tell the cases of letters apart.
_REST, _TEXT = "the.rest", "the.text"
TEXT_CHARACTERS_MAX = 2_000
_ONE = exp.Literal.number(1)


@dataclass(frozen=True, slots=True)
class Relation:
    """Rows of a stage. `select` gives the columns of `schema`, of which `shown` are the answer's; `order`:
    names, each with whether the largest come first; `keys`: columns whose values are steps of a group."""

    select: exp.Select
    schema: LogSchema
    shown: tuple[str, ...]
    order: tuple[tuple[str, bool], ...] = ()
    keys: Mapping[str, Group] = field(default_factory=dict)
    limit: int | None = None
    warnings: tuple[Problem, ...] = ()

    @property
    def names(self) -> list[str]:
        return [each.name for each in self.schema.columns]

    def known(self, name: str) -> str:
        """The column of this name. Raises BadRequestError."""
        found = columns_of(name, self.schema)
        if not found:
            near = similar_field(name, self.schema)
            raise refuse(
                f"there is no column {name[:60]!r} here",
                suggestion=f"did you mean {near}?" if near else f"there are {', '.join(self.names[:20])}",
            )
        return found[0].name

    def first(self, rows: int) -> exp.Select:
        """At most so many of the rows, in their order, and of them the columns that are shown."""
        select = exp.select(*map(column, self.shown), copy=False)
        inner = self._ordered() if self.limit is not None else self.select
        over = select.from_(inner.subquery("stage", copy=False), copy=False)
        return _in_order(over, self.order).limit(rows, copy=False)

    def over(self) -> exp.Select:
        """A SELECT of nothing yet over these rows."""
        inner = self._ordered() if self.limit is not None else self.select
        return exp.Select().from_(inner.subquery("stage", copy=False), copy=False)

    def _ordered(self) -> exp.Select:
        every = exp.select(*map(column, self.names), copy=False)
        over = every.from_(self.select.subquery("stage", copy=False), copy=False)
        assert self.limit is not None
        return _in_order(over, self.order).limit(self.limit, copy=False)


def rows_of_search(
    schema: LogSchema, condition: exp.Expression | None, stages: Sequence[Stage], *, newest_first: bool
) -> Relation:
    """What a search finds, of each row what stages ask for."""
    wanted = _wanted(schema, stages)
    select = exp.select(*map(column, wanted), copy=False).from_(from_source(), copy=False)
    if condition is not None:
        select = select.where(condition, copy=False)
    kept = LogSchema(
        {**schema.json, "fields": [each for each in schema.json["fields"] if each["name"] in set(wanted)]}
    )
    others = [name for name in wanted if name not in {*_FIRST_SHOWN, *SYSTEM_COLUMNS}]
    shown = (*(name for name in _FIRST_SHOWN if name in wanted), *others)
    order = tuple((name, newest_first) for name in ORDER if name in wanted)
    return Relation(select, kept, shown, order)


def after(relation: Relation, stage: Stage, *, is_exact: bool) -> Relation:
    """The rows behind a stage. `is_exact`: the engine has percentiles that are. Raises BadRequestError."""
    if isinstance(stage, Stats):
        return _stats(relation, stage, is_exact=is_exact)
    if isinstance(stage, Extract):
        return _extracted(relation, stage)
    if isinstance(stage, Where):
        made = condition_over(stage.condition, relation.schema)
        select = relation.over().select(*map(column, relation.names), copy=False)
        warnings = (*relation.warnings, *made.warnings)
        return replace(relation, select=select.where(made.sql, copy=False), limit=None, warnings=warnings)
    if isinstance(stage, Sort):
        by = {relation.known(name): is_descending for name, is_descending in stage.by}
        order = (*by.items(), *(each for each in relation.order if each[0] not in by))
        whole = relation.over().select(*map(column, relation.names), copy=False)
        return replace(relation, select=whole, limit=None, order=order)
    if isinstance(stage, Limit):
        return replace(relation, limit=min(stage.rows, relation.limit or stage.rows))
    if isinstance(stage, Patterns):
        return _texts(relation, stage)
    return replace(relation, shown=tuple(map(relation.known, stage.names)))


def _wanted(schema: LogSchema, stages: Sequence[Stage]) -> list[str]:
    """The columns that are read: those that are named up to the first figures or patterns; all where there
    are none."""
    before = list(takewhile(lambda stage: not isinstance(stage, Stats | Patterns), stages))
    if len(before) == len(stages):
        return [each.name for each in schema.columns]
    first = stages[len(before)]
    if isinstance(first, Patterns):
        fields = [first.field]
    else:
        assert isinstance(first, Stats)
        fields = [each.field for _, each in (*first.groups, *first.measures) if each.field is not None]
    for stage in before:
        if isinstance(stage, Extract):
            fields.append(stage.field)
        elif isinstance(stage, Where):
            fields += [each.name for each in stage.condition.find_all(exp.Column)]
        elif isinstance(stage, Sort):
            fields += [name for name, _ in stage.by]
        elif isinstance(stage, Fields):
            fields += stage.names
    found = [columns_of(name, schema) for name in fields]
    if not all(found):  # it is told which column has a name like it
        return [each.name for each in schema.columns]
    wanted = {each.name for columns in found for each in columns} | {*ORDER, MESSAGE}
    return [each.name for each in schema.columns if each.name in wanted]


def _stats(relation: Relation, stage: Stats, *, is_exact: bool) -> Relation:
    groups = [(name, each.expression(relation.schema)) for name, each in stage.groups]
    measures = [(name, each.expression(relation.schema, is_exact=is_exact)) for name, each in stage.measures]
    made = [exp.alias_(value.sql, name, quoted=True) for name, value in (*groups, *measures)]
    select = relation.over().select(*made, copy=False)
    if groups:
        select = select.group_by(*(exp.Literal.number(at + 1) for at in range(len(groups))), copy=False)
    kinds = [
        *((name, _kind_of_group(relation, group)) for name, group in stage.groups),
        *((name, _kind_of_measure(relation, measure)) for name, measure in stage.measures),
    ]
    names = tuple(name for name, _ in kinds)
    keys = {name: group for name, group in stage.groups if isinstance(group, ByTime | ByNumber)}
    warnings = tuple(said for _, value in (*groups, *measures) for said in value.warnings)
    return Relation(
        select,
        _schema(kinds),
        names,
        tuple((name, False) for name, _ in stage.groups),
        keys,
        warnings=(*relation.warnings, *warnings),
    )


def _extracted(relation: Relation, stage: Extract) -> Relation:
    names = tuple(name.lower() for name in stage.names)
    if taken := [name for name in names if name in relation.schema.by_name]:
        raise refuse(f"there is a column {taken[0]!r} already; name the part otherwise")
    source = value_of(stage.field, relation.schema)
    text = exp.cast(source.sql, exp.DataType.Type.VARCHAR)
    columns = list(map(column, relation.names))
    begins = exp.alias_(_behind(text, stage.texts[0]), _REST, quoted=True)
    select = relation.over().select(*columns, begins, copy=False)
    for at, (name, ends) in enumerate(zip(names, stage.texts[1:], strict=True)):
        found = [*columns, *(column(each) for each in names[:at])]
        part = exp.alias_(_before(column(_REST), ends), name, quoted=True)
        rest = exp.alias_(_behind(column(_REST), ends), _REST, quoted=True)
        select = _over(select).select(*found, part, rest, copy=False)
    is_whole = exp.Not(this=exp.Is(this=column(_REST), expression=exp.null()))
    parts = [exp.Case().when(is_whole.copy(), _or_null(column(name))) for name in names]
    made = [exp.alias_(part, name, quoted=True) for name, part in zip(names, parts, strict=True)]
    added = [{"name": name, "type": "string", "required": False} for name in names]
    return replace(
        relation,
        select=_over(select).select(*columns, *made, copy=False),
        schema=_numbered([*relation.schema.json["fields"], *added]),
        shown=(*names, *relation.shown),
        limit=None,
        warnings=(*relation.warnings, *source.warnings),
    )


def _texts(relation: Relation, stage: Patterns) -> Relation:
    """The texts that patterns are made of, one character more where they go on."""
    source = value_of(stage.field, relation.schema)
    text = _substring(
        exp.cast(source.sql, exp.DataType.Type.VARCHAR), _ONE, exp.Literal.number(TEXT_CHARACTERS_MAX + 1)
    )
    made = exp.alias_(text, _TEXT, quoted=True)
    select = relation.over().select(*map(column, relation.names), made, copy=False)
    added = {"name": _TEXT, "type": "string", "required": False}
    return replace(
        relation,
        select=select,
        schema=_numbered([*relation.schema.json["fields"], added]),
        shown=(_TEXT,),
        limit=None,
        warnings=(*relation.warnings, *source.warnings),
    )


def _before(text: exp.Expression, ends: str) -> exp.Expression:
    """What stands before the first place of a text; without one, the rest of the line."""
    if ends:
        return _substring(text, exp.Literal.number(1), exp.Sub(this=_place(text, ends), expression=_ONE))
    return exp.Coalesce(
        this=exp.Case().when(_stands(text, "\n"), _before(text, "\n")), expressions=[text.copy()]
    )


def _behind(text: exp.Expression, ends: str) -> exp.Expression:
    """What stands behind the first place of a text; NULL where it stands nowhere."""
    if not ends:
        return text
    begins = exp.Add(this=_place(text, ends), expression=exp.Literal.number(len(ends)))
    return exp.Case().when(_stands(text, ends), _substring(text, begins))


def _place(text: exp.Expression, wanted: str) -> exp.Expression:
    return exp.StrPosition(this=text.copy(), substr=text_literal(wanted))


def _stands(text: exp.Expression, wanted: str) -> exp.Expression:
    return exp.GT(this=_place(text, wanted), expression=exp.Literal.number(0))


def _substring(
    text: exp.Expression, begins: exp.Expression, length: exp.Expression | None = None
) -> exp.Expression:
    return exp.Substring(this=text.copy(), start=begins, length=length)


def _or_null(part: exp.Expression) -> exp.Expression:
    return exp.Nullif(this=part, expression=text_literal(""))


def _over(select: exp.Select) -> exp.Select:
    return exp.Select().from_(select.subquery("stage", copy=False), copy=False)


def _kind_of_group(relation: Relation, group: Group) -> str:
    if isinstance(group, ByTime):
        return "long" if group.width_s is not None else "date"
    if isinstance(group, ByNumber):
        return "long"
    found = columns_of(group.field, relation.schema)
    return str(found[0].kind) if found else "string"


def _kind_of_measure(relation: Relation, measure: Measure) -> str:
    if measure.kind in ("count", "values", "distinct"):
        return "long"
    found = columns_of(measure.field or "", relation.schema)
    kinds = {str(each.kind) for each in found}
    if measure.kind in ("min", "max") and kinds == {"timestamptz"}:
        return "timestamptz"
    return "double"


def _schema(kinds: Sequence[tuple[str, str]]) -> LogSchema:
    return _numbered([{"name": name, "type": kind, "required": False} for name, kind in kinds])


def _numbered(fields: Sequence[Mapping[str, Any]]) -> LogSchema:
    return LogSchema({"type": "struct", "fields": [{**each, "id": at} for at, each in enumerate(fields, 1)]})


def _in_order(select: exp.Select, order: Sequence[tuple[str, bool]]) -> exp.Select:
    by = [exp.Ordered(this=column(name), desc=is_last, nulls_first=False) for name, is_last in order]
    return select.order_by(*by, copy=False) if by else select
