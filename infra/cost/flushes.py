"""How often ingestion flushes: by its settings, the traffic of each tenant, and the memory that waiting
records may take.

The rules are those of ingestion's buffers (`ingest/route/buffers.py`), which a test drives on a clock of its
own to compare. A worker has a buffer of each table; a buffer is due by its age, or because the worker's
buffers together hold more than half of what they may, and then the largest go first.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import expm1, inf

from infra.cost.load import Load, Tenants
from lake.settings.ingest import FlushSettings

MIB = 1 << 20
# Of ingestion, as its code has them; a test compares.
RECORD_OVERHEAD_BYTES = 32
COLD_BYTES = 64 * 1024
COLD_SPREAD = 0.25
HOT_PART_BYTES = 32 * MIB
# A table has one flush in the air at a time, which takes about so long with its commit.
LEAST_S = 0.5
# Tables that come to be due between two looks of a worker are written and committed together.
LOOK_S = 0.05
STEPS = 40


def batches_per_s(flushes_per_s: float) -> float:
    """How many requests so many flushes of tables a second are committed in."""
    return -expm1(-flushes_per_s * LOOK_S) / LOOK_S


@dataclass(frozen=True, slots=True)
class Rules:
    """When a buffer is flushed, as the settings of `flush` say, for each of so many workers. `small_ratio`:
    bytes of a data file as ingestion writes it for one byte of records; what of a hot table is in a file
    already waits packed, in about as much."""

    interval_s: float
    cold_interval_s: float
    buffer_bytes: float
    file_bytes: float
    workers: int
    small_ratio: float
    least_s: float = LEAST_S

    @classmethod
    def of(
        cls,
        settings: FlushSettings,
        *,
        small_ratio: float,
        workers: int = 1,
        buffer_bytes: float | None = None,
    ) -> "Rules":
        """The rules of some settings, with another bound of memory where one is given."""
        return cls(
            settings.interval_s,
            settings.cold_interval_s,
            settings.buffer_bytes_max if buffer_bytes is None else buffer_bytes,
            settings.file_bytes,
            workers,
            small_ratio,
        )

    @property
    def held_bytes(self) -> float:
        """What the buffers of one worker come to hold at most, on average."""
        return self.buffer_bytes / self.workers / 2

    def age_s(self, bytes_per_s: float) -> float:
        """Seconds from a buffer's first record until it is due by its age, on average: those of tables with
        little traffic come one after the other within the last part of their time."""
        spread_s = max(0.0, min(COLD_SPREAD * self.cold_interval_s, self.cold_interval_s - self.interval_s))
        latest_s = self.cold_interval_s - spread_s / 2
        first_s = min(self.interval_s, latest_s)
        return min(max(COLD_BYTES / bytes_per_s, first_s), latest_s)


@dataclass(frozen=True, slots=True)
class Buffer:
    """The buffer of one table in one worker: how long it waits for its first record, and then until it is
    flushed, in seconds."""

    bytes_per_s: float
    wait_s: float
    age_s: float

    @property
    def flushes_per_s(self) -> float:
        return 1 / (self.wait_s + self.age_s)

    def mean_bytes(self, rules: Rules) -> float:
        """What it holds on average."""
        full = self.bytes_per_s * self.age_s
        open_bytes = min(full, HOT_PART_BYTES)
        packed = (full - open_bytes) * rules.small_ratio
        mean = (open_bytes + packed) / 2
        return mean * self.age_s / (self.age_s + self.wait_s)

    def flushes_within(self, seconds: float) -> float:
        """How many flushes the records of a stretch of time come to, of which the first comes at once and
        whose last ones wait for their turn as well."""
        left_s, cycle_s = seconds - self.age_s, self.wait_s + self.age_s
        if left_s <= 0:
            return 1.0
        waits = self.wait_s / cycle_s
        return max(1.0, 1.5 + left_s / cycle_s + waits * waits / 2 - waits)


@dataclass(frozen=True)
class Flushes:
    """All buffers of a load."""

    load: Load
    rules: Rules

    @cached_property
    def buffers(self) -> Sequence[tuple[int, Buffer]]:
        """Those of one worker, by how many are alike."""
        tenants = list(self.load.by_traffic())
        unbounded = self._with_at_most(inf, tenants)
        if self._held(unbounded) <= self.rules.held_bytes:
            return unbounded
        low, high = 1.0, max(buffer.bytes_per_s * buffer.age_s for _, buffer in unbounded)
        for _ in range(STEPS):
            middle = (low * high) ** 0.5
            if self._held(self._with_at_most(middle, tenants)) > self.rules.held_bytes:
                high = middle
            else:
                low = middle
        return self._with_at_most(low, tenants)

    @property
    def per_s(self) -> float:
        """Flushes of tables a second, of all workers."""
        return self.rules.workers * sum(count * buffer.flushes_per_s for count, buffer in self.buffers)

    @property
    def files_per_flush(self) -> float:
        """Data files of a flush: one, and one more where an hour ends between its records."""
        age_s = sum(count * buffer.flushes_per_s * buffer.age_s for count, buffer in self.buffers)
        return 1 + age_s * self.rules.workers / self.per_s / 3_600

    @property
    def is_bounded_by_memory(self) -> bool:
        """Whether the largest buffers are flushed before their time."""
        return any(
            buffer.age_s < self.rules.age_s(buffer.bytes_per_s) * 0.999
            and buffer.bytes_per_s * buffer.age_s * self.rules.small_ratio < self.rules.file_bytes * 0.999
            for _, buffer in self.buffers
        )

    def within(self, seconds: float) -> float:
        """Flushes of all records of a stretch of time, the last ones included."""
        return self.rules.workers * sum(
            count * min(buffer.flushes_within(seconds), max(1.0, seconds / buffer.wait_s))
            for count, buffer in self.buffers
        )

    def _with_at_most(self, bytes_max: float, tenants: Sequence[Tenants]) -> list[tuple[int, Buffer]]:
        return [(each.count, self._buffer(each.records_per_s, bytes_max)) for each in tenants]

    def _buffer(self, records_per_s: float, bytes_max: float) -> Buffer:
        of_worker = records_per_s / self.rules.workers
        bytes_per_s = of_worker * (self.load.bytes_per_record + RECORD_OVERHEAD_BYTES)
        of_file_s = self.rules.file_bytes / self.rules.small_ratio / bytes_per_s
        early_s = max(self.rules.least_s, min(of_file_s, bytes_max / bytes_per_s))
        age_s = min(self.rules.age_s(bytes_per_s), early_s)
        return Buffer(bytes_per_s, 1 / of_worker, age_s)

    def _held(self, buffers: Sequence[tuple[int, Buffer]]) -> float:
        return sum(count * buffer.mean_bytes(self.rules) for count, buffer in buffers)
