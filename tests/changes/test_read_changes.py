"""Messages of a buffer as changes: what is read with a schema registry, and what is not without its
answer."""

import io
import json
import struct
from array import array
from typing import Any

import fastavro
import pytest

from ingest.changes.change import Op
from ingest.convert.read_changes import ReadChanges, ReadingTerms, read_changes
from ingest.model.source import Source
from ingest.model.trouble import RegistryUnavailableError
from ingest.route.buffer import TableBuffer
from ingest.schema_registry.schema_registry import SchemaRegistry
from lake.errors import Reason
from lake.settings import ChangeSettings, RegistrySettings
from lake.tenant import TableId, TenantId
from tests.ingest.support.fake_schema_registry import FakeSchemaRegistry, fake_schema_registry

ORDER = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
TABLE = TableId(TenantId("shop"), "orders")


def framed(schema_id: int, value: dict[str, Any]) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(ORDER), value)
    return struct.pack(">bI", 0, schema_id) + out.getvalue()


def read(registry: FakeSchemaRegistry, *values: bytes) -> ReadChanges:
    buffer = TableBuffer(TABLE, 0.0)
    for offset, value in enumerate(values):
        buffer.add(0, offset, 1, None, (), value)
    settings = ChangeSettings(format="keyed_json", key=("id",))
    source = Source("orders", "topic-id", 0, "auto", changes=settings)
    opened = SchemaRegistry(RegistrySettings(url=registry.url)).read
    return read_changes(buffer, [source], array("q", [0]), ReadingTerms(64, opened))


def test_a_value_in_avro_is_a_row_with_types() -> None:
    with fake_schema_registry() as registry:
        found = read(registry, framed(registry.add(json.dumps(ORDER)), {"id": 7}))
    ((ordinal, change),) = found.changes
    assert (ordinal, change.op, dict(change.row.values)) == (0, Op.UPDATE, {"id": 7})
    assert dict(change.row.types) == {"id": "long"}


@pytest.mark.long
def test_a_schema_that_nobody_knows_rejects_its_messages_alone() -> None:
    with fake_schema_registry() as registry:
        known = registry.add(json.dumps(ORDER))
        found = read(registry, framed(known + 40, {"id": 1}), framed(known, {"id": 2}))
    assert [(at, why.reason) for at, why in found.rejected] == [(0, Reason.SCHEMA_UNKNOWN)]
    assert [change.key.values["id"] for _, change in found.changes] == [2]


def test_without_an_answer_of_the_registry_nothing_is_rejected() -> None:
    with fake_schema_registry() as registry:
        known = registry.add(json.dumps(ORDER))
        registry.status = 503
        with pytest.raises(RegistryUnavailableError):
            read(registry, framed(known, {"id": 1}))
