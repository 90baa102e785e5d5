"""A catalog that asks for keys, and keys of several kinds for it."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from tests.catalog.conftest import Server
from tests.catalog.support.table_requests import create_body

Json = dict[str, Any]


@dataclass
class Guarded:
    """A server that asks for keys, whose dropped tables may be purged at once; `keys` by what they are
    for."""

    server: Server
    client: httpx.Client
    keys: dict[str, str]

    def ask(self, method: str, path: str, key: str, **options: Any) -> httpx.Response:
        headers = {"Authorization": f"Bearer {self.keys[key]}"}
        return self.client.request(method, path, headers=headers, **options)

    def hold(self, key: str = "room", **fields: Any) -> httpx.Response:
        body = {"namespace": ["acme"], "reason": "case 7", **fields}
        return self.ask("POST", "/firn/v1/holds", key, json=body)

    def held(self, **fields: Any) -> str:
        """The id of a hold that is set."""
        answer = self.hold(**fields)
        assert answer.status_code == 200, answer.text
        return str(answer.json()["id"])

    def lift(self, hold: str, key: str = "room") -> httpx.Response:
        return self.ask("DELETE", f"/firn/v1/holds/acme/{hold}", key)

    def holds(self) -> str | None:
        answer = self.ask("GET", "/v1/namespaces/acme", "reader").json()
        text: str | None = answer["properties"].get("firn.holds")
        return text

    def commit(self, key: str, updates: list[Json], table: str = "t", **fields: Any) -> httpx.Response:
        body = {"requirements": [], "updates": updates, **fields}
        return self.ask("POST", f"/v1/namespaces/acme/tables/{table}", key, json=body)


@contextmanager
def guarded_server(database_url: str, tmp_path: Path) -> Iterator[Guarded]:
    """With tenants `acme` and `other`, of whom `acme` has tables `t` and `u`."""
    server = Server(tmp_path, database_url, arguments=[], environment={"FIRN_CATALOG_UNDO_WINDOW_S": "0"})
    made = server.run("key", "create", "--scope", "admin")
    keys = {"admin": made.stdout.strip()}
    try:
        with server.start().client() as client:
            found = Guarded(server, client, keys)
            for name in ("acme", "other"):
                assert found.ask("POST", "/v1/namespaces", "admin", json={"namespace": [name]}).is_success
            for name, scope, bound in (
                ("room", "write", None),
                ("mine", "write", "acme"),
                ("reader", "read", "acme"),
            ):
                body = {"scope": scope, **({"namespace": [bound]} if bound else {})}
                keys[name] = found.ask("POST", "/firn/v1/keys", "admin", json=body).json()["key"]
            for name in ("t", "u"):
                path = "/v1/namespaces/acme/tables"
                assert found.ask("POST", path, "mine", json=create_body(name)).is_success
            yield found
    finally:
        server.stop()
