"""Maintenance of keyed tables while their changes keep coming: rows stay as they are, dead ones go with their
deletes, and no key is lost or doubled in any snapshot."""

import random
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import load_catalog

from lake.data_file import POSITION_DELETES
from lake.deletes.dead_rows import DeleteFiles, load_dead_rows
from lake.storage import open_storage
from optimize.deletions import DeletionQueue, Throttle
from optimize.maintenance import RoundReport
from optimize.orphan_files import delete_orphans, find_orphans
from optimize.row_lineage import ROW_ID
from optimize.table_view import TableView, load_view
from tests.changes.support.like_flink import upsert_like_flink
from tests.changes.support.shop import Shop, changes, name_of, stored, upgrade, wait_for_table, wanted
from tests.optimize.support.live_files import live_uris, missing_files
from tests.optimize.support.maintained import maintenance
from tests.stack.support.ingester import Ingester
from tests.stack.support.line import Line
from tests.stack.support.parked import table_name
from tests.stack.support.waiting import fresh, wait_for

pytestmark = pytest.mark.stack

KEYS = 40


def view_of(line: Line, shop: Shop) -> TableView:
    view = load_view(line.catalog, open_storage(), name_of(shop))
    assert view is not None
    return view


def files_of(line: Line, shop: Shop) -> tuple[int, int]:
    """How many live data files and delete files the table has."""
    view = view_of(line, shop)
    return sum(len(each.files) for each in view.partitions().values()), len(view.delete_entries())


def deletes_of_files(line: Line, shop: Shop) -> list[int]:
    """How many delete files each data file has."""
    partitions = view_of(line, shop).partitions().values()
    return [len(each.deletes_of(file)) for each in partitions for file in each.files]


class Snapshots:
    """Every snapshot that was seen has each key once, and all keys of the source that are never deleted."""

    def __init__(self, line: Line, shop: Shop) -> None:
        self._line, self._shop, self.seen = line, shop, set[int]()

    def check(self) -> None:
        metadata = self._line.catalog.load_table(name_of(self._shop))["metadata"]
        for snapshot in metadata["snapshots"][1:]:
            at = snapshot["snapshot-id"]
            if at in self.seen:
                continue
            table = f"{self._line.table(self._shop.tenant)} FOR VERSION AS OF {at}"
            try:
                counted = self._line.sql(f"SELECT count(*), count(DISTINCT id), min(id) FROM {table}")
            except Exception as error:
                if "Iceberg snapshot ID does not exists" in str(error):
                    continue  # it has expired since
                raise
            assert counted == [(KEYS, KEYS, 0)], f"snapshot {at}: {snapshot['summary']}"
            self.seen.add(at)


@pytest.fixture
def topic(line: Line) -> str:
    return line.kafka.topic(partitions=1)


def filled(line: Line, topic: str, rounds: int = 2) -> Shop:
    """A table in which every row was changed some times."""
    shop = Shop(fresh("shop-"))
    for number in range(rounds):
        records = [shop.put(id=at, name=f"r{number}", amount=at) for at in range(KEYS)]
        line.kafka.produce(topic, records)
        wait_for_table(line, shop)
    return shop


def round_of(line: Line, shop: Shop, **more: Any) -> RoundReport:
    report = maintenance(line.catalog, [name_of(shop)], snapshots__count_max=100, **more).run()
    assert report.failures == {}
    return report


@pytest.mark.parametrize("version", [2, 3])
def test_deletes_that_come_while_a_merge_is_made_are_carried_over(
    line: Line, ingester: Callable[..., Ingester], topic: str, version: int
) -> None:
    """Between the merge and its commit rows of its inputs are changed and deleted: the merge is committed
    once, with these deletes, and the next changes find their rows in the new file. Tables of format version 3
    have deletion vectors, and their rows keep their ids."""
    ingester(changes(topic, buckets=1), flush__interval_s=0.3)
    shop = filled(line, topic)
    if version == 3:
        upgrade(line, name_of(shop))
    attempts = 0

    def change_on() -> None:
        nonlocal attempts
        attempts += 1
        changed = [shop.put(id=at, name="late", amount=-at) for at in range(0, KEYS, 3)]
        line.kafka.produce(topic, [*changed, *shop.delete(1), *shop.delete(3)])
        before = head_of(line, shop)
        wait_for(lambda: head_of(line, shop) != before, 60, "the late changes")

    report = round_of(line, shop, between=change_on)
    assert (report.merged_tables, attempts) == (1, 1)
    assert rows_of(line, shop) == wanted(shop)
    view = view_of(line, shop)
    merged = [each for p in view.partitions().values() for each in p.files if "/merged-" in each.uri]
    assert [each.rows for each in merged] == [KEYS]
    about = [entry.file.referenced_data_file for entry in view.delete_entries()]
    assert set(about) == {merged[0].uri}
    before = ids_of(line, shop) if version == 3 else {}
    line.kafka.produce(topic, [shop.put(id=0, name="later", amount=0), *shop.delete(5)])
    wait_for(lambda: rows_of(line, shop) == wanted(shop), 60, "the later changes")
    round_of(line, shop, merge__late_cooldown_s=0)
    assert rows_of(line, shop) == wanted(shop)
    assert files_of(line, shop) == (1, 0)
    assert missing_files(line.catalog, open_storage(), name_of(shop)) == []
    wait_for_table(line, shop)  # in Trino, which reads no deletion vectors
    if version == 3:
        after = ids_of(line, shop)
        assert {key: after[key] for key in after if key != 0} == {
            key: row_id for key, row_id in before.items() if key not in (0, 5)
        }
        assert len(set(after.values())) == len(after)
    line.kafka.produce(topic, [shop.put(id=2, name="last", amount=2)])
    wait_for(lambda: rows_of(line, shop) == wanted(shop), 60, "the last change")
    assert_nothing_is_left_behind(line, shop)
    assert rows_of(line, shop) == wanted(shop)


def assert_nothing_is_left_behind(line: Line, shop: Shop) -> None:
    """Once old snapshots have expired and what commits left behind is gone, there are no files below the
    table's data but live ones: neither data files nor delete files nor vectors."""
    storage, name = open_storage(), name_of(shop)
    now: dict[str, Any] = {"retention__reader_grace_s": 0, "snapshots__count_max": 1}
    for _ in range(2):  # deletions of one round are due in the next
        report = maintenance(line.catalog, [name], **now).run()
        assert report.failures == {}
    DeletionQueue(line.catalog).delete_due(storage)
    throttle, later = Throttle(10_000), datetime.now(UTC) + timedelta(days=1)
    found = find_orphans(
        line.catalog,
        storage,
        name,
        throttle,
        age_min_s=1.0,
        now=later,
        metadata=line.catalog.load_table(name)["metadata"],
    )
    assert found is not None
    delete_orphans(line.catalog, storage, found, throttle)
    assert missing_files(line.catalog, storage, name) == []
    folder = f"{view_of(line, shop).state.location}/data"
    assert {each.uri for each in storage.list(folder)} == live_uris(line.catalog, storage, name)


def head_of(line: Line, shop: Shop) -> int:
    return int(line.catalog.load_table(name_of(shop))["metadata"]["current-snapshot-id"])


def rows_of(line: Line, shop: Shop) -> list[tuple[Any, ...]]:
    """As PyIceberg reads them."""
    catalog = load_catalog(shop.tenant, type="rest", uri=line.stack.address("catalog"))
    table = catalog.load_table(str(name_of(shop)))
    rows = table.scan(selected_fields=("id", "name", "amount")).to_arrow().to_pylist()
    return sorted((row["id"], row["name"], row["amount"]) for row in rows)


def ids_of(line: Line, shop: Shop) -> dict[int, int]:
    """The ids of live rows by their keys, from the files themselves."""
    found: dict[int, int] = {}
    storage, view = open_storage(), view_of(line, shop)
    index = DeleteFiles.of(view.delete_entries())
    for file in (file for partition in view.partitions().values() for file in partition.files):
        rows = pq.read_table(pa.BufferReader(storage.read(file.uri)))
        dead = load_dead_rows(storage, index, [(file.uri, None)], view.state.table_location)
        by_id = {int((each.metadata or {})[b"PARQUET:field_id"]): each.name for each in rows.schema}
        written = rows[by_id[ROW_ID]].to_pylist() if ROW_ID in by_id else [None] * rows.num_rows
        for at, (key, row_id) in enumerate(zip(rows["id"].to_pylist(), written, strict=True)):
            if at not in dead.get(file.uri, ()):
                assert file.first_row_id is not None
                found[key] = file.first_row_id + at if row_id is None else row_id
    return found


def test_merges_make_progress_under_a_steady_stream_of_updates(
    line: Line, ingester: Callable[..., Ingester], topic: str
) -> None:
    """Rounds land while every row is changed over and over: files stay few, deletes go, ingestion goes on,
    and every snapshot has every key once. Many delete files of one data file become one without a merge."""
    chance = random.Random(29)
    print("seed 29")
    running = ingester(changes(topic, buckets=1), flush__interval_s=0.2)
    shop, stop, produced = filled(line, topic), threading.Event(), 0

    def update_on() -> None:
        nonlocal produced
        while not stop.wait(0.05):
            keys = chance.sample(range(KEYS), 8)
            line.kafka.produce(topic, [shop.put(id=at, name=f"{produced}", amount=produced) for at in keys])
            produced += 1

    def an_update() -> None:
        """No merge is made so fast that nothing was changed meanwhile."""
        before = head_of(line, shop)
        wait_for(lambda: head_of(line, shop) != before, 60, "an update")

    snapshots, landed = Snapshots(line, shop), list[int]()
    writer = threading.Thread(target=update_on)
    writer.start()
    try:
        for _ in range(3):
            report = round_of(line, shop, merge__late_cooldown_s=0, between=an_update)
            landed.append(report.merged_tables)
            snapshots.check()
    finally:
        stop.set()
        writer.join()
    assert landed == [1] * 3
    wait_for_table(line, shop)
    snapshots.check()
    assert len(snapshots.seen) > 5
    assert running.alive
    assert running.parked(table_name(shop.tenant)) == {}
    assert max(deletes_of_files(line, shop)) > 1
    no_merge: dict[str, Any] = {"merge__small_file_ratio": 1e-9, "merge__deleted_share_max": 1.0}
    round_of(line, shop, **no_merge, merge__delete_files_max=1)
    assert max(deletes_of_files(line, shop)) == 1
    assert stored(line, shop.tenant) == wanted(shop)
    round_of(line, shop, merge__late_cooldown_s=0, merge__deleted_share_max=0.0)
    assert files_of(line, shop) == (1, 0)
    assert stored(line, shop.tenant) == wanted(shop)


def test_equality_deletes_of_another_engine_become_positions(
    line: Line, ingester: Callable[..., Ingester], topic: str
) -> None:
    """As Flink writes them: one names rows of older commits alone, not those of its own or later ones; one
    names two columns, one of them NULL; one comes while a merge is made. After a round there are none, Trino
    finds the rows that it found before, PyIceberg the same. Changes wait for that round."""
    running = ingester(changes(topic, buckets=1), flush__interval_s=0.3)
    shop = filled(line, topic)
    line.kafka.produce(topic, [shop.put(id=at, name=None, amount=at) for at in (3, 4)])
    wait_for_table(line, shop)
    storage, name = open_storage(), name_of(shop)
    came: list[dict[str, Any]] = [
        {"id": 2, "name": "by flink", "amount": 22},
        {"id": 90, "name": "new", "amount": 90},
    ]
    upsert_like_flink(line.catalog, storage, name, [{"id": 1}, {"id": 2}, {"id": 90}], came)
    both: list[dict[str, Any]] = [{"id": 3, "name": None}, {"id": 4, "name": "r1"}, {"id": 5, "name": "r1"}]
    upsert_like_flink(line.catalog, storage, name, both)
    upsert_like_flink(line.catalog, storage, name, [{"id": 6}], [{"id": 6, "name": "again", "amount": 6}])
    shop.rows |= {row["id"]: row for row in (*came, {"id": 6, "name": "again", "amount": 6})}
    for key in (1, 3, 5):
        del shop.rows[key]
    assert stored(line, shop.tenant) == wanted(shop)
    round_of(line, shop, merge__small_file_ratio=1e-9, merge__deleted_share_max=1.0)
    view = view_of(line, shop)
    assert {entry.file.content for entry in view.delete_entries()} == {POSITION_DELETES}
    assert stored(line, shop.tenant) == wanted(shop)
    assert rows_of(line, shop) == wanted(shop)
    assert missing_files(line.catalog, storage, name) == []
    shop.rows[7] = {"id": 7, "name": "meanwhile", "amount": 7}

    def meanwhile() -> None:
        upsert_like_flink(line.catalog, storage, name, [{"id": 7}], [shop.rows[7]])

    assert round_of(line, shop, merge__late_cooldown_s=0, between=meanwhile).merged_tables == 1
    assert stored(line, shop.tenant) == wanted(shop), "one that came meanwhile counts for the merged file"
    round_of(line, shop, merge__late_cooldown_s=0)
    assert files_of(line, shop) == (1, 0)
    upsert_like_flink(line.catalog, storage, name, [{"id": 8}])
    del shop.rows[8]
    line.kafka.produce(topic, [shop.put(id=2, name="by us", amount=2), *shop.delete(6)])
    wait_for(lambda: "deletes no rows by position" in running.log(), 60, "changes that wait for a round")
    round_of(line, shop)
    wait_for_table(line, shop)
