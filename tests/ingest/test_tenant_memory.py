"""What of a worker's memory one tenant has: for its bytes its own tables are flushed, and nobody else's."""

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from sys import maxsize

import pytest

from ingest.model.link import WrittenFlush
from ingest.model.raw_rows import ROW
from ingest.model.tenant_rate import TenantRate
from ingest.node import pipeline
from ingest.route.buffer import RawRecord
from ingest.route.buffers import FULL, LIMIT, Buffers, FlushRules
from lake.limits import UNBOUND, Bound
from lake.retention import Level
from lake.tenant import TableId, TenantId
from tests.ingest.support.fake_kafka import FakeBroker
from tests.ingest.test_pipeline import BYTES_MAX, Worker

RULES = FlushRules(interval_s=1_000.0, cold_interval_s=1_000.0, flush_bytes=1 << 30)
MANY = [TableId(TenantId("many"), f"s{number}") for number in range(100)]
FEW = TableId(TenantId("few"), "logs")
EACH, LARGE, LATE_S = 100, 2_000, 4 * 3_600.0


def filled(share: Callable[[TenantId], int] = lambda _: maxsize) -> Buffers:
    """A hundred small tables of one tenant, and a large one of another."""
    buffers = Buffers(share=share)
    for table in MANY:
        put(buffers, table, EACH)
    put(buffers, FEW, LARGE)
    return buffers


def put(buffers: Buffers, table: TableId, size: int) -> None:
    buffers.add(table, 0.0, *RawRecord(0, 0, 0, None, (), b"x" * (size - ROW.size)))


def due(
    buffers: Buffers, excess_bytes: int = 0, may_flush: Callable[[TableId], bool] = lambda _: True
) -> Counter[str]:
    """How many tables of which tenant are to be flushed."""
    found = buffers.due(0.0, RULES, excess_bytes=excess_bytes, may_flush=may_flush)
    return Counter(table.tenant.name for table in found)


@pytest.mark.parametrize(
    ("excess", "flushed"),
    [
        (0, {}),
        (3_000, {"many": 30}),
        (8_000, {"many": 80}),
        (8_001, {"many": 80, "few": 1}),
        (10_100, {"many": 81, "few": 1}),
        (99_999, {"many": 100, "few": 1}),
    ],
)
def test_where_memory_is_short_the_tenant_with_most_is_flushed(excess: int, flushed: dict[str, int]) -> None:
    """By all its tables together, however small each is, until another one has as much."""
    buffers = filled()
    assert due(buffers, excess) == flushed
    found = buffers.due(0.0, RULES, excess_bytes=excess, may_flush=lambda _: True)
    assert set(found.values()) <= {FULL}


@pytest.mark.parametrize(("excess", "flushed"), [(3_000, {}), (8_000, {}), (8_001, {"few": 1})])
def test_nobody_is_flushed_for_one_whose_tables_are_being_flushed(
    excess: int, flushed: dict[str, int]
) -> None:
    """Until as much would be left of it as of the next."""
    assert due(filled(), excess, lambda table: table == FEW) == flushed


def test_what_is_due_by_itself_counts_for_what_has_to_go() -> None:
    """Tables that are old enough go first."""
    buffers = filled()
    old = FlushRules(interval_s=-1.0, cold_interval_s=1_000.0, flush_bytes=1 << 30, cold_bytes=LARGE)
    found = buffers.due(0.0, old, excess_bytes=2_500, may_flush=lambda _: True)
    assert Counter(table.tenant.name for table in found) == {"few": 1, "many": 5}


def test_a_tenant_over_its_share_is_flushed_down_to_it() -> None:
    """The largest of its tables first, where others have memory enough; nothing of another tenant."""
    buffers = filled(lambda tenant: 1_000 if tenant.name == "many" else maxsize)
    put(buffers, MANY[7], 8_000)
    assert due(buffers) == {"many": 90}
    found = buffers.due(0.0, RULES, excess_bytes=0, may_flush=lambda _: True)
    assert (next(iter(found)), set(found.values())) == (MANY[7], {LIMIT})
    for table in found:
        buffers.take(table)
    assert due(buffers) == {}
    put(buffers, MANY[7], EACH)
    assert due(buffers) == {"many": 1}


def test_a_share_counts_what_is_left_of_a_tenants_bytes() -> None:
    """Not what is packed, or was taken."""
    buffers = filled(lambda _: 10_000)
    put(buffers, MANY[0], 50_000)
    buffers.close_part(MANY[0])
    buffers.pack_beyond(maxsize)  # of a tenant for which more waits than may, however little waits in all
    for table in MANY[50:]:
        buffers.take(table)
    assert due(buffers) == {}
    put(buffers, MANY[0], 6_000)
    assert due(buffers) == {"many": 1}


class Percent:
    """Who says that a tenant may have ten percent of the memory."""

    def rate(self, namespace: str) -> TenantRate | None:
        return None

    def columns(self, namespace: str) -> Bound:
        return UNBOUND

    def memory_percent(self, namespace: str) -> Bound:
        return Bound(10, Level.TENANT) if namespace == "many" else UNBOUND


@pytest.fixture
def worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Worker:
    return worker_on(tmp_path, monkeypatch)


def test_a_worker_flushes_who_is_over_its_share(worker: Worker) -> None:
    """As soon as it looks, and counts that; another tenant's table, which is as large, waits for its time."""
    worker.pipeline.opened(dict.fromkeys([*MANY, FEW], worker.view), [], {})
    part = "x" * (BYTES_MAX // 50)
    for table in MANY[:4]:
        worker.take(table, part)
    for _ in range(6):
        worker.take(FEW, part)
    worker.look()
    assert worker.flushed == []
    for table in MANY[4:7]:
        worker.take(table, part)
    worker.look()
    assert {table.tenant.name for table in worker.flushed} == {"many"}
    assert len(worker.flushed) == 3
    assert worker.pipeline.report().counts.early == {LIMIT: 3}


def test_a_full_memory_lets_go_of_the_new_tables_of_who_has_most(worker: Worker) -> None:
    """Tables that may not be created yet; those of others wait on."""
    worker.pipeline.opened({}, [*MANY, FEW], {})
    part = "x" * (BYTES_MAX // 10)
    worker.take(FEW, part)
    for table in MANY[:9]:
        worker.take(table, part)
    assert worker.pipeline.is_full
    worker.look()
    assert [buffer.table for buffer in worker.pipeline.buffers] == [FEW]
    assert worker.pipeline.report().counts.dead == {"unstorable": 9}


def test_very_many_tables_of_one_tenant_hold_up_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So many are flushed until more is read, and each tenant's oldest before any tenant's second."""
    monkeypatch.setattr(pipeline, "TABLES_AT_ONCE", 3)
    worker = worker_on(tmp_path, monkeypatch)
    worker.pipeline.opened(dict.fromkeys([*MANY, FEW], worker.view), [], {})
    for table in [*MANY[:6], FEW]:
        worker.take(table)
    worker.clock.s += LATE_S
    assert [looks(worker) for _ in range(4)] == [[MANY[0], FEW, MANY[1]], MANY[2:5], [MANY[5]], []]


def test_on_a_slow_disk_fewer_tables_are_flushed_until_more_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others wait for what is not read; as soon as it is quick there are more again."""
    monkeypatch.setattr(pipeline, "TABLES_AT_ONCE", 32)
    worker = worker_on(tmp_path, monkeypatch)
    worker.pipeline.opened(dict.fromkeys(MANY, worker.view), [], {})
    for table in MANY:
        worker.take(table)
    worker.clock.s += LATE_S
    submit, disk_s = worker.link.submit, [2.0, 0.0, 0.0, 0.0]

    def slow(flushes: Sequence[WrittenFlush]) -> None:
        worker.clock.s += disk_s.pop(0)
        submit(flushes)

    monkeypatch.setattr(worker.link, "submit", slow)
    assert len(looks(worker)) == 32
    assert [len(looks(worker)) for _ in range(3)] == [16, 32, 20]


def looks(worker: Worker) -> list[TableId]:
    """What the worker flushes when it looks once."""
    before = len(worker.flushed)
    worker.look()
    return worker.flushed[before:]


def worker_on(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Worker:
    broker = FakeBroker()
    broker.install(monkeypatch)
    return Worker(folder, broker, has_core=False, rates=Percent())


def test_nobody_looks_again_and_again_at_tables_of_which_nothing_is_known() -> None:
    """Of tens of thousands of new ones that would take all the time; once one is known it is flushed with
    those as old, and a large one when it may be."""
    buffers, asked = filled(), list[TableId]()

    def may_flush(table: TableId) -> bool:
        asked.append(table)
        return True

    for table in MANY:
        buffers.note_known(table, is_known=False)
    old = FlushRules(interval_s=0.0, cold_interval_s=0.0, flush_bytes=1 << 30)
    assert list(buffers.due(0.0, old, excess_bytes=0, may_flush=may_flush)) == asked == [FEW]
    buffers.note_known(MANY[7], is_known=True)
    assert list(buffers.due(0.0, old, excess_bytes=0, may_flush=lambda _: True)) == [MANY[7], FEW]


def test_what_waits_for_a_new_table_is_flushed_once_that_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its age, from its first record on."""
    broker = FakeBroker()
    broker.install(monkeypatch)
    worker = Worker(tmp_path, broker, has_core=False)
    worker.take(MANY[0])
    worker.clock.s += LATE_S
    worker.pipeline.flush_due()
    assert worker.flushed == []
    worker.pipeline.opened({MANY[0]: worker.view}, [], {})
    worker.pipeline.flush_due()
    assert worker.flushed == [MANY[0]]
