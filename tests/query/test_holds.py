"""Legal holds over the API and from a terminal: who sets them, and what they keep."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import orjson
import pytest

from infra.local.supervisor import Stack
from lake.catalog_client import CatalogClient
from tests.query.support.guarded import START, Guarded
from tests.query.support.log_table import LogTable
from tests.query.support.processes import run
from tests.query.test_retention import NEW, NOW, OLD, ROWS, goes_and_stays, of_stream, says, taken
from tests.stack.support.eraser import Eraser
from tests.stack.support.waiting import wait_for

pytestmark = pytest.mark.stack
Json = dict[str, Any]


@pytest.fixture
def table(log_table: Callable[..., LogTable]) -> LogTable:
    """Its older half is past three days."""
    made = log_table()
    for start in (OLD, NEW):
        made.append([{"timestamp": start + timedelta(seconds=at), "message": "kept"} for at in range(ROWS)])
    return made


def hold(api: httpx.Client, table: LogTable, **fields: Any) -> str:
    """The id of a hold that is set on the table's tenant."""
    answer = api.post("/v1/holds", json={"tenant": table.tenant, "reason": "case 7", **fields})
    answer.raise_for_status()
    return str(answer.json()["id"])


def lift(api: httpx.Client, table: LogTable, made: str) -> None:
    api.delete(f"/v1/holds/{made}", params={"tenant": table.tenant}).raise_for_status()


def erase(api: httpx.Client, table: LogTable, **fields: Any) -> httpx.Response:
    return api.post("/v1/erasures", json={"tenant": table.tenant, "query": "kept", "all": True, **fields})


def of(api: httpx.Client, answer: httpx.Response) -> Json:
    """An erasure as it has ended."""
    path = f"/v1/erasures/{answer.raise_for_status().json()['id']}"
    wait_for(lambda: api.get(path).json()["state"] != "running", 60.0, "the erasure")
    return dict(api.get(path).json())


def test_the_page_tells_what_retention_would_take_but_for_holds(
    api: httpx.Client, catalog_client: CatalogClient, table: LogTable
) -> None:
    """Just as maintenance counts, of a stream and of its tenant, and which hold it is; of another stream or
    time it is none."""
    for fields in (
        {"stream": "other"},
        {"from": (NOW - timedelta(days=3)).isoformat()},
        {"to": (OLD - timedelta(hours=2)).isoformat()},
    ):
        made = hold(api, table, **fields)
        assert goes_and_stays(says(api, table, "3d", dry_run=True)) == (ROWS, ROWS)
        lift(api, table, made)
    made = hold(api, table, stream="logs", to=OLD.isoformat())
    says(api, table, "3d")
    told, detail = says(api, table, "3d"), of_stream(api, table)
    for answer in (told, told["streams"][0], detail):
        assert goes_and_stays(answer) == (0, 2 * ROWS)
        assert answer["held"]["rows"] == ROWS
    assert made in detail["holds"][0]
    assert taken(catalog_client, table) == 0
    lift(api, table, made)
    assert taken(catalog_client, table) == of_stream(api, table)["goes"]["rows"] == ROWS


def test_a_held_stream_is_neither_deleted_nor_erased(api: httpx.Client, table: LogTable) -> None:
    """The refusal names the hold; what lies outside of it is erased; counting stays open."""
    made = hold(api, table, **{"from": (OLD - timedelta(hours=1)).isoformat(), "to": NEW.isoformat()})
    where = {"tenant": table.tenant, "stream": "logs"}
    refused = api.delete("/v1/streams", params=where)
    assert refused.status_code == 422
    assert "is not dropped" in refused.json()["error"]["message"]
    for fields in ({}, {"streams": ["logs"]}, {"to": (OLD + timedelta(hours=1)).isoformat()}):
        refused = erase(api, table, **fields)
        assert refused.status_code == 422
        assert made in refused.json()["error"]["message"]
    assert of(api, erase(api, table, dry_run=True))["rows"] == 2 * ROWS
    assert of(api, erase(api, table, **{"from": NEW.isoformat()}))["rows"] == ROWS
    assert of(api, erase(api, table, dry_run=True))["rows"] == ROWS
    lift(api, table, made)
    assert of(api, erase(api, table))["rows"] == ROWS
    assert api.delete("/v1/streams", params=where).is_success


def test_a_hold_that_is_set_while_an_erasure_runs_ends_it(
    api: httpx.Client, eraser: Eraser, table: LogTable
) -> None:
    """Before the optimizer has taken anything away; its report names the hold."""
    with eraser.paused() as erasures:
        answer = erase(api, table)
        path = f"/v1/erasures/{answer.raise_for_status().json()['id']}"
        wait_for(lambda: "optimizer" in api.get(path).json()["message"], 30.0, "the request")
        made = hold(api, table)
        erasures.run()
    ended = of(api, answer)
    assert ended["state"] == "failed"
    assert made in ended["message"]
    assert of(api, erase(api, table, dry_run=True))["rows"] == 2 * ROWS


@pytest.fixture
def mine(guarded: Guarded) -> Iterator[Guarded]:
    """Without holds of `Mine` afterwards."""
    yield guarded
    for each in guarded.ask("GET", "/v1/holds", "room", params={"tenant": "Mine"}).json()["holds"]:
        guarded.ask("DELETE", f"/v1/holds/{each['id']}", "room", params={"tenant": "Mine"})


def test_a_tenants_own_key_reads_its_holds_and_changes_none(mine: Guarded) -> None:
    """With a sentence; of another tenant it reads none. Whoever set one is named by the key's id."""
    body = {"tenant": "Mine", "stream": "logs", "from": START.isoformat(), "reason": "case 7"}
    for key in ("mine", "reader", "theirs"):
        refused = mine.ask("POST", "/v1/holds", key, json=body)
        assert refused.status_code == 403
        assert "a key that reaches all tenants" in refused.json()["error"]["message"]
    made = mine.ask("POST", "/v1/holds", "room", json=body).json()
    assert (made["set_by"], made["to"]) == (mine.keys["room"].split("_")[1], None)
    for key in ("mine", "reader"):
        assert mine.ask("GET", "/v1/holds", key, params={"tenant": "Mine"}).json() == {"holds": [made]}
        lifted = mine.ask("DELETE", f"/v1/holds/{made['id']}", key, params={"tenant": "Mine"})
        assert lifted.status_code == 403
    assert mine.ask("GET", "/v1/holds", "theirs", params={"tenant": "Mine"}).status_code == 403
    elsewhere = mine.ask("DELETE", f"/v1/holds/{made['id']}", "room", params={"tenant": "Theirs"})
    assert elsewhere.status_code == 404
    refused = mine.ask("DELETE", "/v1/streams", "mine", params={"tenant": "Mine", "stream": "logs"})
    assert "case 7" in refused.json()["error"]["message"]


def test_a_terminal_sets_lists_and_lifts_holds(mine: Guarded, stack: Stack) -> None:
    """With the key that it is given, an object a line; and tells what retention they keep rows from."""

    def say(key: str, *arguments: str) -> list[Json]:
        environment = {
            **stack.environment(),
            "FIRN_QUERY_CLIENT__URI": mine.api.address,
            "FIRN_QUERY_CLIENT__KEY": mine.keys[key],
        }
        done = run("query", environment, *arguments)
        assert done.returncode == 0, done.stderr
        return [orjson.loads(line) for line in done.stdout.splitlines()]

    (made,) = say(
        "room", "hold", "set", "Mine", "--stream", "logs", "--to", "2027-01-01", "--reason", "case 8"
    )
    assert datetime.fromisoformat(made["to"]) == datetime(2027, 1, 1, tzinfo=UTC)
    assert say("reader", "hold", "list", "Mine") == [made]
    (told,) = say("reader", "retention", "Mine", "--stream", "logs")
    assert made["id"] in told["holds"][0]
    (dry,) = say("mine", "retention", "Mine", "--set", "1d", "--dry-run")
    assert [each["in_force"] for each in dry["streams"]] == ["1d"]
    assert say("room", "hold", "lift", "Mine", made["id"]) == [made]
    assert say("reader", "hold", "list", "Mine") == []
