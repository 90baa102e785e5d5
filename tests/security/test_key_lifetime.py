"""Findings 21 and 30: keys have an end, and what is kept of who asked is the catalog's word for it."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import orjson
import pytest
from sqlalchemy import text

from catalog.access.access import Principal, find_by_bearer
from catalog.access.key_lifetime import end_of, warnings
from catalog.access.keys import create_key, list_keys
from catalog.access.verbs import Scope
from catalog.model.error_response import CatalogError
from catalog.store.database import MIGRATIONS, Database, migrate, schema_version
from tests.catalog.conftest import Server, database_kind, database_url, postgres  # noqa: F401 - fixtures
from tests.query.support.guarded import START, Guarded
from tests.stack.support.plain_http import http
from tests.stack.support.waiting import wait_for

NOW_MS = 1_790_000_000_000
DAY_MS = 86_400_000
YEAR_MS = 365 * DAY_MS
# What the first version's tables of keys had not.
SINCE = {
    "api_keys": (
        *("expires_ms", "more_namespaces", "streams", "verbs"),
        *("last_used_ms", "rotated_ms", "former_hash", "former_until_ms"),
    ),
    "access_tokens": ("secret_until_ms",),
}


@pytest.mark.finding(30)
def test_when_a_key_ends() -> None:
    """As its maker says, else by the default; anything else is refused with a sentence."""
    assert end_of("90d", NOW_MS, default_s=0) == NOW_MS + 90 * DAY_MS
    assert end_of("12h", NOW_MS, default_s=0) == NOW_MS + DAY_MS // 2
    assert end_of(None, NOW_MS, default_s=60) == NOW_MS + 60_000
    assert end_of(None, NOW_MS, default_s=0) is None
    assert end_of("never", NOW_MS, default_s=60) is None
    for wrong in ("", "90", "d", "0d", "-1d", "1y", "99999999999d", "999999999d", "1.5d", "٣d", "90d "):
        with pytest.raises(CatalogError, match="expires after a time like 90d"):
            end_of(wrong, NOW_MS, default_s=60)


@pytest.mark.finding(30)
@pytest.mark.stack
def test_an_old_database_learns_that_keys_end(database_url: str) -> None:  # noqa: F811
    """Keys from before stay in force without an end, on both databases; a key is refused from its end on,
    with all tokens bought with it."""
    database = Database(database_url)
    with database.write() as connection:
        schema_version.create(connection)
        MIGRATIONS[0](connection)
        for table, columns in SINCE.items():
            for column in columns:
                connection.execute(text(f"ALTER TABLE {table} DROP COLUMN {column}"))
        connection.execute(schema_version.insert(), {"version": 1})
        connection.execute(
            text(
                "INSERT INTO api_keys (id, hash, scope, note, created_ms) VALUES ('old', :hash, 'read', '', "
                "0)"
            ),
            {"hash": b"x" * 32},
        )
    assert migrate(database) == (1, len(MIGRATIONS))
    assert migrate(database) == (len(MIGRATIONS), len(MIGRATIONS))
    with database.write() as connection:
        assert [(key["id"], key["expires-ms"]) for key in list_keys(connection)] == [("old", None)]
        key = create_key(connection, Scope.READ, "acme", "", NOW_MS, NOW_MS + DAY_MS)
        found = find_by_bearer(connection, key, NOW_MS)
        assert found == Principal(key.split("_")[1], Scope.READ, "acme", NOW_MS + DAY_MS)
        assert (found.has_expired(NOW_MS + DAY_MS - 1), found.has_expired(NOW_MS + DAY_MS)) == (False, True)
        told = list(warnings(list_keys(connection), NOW_MS))
    assert "1 keys never expire (old)" in told[0]
    assert f"key {found.key_id} expires on" in told[1]
    database.close()


def catalog(server: Server, *arguments: str) -> subprocess.CompletedProcess[str]:
    done = server.run(*arguments)
    done.check_returncode()
    return done


@pytest.fixture
def guarded_server(tmp_path: Path) -> Iterator[tuple[Server, str]]:
    """A catalog that asks for keys, and an administrator's."""
    server = Server(tmp_path, f"sqlite:///{tmp_path}/catalog.db", arguments=[])
    admin = catalog(server, "key", "create", "--scope", "admin").stdout.strip()
    try:
        yield server.start(), admin
    finally:
        server.stop()


@pytest.mark.finding(30)
@pytest.mark.stack
def test_an_expired_key_is_refused_with_a_sentence(guarded_server: tuple[Server, str]) -> None:
    """By every route, as key and as token, also by a process that has just seen it in force; a bound key ends
    by itself."""
    server, admin = guarded_server
    as_admin = {"Authorization": f"Bearer {admin}"}
    with server.client() as client:
        client.post("/v1/namespaces", json={"namespace": ["acme"]}, headers=as_admin)
        made = client.post(
            "/firn/v1/keys", json={"scope": "read", "namespace": ["acme"], "expires": "30m"}, headers=as_admin
        ).json()
        bound = client.post(
            "/firn/v1/keys", json={"scope": "read", "namespace": ["acme"]}, headers=as_admin
        ).json()
        free = client.post("/firn/v1/keys", json={"scope": "maintenance"}, headers=as_admin).json()
        wrong = client.post("/firn/v1/keys", json={"scope": "read", "expires": "soon"}, headers=as_admin)
        assert (wrong.status_code, "90d" in wrong.text) == (400, True)
        listed = {key["id"]: key for key in client.get("/firn/v1/keys", headers=as_admin).json()["keys"]}
        of_bound = listed[bound["key"].split("_")[1]]
        assert abs(of_bound["expires-ms"] - of_bound["created-ms"] - YEAR_MS) < 1_000
        assert listed[free["key"].split("_")[1]]["expires-ms"] is None
        key, key_id = made["key"], made["key"].split("_")[1]
        form = {"grant_type": "client_credentials", "client_id": key_id, "client_secret": key}
        token = client.post("/v1/oauth/tokens", data=form).json()["access_token"]
        for credential in (key, token):
            who = client.get("/firn/v1/whoami", headers={"Authorization": f"Bearer {credential}"}).json()
            assert (who["key-id"], who["scope"], who["namespace"], who["anonymous"]) == (
                key_id,
                "read",
                ["acme"],
                False,
            )
            assert who["expires-ms"] == listed[key_id]["expires-ms"] == made["expires-ms"]
        end_now(server, key_id)
        for credential in (key, token):
            headers = {"Authorization": f"Bearer {credential}"}
            answer = wait_for(lambda: refused(client, headers), 30.0, "the end of the key")  # noqa: B023
            assert answer is not None
            assert f"key {key_id} expired on" in answer.json()["error"]["message"]
        assert client.post("/v1/oauth/tokens", data=form).json()["error"] == "invalid_client"
        assert client.get("/v1/namespaces", headers=as_admin).status_code == 200
    listing = catalog(server, "key", "list", "--json")
    assert key_id in {orjson.loads(line)["id"] for line in listing.stdout.splitlines()}
    assert "2 keys never expire" in listing.stderr
    created = catalog(server, "key", "create", "--scope", "read", "--expires", "90d")
    assert "it expires on" in created.stderr


def end_now(server: Server, key_id: str) -> None:
    database = Database(server.database_url)
    with database.write() as connection:
        connection.execute(text("UPDATE api_keys SET expires_ms = 1 WHERE id = :id"), {"id": key_id})
    database.close()


def refused(client: httpx.Client, headers: dict[str, str]) -> httpx.Response | None:
    answer = client.get("/v1/namespaces", headers=headers)
    return answer if answer.status_code == 401 else None


@pytest.mark.finding(21)
@pytest.mark.stack
def test_an_erasure_keeps_the_keys_id_and_nothing_of_a_token(keyed: Guarded) -> None:
    """Whoever asks with a token bought with a key is that key; no part of what was sent is kept, in the
    report or in its file."""
    key = keyed.keys["mine"]
    form = {"grant_type": "client_credentials", "client_id": key.split("_")[1], "client_secret": key}
    # A token is random: one with underscores where a careless cut would look for an id.
    while True:
        token = http.post(f"{keyed.catalog.address}/v1/oauth/tokens", data=form, timeout=60).json()[
            "access_token"
        ]
        if token.count("_") >= 2:
            break
    for credential in (token, key):
        body = {
            "tenant": "a",
            "query": 'message:"nothing that is there"',
            "from": START.isoformat(),
            "dry_run": True,
        }
        made = keyed.ask("POST", "/v1/erasures", credential, json=body).json()
        assert made["asked_by"] == key.split("_")[1], made
        written = (keyed.folder / "state" / "erasures" / f"{made['id']}.json").read_text()
        assert not [
            part for part in token.removeprefix("firntoken_").split("_") if len(part) > 3 and part in written
        ]
