"""The columns of a log table: the system columns every table has, and one string column for every other
field.

A schema is kept as the JSON of the Iceberg specification ("Appendix C: JSON serialization", Schemas);
`LogSchema` is a read-only view of it.
"""

import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property, lru_cache
from typing import Any
from weakref import WeakValueDictionary

import orjson
import pyarrow as pa

TIMESTAMP = "timestamp"
OBSERVED_TIMESTAMP = "observed_timestamp"
SEVERITY = "severity"
MESSAGE = "message"
TOPIC = "_topic"
TOPIC_ID = "_topic_id"
TOPIC_PARTITION = "_topic_partition"
OFFSET = "_offset"
INDEX = "_index"
ERRORS = "_errors"
OVERFLOW = "_overflow"
# A record's identity: no two rows of a table share it, whatever crashed in between.
IDENTITY = (TOPIC_ID, TOPIC_PARTITION, OFFSET, INDEX)
NO_COLUMNS: Mapping[str, str] = {}

COLUMNS_MAX = 1_000
NAME_BYTES_MAX = 255

# What a change of a row says of itself: what happened; the key, where it is one value without a name.
OP, KEY = "_op", "_key"
# Of tables of changes: where a change stands in its source, as text that sorts. Logs may have such a field.
POSITION = "_position"
_FOR_CHANGE_STREAMS = (OP, KEY)
# Iceberg's metadata columns: Spark refuses to read a table that has a column of one of these names.
_OF_ICEBERG = (
    "_file",
    "_pos",
    "_deleted",
    "_spec_id",
    "_partition",
    "_row_id",
    "_last_updated_sequence_number",
)


class ValueReason(StrEnum):
    """Why one value of a record is NULL in its column and stands in `_errors` instead."""

    WRONG_TYPE = "wrong_type"
    OUT_OF_RANGE = "out_of_range"
    NAME_COLLISION = "name_collision"
    DUPLICATE_KEY = "duplicate_key"
    RESERVED_NAME = "reserved_name"
    UNUSABLE_NAME = "unusable_name"
    BAD_TIMESTAMP = "bad_timestamp"
    MISSING_TIMESTAMP = "missing_timestamp"
    INVALID_TEXT = "invalid_text"
    UNAVAILABLE = "unavailable"  # the source of a change did not send it


def _field(
    field_id: int, name: str, kind: Any, *, required: bool = False, doc: str | None = None
) -> dict[str, Any]:
    field = {"id": field_id, "name": name, "required": required, "type": kind}
    return field | {"doc": doc} if doc is not None else field


# Ids as Iceberg's fresh assignment gives them: top level first, then what is nested.
SYSTEM_FIELDS: tuple[dict[str, Any], ...] = (
    _field(
        1,
        TIMESTAMP,
        "timestamptz",
        required=True,
        doc="when it happened; the Kafka timestamp where the record does not say",
    ),
    _field(2, OBSERVED_TIMESTAMP, "timestamptz", required=True, doc="the Kafka timestamp"),
    _field(3, SEVERITY, "string", doc="as the record spells it"),
    _field(4, MESSAGE, "string", doc="the text of the record"),
    _field(5, TOPIC, "string", required=True, doc="Kafka topic"),
    _field(
        6,
        TOPIC_ID,
        "string",
        required=True,
        doc="Kafka's id of the topic; another one after it was re-created",
    ),
    _field(7, TOPIC_PARTITION, "int", required=True, doc="Kafka partition"),
    _field(8, OFFSET, "long", required=True, doc="Kafka offset"),
    _field(9, INDEX, "int", required=True, doc="position inside a message that carries several records"),
    _field(
        10,
        ERRORS,
        {
            "type": "list",
            "element-id": 12,
            "element-required": False,
            "element": {
                "type": "struct",
                "fields": [
                    _field(13, "field", "string"),
                    _field(14, "value", "string"),
                    _field(15, "reason", "string"),
                ],
            },
        },
        doc="values that could not be stored in their columns; NULL where there are none",
    ),
    _field(11, OVERFLOW, "string", doc="JSON of the fields beyond the limit of columns"),
)
SYSTEM_COLUMNS = tuple(str(field["name"]) for field in SYSTEM_FIELDS)
LAST_SYSTEM_ID = 15
RESERVED_NAMES = frozenset((*SYSTEM_COLUMNS, *_FOR_CHANGE_STREAMS, *_OF_ICEBERG)) - {
    TIMESTAMP,
    SEVERITY,
    MESSAGE,
}

_ARROW_TYPES: Mapping[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "time": pa.time64("us"),
    "timestamp": pa.timestamp("us"),
    "timestamptz": pa.timestamp("us", "UTC"),
    "string": pa.string(),
    "uuid": pa.binary(16),
    "binary": pa.binary(),
}


def fold(name: str) -> str:
    """The column a field's name belongs to: NFC, then lower case, because Trino knows no other."""
    return (
        name.lower()
        if name.isascii()
        else unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).lower())
    )


@dataclass(frozen=True, slots=True)
class Column:
    """One top-level column. `kind` is the Iceberg type: a primitive's name or the JSON of a nested type."""

    id: int
    name: str
    kind: Any
    required: bool
    doc: str | None


@dataclass(frozen=True, slots=True)
class TypedColumn:
    """A column that a table is to have. `path`: the field that it is for. `kind`: its Iceberg type; field ids
    in it are given when the column is. `is_key`: it is of the table's key, and never NULL."""

    path: str
    kind: Any
    is_key: bool = False


# A string column by the path of the field that it is for, or any other.
WantedColumn = str | TypedColumn


class LogSchema:
    """A read-only view of an Iceberg schema's JSON."""

    def __init__(self, json: Mapping[str, Any]) -> None:
        self.json = json

    @property
    def id(self) -> int:
        return int(self.json.get("schema-id", 0))

    @cached_property
    def encoded(self) -> bytes:
        """The JSON as bytes."""
        return orjson.dumps(self.json)

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        return tuple(
            Column(f["id"], f["name"], f["type"], f["required"], f.get("doc")) for f in self.json["fields"]
        )

    @cached_property
    def by_name(self) -> Mapping[str, Column]:
        """Top-level columns by their folded name."""
        return {fold(column.name): column for column in self.columns}

    @cached_property
    def last_column_id(self) -> int:
        """The highest field id, nested fields included."""
        return max(_ids(self.json))

    @property
    def lacks(self) -> Sequence[str]:
        """System columns that are not there: the table is somebody else's, or somebody took them away."""
        return [name for name in SYSTEM_COLUMNS if name not in self.by_name]

    @cached_property
    def arrow(self) -> pa.Schema:
        """The Arrow schema with `PARQUET:field_id` on every field, nested ones included."""
        return pa.schema([_arrow_field(field) for field in self.json["fields"]])

    @cached_property
    def arrow_types(self) -> Sequence[tuple[str, pa.DataType]]:
        """Of each top-level column its folded name and its type; another engine may have given it a name with
        capitals."""
        return [(fold(field.name), field.type) for field in self.arrow]

    @property
    def key_ids(self) -> frozenset[int]:
        """The identifier fields."""
        return frozenset(self.json.get("identifier-field-ids", ()))

    def with_strings(self, new: Mapping[str, tuple[int, str]], schema_id: int) -> "LogSchema":
        """A schema with one more optional string column per entry of `new`: column name -> (field id,
        original path)."""
        typed = {name: (column_id, TypedColumn(path, "string")) for name, (column_id, path) in new.items()}
        return self.with_columns(typed, {}, schema_id)

    def with_columns(
        self, new: Mapping[str, tuple[int, TypedColumn]], widened: Mapping[str, Any], schema_id: int
    ) -> "LogSchema":
        """A schema with one more column per entry of `new` (column name -> field id, column), and with wider
        types for the columns in `widened` (folded name -> type).

        Columns of a key are required and become the identifier fields.
        """
        if widened or not all(isinstance(column.kind, str) for _, column in new.values()):
            return self._with_columns(new, widened, schema_id)
        return _with_primitives(self, tuple(new.items()), schema_id)

    def _with_columns(
        self, new: Mapping[str, tuple[int, TypedColumn]], widened: Mapping[str, Any], schema_id: int
    ) -> "LogSchema":
        before = [
            field | {"type": widened[fold(field["name"])]} if fold(field["name"]) in widened else field
            for field in self.json["fields"]
        ]
        fields = [
            _field(column_id, name, column.kind, required=column.is_key, doc=column.path)
            for name, (column_id, column) in new.items()
        ]
        keys = [column_id for column_id, column in new.values() if column.is_key]
        json = {**self.json, "schema-id": schema_id, "fields": [*before, *fields]}
        return shared_schema(orjson.dumps(json | ({"identifier-field-ids": keys} if keys else {})))


@lru_cache(maxsize=64)
def _with_primitives(
    before: LogSchema, new: Sequence[tuple[str, tuple[int, TypedColumn]]], schema_id: int
) -> LogSchema:
    """Most new tables of a shipper grow alike, and one table is asked several times before its columns are
    there."""
    return before._with_columns(dict(new), {}, schema_id)


_IN_USE = WeakValueDictionary[bytes, LogSchema]()


@lru_cache(maxsize=128)
def shared_schema(json: bytes) -> LogSchema:
    """One object for all tables with the same schema, which most tables of a shipper have: each by itself
    takes some tens of kilobytes. Beside those that tables have, the last ones are kept: a table that keeps
    getting columns leaves a schema behind with each."""
    found = _IN_USE.get(json)
    if found is None:
        found = _IN_USE[json] = LogSchema(orjson.loads(json))
    return found


def new_log_schema(typed: Mapping[str, str] = NO_COLUMNS) -> LogSchema:
    """The schema of a new table: the system columns, and behind them those that are `typed` from the start.

    Ids are those that Iceberg's fresh assignment gives, so that a catalog which assigns ids at creation
    changes nothing, and data files may be written before the table exists.
    """
    return _new_log_schema(tuple(typed.items()))


@lru_cache(maxsize=64)
def _new_log_schema(typed: Sequence[tuple[str, str]]) -> LogSchema:
    """One object for all tables that begin alike."""
    identity = [field["id"] for field in SYSTEM_FIELDS if field["name"] in IDENTITY]
    further = [
        {"id": number, "name": name, "required": False, "type": kind}
        for number, (name, kind) in enumerate(typed, len(SYSTEM_FIELDS) + 1)
    ]
    behind = len(further)  # what is nested has its ids behind those of all columns
    fields = [*(field | {"type": _moved(field["type"], behind)} for field in SYSTEM_FIELDS), *further]
    return LogSchema({"type": "struct", "schema-id": 0, "identifier-field-ids": identity, "fields": fields})


def _moved(kind: Any, by: int) -> Any:
    """A type of a system column with greater ids of what is nested in it."""
    if isinstance(kind, str):
        return kind
    if kind["type"] == "struct":
        fields = [
            field | {"id": field["id"] + by, "type": _moved(field["type"], by)} for field in kind["fields"]
        ]
        return kind | {"fields": fields}
    return kind | {"element-id": kind["element-id"] + by, "element": _moved(kind["element"], by)}


def with_ids(kind: Any, next_id: Callable[[], int]) -> Any:
    """A type with fresh field ids for all that is nested in it."""
    if isinstance(kind, str):
        return kind
    if kind["type"] == "struct":
        fields = [
            field | {"id": next_id(), "type": with_ids(field["type"], next_id)} for field in kind["fields"]
        ]
        return kind | {"fields": fields}
    members = ("element",) if kind["type"] == "list" else ("key", "value")
    given = {f"{member}-id": next_id() for member in members}
    return kind | given | {member: with_ids(kind[member], next_id) for member in members}


def with_ids_of(existing: Any, kind: Any) -> Any:
    """A type of the same form as an existing one, with the field ids of that."""
    if isinstance(kind, str):
        return kind
    members = ("element",) if kind["type"] == "list" else ("key", "value")
    given = {f"{member}-id": existing[f"{member}-id"] for member in members}
    return kind | given | {member: with_ids_of(existing[member], kind[member]) for member in members}


def leaf_ids(fields: Iterable[Mapping[str, Any]]) -> tuple[int, ...]:
    """Field ids of the primitive leaves in the order of Parquet's columns."""
    return tuple(leaf for field in fields for leaf in _leaves(field["id"], field["type"]))


def _leaves(field_id: int, kind: Any) -> Sequence[int]:
    if isinstance(kind, str):
        return (field_id,)
    if kind["type"] == "struct":
        return leaf_ids(kind["fields"])
    if kind["type"] == "list":
        return _leaves(kind["element-id"], kind["element"])
    return (*_leaves(kind["key-id"], kind["key"]), *_leaves(kind["value-id"], kind["value"]))


def _ids(kind: Any) -> Iterator[int]:
    if isinstance(kind, str):
        return
    if kind["type"] == "struct":
        for field in kind["fields"]:
            yield field["id"]
            yield from _ids(field["type"])
        return
    for member in ("element",) if kind["type"] == "list" else ("key", "value"):
        yield kind[f"{member}-id"]
        yield from _ids(kind[member])


def _arrow_field(field: Mapping[str, Any]) -> pa.Field:
    return pa.field(
        field["name"],
        arrow_type(field["type"]),
        nullable=not field["required"],
        metadata=_field_id(field["id"]),
    )


def _field_id(field_id: int) -> dict[bytes, bytes]:
    return {b"PARQUET:field_id": str(field_id).encode()}


def arrow_type(kind: Any) -> pa.DataType:
    """The Arrow type of an Iceberg type. Raises ValueError for one that log tables do not use."""
    if isinstance(kind, str):
        if kind.startswith("decimal("):
            precision, scale = kind[8:-1].split(",")
            return pa.decimal128(int(precision), int(scale))
        if kind.startswith("fixed["):
            return pa.binary(int(kind[6:-1]))
        if kind not in _ARROW_TYPES:
            raise ValueError(f"no Arrow type is known for the Iceberg type {kind!r}")
        return _ARROW_TYPES[kind]
    if kind["type"] == "struct":
        return pa.struct([_arrow_field(field) for field in kind["fields"]])
    if kind["type"] == "list":
        return pa.list_(
            pa.field(
                "element",
                arrow_type(kind["element"]),
                nullable=not kind["element-required"],
                metadata=_field_id(kind["element-id"]),
            )
        )
    value = pa.field(
        "value",
        arrow_type(kind["value"]),
        nullable=not kind["value-required"],
        metadata=_field_id(kind["value-id"]),
    )
    return pa.map_(
        pa.field("key", arrow_type(kind["key"]), nullable=False, metadata=_field_id(kind["key-id"])), value
    )
