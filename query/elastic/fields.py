"""The names of fields as Elasticsearch's clients write them: `@timestamp` is the time of a row, and
`field.keyword` a text as a whole."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from lake.log_schema import ERRORS, OVERFLOW, SYSTEM_COLUMNS, TIMESTAMP, Column, LogSchema
from query.language.search_sql import columns_of

TIME = "@timestamp"
KEYWORD = ".keyword"
# What a row has beside the fields of its record, and no client asks for.
HIDDEN = frozenset(SYSTEM_COLUMNS) - {"severity", "message", "observed_timestamp", ERRORS, OVERFLOW}
_TYPES = {
    "string": "text",
    "boolean": "boolean",
    "int": "integer",
    "long": "long",
    "float": "float",
    "double": "double",
    "timestamptz": "date",
    "timestamp": "date",
    "date": "date",
    "binary": "binary",
}


@dataclass(frozen=True, slots=True)
class Field:
    """A field as a request names it, without `.keyword`; `is_whole`: that stood there. `kind`: the type of
    its column, None where no row has it."""

    name: str
    kind: str | None
    is_whole: bool = False
    is_row_time: bool = False

    @property
    def is_time(self) -> bool:
        return self.kind == "timestamptz"

    @property
    def is_text(self) -> bool:
        return self.kind in (None, "string")


def field_of(name: str, schema: LogSchema) -> Field:
    """The field that a request names."""
    found, is_whole = columns_of(name, schema), False
    if not found and name.endswith(KEYWORD):
        name, is_whole = name.removesuffix(KEYWORD), True
        found = columns_of(name, schema)
    if not found:
        return Field(name, None, is_whole)
    kind = found[0].kind if isinstance(found[0].kind, str) else "list"
    return Field(name, kind, is_whole, found[0].name == TIMESTAMP)


def columns_shown(schema: LogSchema) -> list[Column]:
    """The columns that clients are shown, the row's time not among them."""
    return [each for each in schema.columns if each.name not in HIDDEN]


def elastic_type(column: Column) -> str:
    """What Elasticsearch calls the type of a column."""
    if not isinstance(column.kind, str):
        return "object"
    if column.kind.startswith("decimal"):
        return "double"
    return _TYPES.get(column.kind, "keyword")


def mapping_of(schema: LogSchema) -> dict[str, Any]:
    """The answer to `_mapping` for one index."""
    properties: dict[str, Any] = {TIME: {"type": "date"}, TIMESTAMP: {"type": "alias", "path": TIME}}
    properties |= {each.name: _property(each) for each in columns_shown(schema)}
    return {"mappings": {"properties": properties}}


def _property(column: Column) -> dict[str, Any]:
    kind = elastic_type(column)
    return {"type": kind} if kind != "text" else {"type": kind, "fields": {"keyword": {"type": "keyword"}}}


def capabilities(schema: LogSchema, fits: Callable[[str], object]) -> dict[str, str]:
    """The types of the fields whose names are wanted."""
    types = {TIME: "date", TIMESTAMP: "date"}
    for each in columns_shown(schema):
        types[each.name] = kind = elastic_type(each)
        if kind == "text":
            types[each.name + KEYWORD] = "keyword"
    return {name: kind for name, kind in types.items() if fits(name)}
