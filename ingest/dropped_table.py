"""What becomes of records for a table that was dropped and may still come back: its own property says, else the setting `on_deleted`."""

from collections.abc import Mapping
from typing import Any

import orjson

from lake.catalog_client import CatalogClient, TableName
from lake.errors import NotFoundError
from lake.storage import AnyStorage

ON_DELETED_PROPERTY = "firn.on-deleted"
PARK, DEAD_LETTER, RECREATE = "park", "dead-letter", "recreate"


def on_deleted(catalog: CatalogClient, storage: AnyStorage, name: TableName, otherwise: str) -> str:
    """The policy of the table that was dropped last under this name, from the metadata it had then. Raises UnavailableError."""
    dropped = _last_dropped(catalog, name)
    if dropped is None:
        return otherwise
    try:
        properties: Mapping[str, str] = orjson.loads(storage.read(dropped["metadata-location"])).get("properties", {})
    except (NotFoundError, orjson.JSONDecodeError):  # purged already, or compressed by somebody else
        return otherwise
    policy = properties.get(ON_DELETED_PROPERTY, otherwise)
    return policy if policy in (PARK, DEAD_LETTER, RECREATE) else otherwise


def _last_dropped(catalog: CatalogClient, name: TableName) -> Mapping[str, Any] | None:
    found, token = None, "0"
    while token:
        page = catalog.get("/firn/v1/dropped-tables", pageToken=token, pageSize="1000")
        found = next((entry for entry in reversed(page["dropped-tables"]) if entry["identifier"] == name.to_json()), found)
        token = page.get("next-page-token") or ""
    return found
