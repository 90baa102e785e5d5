"""API keys, tokens and scopes against a server that lets nobody in without a key."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import ForbiddenError

from catalog.access.access import Principal
from catalog.access.verbs import Need, Scope
from catalog.model.error_response import CatalogError
from lake.tenant import SYSTEM_TENANT
from tests.catalog.conftest import ON_SQLITE, Server, wait_until
from tests.catalog.support.engines import spark_catalog
from tests.catalog.support.table_requests import create_body
from tests.stack.support.waiting import fresh

pytestmark = pytest.mark.stack


@pytest.fixture
def guarded(database_url: str, tmp_path: Path) -> Iterator[tuple[Server, str]]:
    """A server with one admin key, made before it starts."""
    server = Server(tmp_path, database_url, arguments=[])
    made = server.run("key", "create", "--scope", "admin")
    assert made.returncode == 0, made.stderr
    try:
        yield server.start(), made.stdout.strip()
    finally:
        server.stop()


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def make_key(client: httpx.Client, admin: str, scope: str, **fields: Any) -> str:
    response = client.post("/firn/v1/keys", json={"scope": scope, **fields}, headers=bearer(admin))
    assert response.status_code == 200, response.text
    key: str = response.json()["key"]
    return key


@ON_SQLITE
def test_scopes_hold(guarded: tuple[Server, str]) -> None:
    """Each scope can do what its row of the table says and nothing else; a bound key sees its namespace only,
    in listings too."""
    server, admin = guarded
    with server.client() as client:
        assert client.get("/v1/namespaces").status_code == 401
        assert client.get("/v1/namespaces", headers=bearer("firn_none_none")).status_code == 401
        assert client.get("/healthz").status_code == 200
        for name in ("acme", "other"):
            client.post("/v1/namespaces", json={"namespace": [name]}, headers=bearer(admin))
            client.post(f"/v1/namespaces/{name}/tables", json=create_body("t"), headers=bearer(admin))
        read = bearer(make_key(client, admin, "read", namespace=["acme"]))
        write = bearer(make_key(client, admin, "write", namespace=["acme"]))
        maintenance = bearer(make_key(client, admin, "maintenance"))
        assert client.get("/v1/namespaces", headers=read).json()["namespaces"] == [["acme"]]
        assert client.get("/v1/namespaces/acme/tables", headers=read).status_code == 200
        assert client.get("/v1/namespaces/other/tables", headers=read).status_code == 403
        assert client.get("/v1/namespaces/other/tables/t", headers=write).status_code == 403
        commit = {"requirements": [], "updates": [{"action": "set-properties", "updates": {"k": "v"}}]}
        assert client.post("/v1/namespaces/acme/tables/t", json=commit, headers=read).status_code == 403
        assert client.post("/v1/namespaces/acme/tables/t", json=commit, headers=write).status_code == 200
        assert (
            client.post("/v1/namespaces/other/tables/t", json=commit, headers=maintenance).status_code == 200
        )
        assert client.delete("/v1/namespaces/other/tables/t", headers=maintenance).status_code == 403
        rename = {
            "source": {"namespace": ["acme"], "name": "t"},
            "destination": {"namespace": ["other"], "name": "u"},
        }
        assert client.post("/v1/tables/rename", json=rename, headers=write).status_code == 403
        batch = {
            "commits": [
                {"identifier": {"namespace": [name], "name": "t"}, "updates": []}
                for name in ("acme", "other")
            ]
        }
        results = client.post("/firn/v1/commits", json=batch, headers=write).json()["results"]
        assert [result["status"] for result in results] == ["committed", "invalid"]
        both = {
            "table-changes": [
                {"identifier": item["identifier"], "requirements": [], "updates": []}
                for item in batch["commits"]
            ]
        }
        assert client.post("/v1/transactions/commit", json=both, headers=write).status_code == 403
        for path in ("/firn/v1/keys", "/firn/v1/metrics-reports"):
            assert client.get(path, headers=maintenance).status_code == 403
        for path in (
            "/firn/v1/leases",
            "/firn/v1/dirty-partitions",
            "/firn/v1/dropped-tables",
            "/firn/v1/parked",
            "/firn/v1/tenants",
        ):
            assert client.get(path, headers=maintenance).status_code == 200
            assert client.get(path, headers=write).status_code == 403


@ON_SQLITE
def test_a_bound_key_learns_nothing_of_other_tables(guarded: tuple[Server, str]) -> None:
    """In a request for many tables, those of somebody else are refused as ones are that do not exist."""
    server, admin = guarded
    with server.client() as client:
        for name in ("acme", "other"):
            client.post("/v1/namespaces", json={"namespace": [name]}, headers=bearer(admin))
            client.post(f"/v1/namespaces/{name}/tables", json=create_body("t"), headers=bearer(admin))
        read = bearer(make_key(client, admin, "read", namespace=["acme"]))
        asked = [("acme", "t"), ("other", "t"), ("other", "none")]
        body = {"identifiers": [{"namespace": [namespace], "name": name} for namespace, name in asked]}
        own, *others = client.post("/firn/v1/loads", json=body, headers=read).json()["results"]
        assert own["metadata"]["table-uuid"]
        assert [other["error"]["type"] for other in others] == ["ForbiddenException"] * 2
        assert others[0]["error"] == others[1]["error"]


def test_tokens_stand_for_keys(guarded: tuple[Server, str]) -> None:
    """A key's id and secret buy a token; revoking the key ends both."""
    server, admin = guarded
    _, key_id, secret = admin.split("_", 2)
    with server.client() as client:
        form = {"grant_type": "client_credentials", "client_id": key_id, "client_secret": secret}
        token = client.post("/v1/oauth/tokens", data=form).json()["access_token"]
        assert client.get("/v1/namespaces", headers=bearer(token)).status_code == 200
        assert (
            client.post("/v1/oauth/tokens", data={**form, "client_secret": "wrong"}).json()["error"]
            == "invalid_client"
        )
        assert secret not in (server.log() + client.get("/firn/v1/keys", headers=bearer(admin)).text)
        assert server.run("key", "revoke", key_id).returncode == 0
        for credential in (admin, token):
            wait_until(
                lambda: client.get("/v1/namespaces", headers=bearer(credential)).status_code == 401,  # noqa: B023
                "the end of a revoked key",
            )


def test_nobody_gets_in_unguarded(tmp_path: Path) -> None:
    """Without keys the server starts only with --anonymous, and that only on loopback; it says what to do."""
    for arguments, expected in (
        ([], "key create"),
        (["--anonymous", "--host", "0.0.0.0"], "not a loopback address"),
    ):
        server = Server(tmp_path, f"sqlite:///{tmp_path}/c.db", arguments=arguments)
        with pytest.raises(AssertionError, match=expected):
            server.start()
        assert "Traceback" not in server.log()


def test_engines_come_in_with_a_key_or_its_credentials(guarded: tuple[Server, str], spark: Any) -> None:
    """Spark and PyIceberg work with a key as their token and with its id and secret as OAuth2 credentials; a
    read key lets them read only."""
    server, admin = guarded
    _, key_id, secret = admin.split("_", 2)
    with server.client() as client:
        read = make_key(client, admin, "read")
    token_uri = f"{server.url}/v1/oauth/tokens"
    for number, login in enumerate(
        ({"token": admin}, {"credential": f"{key_id}:{secret}", "oauth2-server-uri": token_uri})
    ):
        name = fresh("guarded")  # Spark keeps a catalog for ever under its name
        for key, value in {
            **spark_catalog(name, server.url),
            **{f"spark.sql.catalog.{name}.{key}": value for key, value in login.items()},
        }.items():
            spark.conf.set(key, value)
        spark.sql(f"CREATE NAMESPACE {name}.ns{number}")
        spark.sql(f"CREATE TABLE {name}.ns{number}.t (n BIGINT) USING iceberg")
        spark.sql(f"INSERT INTO {name}.ns{number}.t VALUES (1)")
        assert load_catalog("live", type="rest", uri=server.url, **login).load_table(
            f"ns{number}.t"
        ).scan().to_arrow()["n"].to_pylist() == [1]
    reader = load_catalog("live", type="rest", uri=server.url, token=read)
    assert reader.load_table("ns0.t").scan().count() == 1
    with pytest.raises(ForbiddenError, match="scope read"):
        reader.drop_table("ns0.t")


@ON_SQLITE
def test_no_key_is_bound_to_who_did_what(guarded: tuple[Server, str]) -> None:
    """Firn's own tenant is for administrators, whose keys are bound to nothing."""
    server, admin = guarded
    with server.client() as client:
        for scope in ("read", "write"):
            body = {"scope": scope, "namespace": [SYSTEM_TENANT.namespace]}
            answer = client.post("/firn/v1/keys", json=body, headers=bearer(admin))
            assert answer.status_code == 400
            assert "administrators" in answer.text


def test_a_key_that_was_bound_to_it_before_reaches_nothing() -> None:
    """Not even what every key may ask."""
    bound = Principal("k", Scope.READ, SYSTEM_TENANT.namespace)
    with pytest.raises(CatalogError):
        bound.require(Need.READ, SYSTEM_TENANT.namespace)
