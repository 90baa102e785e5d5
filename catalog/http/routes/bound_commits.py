"""Commits by keys that are bound to a namespace: what they bring is read before they are tried."""

import asyncio
from collections.abc import Sequence

from catalog.access.locations import table_location_of
from catalog.commit.table_changes import TableChange
from catalog.http.services import Services
from catalog.model.error_response import bad_request
from catalog.store import tables
from catalog.store.metadata_store import parse_metadata
from lake.table_location import GRANTS_PROPERTY, TableLocation


async def inspect(services: Services, changes: Sequence[TableChange]) -> None:
    """Looks into what bound keys bring. Raises CatalogError."""
    for change in changes:
        if not change.is_bound:
            continue
        snapshots = [
            update["snapshot"]
            for update in change.updates
            if update.get("action") == "add-snapshot" and isinstance(update.get("snapshot"), dict)
        ]
        if not snapshots:
            continue
        table_location = await _table_location(services, change)
        await asyncio.get_running_loop().run_in_executor(
            services.inspector.threads, services.inspector.check, table_location, snapshots
        )


async def _table_location(services: Services, change: TableChange) -> TableLocation:
    head = await services.read(lambda connection: tables.find(connection, change.identifier, tables.TABLE))
    if head is not None:
        properties = parse_metadata(await services.metadata(head.metadata_location)).get("properties") or {}
        return table_location_of(head.location, properties.get(GRANTS_PROPERTY))
    given = [update.get("location") for update in change.updates if update.get("action") == "set-location"]
    location = given[-1] if given else (change.create or {}).get("location")
    if location is None:
        raise bad_request(
            "a commit that creates a table with a snapshot says the table's location; prepare the table "
            "first (stage-create)"
        )
    return table_location_of(services.store.check_location(location), None)
