"""Answers that never arrive: the same request under the same Idempotency-Key gets the first result, and
nothing is applied twice."""

import re
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import orjson
import pytest
from sqlalchemy import Column, Table, select

from catalog.access.keys import create_key
from catalog.access.verbs import Scope
from catalog.store.database import Database, migrate, schema
from tests.catalog.conftest import Server, empty_database
from tests.catalog.support.dropping_proxy import DroppingProxy
from tests.catalog.support.table_requests import JSON, SCHEMA, append, create_body

pytestmark = pytest.mark.stack

Json = dict[str, Any]
TABLE = {"namespace": ["a"], "name": "t"}
# What keeps nothing in the database, or is the same however often it is done.
NOT_MUTATIONS = {
    "POST /v1/oauth/tokens",
    "POST /v1/namespaces/{namespace}/tables/{table}/metrics",
    "POST /firn/v1/dirty-partitions/recount",
    "POST /firn/v1/loads",
    "POST /firn/v1/deletions/queued",
}
# Answers that cannot be the first one again: it held a secret.
NOT_REPEATED = {"POST /firn/v1/keys": 409, "POST /firn/v1/keys/{key}/rotate": 409}


@dataclass(frozen=True)
class Mutation:
    """One kind of change: its entry in the OpenAPI document, and its request after the world was set up."""

    operation: str
    path: Callable[[Json], str]
    body: Callable[[Json], Json] | None = None

    @property
    def method(self) -> str:
        return self.operation.split(" ")[0]


def mutation(operation: str, body: Callable[[Json], Json] | None = None, **names: str) -> Mutation:
    """`names` replace what stands in braces in the path: a text, or the name of something in the world."""

    def path(world: Json) -> str:
        return re.sub(
            r"\{(\w+)\}",
            lambda match: str(world.get(names[match[1]], names[match[1]])),
            operation.split(" ")[1],
        )

    return Mutation(operation, path, body)


VERSION: Json = {
    "version-id": 1,
    "timestamp-ms": 1_700_000_000_000,
    "schema-id": 0,
    "summary": {},
    "default-namespace": ["a"],
    "representations": [{"type": "sql", "sql": "select 1", "dialect": "trino"}],
}
VIEW: Json = {"name": "w", "schema": SCHEMA, "view-version": VERSION, "properties": {}}
NEW_VERSION: Json = {
    **VERSION,
    "version-id": 2,
    "representations": [{"type": "sql", "sql": "select 2", "dialect": "trino"}],
}
RENAMED = {"namespace": ["a"], "name": "renamed"}


def file_of(location: str, name: str) -> Json:
    """An entry of the queue of deletions; a table's folder is named after its uuid."""
    return {"location": f"{location}/data/{name}", "record": {"table-uuid": location.rsplit("/", 1)[-1]}}


COMMIT: Json = {"requirements": [], "updates": append(None, 1)}
MUTATIONS = [
    mutation("POST /v1/namespaces", lambda _: {"namespace": ["new"]}),
    mutation("DELETE /v1/namespaces/{namespace}", namespace="empty"),
    mutation("POST /v1/namespaces/{namespace}/properties", lambda _: {"updates": {"k": "v"}}, namespace="a"),
    mutation("POST /v1/namespaces/{namespace}/tables", lambda _: create_body("new"), namespace="a"),
    mutation("POST /v1/namespaces/{namespace}/tables/{table}", lambda _: COMMIT, namespace="a", table="t"),
    mutation("DELETE /v1/namespaces/{namespace}/tables/{table}", namespace="a", table="t"),
    mutation(
        "POST /v1/namespaces/{namespace}/register",
        lambda world: {"name": "again", "metadata-location": world["metadata"]},
        namespace="a",
    ),
    mutation("POST /v1/tables/rename", lambda _: {"source": TABLE, "destination": RENAMED}),
    mutation("POST /v1/transactions/commit", lambda _: {"table-changes": [{"identifier": TABLE, **COMMIT}]}),
    mutation("POST /v1/namespaces/{namespace}/views", lambda _: VIEW, namespace="a"),
    mutation(
        "POST /v1/namespaces/{namespace}/views/{view}",
        lambda _: {
            "requirements": [],
            "updates": [
                {"action": "add-view-version", "view-version": NEW_VERSION},
                {"action": "set-current-view-version", "view-version-id": -1},
            ],
        },
        namespace="a",
        view="v",
    ),
    mutation("DELETE /v1/namespaces/{namespace}/views/{view}", namespace="a", view="v"),
    mutation(
        "POST /v1/namespaces/{namespace}/register-view",
        lambda world: {"name": "again", "metadata-location": world["view-metadata"]},
        namespace="a",
    ),
    mutation(
        "POST /v1/views/rename",
        lambda _: {"source": {"namespace": ["a"], "name": "v"}, "destination": RENAMED},
    ),
    mutation(
        "POST /firn/v1/commits",
        lambda _: {
            "commits": [
                {"identifier": TABLE, **COMMIT},
                {"identifier": RENAMED, "create": create_body("renamed")},
            ]
        },
    ),
    mutation(
        "POST /firn/v1/leases/{lease}/acquire", lambda _: {"holder": "h", "ttl-ms": 60_000}, lease="free"
    ),
    mutation(
        "POST /firn/v1/leases/{lease}/renew",
        lambda world: {"token": world["token"], "ttl-ms": 90_000},
        lease="held",
    ),
    mutation("POST /firn/v1/leases/{lease}/release", lambda world: {"token": world["token"]}, lease="held"),
    mutation(
        "POST /firn/v1/parked",
        lambda world: {
            "lease": f"held:{world['token']}",
            "changes": [{"identifier": TABLE, "version": 0, "record": {"x": 1}}],
        },
    ),
    mutation(
        "POST /firn/v1/tasks",
        lambda _: {"tasks": [{"id": "new", "kind": "k", "state": "s", "version": 0, "record": 1}]},
    ),
    mutation("DELETE /firn/v1/tasks/{task}", task="old"),
    mutation("POST /firn/v1/deletions", lambda world: {"deletions": [file_of(world["location"], "b")]}),
    mutation("POST /firn/v1/deletions/acknowledge", lambda world: {"ids": [world["deletion"]]}),
    mutation("POST /firn/v1/dropped-tables/undo", lambda world: {"id": world["kept"]}),
    mutation("POST /firn/v1/dropped-tables/{dropped}/purge", dropped="kept"),
    mutation("POST /firn/v1/dropped-tables/{dropped}/purge-started", dropped="due"),
    mutation("DELETE /firn/v1/dropped-tables/{dropped}", dropped="begun"),
    mutation("POST /firn/v1/holds", lambda _: {"namespace": ["a"], "reason": "case 7"}),
    mutation("DELETE /firn/v1/holds/{namespace}/{hold}", namespace="under-hold", hold="hold"),
    mutation("POST /firn/v1/keys", lambda _: {"scope": "read"}),
    mutation("POST /firn/v1/keys/{key}/rotate", lambda _: {"overlap": "1h"}, key="key"),
    mutation("DELETE /firn/v1/keys/{key}", key="key"),
]


@pytest.fixture(scope="module", params=[pytest.param("sqlite", marks=pytest.mark.prove), "postgres"])
def hasty_server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    """A live catalog that asks for keys, and whose dropped tables may be purged at once."""
    folder = tmp_path_factory.mktemp("hasty")
    url = (
        f"sqlite:///{folder}/catalog.db"
        if request.param == "sqlite"
        else request.getfixturevalue("postgres").new_database(f"hasty{uuid.uuid4().hex[:8]}")
    )
    server = Server(folder, url, arguments=[], environment={"FIRN_CATALOG_UNDO_WINDOW_S": "0"})
    new_key(server)
    try:
        yield server.start()
    finally:
        server.stop()


def new_key(server: Server) -> dict[str, str]:
    """The headers of a new administrator: without a key nobody makes keys."""
    database = Database(server.database_url)
    try:
        migrate(database)
        with database.write() as connection:
            return {"Authorization": f"Bearer {create_key(connection, Scope.ADMIN, None, '', 0)}"}
    finally:
        database.close()


def ask(client: httpx.Client, method: str, path: str, body: Json | None = None) -> Json:
    response = client.request(
        method, path, content=None if body is None else orjson.dumps(body), headers=JSON
    )
    assert response.is_success, response.text
    return dict(response.json()) if response.content else {}


def set_up(client: httpx.Client) -> Json:
    """One of everything that can be changed."""
    ask(client, "POST", "/v1/namespaces", {"namespace": ["a"]})
    ask(client, "POST", "/v1/namespaces", {"namespace": ["empty"]})
    ask(client, "POST", "/v1/namespaces", {"namespace": ["under-hold"]})
    hold = ask(client, "POST", "/firn/v1/holds", {"namespace": ["under-hold"], "reason": "case 7"})
    table = ask(client, "POST", "/v1/namespaces/a/tables", create_body("t"))
    view = ask(client, "POST", "/v1/namespaces/a/views", {**VIEW, "name": "v"})
    for name, purge in (("kept", "false"), ("due", "true"), ("begun", "true")):
        ask(client, "POST", "/v1/namespaces/a/tables", create_body(name))
        ask(client, "DELETE", f"/v1/namespaces/a/tables/{name}?purgeRequested={purge}")
    entries = {
        entry["identifier"]["name"]: entry
        for entry in ask(client, "GET", "/firn/v1/dropped-tables")["dropped-tables"]
    }
    dropped = {name: entry["id"] for name, entry in entries.items()}
    ask(client, "POST", f"/firn/v1/dropped-tables/{dropped['begun']}/purge-started")
    ask(
        client,
        "POST",
        "/firn/v1/tasks",
        {"tasks": [{"id": "old", "kind": "k", "state": "s", "version": 0, "record": 1}]},
    )
    location = table["metadata"]["location"]
    ask(client, "POST", "/firn/v1/deletions", {"deletions": [file_of(location, "a")]})
    (deletion,) = ask(client, "GET", "/firn/v1/deletions")["deletions"]
    return {
        **dropped,
        "location": location,
        "metadata": entries["kept"]["metadata-location"],
        "view-metadata": view["metadata-location"],
        "token": ask(client, "POST", "/firn/v1/leases/held/acquire", {"holder": "h", "ttl-ms": 60_000})[
            "token"
        ],
        "deletion": deletion["id"],
        "hold": hold["id"],
        "key": ask(client, "POST", "/firn/v1/keys", {"scope": "read"})["key"].split("_")[1],
    }


def content(server: Server) -> Json:
    """Everything the database holds, but for the answers it keeps, and when keys were last used."""
    database = Database(server.database_url)
    try:
        with database.read() as connection:
            return {
                table.name: sorted(map(str, connection.execute(select(*_columns(table)))))
                for table in schema.sorted_tables
                if table.name not in ("idempotency", "name_events")
            }
    finally:
        database.close()


def _columns(table: Table) -> list[Column[Any]]:
    return [column for column in table.columns if column.name != "last_used_ms"]


@pytest.mark.parametrize("kind", MUTATIONS, ids=lambda kind: kind.operation)
def test_a_lost_answer_is_given_again(hasty_server: Server, kind: Mutation) -> None:
    """The server does the work, its answer is lost, the client repeats the request: it gets that answer, and
    the database stays as it was."""
    empty_database(hasty_server)
    admin = new_key(hasty_server)
    with hasty_server.client(headers=admin) as direct:
        world = set_up(direct)
    before = content(hasty_server)
    request = (kind.method, kind.path(world))
    body = None if kind.body is None else orjson.dumps(kind.body(world))
    headers = {**JSON, **admin, "Idempotency-Key": str(uuid.uuid4())}
    with (
        DroppingProxy(hasty_server.port) as proxy,
        httpx.Client(base_url=f"http://127.0.0.1:{proxy.port}", timeout=60) as client,
    ):
        with pytest.raises(httpx.RemoteProtocolError):
            client.request(*request, content=body, headers=headers)
        lost = proxy.lost[headers["Idempotency-Key"]]
        assert lost.status < 300, lost.body
        after = content(hasty_server)
        assert after != before
        for _ in range(2):
            again = client.request(*request, content=body, headers=headers)
            assert again.status_code == NOT_REPEATED.get(kind.operation, lost.status), again.text
            assert kind.operation in NOT_REPEATED or again.content == lost.body
        assert content(hasty_server) == after


def test_every_kind_of_change_was_tried(server: Server, client: httpx.Client) -> None:
    """No mutation of the OpenAPI document is left out above."""
    paths = client.get("/openapi.json").json()["paths"]
    operations = {
        f"{method.upper()} {path}"
        for path, methods in paths.items()
        for method in methods
        if method in ("post", "put", "patch", "delete")
    }
    assert operations - NOT_MUTATIONS == {kind.operation for kind in MUTATIONS}
