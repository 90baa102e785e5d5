"""Who sends how much, hour by hour: tenants by Zipf, days and weeks with their rhythm, one tenant that is
hot, records that come late, records that bring new fields, and tenants that come and go. Pure, and the
same for the same seed."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import numpy as np
import orjson

from infra.demo.arrivals import relative_rate
from infra.demo.draws import zipf_weights
from lake.table_layout import US_PER_HOUR
from lake.tenant import TableId, TenantId

# A Monday.
START = datetime(2026, 1, 5, tzinfo=UTC)
_START_HOUR = int(START.timestamp()) // 3600
ZIPF_EXPONENT = 1.1
HOURS_OF_WEEK, SATURDAY_H = 7 * 24, 5 * 24
WEEKEND_SHARE = 0.4
# Of all records, that of the hot tenant beside what Zipf gives it.
HOT_SHARE = 0.1
# Shares of records, and how many hours they are late; the last ones are later than ingestion takes them.
LATE = ((0.02, 0, 6), (0.004, 6, 60), (0.0005, 15 * 24, 60 * 24))
DRIFTING_EVERY = 20  # one tenant of so many brings a new field in every period
HOT, FOR_EVER = 0, 1  # slots
WORDS = ("payment", "checkout", "retry", "timeout", "cache", "index", "session", "worker", "queue", "token")
LEVELS = ("info", "info", "info", "warn", "error")


@dataclass(frozen=True, slots=True)
class Keeping:
    """Retentions of tenants: `short` and `middle` of most, `long` of one in ten, all in hours. All are over
    days before the third week, from which on nothing may grow: its costs are those of its first day, by when
    tables have to have lost rows for some days, and the snapshots and files that went with them."""

    short_h: int = 5 * 24
    middle_h: int = 10 * 24
    long_h: int = 11 * 24

    def hours(self, slot: int) -> int | None:
        """That of a slot; None: for ever."""
        if slot == FOR_EVER:
            return None
        if slot == HOT:
            return self.middle_h
        return self.long_h if slot % 10 == 9 else (self.short_h, self.middle_h)[slot % 2]


@dataclass(frozen=True, slots=True)
class Tenant:
    """A tenant: who has the slot (its place by size, 0 is the largest) in this generation. `keeps_h`:
    None is for ever."""

    slot: int
    generation: int
    keeps_h: int | None

    @property
    def table(self) -> TableId:
        return TableId(TenantId(f"tenant-{self.slot:05d}-{self.generation}"), "logs")

    @property
    def drifts(self) -> bool:
        """Whether its records keep bringing new fields."""
        return self.slot % DRIFTING_EVERY == DRIFTING_EVERY // 2


@dataclass
class Population:
    """The tenants that are there. Of `count` slots so many change hands a day as `come_and_go` says."""

    count: int
    keeping: Keeping
    seed: int
    come_and_go: float = 0.005
    alive: list[Tenant] = field(init=False)

    def __post_init__(self) -> None:
        self.alive = [Tenant(slot, 0, self.keeping.hours(slot)) for slot in range(self.count)]

    def change_hands(self, day: int) -> list[tuple[Tenant, Tenant]]:
        """Who goes on a day, each with who comes instead; the hot one stays, and so does who keeps for
        ever."""
        draws = np.random.default_rng((self.seed, 1, day))
        going = draws.poisson(self.come_and_go * self.count)
        slots = draws.choice(np.arange(2, self.count), min(going, self.count - 2), replace=False)
        changed = []
        for slot in sorted(slots.tolist()):
            before = self.alive[slot]
            self.alive[slot] = Tenant(slot, before.generation + 1, before.keeps_h)
            changed.append((before, self.alive[slot]))
        return changed


@dataclass(frozen=True, slots=True)
class Arrivals:
    """What one tenant sends in one hour: the times of its records' events, µs since 1970, in the order in
    which they come. `hour`: since the start."""

    tenant: Tenant
    hour: int
    times_us: Sequence[int]
    fields: int  # that its records have brought until now, beside those that all have

    def bodies(self) -> list[bytes]:
        """The records, as JSON."""
        return [self._body(at, time_us) for at, time_us in enumerate(self.times_us)]

    def _body(self, at: int, time_us: int) -> bytes:
        number = (self.hour * 7_919 + at * 104_729 + self.tenant.slot) % 1_000_003
        record = {
            "timestamp": (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=time_us)).isoformat(),
            "level": LEVELS[number % len(LEVELS)],
            "message": f"{WORDS[number % 10]} {WORDS[number // 10 % 10]} took {number % 977} ms",
            "user": f"user{number % 50}",
            "host": f"host-{number % 5}",
            "status": number % 600,
        }
        if self.fields:
            record[f"field_{number % self.fields}"] = f"value {number % 31}"
            record[f"field_{self.fields - 1}"] = "newest"
        return orjson.dumps(record)


@dataclass
class Traffic:
    """What comes in each hour. `rows_per_hour`: of all tenants together, on average; `period_h`: after so
    many hours a drifting tenant has one field more."""

    count: int
    rows_per_hour: float
    seed: int
    period_h: int = HOURS_OF_WEEK

    def __post_init__(self) -> None:
        weights = np.array(zipf_weights(self.count, ZIPF_EXPONENT))
        weights = (1 - HOT_SHARE) * weights / weights.sum()
        weights[HOT] += HOT_SHARE
        self._rates = weights * self.rows_per_hour

    def arrivals(self, tenants: Sequence[Tenant], hour: int) -> Iterator[Arrivals]:
        """What the tenants send in an hour (0: the first), the largest first; those who send nothing are
        left out."""
        draws = np.random.default_rng((self.seed, 2, hour))
        counts = draws.poisson(self._rates * rhythm(hour))
        for tenant in tenants:
            count = int(counts[tenant.slot])
            if count:
                times = _times(draws, _START_HOUR + hour, count)
                fields = 1 + hour // self.period_h if tenant.drifts else 0
                yield Arrivals(tenant, hour, times, fields)


def rhythm(hour: int) -> float:
    """How busy an hour since the start is: 1 on the average of a working day."""
    share = WEEKEND_SHARE if hour % HOURS_OF_WEEK >= SATURDAY_H else 1.0
    return share * relative_rate((_START_HOUR + hour) * 3_600_000)


def _times(draws: np.random.Generator, hour: int, count: int) -> list[int]:
    times = hour * US_PER_HOUR + np.sort(draws.integers(0, US_PER_HOUR, count))
    luck, after = draws.random(count), 0.0
    for share, hours_min, hours_max in LATE:
        late = (luck >= after) & (luck < after + share)
        times[late] -= draws.integers(hours_min * US_PER_HOUR, hours_max * US_PER_HOUR, int(late.sum()))
        after += share
    return [int(time) for time in times]
