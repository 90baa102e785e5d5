"""What came of which tenants, as metrics: of the busiest ones each, of all others together, so that there are
never more series than a setting allows."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from lake import metrics
from lake.clock import Clock

WINDOW_S = 600.0
OTHERS = ""  # no tenant is called so


@dataclass(slots=True)
class TenantTraffic:
    """Adds up what workers report, and tells it when ten minutes are over. Gauges, not counters: who is among
    the busiest changes, and a sum of the others would go down."""

    clock: Clock
    tenants_max: int
    _records: Counter[str] = field(default_factory=Counter)
    _bytes: Counter[str] = field(default_factory=Counter)
    _since_s: float | None = None

    def add(self, records: Mapping[str, int], size_bytes: Mapping[str, int]) -> None:
        """Counts messages and bytes of their values, by tenant."""
        now_s = self.clock.monotonic_s()
        self._since_s = now_s if self._since_s is None else self._since_s
        if now_s - self._since_s >= WINDOW_S:
            self._tell()
            self._since_s = now_s
        if self.tenants_max:
            self._records.update(records)
            self._bytes.update(size_bytes)

    def _tell(self) -> None:
        busiest = [tenant for tenant, _ in self._bytes.most_common(self.tenants_max)]
        for gauge, counted in (
            (metrics.TENANT_RECORDS, self._records),
            (metrics.TENANT_BYTES, self._bytes),
        ):
            gauge.clear()
            for tenant in busiest:
                gauge.labels(tenant).set(counted.pop(tenant, 0))
            if self.tenants_max:
                gauge.labels(OTHERS).set(counted.total())
            counted.clear()
