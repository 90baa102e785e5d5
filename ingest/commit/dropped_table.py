"""Tables that were dropped and may still come back: whether one was, and what becomes of records for it
meanwhile."""

from collections.abc import Mapping

import orjson

from lake.catalog_client import CatalogClient, TableName
from lake.errors import NotFoundError
from lake.extras_client import DroppedTable, ExtrasClient
from lake.storage import AnyStorage
from lake.table_files import METADATA_BYTES_MAX

ON_DELETED_PROPERTY = "firn.on-deleted"
PARK, DEAD_LETTER, RECREATE = "park", "dead-letter", "recreate"


def was_dropped(catalog: CatalogClient, name: TableName, uuid: str) -> bool:
    """Whether a table that is not there was dropped, as far as anybody can tell: a foreign catalog keeps no
    list. Raises UnavailableError."""
    return not catalog.has_extras or any(dropped.uuid == uuid for dropped in _dropped(catalog, name))


def on_deleted(catalog: CatalogClient, storage: AnyStorage, name: TableName, otherwise: str) -> str:
    """What becomes of records for a table that was dropped: the property of the last one of this name says,
    as it stood when it was dropped.

    Raises UnavailableError.
    """
    found = _dropped(catalog, name)
    if not found:
        return otherwise
    try:
        properties: Mapping[str, str] = orjson.loads(
            storage.read(found[-1].metadata_location, bytes_max=METADATA_BYTES_MAX)
        ).get("properties", {})
    except (NotFoundError, orjson.JSONDecodeError):  # purged already, or compressed by somebody else
        return otherwise
    policy = properties.get(ON_DELETED_PROPERTY, otherwise)
    return policy if policy in (PARK, DEAD_LETTER, RECREATE) else otherwise


def _dropped(catalog: CatalogClient, name: TableName) -> list[DroppedTable]:
    """The dropped tables of this name, the last one last."""
    return [dropped for dropped in ExtrasClient(catalog).dropped_tables() if dropped.table == name]
