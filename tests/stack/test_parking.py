"""A table that keeps failing alone is parked: its neighbours notice nothing, and its records come back
complete, once, and in order."""

from collections.abc import Callable
from contextlib import ExitStack

import pytest

from ingest.kafka.internal_topic import MESSAGE_BYTES_MAX
from tests.stack.support.ingester import Ingester
from tests.stack.support.line import Line
from tests.stack.support.parked import (
    flowing,
    location,
    numbered,
    numbers,
    resolve,
    table_name,
    unwritable,
    wait_parked,
    wait_released,
)
from tests.stack.support.waiting import fresh, pause, wait_for

pytestmark = pytest.mark.stack

BACKLOG = 40_000


def _two_tables(line: Line, running: Ingester, topic: str) -> tuple[str, str]:
    """A table that is to be broken and its neighbour, each with some rows."""
    sick, well = fresh("Sick-"), fresh("well-")
    line.kafka.produce(topic, [*numbered(sick, range(10), 2), *numbered(well, range(10), 2)])
    line.wait_for_rows(running, sick, 10)
    line.wait_for_rows(running, well, 10)
    return sick, well


def test_parked_records_survive_a_restart_and_come_back_while_live_ones_flow(
    line: Line, ingester: Callable[..., Ingester]
) -> None:
    """A table that cannot be written is parked, the group's offsets move on, a killed node still knows of it,
    and healed it gets every record once."""
    topic = line.kafka.topic(2)
    running = ingester(topic, workers=2, flush__interval_s=0.3, tables__park_after_s=1)
    sick, well = _two_tables(line, running, topic)
    with unwritable(location(line, sick) / "data"):
        line.kafka.produce(topic, [*numbered(sick, range(10, 40), 2), *numbered(well, range(10, 40), 2)])
        wait_parked(running, sick, "storage")
        line.wait_for_rows(running, well, 40)
        ends = line.kafka.ends(topic)
        wait_for(
            lambda: line.kafka.group_offsets(running.group, topic) == ends,
            30,
            "the group's offsets moving past parked records",
        )
        running.kill()
        line.kafka.produce(topic, numbered(sick, range(40, 70), 2))
        running.start()
        wait_parked(running, sick, "storage")
    with flowing(line, topic, sick, range(70, 200)):
        wait_released(running, sick)
    line.wait_for_rows(running, sick, 200)
    assert numbers(line, sick) == list(range(200))
    assert numbers(line, well) == list(range(40))
    assert line.catalog.get("/firn/v1/parked").get("parked") == []
    assert running.stop() == 0


def test_dropped_table_takes_its_records_when_the_drop_is_undone(
    line: Line, ingester: Callable[..., Ingester]
) -> None:
    """Records for a dropped table wait while it may still come back; undone, it has them all, and no table
    was made in its place."""
    topic = line.kafka.topic(2)
    running = ingester(topic, flush__interval_s=0.3)
    gone, _ = _two_tables(line, running, topic)
    line.catalog.drop_table(table_name(gone))
    line.kafka.produce(topic, numbered(gone, range(10, 30), 2))
    wait_parked(running, gone, "deleted")
    line.kafka.produce(topic, numbered(gone, range(30, 50), 2))
    name = table_name(gone)
    line.catalog.post("/firn/v1/dropped-tables/undo", {"identifier": name.to_json()})
    wait_released(running, gone)
    line.wait_for_rows(running, gone, 50)
    assert numbers(line, gone) == list(range(50))


@pytest.mark.parametrize("said_by", ["setting", "property"])
def test_dropped_table_whose_owner_wants_dead_letters(
    line: Line, ingester: Callable[..., Ingester], said_by: str
) -> None:
    """With `dead-letter` the records of a dropped table become dead letters, whether the setting or the
    table's own property says so."""
    topic = line.kafka.topic(2)
    running = ingester(
        topic,
        flush__interval_s=0.3,
        **({"tables__on_deleted": "dead-letter"} if said_by == "setting" else {}),
    )
    gone, _ = _two_tables(line, running, topic)
    if said_by == "property":
        line.catalog.set_properties(table_name(gone), {"firn.on-deleted": "dead-letter"})
        line.kafka.produce(topic, numbered(gone, range(10, 11), 2))  # so that the node sees it
        line.wait_for_rows(running, gone, 11)
    line.catalog.drop_table(table_name(gone))
    line.kafka.produce(topic, numbered(gone, range(11, 30), 2))
    line.wait_for_dead_letters(running, 19)
    letters = line.kafka.dead_letters(running.dead_letter_topic)
    assert {letter.facts["firn.reason"] for letter in letters.values()} == {"table_deleted"}
    assert running.parked(table_name(gone)) == {}


def test_dropped_table_that_is_to_be_created_again(line: Line, ingester: Callable[..., Ingester]) -> None:
    """With `recreate` a new table of the same name takes the records from then on."""
    topic = line.kafka.topic(2)
    running = ingester(topic, flush__interval_s=0.3, tables__on_deleted="recreate")
    gone, _ = _two_tables(line, running, topic)
    before = line.catalog.load_table(table_name(gone))["metadata"]["table-uuid"]
    line.catalog.drop_table(table_name(gone))
    line.kafka.produce(topic, numbered(gone, range(10, 30), 2))
    line.wait_for_rows(running, gone, 20)
    assert numbers(line, gone) == list(range(10, 30))
    assert line.catalog.load_table(table_name(gone))["metadata"]["table-uuid"] != before


def test_columns_that_cannot_hold_our_rows_park_the_table_until_they_can(
    line: Line, ingester: Callable[..., Ingester]
) -> None:
    """Somebody drops a system column: the table is parked with a sentence that names the column; put back, it
    gets its records."""
    topic = line.kafka.topic(2)
    running = ingester(topic, flush__interval_s=0.3)
    sick, well = _two_tables(line, running, topic)
    line.sql(f"ALTER TABLE {line.table(sick)} DROP COLUMN severity")
    line.kafka.produce(topic, [*numbered(sick, range(10, 30), 2), *numbered(well, range(10, 30), 2)])
    wait_parked(running, sick, "columns")
    assert "column severity is gone" in running.status()["parked"][0]["sentence"]
    line.wait_for_rows(running, well, 30)
    line.sql(f"ALTER TABLE {line.table(sick)} ADD COLUMN severity VARCHAR")
    wait_released(running, sick)
    line.wait_for_rows(running, sick, 30)
    assert numbers(line, sick) == list(range(30))


def test_metadata_file_that_is_gone_parks_the_table_until_it_is_back(
    line: Line, ingester: Callable[..., Ingester]
) -> None:
    """A table whose metadata file is missing is no new table: it is parked, and takes its records when the
    file is restored."""
    topic = line.kafka.topic(2)
    running = ingester(topic, flush__interval_s=0.3, tables__park_after_s=1)
    sick, well = _two_tables(line, running, topic)
    line.kafka.produce(topic, numbered(well, range(10, 20), 2))
    file = location(line, sick) / "metadata"
    newest = file / line.catalog.load_table(table_name(sick))["metadata-location"].rpartition("/")[2]
    aside = newest.with_suffix(".aside")
    newest.rename(aside)
    line.kafka.produce(topic, numbered(sick, range(10, 30), 2))
    wait_parked(running, sick, "metadata")
    aside.rename(newest)
    wait_released(running, sick)
    line.wait_for_rows(running, sick, 30)
    assert numbers(line, sick) == list(range(30))


def test_storage_that_is_down_for_everyone_parks_nobody(
    line: Line, ingester: Callable[..., Ingester]
) -> None:
    """While the whole warehouse takes nothing, tables wait and none is parked; when it is back every record
    is stored once."""
    topic = line.kafka.topic(2)
    running = ingester(topic, flush__interval_s=0.3, tables__park_after_s=1)
    tenants = [fresh("down-") for _ in range(4)]
    for tenant in tenants:
        line.kafka.produce(topic, numbered(tenant, range(10), 2))
    for tenant in tenants:
        line.wait_for_rows(running, tenant, 10)
    folders = {location(line, tenant).parent.parent for tenant in tenants}
    (warehouse,) = folders
    with unwritable(warehouse):
        for tenant in tenants:
            line.kafka.produce(topic, numbered(tenant, range(10, 20), 2))
        running.wait_until(
            lambda: len(running.status()["breakers"]) == len(tenants), 30, "all tables failing"
        )
        pause(4.0)
        assert running.parked(*map(table_name, tenants)) == {}
    for tenant in tenants:
        line.wait_for_rows(running, tenant, 20)
        assert numbers(line, tenant) == list(range(20))


def test_a_second_ingester_of_the_same_topic_is_named(line: Line, ingester: Callable[..., Ingester]) -> None:
    """Two groups that write one topic into the same tables: the marks keep every row single, and both nodes
    say who the other is."""
    topic = line.kafka.topic(2)
    first, second = ingester(topic, flush__interval_s=0.3), ingester(topic, flush__interval_s=0.3)
    tenants = [fresh("twice-") for _ in range(8)]  # of one alone the two may take turns for a minute
    sent = 0

    def named() -> bool:
        nonlocal sent
        for tenant in tenants:
            line.kafka.produce(topic, numbered(tenant, range(sent, sent + 10), 2))
        sent += 10
        pause(0.2)
        return bool(first.status()["second_writers"] or second.status()["second_writers"])

    wait_for(named, 60, "the second writer being named")
    found = [
        (mine, entry["writer"])
        for mine, other in ((first, second), (second, first))
        for entry in mine.status()["second_writers"]
    ]
    assert all(writer.startswith(f"{(second if mine is first else first).group}@") for mine, writer in found)
    for tenant in tenants:
        line.wait_for_rows(first, tenant, sent)
        assert numbers(line, tenant) == list(range(sent))


@pytest.mark.prove
def test_large_backlog_comes_back_while_records_flow(line: Line, ingester: Callable[..., Ingester]) -> None:
    """More is parked than could be drained while live records wait; another table's lies between it, and
    somebody gave the topic partitions."""
    topic = line.kafka.topic(2)
    for_ever = {
        "retention_ms": "-1",
        "retention_bytes": "-1",
        "max_message_bytes": str(MESSAGE_BYTES_MAX),
        "message_timestamp_type": "CreateTime",
    }
    parked_topic = line.kafka.topic(3, **for_ever)
    running = ingester(
        topic, flush__interval_s=0.3, tables__park_after_s=0.5, internal_topics__parked=parked_topic
    )
    (sick, well), other = _two_tables(line, running, topic), fresh("Other-")
    line.kafka.produce(topic, numbered(other, range(10), 2))
    line.wait_for_rows(running, other, 10)
    with ExitStack() as broken:
        broken.enter_context(unwritable(location(line, other) / "data"))
        with unwritable(location(line, sick) / "data"):
            line.kafka.produce(
                topic, [each for tenant in (sick, other, well) for each in numbered(tenant, range(10, 20), 2)]
            )
            wait_parked(running, sick)
            wait_parked(running, other)
            for first in range(20, BACKLOG, 20_000):
                line.kafka.produce(
                    topic,
                    [
                        *numbered(sick, range(first, first + 20_000), 2),
                        *numbered(other, range(first, first + 20_000), 2),
                    ],
                )
        with flowing(line, topic, sick, range(BACKLOG + 20, BACKLOG + 220)):
            wait_released(running, sick)
    line.wait_for_rows(running, sick, BACKLOG + 220)
    wait_released(running, other)
    line.wait_for_rows(running, other, BACKLOG + 20)
    assert numbers(line, sick) == list(range(BACKLOG + 220))
    assert numbers(line, other) == list(range(BACKLOG + 20))


@pytest.mark.parametrize(
    "topic_goes", [pytest.param(True, id="topic re-created"), pytest.param(False, id="records removed")]
)
def test_parked_records_that_are_gone_are_named_and_read_again(
    line: Line, ingester: Callable[..., Ingester], topic_goes: bool
) -> None:
    """Somebody has deleted the parking topic, or Kafka some of its records: the table waits for a person, and
    nothing is passed over in silence."""
    topic = line.kafka.topic(2)
    running = ingester(topic, flush__interval_s=0.3, tables__park_after_s=0.5)
    sick, well = _two_tables(line, running, topic)
    with unwritable(location(line, sick) / "data"):
        line.kafka.produce(topic, [*numbered(sick, range(10, 30), 2), *numbered(well, range(10, 30), 2)])
        wait_parked(running, sick, "storage")
        line.kafka.produce(topic, numbered(sick, range(30, 40), 2))
        wait_for(
            lambda: line.kafka.group_offsets(running.group, topic) == line.kafka.ends(topic),
            30,
            "all of it being parked",
        )
        if topic_goes:
            assert running.stop() == 0
            line.kafka.delete_topic(running.parked_topic)
            running.start()
        else:
            line.kafka.remove_records(running.parked_topic, 12)
    wait_parked(running, sick, "parking_lost")
    resolve(running, "--reread", str(table_name(sick)))
    with flowing(line, topic, sick, range(40, 60)):
        wait_released(running, sick)
    line.wait_for_rows(running, sick, 60)
    assert numbers(line, sick) == list(range(60))
