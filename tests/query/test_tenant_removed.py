"""The end of a tenant over the API and from a terminal: when it is refused, what goes, what is left."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import httpx
import orjson
import pytest

from infra.local.supervisor import Stack
from lake.catalog_client import CatalogClient
from tests.query.support.guarded import Guarded
from tests.query.support.log_table import LogTable, fresh_tenant
from tests.query.support.processes import run

pytestmark = pytest.mark.stack


def remove(api: httpx.Client, tenant: str) -> httpx.Response:
    return api.delete("/v1/tenants", params={"tenant": tenant})


@pytest.fixture
def stream(log_table: Callable[..., LogTable]) -> Callable[..., LogTable]:
    """`stream(tenant, name)`: a stream with a row."""

    def make(tenant: str, name: str = "logs") -> LogTable:
        made = log_table(tenant, stream=name)
        made.append([{"timestamp": datetime(2026, 9, 1, tzinfo=UTC), "message": "kept"}])
        return made

    return make


def delete_stream(api: httpx.Client, table: LogTable, stream: str = "logs") -> None:
    api.delete("/v1/streams", params={"tenant": table.tenant, "stream": stream}).raise_for_status()


def test_a_tenant_is_removed_once_it_has_no_streams(
    api: httpx.Client, catalog_client: CatalogClient, stream: Callable[..., LogTable]
) -> None:
    """Before that the sentence names those in its way. What it said of retention goes with it, and so do its
    boards; the answer tells of deleted streams whose files are still there. Removed once more, it is not
    known."""
    table = stream(fresh_tenant())
    stream(table.tenant, "web")
    said = api.post("/v1/tenants/retention", json={"tenant": table.tenant, "retention": "30d"})
    said.raise_for_status()
    board = {"tenant": table.tenant, "board": {"title": "of the former one"}}
    api.put("/v1/boards/first", json=board).raise_for_status()
    refused = remove(api, table.tenant)
    assert refused.status_code == 409
    assert "it has 2 streams (logs, web)" in refused.json()["error"]["message"]
    delete_stream(api, table)
    assert "it has 1 streams (web)" in remove(api, table.tenant).json()["error"]["message"]
    delete_stream(api, table, "web")
    answer = remove(api, table.tenant).raise_for_status().json()
    assert answer == {"removed": table.tenant, "deleted_streams": ["logs", "web"]}
    assert table.name.namespace not in catalog_client.namespaces()
    assert remove(api, table.tenant).status_code == 404
    catalog_client.create_namespace(table.name.namespace, {})
    boards = api.get("/v1/boards", params={"tenant": table.tenant}).raise_for_status().json()
    assert boards["boards"] == []
    told = api.get("/v1/tenants/retention", params={"tenant": table.tenant}).raise_for_status().json()
    assert "30d" not in orjson.dumps(told).decode()


def test_a_tenant_with_a_legal_hold_stays(
    api: httpx.Client, catalog_client: CatalogClient, stream: Callable[..., LogTable]
) -> None:
    """Whoever asks; without it, it goes."""
    tenant = fresh_tenant()
    table = stream(tenant)
    delete_stream(api, table)
    hold = {"tenant": tenant, "reason": "case 7"}
    made = api.post("/v1/holds", json=hold).raise_for_status().json()["id"]
    refused = remove(api, tenant)
    assert refused.status_code == 422
    assert "case 7" in refused.json()["error"]["message"]
    assert table.name.namespace in catalog_client.namespaces()
    api.delete(f"/v1/holds/{made}", params={"tenant": tenant}).raise_for_status()
    assert remove(api, tenant).is_success


def test_a_tenants_own_key_that_may_write_removes_it_and_no_other(guarded: Guarded, stack: Stack) -> None:
    """Not by a key of others, nor by one that may only read; by one of all tenants from a terminal, with its
    limits."""
    for key in ("mine", "reader"):
        assert guarded.ask("DELETE", "/v1/tenants", key, params={"tenant": "Theirs"}).status_code == 403
    assert guarded.ask("DELETE", "/v1/tenants", "reader", params={"tenant": "Mine"}).status_code == 403
    assert guarded.ask("DELETE", "/v1/tenants", "mine", params={"tenant": "Mine"}).status_code == 409
    limited = {"tenant": "Limited", "limits": {"exports": 1}}
    assert guarded.ask("POST", "/v1/tenants/limits", "room", json=limited).is_success
    environment: dict[str, Any] = {
        **stack.environment(),
        "FIRN_QUERY_CLIENT__URI": guarded.api.address,
        "FIRN_QUERY_CLIENT__KEY": guarded.keys["room"],
    }
    done = run("query", environment, "tenant", "remove", "Limited")
    assert done.returncode == 0, done.stderr
    assert orjson.loads(done.stdout) == {"removed": "Limited", "deleted_streams": []}
    again = run("query", environment, "tenant", "remove", "Limited")
    assert again.returncode == 2
