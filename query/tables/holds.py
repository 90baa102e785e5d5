"""Legal holds of a tenant (`lake/holds.py`), as the catalog has them."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from lake.catalog_client import CatalogClient
from lake.errors import NotFoundError, RefusedError
from lake.holds import PROPERTY, Hold, TableHolds, parse_holds
from lake.tenant import TableId, TenantId, to_identifier


def holds_of(catalog: CatalogClient, tenant: TenantId) -> tuple[Hold, ...]:
    """All of a tenant; none where there is no such tenant."""
    return parse_holds(_properties(catalog, tenant).get(PROPERTY))


def holds_on(catalog: CatalogClient, table: TableId) -> TableHolds:
    """Those about one stream."""
    return TableHolds.of(table.table, _properties(catalog, table.tenant))


def _properties(catalog: CatalogClient, tenant: TenantId) -> Mapping[str, str]:
    try:
        return catalog.namespace_properties(tenant.namespace)
    except NotFoundError:
        return {}


def check_may_erase(
    catalog: CatalogClient, tenant: TenantId, streams: Sequence[str], start: datetime, end: datetime
) -> None:
    """Raises RefusedError where a hold is on anything of `[start, end)` of these streams, none named: of
    all."""
    for hold in holds_of(catalog, tenant):
        if hold.overlaps(start, end) and (
            not streams or any(hold.is_about(to_identifier(s)) for s in streams)
        ):
            raise RefusedError(
                f"nothing is erased: {hold} is on it; erase what it is not about, or have it lifted"
            )
