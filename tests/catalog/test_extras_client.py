"""The typed client of the extras against the live server, with pages so small that every list has several."""

from collections.abc import Iterator
from uuid import uuid4

import pytest

from lake.catalog_client import CatalogClient, TableName
from lake.errors import ConflictError, RefusedError
from lake.extras_client import ExtrasClient, ParkedChange, Task, UnreachedFile
from tests.catalog.conftest import Server
from tests.catalog.support.table_requests import create_body

pytestmark = pytest.mark.stack

NAMES = [TableName("a", f"t{number}") for number in range(5)]


@pytest.fixture
def client(server: Server) -> Iterator[CatalogClient]:
    client = CatalogClient(server.url)
    yield client
    client.close()


@pytest.fixture
def extras(client: CatalogClient, monkeypatch: pytest.MonkeyPatch) -> ExtrasClient:
    real = client.get

    def in_small_pages(path: str, **query: object) -> dict[str, object]:
        return real(path, **{**query, "pageSize": 2})

    monkeypatch.setattr(client, "get", in_small_pages)
    return ExtrasClient(client)


def test_a_lease_has_one_holder_and_rising_tokens(extras: ExtrasClient) -> None:
    first = extras.acquire_lease("act", "one", 60.0)
    assert extras.lease_holder("act") == "one"
    with pytest.raises(ConflictError, match="held by one"):
        extras.acquire_lease("act", "two", 60.0)
    extras.renew_lease("act", first, 60.0)
    extras.release_lease("act", first)
    assert extras.lease_holder("act") is None
    assert extras.acquire_lease("act", "two", 60.0) > first
    with pytest.raises(RefusedError, match="not in force"):
        extras.renew_lease("act", first, 60.0)


def test_parked_records_are_changed_and_listed(extras: ExtrasClient) -> None:
    lease = f"act:{extras.acquire_lease('act', 'one', 60.0)}"
    changes = [ParkedChange(name, 0, "storage", {"number": at}) for at, name in enumerate(NAMES)]
    assert extras.change_parked(changes, lease=lease, idempotency_key=str(uuid4())) == [1] * len(NAMES)
    assert [(entry.table, entry.record["number"]) for entry in extras.parked()] == [
        (name, at) for at, name in enumerate(NAMES)
    ]
    assert extras.change_parked(
        [ParkedChange(NAMES[0], 0, "storage", {}), ParkedChange(NAMES[1], 1, "storage", None)], lease=lease
    ) == [None, 0]
    found = extras.find_parked(NAMES[0])
    assert found is not None
    assert (found.version, found.reason) == (1, "storage")
    assert extras.find_parked(NAMES[1]) is None
    with pytest.raises(RefusedError, match="not in force"):
        extras.change_parked([], lease="act:1")


def test_tasks_are_saved_over_the_version_last_read(extras: ExtrasClient) -> None:
    tasks = [Task(f"work:{number}", "work", "failing", 0, {"number": number}) for number in range(5)]
    extras.save_tasks([*tasks, Task("other", "rest", "done", 0, {})])
    assert [(task.id, task.version, task.record) for task in extras.tasks("work")] == [
        (task.id, 1, task.record) for task in tasks
    ]
    extras.save_tasks([Task("work:4", "work", "lost", 0, {}), Task("work:3", "work", "done", 1, {})])
    assert [(task.state, task.version) for task in extras.tasks("work")][3:] == [("done", 2), ("failing", 1)]
    extras.remove_task("work:4")
    assert extras.find_task("work", "work:4") is None


def test_files_are_queued_told_and_acknowledged(
    extras: ExtrasClient, client: CatalogClient, server: Server
) -> None:
    client.create_namespace("a", {})
    metadata = client.create_table(NAMES[0], create_body(NAMES[0].name))["metadata"]
    record = {"table": str(NAMES[0]), "table-uuid": metadata["table-uuid"]}
    own = [f"{metadata['location']}/data/{number}.parquet" for number in range(5)]
    foreign = f"{server.warehouse}/elsewhere/x.parquet"
    refused = extras.queue_deletions([UnreachedFile(uri, 0, record) for uri in (*own, foreign)])
    assert refused == [foreign]
    due = extras.due_deletions()
    assert [file.uri for file in due] == own
    assert all(file.uri.startswith(file.roots) for file in due)
    extras.acknowledge_deletions([file.id for file in due])
    assert extras.due_deletions() == []


def test_dropped_tables_come_back_or_wait_for_their_purge(
    extras: ExtrasClient, client: CatalogClient
) -> None:
    client.create_namespace("a", {})
    for name in NAMES:
        client.create_table(name, create_body(name.name))
        client.drop_table(name, purge=name != NAMES[0])
    dropped = list(extras.dropped_tables())
    assert [each.table for each in dropped] == NAMES
    window_ms = extras.undo_window().total_seconds() * 1000
    assert [each.purge_due_ms for each in dropped] == [None, *(e.dropped_ms + window_ms for e in dropped[1:])]
    assert list(extras.dropped_tables(purgeable=True)) == []
    with pytest.raises(ConflictError, match="may not be purged yet"):
        extras.start_purge(dropped[1].id)
    extras.undo_drop(NAMES[2])
    assert client.table_exists(NAMES[2])
    assert [each.table for each in extras.dropped_tables()] == [*NAMES[:2], *NAMES[3:]]
