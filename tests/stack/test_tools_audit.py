"""The audit: clean where all is well, transactions and restarts included; it notices a row removed or
doubled, and a dead letter lost."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer

from ingest.write.writer import write_files
from lake.catalog_client import CommitStatus, TableName
from lake.commit import load_state, prepare_append, prepare_replace
from lake.manifest import ManifestEntry, Status, read_manifest
from lake.storage import open_storage
from lake.tenant import to_identifier
from tests.stack.support.kafka_topics import KafkaTopics, Record
from tests.stack.support.line import Line
from tests.stack.support.parked import location, table_name, unwritable, wait_parked, wait_released
from tests.stack.support.tool_line import ToolLine
from tests.stack.support.waiting import fresh

pytestmark = pytest.mark.stack

STORAGE = open_storage()


@pytest.fixture
def tools(line: Line) -> Iterator[Callable[..., ToolLine]]:
    """`tools(topics, **settings)`; ingesters are ended after the test."""
    made: list[ToolLine] = []

    def make(topics: Any, **settings: Any) -> ToolLine:
        made.append(ToolLine(line, topics, **settings))
        return made[-1]

    try:
        yield make
    finally:
        for one in made:
            one.ingester.kill()


def _record(tenant: str, number: int, partition: int = 0) -> Record:
    return Record(orjson.dumps({"n": number}), headers=(("tenant", tenant.encode()),), partition=partition)


def _change_rows(line: Line, tenant: str, change: Callable[[pa.Table], pa.Table]) -> None:
    """Rewrites all data files of a table as one, its rows changed, in a commit like that of a merge."""
    name = TableName(to_identifier(tenant), "logs")
    state = load_state(line.catalog, STORAGE, name)
    assert state is not None
    old = [
        entry
        for manifest in state.manifests
        for entry in read_manifest(STORAGE.read(manifest.uri), manifest)
        if entry.status is not Status.DELETED
    ]
    tables = [pq.read_table(pa.BufferReader(STORAGE.read(entry.file.uri))) for entry in old]
    new = write_files(
        STORAGE, state.location, change(pa.concat_tables(tables, promote_options="default")), state.schema
    )
    entries = [
        *(replace(entry, status=Status.DELETED) for entry in old),
        *(ManifestEntry(Status.ADDED, file) for file in new),
    ]
    prepared = prepare_replace(state, entries, new, [entry.file for entry in old], [], 1)
    STORAGE.write_all(prepared.files)
    assert line.catalog.commit_all([prepared.request])[0].status is CommitStatus.COMMITTED


def _append_rows_of(line: Line, source: str, target: str, rows: Callable[[pa.Table], pa.Table]) -> None:
    """Puts rows of one tenant's table into another's."""
    states = [
        load_state(line.catalog, STORAGE, TableName(to_identifier(tenant), "logs"))
        for tenant in (source, target)
    ]
    first, second = states
    assert first is not None
    assert second is not None
    entry = read_manifest(STORAGE.read(first.manifests[0].uri), first.manifests[0])[0]
    files = write_files(
        STORAGE,
        second.location,
        rows(pq.read_table(pa.BufferReader(STORAGE.read(entry.file.uri)))),
        second.schema,
    )
    prepared = prepare_append(second, files, second.schema, second.marks, 1)
    STORAGE.write_all(prepared.files)
    assert line.catalog.commit_all([prepared.request])[0].status is CommitStatus.COMMITTED


def _examples(audit: dict[str, Any]) -> list[tuple[str, int, int, int | None, list[str], str | None]]:
    return [
        (one["what"], part["partition"], one["offset"], one["index"], one["tables"], one["belongs_to"])
        for part in audit["partitions"]
        for one in part["examples"]
    ]


def test_audit_notices_rows_removed_and_doubled_and_a_lost_dead_letter(
    line: Line, tools: Callable[..., ToolLine]
) -> None:
    """Each wrong identity is counted, shown with its table, and makes the verb end with 1."""
    tenant, other = fresh("audit-"), fresh("other-")
    topic = line.kafka.topic(2)
    bad = Record(b"{", headers=(("tenant", tenant.encode()),), partition=1)
    batch = Record(b'{"n":100}\n{"n":101}\n{"n":102}', headers=(("tenant", tenant.encode()),), partition=1)
    line.kafka.produce(
        topic,
        [*(_record(tenant, n) for n in range(20)), bad, batch, *(_record(other, n, 1) for n in range(3))],
    )
    ours = tools(topic)
    ours.ingester.start()
    line.wait_for_rows(ours.ingester, tenant, 23)
    assert ours.ingester.stop() == 0
    assert ours.audit() == {}
    assert [ours.audited[name] for name in ("consumed", "written", "dead_lettered", "parked")] == [
        27,
        26,
        1,
        0,
    ]
    tables = [f"{to_identifier(name)}.logs" for name in (tenant, other)]
    _change_rows(
        line,
        tenant,
        lambda rows: rows.filter(
            pa.compute.invert(pa.compute.is_in(rows["n"], value_set=pa.array(["7", "102"])))
        ),
    )
    assert (ours.audit(), ours.audited["written"]) == ({"missing": 2}, 24)
    assert _examples(ours.audited) == [
        ("missing", 0, 7, 0, [], tables[0]),
        ("missing", 1, 1, 2, [], tables[0]),
    ]
    assert "NOT CLEAN" in ours.run("audit", code=1)
    _append_rows_of(line, other, tenant, lambda rows: rows.slice(1, 1))
    assert ours.audit() == {"missing": 2, "doubled": 1}
    assert [
        (what, offset, sorted(held))
        for what, _, offset, _, held, _ in _examples(ours.audited)
        if what == "doubled"
    ] == [("doubled", 3, sorted(tables))]
    line.kafka.remove_records(ours.settings["internal_topics__dead_letters"], 1)
    assert (ours.audit(), ours.audited["dead_lettered"]) == ({"missing": 3, "doubled": 1}, 0)


@pytest.mark.prove
def test_audit_notices_rows_of_no_record_and_an_identity_in_two_places(
    line: Line, tools: Callable[..., ToolLine]
) -> None:
    """A row whose record the input does not have is astray; a row that is a dead letter too, and was not
    replayed, is in two places."""
    tenant, topic = fresh("audit-"), line.kafka.topic()
    line.kafka.produce(
        topic, [Record(b"{", headers=(("tenant", tenant.encode()),)), *(_record(tenant, n) for n in range(5))]
    )
    ours = tools(topic)
    ours.ingester.start()
    line.wait_for_rows(ours.ingester, tenant, 5)
    assert ours.ingester.stop() == 0

    def moved(rows: pa.Table) -> pa.Table:
        offsets = pa.array(
            [0 if offset == 1 else offset for offset in rows["_offset"].to_pylist()], pa.int64()
        )
        indexes = pa.array([4 if offset == 2 else 0 for offset in rows["_offset"].to_pylist()], pa.int32())
        at = {name: rows.schema.get_field_index(name) for name in ("_offset", "_index")}
        return rows.set_column(at["_offset"], "_offset", offsets).set_column(at["_index"], "_index", indexes)

    _change_rows(line, tenant, moved)
    assert ours.audit() == {"missing": 2, "in_two_places": 1, "astray": 1}
    assert sorted(_examples(ours.audited), key=str)[:2] == [
        ("in two places", 0, 0, 0, [f"{to_identifier(tenant)}.logs"], f"{to_identifier(tenant)}.logs"),
        ("missing", 0, 1, 0, [], f"{to_identifier(tenant)}.logs"),
    ]


@pytest.mark.prove
def test_topic_of_transactions_and_aborted_ones_audits_clean_and_shows_no_lag(
    line: Line, tools: Callable[..., ToolLine]
) -> None:
    """Control records and aborted records leave gaps in the offsets, and stand at the ends, but are no
    records. Dropped rows are accounted for."""
    tenant, topic = fresh("tx-"), line.kafka.topic(2)
    ours = tools(topic)
    ours.ingester.start()
    _transactions(line.kafka, topic, tenant, 12)
    line.wait_for_rows(ours.ingester, tenant, 10)
    _transactions(line.kafka, topic, tenant, 6)
    ends = line.kafka.ends(topic)
    line.wait_for_rows(ours.ingester, tenant, 168)
    assert ours.ingester.stop() == 0
    status = ours.json("status")
    assert status["lag_records"] == 0
    assert all(
        part["stored"] < part["end"] and part["oldest"] is None
        for part in status["partitions"]
        if part["topic"] == topic
    )
    assert ours.audit() == {}
    assert (ours.audited["consumed"], ours.audited["written"]) == (168, 168)
    assert sum(ends.values()) > 216, "aborted records take offsets, too"
    line.catalog.drop_table(table_name(tenant))
    assert ours.audit() == {}
    assert (ours.audited["written"], ours.audited["dropped"]) == (0, 168)


def test_parked_records_are_accounted_for_until_they_are_drained(
    line: Line, tools: Callable[..., ToolLine]
) -> None:
    """What waits outside its table counts as parked, and as written once it is drained; the parked copy is
    then no second place."""
    tenant, topic = fresh("parked-"), line.kafka.topic()
    ours = tools(topic, tables__park_after_s=1)
    ours.ingester.start()
    line.kafka.produce(topic, [_record(tenant, n) for n in range(5)])
    line.wait_for_rows(ours.ingester, tenant, 5)
    with unwritable(location(line, tenant) / "data"):
        line.kafka.produce(topic, [_record(tenant, n) for n in range(5, 12)])
        wait_parked(ours.ingester, tenant)
        ours.wait_until_stored(topic, {0: 12})
        assert ours.audit() == {"missing": 5}, (
            "the rows of a table that cannot be read are not taken on trust"
        )
        assert [ours.audited[name] for name in ("consumed", "parked")] == [12, 7]
        assert any(str(table_name(tenant)) in sentence for sentence in ours.audited["unreadable_tables"])
    assert ours.json("status")["parked"] == {str(table_name(tenant)): "storage"}
    wait_released(ours.ingester, tenant)
    assert ours.audit() == {}
    assert [ours.audited[name] for name in ("consumed", "written", "parked")] == [12, 12, 0]


def _transactions(kafka: KafkaTopics, topic: str, tenant: str, count: int) -> None:
    """Transactions of 9 records in partition 0 and 3 in partition 1, every fourth aborted."""
    producer = Producer(
        {"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": fresh("tx-"), "log_level": 2}
    )
    producer.init_transactions(30)
    for number in range(count):
        producer.begin_transaction()
        for at in range(12):
            producer.produce(
                topic, b'{"n":%d}' % at, headers=[("tenant", tenant.encode())], partition=int(at >= 9)
            )
        producer.flush(30)
        if number % 4 == 3:
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)
