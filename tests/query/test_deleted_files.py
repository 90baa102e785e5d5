"""What becomes of the files of a stream that is deleted: they go after the time for undo, they are kept, or
they go at once."""

from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from typing import Any

import orjson
import pytest

from infra.local.supervisor import Stack
from lake.catalog_client import CatalogClient
from lake.extras_client import ExtrasClient
from lake.storage import local_path
from optimize.maintenance_tasks import MaintenanceTasks
from tests.optimize.support.maintained import maintenance
from tests.query.support.guarded import Guarded
from tests.query.support.log_table import LogTable
from tests.query.support.processes import run
from tests.stack.support.line import Sql
from tests.stack.support.waiting import fresh

pytestmark = pytest.mark.stack
Json = dict[str, Any]


@pytest.fixture
def stream(guarded: Guarded) -> LogTable:
    """One of the tenant `Mine`, with a row."""
    made = LogTable(guarded.mine.catalog, "Mine", fresh("stream-"))
    made.append([{"timestamp": datetime.now(UTC), "message": "kept"}])
    return made


def files_of(table: LogTable) -> Callable[[], int]:
    """Counts the files of a table, also after it is dropped."""
    folder = local_path(str(table.catalog.load_table(table.name)["metadata"]["location"]))
    return lambda: sum(path.is_file() for path in folder.rglob("*"))


def delete(guarded: Guarded, table: LogTable, **more: str) -> Json:
    where = {"tenant": table.tenant, "stream": table.stream, **more}
    return dict(guarded.ask("DELETE", "/v1/streams", "mine", params=where).raise_for_status().json())


def listed(guarded: Guarded, table: LogTable) -> Json:
    answer = guarded.ask("GET", "/v1/streams/dropped", "reader", params={"tenant": table.tenant}).json()
    (found,) = [each for each in answer["dropped"] if each["stream"] == table.stream]
    return dict(found)


def purge(guarded: Guarded, **settings: Any) -> None:
    """Maintenance, as it does it beside its rounds."""
    with closing(CatalogClient(guarded.catalog.address, token=guarded.keys["admin"])) as catalog:
        list(MaintenanceTasks(maintenance(catalog, **settings)).purge(only_at_once=True))


def test_a_delete_says_what_becomes_of_the_files(guarded: Guarded, stream: LogTable) -> None:
    """As it was chosen; what is no choice is refused and deletes nothing."""
    where = {"tenant": stream.tenant, "stream": stream.stream}
    refused = guarded.ask("DELETE", "/v1/streams", "mine", params={**where, "files": "burn"})
    assert refused.status_code == 400
    told = delete(guarded, stream, files="keep")
    assert (told["files"], told["purge_due"]) == ("keep", None)
    assert "its files stay until an administrator has them removed" in told["undo"]
    assert listed(guarded, stream)["purge_due"] is None
    assert guarded.ask("POST", "/v1/streams/undo", "mine", json=where).is_success
    told = delete(guarded, stream, files="after-undo")
    assert told["files"] == "after-undo"
    assert listed(guarded, stream)["purge_due"] == told["purge_due"] is not None


def test_an_administrator_has_files_removed_at_once(guarded: Guarded, stream: LogTable) -> None:
    """Nobody else, and no stream of another tenant than named. Before the time for undo is over they are
    gone, and the list says since when, and how many there were."""
    files = files_of(stream)
    delete(guarded, stream, files="keep")
    dropped = listed(guarded, stream)
    body = {"tenant": "Mine", "id": dropped["id"], "now": True}
    for key in ("mine", "reader", "theirs", "room"):
        assert guarded.ask("POST", "/v1/streams/purge", key, json=body).status_code == 403
    other = guarded.ask("POST", "/v1/streams/purge", "admin", json={**body, "tenant": "Theirs"})
    assert other.status_code == 404
    purge(guarded)
    assert files() > 0
    later = guarded.ask("POST", "/v1/streams/purge", "admin", json={**body, "now": False}).json()
    assert (later["at_once"], later["purge_due"] is None) == (False, False)
    purge(guarded)
    assert files() > 0
    told = guarded.ask("POST", "/v1/streams/purge", "admin", json=body).json()
    assert (told["at_once"], told["restorable"]) == (True, True)
    before = files()
    purge(guarded)
    assert files() == 0
    answer = guarded.ask("GET", "/v1/streams/dropped", "reader", params={"tenant": "Mine"}).json()
    (gone,) = [each for each in answer["purged"] if each["stream"] == stream.stream]
    assert (gone["files"], gone["dropped_at"]) == (before, dropped["dropped_at"])
    assert gone["purged_at"] >= gone["dropped_at"]
    assert all(each["stream"] != stream.stream for each in answer["dropped"])
    theirs = guarded.ask("GET", "/v1/streams/dropped", "theirs", params={"tenant": "Theirs"}).json()
    assert all(each["stream"] != stream.stream for each in theirs["purged"])


def test_a_terminal_deletes_with_a_choice(guarded: Guarded, stream: LogTable, stack: Stack) -> None:
    """Which it asks for; brings back, lists, and purges with an administrator's key."""

    def say(key: str, *arguments: str, code: int = 0) -> list[Json]:
        environment = {
            **stack.environment(),
            "FIRN_QUERY_CLIENT__URI": guarded.api.address,
            "FIRN_QUERY_CLIENT__KEY": guarded.keys[key],
        }
        done = run("query", environment, "stream", *arguments)
        assert done.returncode == code, done.stderr
        return [orjson.loads(line) for line in done.stdout.splitlines()]

    say("mine", "delete", "Mine", stream.stream, code=2)
    (told,) = say("mine", "delete", "Mine", stream.stream, "--files", "keep")
    assert told["files"] == "keep"
    say("mine", "undo", "Mine", stream.stream)
    say("mine", "delete", "Mine", stream.stream, "--files", "after-undo")
    (dropped,) = [each for each in say("reader", "deleted", "Mine") if each["stream"] == stream.stream]
    (asked,) = say("admin", "purge", "Mine", str(dropped["id"]), "--now")
    assert asked["at_once"] is True


def test_drop_table_in_trino_asks_for_the_purge(
    trino: Sql, catalog_client: CatalogClient, log_table: Callable[..., LogTable]
) -> None:
    """So its files go as those of a stream that is deleted with them; under a legal hold it is refused,
    though Trino keeps the reason to its log."""
    table = log_table()
    table.append([{"timestamp": datetime.now(UTC), "message": "kept"}])
    namespace, name = table.name
    hold = ExtrasClient(catalog_client).set_hold(
        namespace, stream=None, start=None, end=None, reason="case 7"
    )
    with pytest.raises(Exception, match="Failed to drop table"):
        trino(f'DROP TABLE "{namespace}"."{name}"')
    assert catalog_client.table_exists(table.name)
    ExtrasClient(catalog_client).lift_hold(namespace, hold.id)
    trino(f'DROP TABLE "{namespace}"."{name}"')
    (dropped,) = [each for each in ExtrasClient(catalog_client).dropped_tables() if each.table == table.name]
    assert dropped.purge_due_ms is not None
