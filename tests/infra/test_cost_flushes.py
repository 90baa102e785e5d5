"""How often ingestion flushes, by the model of costs, beside its real buffers on a clock of the test."""

from collections.abc import Iterator

import numpy as np
import pytest

from infra.cost import flushes as model
from infra.cost.flushes import Flushes, Rules
from infra.cost.load import Load
from ingest.node.pipeline import HOT_PART_BYTES
from ingest.route import buffers as real
from ingest.route.buffer import RECORD_OVERHEAD_BYTES
from ingest.route.buffers import Buffers, FlushRules
from lake.settings.ingest import FlushSettings
from lake.tenant import TableId, TenantId

BYTES_PER_RECORD = 400
STEP_S = 1.0
MIB = 1 << 20


def simulated(load: Load, rules: Rules, seconds: float) -> Iterator[tuple[float, int]]:
    """Flushes of the real buffers, which get as many records in each second as chance has it: when, and how
    many tables. In the end all that waits is flushed when its time has come."""
    rates = [each.records_per_s for each in load.by_traffic() for _ in range(each.count)]
    tables = [TableId(TenantId(f"t{at}"), "logs") for at in range(len(rates))]
    draws, buffers = np.random.default_rng(1), Buffers()
    real_rules = FlushRules(rules.interval_s, rules.cold_interval_s, 1 << 40)
    now_s = 0.0
    while now_s < seconds or len(buffers):
        now_s += STEP_S
        if now_s <= seconds:
            counts = draws.poisson(np.asarray(rates) * STEP_S)
            for at in np.flatnonzero(counts):
                count = int(counts[at])
                rows, values = bytes(RECORD_OVERHEAD_BYTES * count), bytes(BYTES_PER_RECORD * count)
                buffers.append(tables[at], now_s, 0, 0, rows, values, b"")
            for table in buffers.take_started():
                buffers.note_known(table, is_known=True)
        excess = buffers.size_bytes - int(rules.buffer_bytes) // 2
        due = buffers.due(now_s, real_rules, excess_bytes=excess, may_flush=lambda _: True)
        for table in due:
            buffers.take(table)
        yield now_s, len(due)


@pytest.mark.parametrize("tenants", [1, 10, 100, 1_000, 10_000])
@pytest.mark.long
def test_flushes_are_as_many_as_those_of_the_real_buffers(tenants: int) -> None:
    """By Zipf and with the intervals of the settings, shortened, the model's flushes of a stretch of time are
    within a fifth of the real ones, at any number of tenants."""
    load = Load(2_000, BYTES_PER_RECORD, tenants, retention_days=1)
    rules = Rules(10.0, 30.0, 1 << 40, 1 << 40, 1, 0.2)
    seconds = 150.0
    found = sum(count for _, count in simulated(load, rules, seconds))
    assert Flushes(load, rules).within(seconds) == pytest.approx(found, rel=0.2)


@pytest.mark.parametrize("tenants", [10, 200, 2_000])
@pytest.mark.long
def test_flushes_for_want_of_memory_are_as_many_too(tenants: int) -> None:
    """Where the buffers are full before their time, the largest go, and the model's steady rate is within a
    fifth of the real one."""
    load = Load(4_000, BYTES_PER_RECORD, tenants, retention_days=1)
    rules = Rules(30.0, 90.0, 16 * MIB, 1 << 40, 1, 0.2, least_s=STEP_S)
    flushes = Flushes(load, rules)
    assert flushes.is_bounded_by_memory
    begun_s, seconds = 100.0, 300.0
    found = sum(count for at_s, count in simulated(load, rules, seconds) if begun_s < at_s <= seconds)
    assert flushes.per_s * (seconds - begun_s) == pytest.approx(found, rel=0.2)


def test_the_rules_are_those_of_ingestion() -> None:
    """What the model repeats of ingestion's code, which it may not import, is the same there."""
    rules = FlushRules(1.0, 3.0, 1)
    assert rules.cold_bytes == model.COLD_BYTES
    assert real.COLD_SPREAD == model.COLD_SPREAD
    assert model.HOT_PART_BYTES == HOT_PART_BYTES
    assert model.RECORD_OVERHEAD_BYTES == RECORD_OVERHEAD_BYTES
    settings = FlushSettings()
    assert Rules.of(settings, small_ratio=0.1).cold_interval_s == settings.cold_interval_s


def test_more_memory_means_fewer_flushes_and_more_workers_more() -> None:
    """Buffers that may hold more are flushed less often; each further worker has buffers of its own."""
    load = Load(100_000, 600, 1_000, retention_days=30)
    of = FlushSettings()
    rates = [
        Flushes(load, Rules.of(of, small_ratio=0.2, workers=workers, buffer_bytes=mib * MIB)).per_s
        for workers, mib in ((1, 512), (1, 4_096), (1, 65_536), (2, 65_536))
    ]
    assert rates[0] > rates[1] > rates[2]
    assert rates[3] > rates[2]
