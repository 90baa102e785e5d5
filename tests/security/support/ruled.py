"""A Trino with users over a catalog that asks for keys, as docs/search.md sets them up."""

import shutil
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import requests
import trino
from trino.auth import BasicAuthentication

from infra.local.service import host_port
from infra.local.supervisor import Stack
from lake.catalog_client import CatalogClient
from lake.settings import QuerySettings
from lake.tenant import TenantId
from query.access.trino_access import write_access
from tests.query.support.guarded import Guarded
from tests.query.support.processes import Child
from tests.stack.support.line import patiently
from tests.stack.support.plain_http import http

REFUSED = (trino.exceptions.Error, trino.exceptions.HttpError)


class Users:
    """A Trino with users, and their passwords."""

    def __init__(self, stack: Stack, access: Path) -> None:
        self.access, self.passwords = access, dict[str, str]()
        self._stack, self._tenants = stack, list[TenantId]()

    def admit(self, *tenants: TenantId) -> list[str]:
        """Writes users of further tenants, and gives the names of those that are new. Trino takes the files
        up by itself within seconds."""
        self._tenants += tenants
        made = write_access(self.access, self._tenants, "lake", ("firn", None))
        self.passwords |= {user.name: user.password for user in made}
        return [user.name for user in made]

    def ask(self, user: str, statement: str, password: str | None = None) -> list[Any]:
        """The rows of a statement, as that user."""
        return patiently(lambda: self._ask(user, statement, password))

    def _ask(self, user: str, statement: str, password: str | None) -> list[Any]:
        host, port = host_port(self._stack.address("trino"))
        auth = BasicAuthentication(user, self.passwords[user] if password is None else password)
        session = requests.Session()
        session.trust_env, session.verify = False, self._stack.environment()["FIRN_QUERY_TRINO__CA"]
        connection: Any = trino.dbapi.Connection(
            host=host,
            port=port,
            user=user,
            http_scheme="https",
            auth=auth,
            http_session=session,
            catalog="lake",
        )
        with closing(connection):
            return list(connection.cursor().execute(statement).fetchall())

    @property
    def log(self) -> str:
        """What Trino has written."""
        return self._stack.log("trino").read_text(errors="replace")

    @property
    def plain_address(self) -> tuple[str, int]:
        """Where Trino talks HTTP without TLS."""
        return "127.0.0.1", self._stack.read().record("trino").ports["port"]


@dataclass(frozen=True)
class Ruled:
    """A Trino with users over the catalog that asks for keys, and an API on it."""

    users: Users
    api: Child
    settings: QuerySettings
    reads: str  # Trino's key

    def rows(self, key: str, sql: str, tenant: str = "a") -> list[list[Any]]:
        """The rows of a statement that is answered."""
        answer = self.sql(key, sql, tenant)
        assert answer.status_code == 200, answer.text
        return list(answer.json()["rows"])

    def sql(self, key: str, sql: str, tenant: str = "a") -> httpx.Response:
        headers = {"Authorization": f"Bearer {key}"}
        body = {"sql": sql, "tenant": tenant}
        return http.post(f"{self.api.address}/v1/sql", json=body, headers=headers, timeout=120.0)


@contextmanager
def start_ruled(keyed: Guarded, folder: Path) -> Iterator[Ruled]:
    """One for the tenants `a` and `b`, whose Trino has a key of read scope."""
    with closing(CatalogClient(keyed.catalog.address, token=keyed.keys["admin"])) as admin:
        reads = str(admin.post("/firn/v1/keys", {"scope": "read"})["key"])
    with Stack(folder / "stack", tied=True) as own:
        users = Users(own, folder / "access")
        users.admit(TenantId("a"), TenantId("b"))
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("FIRN_INFRA_TRINO__ACCESS", str(users.access))
            patch.setenv("FIRN_INFRA_TRINO__CATALOG_TOKEN", reads)
            own.start("trino", catalog_uri=keyed.catalog.address)
        environment = {
            **own.environment(),
            "FIRN_QUERY_CATALOG__URI": keyed.catalog.address,
            "FIRN_QUERY_CATALOG__TOKEN": keyed.keys["room"],
            "FIRN_QUERY_STATE": str(folder / "state"),
            "FIRN_QUERY_TRINO__PASSWORD": users.passwords["firn"],
        }
        api = Child("query", folder, environment).start()
        named: dict[str, Any] = {
            name.removeprefix("FIRN_QUERY_").lower(): value
            for name, value in environment.items()
            if name.startswith("FIRN_QUERY_TRINO_")
        }
        try:
            yield Ruled(users, api, QuerySettings.load(**named), reads)
        finally:
            api.kill()
    shutil.rmtree(folder, ignore_errors=True)
