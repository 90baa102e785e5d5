"""What is known of a table once it is loaded."""

from typing import Any

import orjson

from lake.catalog_client import TableName
from lake.commit import TableState, new_table_state, state_of
from lake.storage import open_storage


def _loaded(name: str) -> TableState:
    new = new_table_state(TableName(name, "logs"), name, "logs", "file:///warehouse")
    grown = new.schema.with_strings({"a": (16, "/a")}, 1)
    metadata: dict[str, Any] = {
        "table-uuid": new.uuid,
        "location": new.location,
        "last-column-id": 16,
        "current-schema-id": 1,
        "schemas": [new.schema.json, grown.json],
        "default-spec-id": new.spec["spec-id"],
        "partition-specs": [new.spec],
        "last-updated-ms": 1,
        "properties": new.properties,
    }
    return state_of(orjson.loads(orjson.dumps(metadata)), TableName(name, "logs"), open_storage())


def test_loaded_tables_share_their_schema() -> None:
    """A node that has started again loads ten thousand tables: it holds the schema of a shipper once."""
    one, other = _loaded("one"), _loaded("other")
    assert "a" in one.schema.by_name
    assert one.schema is other.schema
    assert one.uuid != other.uuid
