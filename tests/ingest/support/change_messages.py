"""Messages of change streams, as Kafka Connect's JSON converter and the connectors write them."""

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from ingest.changes.change import Change, PassedOver, ReadOptions
from ingest.changes.registry import CHANGE_FORMATS
from lake.errors import Rejected
from lake.settings import ChangeFormat

LONG = {"type": "int64", "optional": False}
TEXT = {"type": "string", "optional": True}
ORDER_FIELDS: Mapping[str, Mapping[str, Any]] = {"id": LONG, "customer": TEXT}


def struct(fields: Mapping[str, Mapping[str, Any]], **more: Any) -> dict[str, Any]:
    """The schema of a row whose fields have these schemas."""
    members = [{**schema, "field": name} for name, schema in fields.items()]
    return {"type": "struct", "fields": members, "optional": True, **more}


def with_schema(schema: Mapping[str, Any], payload: Any) -> bytes:
    """A message with its schema part."""
    return orjson.dumps({"schema": schema, "payload": payload})


def envelope_schema(fields: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The schema of Debezium's envelope around rows of these fields."""
    return struct(
        {
            "before": struct(fields, name="shop.Value"),
            "after": struct(fields, name="shop.Value"),
            "source": struct({"lsn": LONG}, name="io.debezium.connector.postgresql.Source"),
            "op": TEXT,
            "ts_ms": LONG,
        },
        name="shop.Envelope",
    )


def envelope(op: str, before: Any = None, after: Any = None, **source: Any) -> dict[str, Any]:
    """Debezium's envelope."""
    return {"before": before, "after": after, "source": source, "op": op, "ts_ms": 1_795_425_421_358}


def debezium(
    op: str,
    before: Any = None,
    after: Any = None,
    fields: Mapping[str, Mapping[str, Any]] = ORDER_FIELDS,
    **source: Any,
) -> bytes:
    """A message of Debezium with its schema part."""
    return with_schema(envelope_schema(fields), envelope(op, before, after, **source))


def key_of(value: int) -> bytes:
    """A message key with its schema part: `id`."""
    return with_schema(struct({"id": LONG}, name="shop.Key"), {"id": value})


def read(
    form: ChangeFormat,
    key: bytes | None,
    value: bytes | None,
    headers: Sequence[tuple[str, bytes]] = (),
    options: ReadOptions | None = None,
) -> Change | PassedOver | Rejected:
    """Reads a message by the registry."""
    return CHANGE_FORMATS[form](key, value, headers, options or ReadOptions())


def read_change(
    form: ChangeFormat,
    key: bytes | None,
    value: bytes | None,
    headers: Sequence[tuple[str, bytes]] = (),
    options: ReadOptions | None = None,
) -> Change:
    """Reads a message that is a change."""
    found = read(form, key, value, headers, options)
    assert isinstance(found, Change), found
    return found


def rejection(
    form: ChangeFormat, key: bytes | None, value: bytes | None, options: ReadOptions | None = None
) -> Rejected:
    """Reads a message that is none."""
    found = read(form, key, value, (), options)
    assert isinstance(found, Rejected), found
    return found
