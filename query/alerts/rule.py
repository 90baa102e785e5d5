"""A rule: what is searched, how often, when it alerts, and who is told. The same model reads rule files, the
API's bodies and what the catalog keeps, so that all of them refuse the same things with the same
sentences."""

import re
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, field_validator, model_validator

from query.alerts.durations import Seconds
from query.language.search_language import parse_search
from query.model.problem import BadRequestError

DAY_S = 86_400
ALERTMANAGER = "alertmanager"
# What annotations may name, besides the fields of `group_by`.
NAMES = ("value", "rule", "tenant", "stream", "start", "end")
NAMED = re.compile(r"\{\{\s*([^{}\s]{1,255})\s*\}\}")
_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
# Labels that Firn sets.
OWN_LABELS = ("alertname", "tenant", "stream")

Name = Annotated[str, StringConstraints(pattern=r"^[a-zA-Z0-9][a-zA-Z0-9._-]{0,99}$")]
Query = Annotated[str, StringConstraints(max_length=10_000)]
Text = Annotated[str, StringConstraints(max_length=2_000)]
FieldName = Annotated[str, StringConstraints(min_length=1, max_length=255)]
Share = Annotated[float, Field(ge=0, le=1)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Threshold(_Strict):
    """Above, or below; one of the two."""

    over: Annotated[float | None, Field(description="it alerts above this")] = None
    under: Annotated[float | None, Field(description="it alerts below this")] = None

    @model_validator(mode="after")
    def _has_one(self) -> Self:
        if (self.over is None) == (self.under is None):
            raise ValueError("write either `over` or `under`")
        return self

    def is_met(self, value: float) -> bool:
        """Whether a value alerts."""
        return value > self.over if self.over is not None else value < (self.under or 0)


class CountCondition(Threshold):
    """How many rows match."""

    mode: Literal["count"]
    lookback: Annotated[
        Seconds,
        Field(description="with `under` and `group_by`: groups seen within this count 0 when they are gone"),
    ] = DAY_S


class AbsenceCondition(_Strict):
    """No row matches; with `group_by` those groups are absent that were seen within `lookback`."""

    mode: Literal["absence"]
    lookback: Seconds = DAY_S


class NewValueCondition(_Strict):
    """A field has a value that it did not have within `lookback` before the window."""

    mode: Literal["new_value"]
    field: FieldName
    lookback: Seconds = 7 * DAY_S


class ErrorShareCondition(Threshold):
    """Which share of the rows that match the rule's query match `errors` too, 0 to 1."""

    mode: Literal["error_share"]
    errors: Query = "severity:(error OR critical OR fatal)"
    at_least: Annotated[int, Field(ge=1, description="with fewer rows it does not alert")] = 1


class RateCondition(Threshold):
    """How many times as many rows match as in the same window `against` earlier; none there count as one."""

    mode: Literal["rate"]
    against: Seconds = DAY_S
    at_least: Annotated[int, Field(ge=1, description="with fewer rows in both windows it does not alert")] = 1


Condition = Annotated[
    CountCondition | AbsenceCondition | NewValueCondition | ErrorShareCondition | RateCondition,
    Field(discriminator="mode"),
]


class Rule(_Strict):
    """One rule of a tenant. Windows end at multiples of `every` since 1970; one is looked at when everything
    that reached Kafka until `delay` after its end is in the table, and once more `late` later if rows came
    for it meanwhile."""

    name: Name
    stream: Annotated[str, StringConstraints(min_length=1, max_length=255)] = "logs"
    query: Query = ""
    condition: Condition
    every: Annotated[Seconds, Field(ge=1, le=DAY_S)] = 60
    window: Annotated[Seconds, Field(ge=1, le=7 * DAY_S)] = 300
    pending_for: Annotated[Seconds, Field(alias="for", ge=0, le=DAY_S)] = 0
    delay: Annotated[Seconds, Field(ge=0, le=3_600)] = 30
    late: Annotated[Seconds, Field(ge=0, le=DAY_S)] = 900
    group_by: Annotated[tuple[FieldName, ...], Field(max_length=5)] = ()
    labels: Annotated[dict[str, Text], Field(max_length=50)] = {}
    annotations: Annotated[dict[str, Text], Field(max_length=50)] = {}
    notify: Annotated[
        tuple[Annotated[str, StringConstraints(max_length=1_000)], ...], Field(max_length=10)
    ] = (ALERTMANAGER,)

    @property
    def groups(self) -> tuple[str, ...]:
        """The fields that tell its alerts apart."""
        if isinstance(self.condition, NewValueCondition) and self.condition.field not in self.group_by:
            return (*self.group_by, self.condition.field)
        return self.group_by

    @property
    def pending_windows_s(self) -> int:
        """How long the condition holds before it fires, up to a whole number of windows."""
        return -(-self.pending_for // self.every) * self.every

    @property
    def webhooks(self) -> tuple[str, ...]:
        """The addresses among those that are told."""
        return tuple(each for each in self.notify if each != ALERTMANAGER)

    def to_json(self) -> dict[str, Any]:
        """As it is kept and told; lengths of time as they are written."""
        return self.model_dump(mode="json", by_alias=True)

    @field_validator("query")
    @classmethod
    def _query_is_read(cls, query: str) -> str:
        return _read(query)

    @field_validator("condition")
    @classmethod
    def _errors_are_read(cls, condition: Any) -> Any:
        if isinstance(condition, ErrorShareCondition):
            _read(condition.errors)
        lookback, against = getattr(condition, "lookback", 60), getattr(condition, "against", 60)
        if not 60 <= lookback <= 31 * DAY_S or not 60 <= against <= 31 * DAY_S:
            raise ValueError("`lookback` and `against` lie between 1m and 31d")
        return condition

    @field_validator("labels", "annotations")
    @classmethod
    def _names_are_labels(cls, named: dict[str, str]) -> dict[str, str]:
        for name in named:
            if not _LABEL.fullmatch(name) or name.startswith("__") or name in OWN_LABELS:
                raise ValueError(
                    f"{name[:60]!r} cannot be used: names are made of letters, digits and _, and "
                    f"{', '.join(OWN_LABELS)} are set by Firn"
                )
        return named

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.window < self.every:
            raise ValueError(
                "`window` is shorter than `every`: rows between two windows would not be looked at"
            )
        if len(set(map(label_of, self.groups))) < len(self.groups):
            raise ValueError("two fields of `group_by` become the same label")
        if clash := {label_of(field) for field in self.groups} & {*self.labels, *OWN_LABELS}:
            raise ValueError(f"{sorted(clash)[0]!r} is a label already; group by another field, or rename it")
        for text in self.annotations.values():
            for name in NAMED.findall(text):
                if name not in (*NAMES, *self.groups):
                    known = ", ".join((*NAMES, *self.groups))
                    raise ValueError(f"an annotation names {name[:60]!r}; there are {known}")
        return self


def label_of(field: str) -> str:
    """The label that a field's values have in Alertmanager, whose labels know fewer characters."""
    label = re.sub(r"[^a-zA-Z0-9_]", "_", field)
    return label if _LABEL.fullmatch(label) else f"_{label}"


def _read(query: str) -> str:
    try:
        parse_search(query)
    except BadRequestError as error:
        problem = error.problem
        where = "" if problem.position is None else f" (at character {problem.position + 1})"
        advice = "" if problem.suggestion is None else f"; {problem.suggestion}"
        raise ValueError(f"{problem.message}{where}{advice}") from None
    return query
