"""Files of another tenant behind a table's own metadata, tried on the services: the catalog refuses the
commit; rooms that meet it read nothing."""

import random
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from lake.catalog_client import CatalogClient
from lake.errors import NotFoundError
from lake.storage import local_path
from tests.query.support.guarded import SECRET, START, Guarded
from tests.query.support.log_table import LogTable, fresh_tenant
from tests.security.support.hostile_tables import ROUTES, Hostile, craft, send
from tests.stack.support.line import Line
from tests.stack.support.tool_line import ToolLine
from tests.stack.support.waiting import wait_for

pytestmark = [pytest.mark.stack, pytest.mark.finding(2)]
TIMES = {"from": "2026-09-01T00:00:00Z", "to": "2026-09-02T00:00:00Z"}


@pytest.fixture
def world(keyed: Guarded, catalog_client: CatalogClient, tmp_path: Path) -> Iterator[Hostile]:
    """A new stream of `a` with a few rows, as the attacker has it. It is dropped afterwards: what it names of
    others is told wherever it is listed."""
    mine = LogTable(catalog_client, "a", fresh_tenant("hostile"))
    mine.append([{"timestamp": START, "message": f"of mine {at}"} for at in range(3)])
    unused: Any = None
    yield Hostile(unused, keyed.keys, mine, keyed.theirs, tmp_path)
    with suppress(NotFoundError):  # the test has dropped it
        catalog_client.drop_table(mine.name)


def catalog_of(keyed: Guarded, key: str) -> httpx.Client:
    """A client of the catalog that asks for keys."""
    return httpx.Client(
        base_url=keyed.catalog.address,
        headers={"Authorization": f"Bearer {keyed.keys[key]}"},
        timeout=120.0,
        trust_env=False,
    )


def theirs_of(world: Hostile, layer: str) -> str:
    """The file of `b` that a layer of the attacker's metadata names."""
    state = world.state(world.theirs)
    found = {
        "manifest-list": world.metadata(world.theirs)["snapshots"][-1]["manifest-list"],
        "manifest": state.manifests[0].uri,
    }
    return str(found[layer]) if layer in found else world.theirs.files()[0].uri


@pytest.mark.parametrize("layer", ["manifest-list", "manifest", "data file"])
def test_a_bound_key_commits_no_file_of_another(keyed: Guarded, world: Hostile, layer: str) -> None:
    """A write key of `a` names a file of `b` in its own table: 403 by every route, and who reads the table
    sees its own rows alone."""
    name, stream = world.mine.name, world.mine.stream
    with catalog_of(keyed, "mine") as client:
        for route in ROUTES:
            status, answer = send(
                client,
                route,
                craft(world, layer, theirs_of(world, layer), random.Random(1)).updates,
                name.namespace,
                name.name,
            )
            assert status == 403, answer
    searched = keyed.ask("POST", "/v1/search", "reader", json={"tenant": "a", "stream": stream, **TIMES})
    assert searched.status_code == 200, searched.text
    assert SECRET not in searched.text
    assert len(searched.json()["rows"]) == 3


@pytest.mark.parametrize("layer", ["manifest", "data file"])
def test_rooms_read_and_delete_nothing_of_another(keyed: Guarded, world: Hostile, layer: str) -> None:
    """Where such a commit is in the table all the same, search, export and erasure end with an error, and no
    file of `b` is queued or gone."""
    name, stream, theirs = world.mine.name, world.mine.stream, theirs_of(world, layer)
    with catalog_of(
        keyed, "room"
    ) as client:  # a key of the operator's: nobody reads what it brings before it is taken
        status, answer = send(
            client, "table", craft(world, layer, theirs, random.Random(2)).updates, name.namespace, name.name
        )
        assert status == 200, answer
    before = world.files()
    for path in ("/v1/search", "/v1/histogram"):
        asked = keyed.ask(
            "POST", path, "reader", json={"tenant": "a", "stream": stream, "query": "message:*", **TIMES}
        )
        assert asked.status_code == 503, asked.text
        assert "is not below the table's location" in asked.text
        assert SECRET not in asked.text
    made = keyed.ask(
        "POST",
        "/v1/erasures",
        "mine",
        json={"tenant": "a", "streams": [stream], "query": f'message:"{SECRET} 3"'},
    )
    assert made.status_code in (202, 503), made.text
    if made.status_code == 202:
        erasure = wait_for(lambda: ended(keyed, made.json()["id"]), 120.0, "the erasure")
        assert erasure is not None
        assert erasure["state"] in ("failed", "incomplete"), erasure
    with catalog_of(keyed, "room") as client:
        assert theirs not in client.get("/firn/v1/deletions", params={"pageSize": "1000"}).text
    assert world.files() == before
    assert local_path(theirs).exists()
    assert keyed.ask("POST", "/v1/search", "theirs", json={"tenant": "b", **TIMES}).json()["rows"]


def ended(keyed: Guarded, erasure_id: str) -> dict[str, Any] | None:
    """An erasure that has ended, None while it runs."""
    found: dict[str, Any] = keyed.ask("GET", f"/v1/erasures/{erasure_id}", "mine").json()
    return found if found["state"] != "running" else None


def test_a_dropped_table_that_nobody_can_read_is_named_by_the_audit_and_stops_it_not(
    keyed: Guarded, world: Hostile, line: Line
) -> None:
    """Its tenant broke it and dropped it; what everybody else has is still proven."""
    with catalog_of(keyed, "room") as client:
        status, answer = send(
            client,
            "table",
            craft(world, "manifest", theirs_of(world, "manifest"), random.Random(3)).updates,
            *_parts(world),
        )
        assert status == 200, answer
    line.catalog.drop_table(world.mine.name)
    ours = ToolLine(line, line.kafka.topic())
    assert ours.audit() == {}
    assert any(str(world.mine.name) in told for told in ours.audited["unreadable_tables"])


def _parts(world: Hostile) -> tuple[str, str]:
    return world.mine.name.namespace, world.mine.name.name
