"""Files of rules: one tenant's rules, and their tests, in YAML."""

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from lake.errors import RefusedError
from query.alerts.durations import Seconds
from query.alerts.rule import Rule

BYTES_MAX = 4 * 1024 * 1024
ROWS_MAX = 100_000
DEFAULT_START = datetime(2026, 1, 1, tzinfo=UTC)


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class TestRows(_Strict):
    """Rows alike: `repeat` of them, `each` apart, the first one `at` after the test's start. `arrives`: when
    they reach the table, where that is later. All else are its fields."""

    model_config = ConfigDict(extra="allow", frozen=True)

    at: Seconds
    repeat: Annotated[int, Field(ge=1, le=ROWS_MAX)] = 1
    each: Seconds = 0
    arrives: Seconds | None = None

    @property
    def fields(self) -> Mapping[str, str | None]:
        """What a record of them says, as text."""
        return {name: _text(value) for name, value in (self.model_extra or {}).items()}


class Expected(_Strict):
    """Which groups fire once the window that ends `at` after the start was looked at, and which were told and
    are over."""

    at: Seconds
    firing: tuple[Mapping[str, str | None], ...] = ()
    pending: tuple[Mapping[str, str | None], ...] | None = None
    told: Annotated[int | None, Field(description="how many alerts were told until then")] = None


class RuleTest(_Strict):
    """One story: rows, and what a rule makes of them."""

    name: Annotated[str, Field(min_length=1, max_length=200)]
    rule: str
    start: datetime = DEFAULT_START
    rows: tuple[TestRows, ...] = ()
    expect: Annotated[tuple[Expected, ...], Field(min_length=1)]


class RuleFile(_Strict):
    """A file as it is written."""

    version: Literal[1]
    tenant: Annotated[str, Field(min_length=1, max_length=400)]
    rules: Annotated[tuple[Rule, ...], Field(max_length=10_000)]
    tests: tuple[RuleTest, ...] = ()

    @model_validator(mode="after")
    def _names_are_of_rules(self) -> Self:
        names = [rule.name for rule in self.rules]
        if twice := {name for name in names if names.count(name) > 1}:
            raise ValueError(f"two rules are called {sorted(twice)[0]!r}")
        for test in self.tests:
            if test.rule not in names:
                raise ValueError(
                    f"the test {test.name!r} is of a rule {test.rule!r}, which is not in the file"
                )
        return self


class _Loader(yaml.SafeLoader):
    """YAML without what a rule has no use for: aliases, by which a small file becomes a large one, and keys
    that are written twice."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.events.AliasEvent):
            event = self.peek_event()  # type: ignore[no-untyped-call]
            raise yaml.MarkedYAMLError(problem="aliases are not taken", problem_mark=event.start_mark)
        return super().compose_node(parent, index)

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        for at, key in enumerate(keys):
            if key in keys[:at]:
                raise yaml.MarkedYAMLError(
                    problem=f"{key!r} is written twice", problem_mark=node.value[at][0].start_mark
                )
        return super().construct_mapping(node, deep)


def read_rules(path: Path) -> RuleFile:
    """Reads a file. Raises RefusedError with every fault in it, each with its place."""
    try:
        with path.open("rb") as file:
            raw = file.read(BYTES_MAX + 1)
    except OSError as error:
        raise RefusedError(f"{path} cannot be read: {error.strerror}") from error
    if len(raw) > BYTES_MAX:
        raise RefusedError(f"{path} is larger than {BYTES_MAX:,} bytes; make several files of it")
    return parse_rules(raw.decode(errors="replace"), str(path))


def parse_rules(text: str, called: str) -> RuleFile:
    """Reads a file's text. Raises RefusedError as `read_rules` does."""
    try:
        document = yaml.load(text, _Loader)  # noqa: S506 - a SafeLoader
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        where = "" if mark is None else f":{mark.line + 1}:{mark.column + 1}"
        said = getattr(error, "problem", None) or type(error).__name__
        raise RefusedError(f"{called}{where}: this is no YAML: {said}") from error
    if not isinstance(document, dict):
        raise RefusedError(f"{called}: a file of rules has `version`, `tenant` and `rules`")
    try:
        return RuleFile.model_validate(document)
    except ValidationError as error:
        raise RefusedError("\n".join(f"{called}: {line}" for line in faults_of(error, document))) from error


def faults_of(error: ValidationError, document: Any = None) -> list[str]:
    """What is wrong, a line each: where, and what to write. Rules are called by their names."""
    lines = []
    for each in error.errors(include_url=False, include_input=False, include_context=False):
        where = ".".join(str(part) for part in _place(each["loc"], document))
        said = each["msg"].removeprefix("Value error, ")
        lines.append(f"{where}: {said}" if where else said)
    return lines


def _place(location: tuple[Any, ...], document: Any) -> list[Any]:
    place = list(location)
    if len(place) > 1 and place[0] in ("rules", "tests") and isinstance(place[1], int):
        listed = document.get(place[0]) if isinstance(document, dict) else None
        entry = listed[place[1]] if isinstance(listed, list) and place[1] < len(listed) else None
        name = entry.get("name") if isinstance(entry, dict) else None
        place[:2] = [f"{place[0]}[{name or place[1]}]"]
    return place


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return str(value).lower() if isinstance(value, bool) else str(value)
