"""How much of a tenant came, by minutes of Kafka's time, and what is over its limit.

Minutes are those of the messages' Kafka timestamps, not of this machine's clock: what comes late because Firn
stood still is not over a limit that its tenant has kept. A timestamp that lies ahead counts as now.
"""

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ingest.model.tenant_rate import TenantRate
from lake.errors import Reason, Rejected
from lake.limits import Bound, Limit

MINUTE_S = 60
MS_PER_MINUTE = 60_000
MINUTES_MAX = 20_000  # of one tenant, some two weeks; beyond, the oldest half begins at nothing again


@dataclass(slots=True)
class TenantMeter:
    """One worker's."""

    _came: dict[str, dict[int, list[int]]] = field(default_factory=lambda: defaultdict(dict))

    def over(self, tenant: str, rate: TenantRate, timestamps_ms: Any, sizes: Any, now_ms: int) -> Any:
        """Which of these messages, in their order, are over the limit, as a numpy array of bool; they are
        counted with that. In a minute so much is taken as the seconds of it make up."""
        minutes = np.clip(timestamps_ms, 0, now_ms) // MS_PER_MINUTE
        over, came = np.zeros(len(minutes), bool), self._came[tenant]
        in_order = np.argsort(minutes, kind="stable")
        found, firsts = np.unique(minutes[in_order], return_index=True)
        for minute, places in zip(found.tolist(), np.split(in_order, firsts[1:]), strict=True):
            before = came.setdefault(minute, [0, 0])
            for number, (bound, each) in enumerate(
                ((rate.records, np.ones(len(places), np.int64)), (rate.size_bytes, sizes[places]))
            ):
                so_far = before[number] + np.cumsum(each)
                if bound.most is not None:
                    over[places] |= so_far > bound.most * MINUTE_S
                before[number] = int(so_far[-1])
        if len(came) > MINUTES_MAX:
            for minute in sorted(came)[: -(MINUTES_MAX // 2)]:
                del came[minute]
        return over


def over_limit(rate: TenantRate) -> Rejected:
    """Why a message is a dead letter: the limits, and who says them."""
    return Rejected(
        Reason.OVER_LIMIT, f"its tenant sends more than its limit, counted by the minute: {limits_text(rate)}"
    )


def without_value(over: Rejected) -> Rejected:
    """The same of one whose value masking.over_limit withholds."""
    return Rejected(over.reason, f"{over.detail}; its value is kept nowhere (masking.over_limit)")


def limits_text(rate: TenantRate) -> str:
    """The limits, and who says them."""
    both = ((Limit.RECORDS_PER_S, rate.records), (Limit.BYTES_PER_S, rate.size_bytes))
    return " and ".join(_limit(limit, bound) for limit, bound in both if bound.most is not None)


def _limit(limit: Limit, bound: Bound) -> str:
    return f"{limit.value} is {bound.most:,}, as the {bound.level} says"
