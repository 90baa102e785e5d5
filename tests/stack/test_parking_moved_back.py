"""A table that was moved back is noticed, named, and waits for a person, who may have the rows read again or
go on without them."""

import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tests.stack.support.ingester import Ingester
from tests.stack.support.kafka_topics import Record
from tests.stack.support.line import Line
from tests.stack.support.parked import (
    flowing,
    numbered,
    numbers,
    resolve,
    roll_back_by_rest,
    snapshots,
    table_name,
    wait_parked,
    wait_released,
)
from tests.stack.support.waiting import fresh

pytestmark = pytest.mark.stack


def roll_back_by_trino(line: Line, tenant: str, snapshot: int) -> None:
    """As an analyst may."""
    line.sql(f"ALTER TABLE {line.table(tenant)} EXECUTE rollback_to_snapshot({snapshot})")


def _three_flushes(line: Line, running: Ingester, topic: str) -> str:
    tenant = fresh("Back-")
    for first in (0, 10, 20):
        line.kafka.produce(topic, numbered(tenant, range(first, first + 10), 2))
        line.wait_for_rows(running, tenant, first + 10)
    return tenant


@pytest.mark.parametrize(
    ("roll_back", "how"),
    [(roll_back_by_rest, "reread"), (roll_back_by_trino, "accept")],
    ids=["REST, reread", "Trino, accept"],
)
def test_rolled_back_table_waits_and_goes_on_as_a_person_says(
    line: Line, ingester: Callable[..., Ingester], roll_back: Callable[[Line, str, int], None], how: str
) -> None:
    """After a rollback no row comes by itself; reread brings back what was taken away, accept does not; what
    came meanwhile is there either way."""
    topic = line.kafka.topic(2)
    running = ingester(topic, flush__interval_s=0.3)
    tenant = _three_flushes(line, running, topic)
    first = snapshots(line, tenant)[0]
    kept = int(line.sql(f"SELECT count(*) FROM {line.table(tenant)} FOR VERSION AS OF {first}")[0][0])
    roll_back(line, tenant, first)
    line.kafka.produce(topic, numbered(tenant, range(30, 40), 2))
    wait_parked(running, tenant, "rolled_back")
    assert len(numbers(line, tenant)) == kept
    running.kill()
    running.start()
    wait_parked(running, tenant, "rolled_back")
    with flowing(line, topic, tenant, range(40, 80)):
        resolve(running, f"--{how}", str(table_name(tenant)))
        wait_released(running, tenant)
    expected = list(range(80)) if how == "reread" else [*range(kept), *range(30, 80)]
    line.wait_for_rows(running, tenant, len(expected))
    assert numbers(line, tenant) == expected
    assert line.catalog.get("/firn/v1/parked").get("parked") == []


@pytest.mark.parametrize("how", ["reread", pytest.param("accept", marks=pytest.mark.prove)])
def test_table_that_is_gone_goes_on_as_a_new_one(
    line: Line, ingester: Callable[..., Ingester], how: str
) -> None:
    """Somebody has given it another name: the running node waits for a person, whose decision holds although
    the old table does not come back."""
    topic = line.kafka.topic(2)
    running = ingester(topic, flush__interval_s=0.3)
    tenant = _three_flushes(line, running, topic)
    name = table_name(tenant)
    names = {
        "source": {"namespace": [name.namespace], "name": name.name},
        "destination": {"namespace": [name.namespace], "name": "other"},
    }
    line.catalog.post("/v1/tables/rename", names)
    line.kafka.produce(topic, numbered(tenant, range(30, 40), 2))
    wait_parked(running, tenant, "rolled_back")
    resolve(running, f"--{how}", str(name))
    wait_released(running, tenant)
    expected = list(range(40)) if how == "reread" else list(range(30, 40))
    line.wait_for_rows(running, tenant, len(expected))
    assert numbers(line, tenant) == expected


def _database(line: Line) -> Path:
    return Path(line.stack.environment()["FIRN_CATALOG_DATABASE_URL"].removeprefix("sqlite:///"))


def _restore(line: Line, backup: Path) -> None:
    """Puts an older database in the place of the catalog's, as after a disk was lost."""
    line.stack.kill("catalog")
    database = _database(line)
    for suffix in ("", "-wal", "-shm"):
        database.with_name(database.name + suffix).unlink(missing_ok=True)
    backup.rename(database)
    line.stack.start("catalog")


def _backup(line: Line, to: Path) -> Path:
    with closing(sqlite3.connect(_database(line))) as source, closing(sqlite3.connect(to)) as target:
        source.backup(target)
    return to


def _lasting(backup: Path) -> Path:
    """The leases in force outlast the restart of a catalog on a busy machine: the node that holds one goes
    on."""
    with closing(sqlite3.connect(backup)) as database:
        now_ms = int(time.time() * 1_000)
        database.execute("UPDATE leases SET expires_ms = ? WHERE expires_ms > ?", (now_ms + 600_000, now_ms))
        database.commit()
    return backup


@pytest.mark.parametrize("how", ["reread", pytest.param("accept", marks=pytest.mark.prove)])
def test_restored_database_under_a_running_node_is_noticed(
    line: Line, ingester: Callable[..., Ingester], tmp_path: Path, how: str
) -> None:
    """A catalog database that went back makes its tables' marks lie: the node parks such a table, and a
    person decides."""
    topic = line.kafka.topic(2)
    running = ingester(topic, flush__interval_s=0.3)
    tenant = _three_flushes(line, running, topic)
    backup = _lasting(_backup(line, tmp_path / "backup.db"))
    line.kafka.produce(topic, numbered(tenant, range(30, 40), 2))
    line.wait_for_rows(running, tenant, 40)
    _restore(line, backup)
    line.kafka.produce(topic, numbered(tenant, range(40, 50), 2))
    wait_parked(running, tenant, "rolled_back")
    resolve(running, f"--{how}", str(table_name(tenant)))
    wait_released(running, tenant)
    expected = list(range(50)) if how == "reread" else [*range(30), *range(40, 50)]
    line.wait_for_rows(running, tenant, len(expected))
    assert numbers(line, tenant) == expected


@pytest.mark.parametrize("how", ["reread", pytest.param("accept", marks=pytest.mark.prove)])
def test_restored_database_is_noticed_by_a_node_that_starts(
    line: Line, ingester: Callable[..., Ingester], tmp_path: Path, how: str
) -> None:
    """A node that starts after the restore stops with a sentence that says what to do; resolved, it goes on
    with or without the lost rows."""
    topic = line.kafka.topic(2)
    running = ingester(topic, flush__interval_s=0.3)
    tenant = _three_flushes(line, running, topic)
    backup = _backup(line, tmp_path / "backup.db")
    line.kafka.produce(topic, numbered(tenant, range(30, 40), 2))
    line.wait_for_rows(running, tenant, 40)
    assert running.stop() == 0
    _restore(line, backup)
    line.kafka.produce(topic, numbered(tenant, range(40, 50), 2))
    running.start(ready=False)
    assert running.wait_ended() == 2
    assert "python -m ingest resolve --all --reread" in " ".join(running.log().split())
    resolve(running, f"--{how}", "--all")
    running.start()
    expected = list(range(50)) if how == "reread" else [*range(30), *range(40, 50)]
    line.wait_for_rows(running, tenant, len(expected))
    assert numbers(line, tenant) == expected


def test_restored_database_is_noticed_whatever_the_node_met_last(
    line: Line, ingester: Callable[..., Ingester], tmp_path: Path
) -> None:
    """A node that has met nothing but an old commit stores offsets that stand on a newer one: that one tells
    of the restore."""
    topic = line.kafka.topic(1)
    running = ingester(topic, flush__interval_s=0.3)
    old, new = fresh("Old-"), fresh("New-")
    line.kafka.produce(topic, numbered(old, range(10)))
    line.wait_for_rows(running, old, 10)
    backup = _backup(line, tmp_path / "backup.db")
    line.kafka.produce(topic, numbered(new, range(10)))
    line.wait_for_rows(running, new, 10)
    assert running.stop() == 0
    running.start()
    line.kafka.produce(
        topic, [Record(b'{"k":' * 500 + b"1" + b"}" * 500, headers=(("tenant", old.encode()),))]
    )
    line.wait_for_dead_letters(running, 1)
    assert running.stop() == 0
    assert line.kafka.group_offsets(running.group, topic) == {0: 21}
    _restore(line, backup)
    running.start(ready=False)
    assert running.wait_ended() == 2
    assert f"the catalog went back: table {table_name(new)}" in " ".join(running.log().split())
