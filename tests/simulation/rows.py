"""Whether all rows are there: what was sent, by tables and hours, and what is left of it."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from lake.clock import epoch_ms, epoch_us
from lake.retention import first_hour_kept
from lake.settings import IngestSettings
from lake.table_layout import US_PER_HOUR
from lake.tenant import TableId
from tests.simulation.traffic import Arrivals, Tenant

LATE_S = float(IngestSettings().limits.late)


@dataclass
class Counted:
    """Rows that were sent and not turned away, of each table by the hour of the event; and how many were
    erased. Hours that no table can have any more are forgotten, and of a table that keeps everything its rows
    are counted together: else this process would grow by what it only watches with."""

    sent: dict[TableId, Counter[int]] = field(default_factory=dict)
    erased: Counter[TableId] = field(default_factory=Counter)

    def note(self, arrivals: Arrivals, now: datetime) -> None:
        """Counts what a table keeps of these: not what comes too late, or is past its retention."""
        keeps_h = arrivals.tenant.keeps_h
        first = 0 if keeps_h is None else first_hour_kept(keeps_h, epoch_ms(now))
        late_us = epoch_us(now) - int(LATE_S * 1e6)
        hours = (time_us // US_PER_HOUR for time_us in arrivals.times_us if time_us >= late_us)
        sent = self.sent.setdefault(arrivals.tenant.table, Counter())
        if keeps_h is None:
            sent[0] += sum(1 for _ in hours)
            return
        sent.update(hour for hour in hours if hour >= first)

    def forget(self, tenants: Iterable[Tenant], retained_at: datetime) -> None:
        """Forgets hours that were past their retention when it was carried out last."""
        for tenant in tenants:
            if tenant.keeps_h is not None:
                first = first_hour_kept(tenant.keeps_h, epoch_ms(retained_at))
                sent = self.sent.get(tenant.table, Counter())
                for hour in [hour for hour in sent if hour < first]:
                    del sent[hour]

    def bounds(self, tenant: Tenant, retained_at: datetime, now: datetime) -> tuple[int, int]:
        """How many rows its table has at least and at most; `retained_at`: when retention was carried out
        last."""
        sent = self.sent.get(tenant.table, Counter())
        if tenant.keeps_h is None:
            least = most = sent.total()
        else:
            firsts = [first_hour_kept(tenant.keeps_h, epoch_ms(moment)) for moment in (now, retained_at)]
            least, most = (sum(n for hour, n in sent.items() if hour >= first) for first in firsts)
        return least - self.erased[tenant.table], most  # what was erased may be past its retention as well


def live_rows(answer: Mapping[str, Any]) -> int:
    """How many rows a table has, as the catalog tells of it."""
    metadata = answer["metadata"]
    head = next(
        (s for s in metadata["snapshots"] if s["snapshot-id"] == metadata.get("current-snapshot-id")), None
    )
    return 0 if head is None else int(head["summary"]["total-records"])
