"""Tables of Firn's own tenant: the columns that are typed from their first row on, because Firn itself knows
what it writes there."""

from collections.abc import Mapping

from lake.audit import event
from lake.tenant import SYSTEM_TENANT

_TYPED: Mapping[str, Mapping[str, str]] = {event.STREAM: event.TYPED_COLUMNS}


def typed_columns(tenant: str, stream: str) -> Mapping[str, str]:
    """Column -> type, beside the system columns, of a new table; none of other tenants."""
    return _TYPED.get(stream, {}) if tenant == SYSTEM_TENANT.name else {}
