"""A catalog that asks for keys and an API on it, beside the open ones of the shared stack, over the same
tables."""

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Any

import httpx

from infra.local.supervisor import Stack
from lake.catalog_client import CatalogClient
from tests.query.support.log_table import LogTable
from tests.query.support.processes import Child, run
from tests.stack.support.plain_http import http

START = datetime(2026, 9, 1, 10, 0, tzinfo=UTC)
SECRET = "secret-of-the-other-tenant"
INGEST_TOKEN = "token-that-nobody-may-see"
NO_INGEST = {"FIRN_QUERY_INGEST__URI": "http://127.0.0.1:9", "FIRN_QUERY_INGEST__TOKEN": INGEST_TOKEN}


@dataclass(frozen=True)
class Guarded:
    """`keys` by what they are for: admin, room (the API's own), mine and theirs (bound, write), reader
    (bound, read)."""

    folder: Path
    catalog: Child
    api: Child
    keys: dict[str, str]
    mine: LogTable
    theirs: LogTable
    environment: dict[str, str]  # of further processes over the same catalog's database

    def ask(self, method: str, path: str, key: str | None, **options: Any) -> httpx.Response:
        """A request with a key by its name here, or with any other text as key."""
        headers = dict(options.pop("headers", {}))
        headers |= {"Authorization": f"Bearer {self.keys.get(key, key)}"} if key is not None else {}
        return http.request(method, f"{self.api.address}{path}", headers=headers, timeout=120.0, **options)

    def client(self, key: str) -> httpx.Client:
        """A client with one of the keys."""
        headers = {"Authorization": f"Bearer {self.keys[key]}"}
        return httpx.Client(base_url=self.api.address, headers=headers, timeout=120.0, trust_env=False)

    def end(self) -> None:
        """Ends both processes."""
        self.api.kill()
        self.catalog.kill()


def start_guarded(
    stack: Stack,
    open_catalog: CatalogClient,
    folder: Path,
    names: tuple[str, str] = ("Mine", "Theirs"),
    ingest: Mapping[str, str] = NO_INGEST,
    access: Mapping[str, str] = MappingProxyType({}),
) -> Guarded:
    """Two tenants' tables, five keys, two processes. `ingest`: where the API finds `ingest serve`; unless
    given, nobody answers there. `access`: variables of the catalog."""
    environment = stack.environment()
    mine, theirs = (LogTable(open_catalog, name) for name in names)
    mine.append(
        [
            {"timestamp": START + timedelta(seconds=at), "message": f"of Mine {at}", "path": "/x"}
            for at in range(30)
        ]
    )
    theirs.append(
        [
            {"timestamp": START + timedelta(seconds=at), "message": f"{SECRET} {at}", "path": "/x"}
            for at in range(30)
        ]
    )
    catalog = Child("catalog", folder, {**environment, **access})
    made = run("catalog", environment, "key", "create", "--scope", "admin")
    assert made.returncode == 0, made.stderr
    keys = {"admin": made.stdout.strip()}
    catalog.start()
    with closing(CatalogClient(catalog.address, token=keys["admin"])) as client:
        keys["room"] = str(client.post("/firn/v1/keys", {"scope": "write"})["key"])
        for name, table, scope in (
            ("mine", mine, "write"),
            ("reader", mine, "read"),
            ("theirs", theirs, "write"),
        ):
            keys[name] = str(
                client.post("/firn/v1/keys", {"scope": scope, "namespace": [table.name.namespace]})["key"]
            )
    own = {
        "FIRN_QUERY_CATALOG__URI": catalog.address,
        "FIRN_QUERY_CATALOG__TOKEN": keys["room"],
        "FIRN_QUERY_STATE": str(folder / "state"),
    }
    return Guarded(
        folder,
        catalog,
        Child("query", folder, {**environment, **own, **ingest}).start(),
        keys,
        mine,
        theirs,
        dict(environment),
    )
