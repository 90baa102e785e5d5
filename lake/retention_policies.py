"""Which retention a table has, by the catalog (`lake/retention.py`), which legal holds are on it, and what
its tenant may use."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import inf

from lake.catalog_client import CatalogClient, TableName
from lake.clock import Clock
from lake.errors import NotFoundError
from lake.extras_client import ExtrasClient
from lake.holds import Hold, TableHolds
from lake.limits import Bound, Limit, limits_of
from lake.retention import PROPERTY, Level, Retention, retention_of
from lake.table_layout import KEY_PROPERTY, TENANT_PROPERTY

BELIEVED_S = 60.0
# Of a namespace, or of the lake.
Said = Callable[[], str | None]


def said(properties: Mapping[str, str]) -> dict[str, str]:
    """Of a table's properties those by which its retention is told."""
    wanted = (PROPERTY, TENANT_PROPERTY, KEY_PROPERTY)
    return {name: properties[name] for name in wanted if name in properties}


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
    """Asks for what namespaces say, and the lake, once a minute: Firn's catalog for all at once. `timeout_s`:
    how long an answer may take, which is then asked for once; None: as long as the client waits."""

    catalog: CatalogClient
    clock: Clock
    timeout_s: float | None = None
    _said: dict[str | None, tuple[float, Mapping[str, str]]] = field(default_factory=dict)
    _of_all: tuple[float, Mapping[str | None, Mapping[str, str]]] = (-inf, {})
    _tells_all: bool = True

    def of(self, table: TableName, properties: Mapping[str, str]) -> Retention:
        """Returns the retention of a table with these properties. Raises ValueError where what counts is
        none, and what a request to the catalog raises."""
        return retention_of_table(properties, lambda: self.of_tenant(table.namespace), self.of_lake)

    def of_tenant(self, namespace: str) -> str | None:
        """Returns what a namespace says."""
        return self._ask(namespace).get(PROPERTY)

    def of_lake(self) -> str | None:
        """Returns what the lake says."""
        return self._ask(None).get(PROPERTY)

    def holds(self, table: TableName) -> tuple[Hold, ...]:
        """Returns the legal holds on a table, as they were within the last minute: good enough for what takes
        nothing away."""
        return self.table_holds(table).holds

    def table_holds(self, table: TableName) -> TableHolds:
        """Returns the same with what asserts in a commit that they are still these."""
        return TableHolds.of(table.name, self._ask(table.namespace))

    def limits(self, namespace: str) -> dict[Limit, Bound]:
        """Returns what a tenant may use, as far as anybody says it."""
        return limits_of(namespace, self._ask(namespace), self._ask(None))

    def forget(self) -> None:
        """Has the next question asked of the catalog."""
        self._of_all = -inf, {}
        self._said.clear()

    def _ask(self, whom: str | None) -> Mapping[str, str]:
        """The properties of a namespace, None: of the lake."""
        now_s = self.clock.monotonic_s()
        if self._tells_all and self.catalog.has_extras:
            if now_s - self._of_all[0] > BELIEVED_S:
                self._ask_all(now_s)
            if self._tells_all:
                return self._of_all[1].get(whom, {})
        asked_s, known = self._said.get(whom, (-inf, {}))
        if now_s - asked_s > BELIEVED_S:
            known = self.catalog.config_now() if whom is None else self.catalog.namespace_properties(whom)
            self._said[whom] = now_s, known
        return known

    def _ask_all(self, now_s: float) -> None:
        try:
            told = ExtrasClient(self.catalog).policies(timeout_s=self.timeout_s)
        except NotFoundError:  # an older catalog
            self._tells_all = False
            return
        self._of_all = now_s, told
