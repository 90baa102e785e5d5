"""Which retention a table has, by the catalog (`lake/retention.py`)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import inf

from lake.catalog_client import CatalogClient, TableName
from lake.clock import Clock
from lake.retention import PROPERTY, Level, Retention, retention_of
from lake.table_layout import KEY_PROPERTY, TENANT_PROPERTY

BELIEVED_S = 60.0
# Of a namespace, or of the lake.
Said = Callable[[], str | None]


def retention_of_table(properties: Mapping[str, str], of_tenant: Said, of_lake: Said) -> Retention:
    """Returns the retention of a table with these properties; the others are asked where they matter. Raises
    ValueError where what counts is none.

    Tenant and lake speak of Firn's logs alone: nobody else's table loses rows by them, nor one with a key.
    """
    own = properties.get(PROPERTY) or ""
    if own.strip() or TENANT_PROPERTY not in properties or KEY_PROPERTY in properties:
        return retention_of((Level.STREAM, own))
    return retention_of((Level.TENANT, of_tenant()), (Level.LAKE, of_lake()))


@dataclass(slots=True)
class Policies:
    """Asks for what a namespace says, and the lake, once a minute."""

    catalog: CatalogClient
    clock: Clock
    _said: dict[str | None, tuple[float, str | None]] = field(default_factory=dict)

    def of(self, table: TableName, properties: Mapping[str, str]) -> Retention:
        """Returns the retention of a table with these properties. Raises ValueError where what counts is
        none, and what a request to the catalog raises."""
        return retention_of_table(properties, lambda: self.of_tenant(table.namespace), self.of_lake)

    def of_tenant(self, namespace: str) -> str | None:
        """Returns what a namespace says."""
        return self._ask(namespace, lambda: self.catalog.namespace_properties(namespace))

    def of_lake(self) -> str | None:
        """Returns what the lake says."""
        return self._ask(None, self.catalog.config_now)

    def _ask(self, whom: str | None, ask: Callable[[], Mapping[str, str]]) -> str | None:
        now_s = self.clock.monotonic_s()
        asked_s, text = self._said.get(whom, (-inf, None))
        if now_s - asked_s > BELIEVED_S:
            text = ask().get(PROPERTY)
            self._said[whom] = now_s, text
        return text
