"""A catalog that takes the tokens of an issuer, with tenants, and people of every role."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from starlette.testclient import TestClient

from catalog.access import keys
from catalog.access.roles import Role
from catalog.access.verbs import Scope
from catalog.http.app import create_app
from catalog.store.database import Database, migrate
from lake.clock import SystemClock
from lake.settings import CatalogSettings
from tests.catalog.support.fake_issuer import AUDIENCE, FakeIssuer
from tests.catalog.support.table_requests import create_body

GRANTS = {
    **{role.value: {"role": role.value, "tenants": "all"} for role in Role},
    **{f"{role.value}-acme": {"role": role.value, "tenants": ["acme"]} for role in Role},
    "reader-other": {"role": "reader", "tenants": ["other"]},
    "writer-other": {"role": "writer", "tenants": ["other"]},
}
LEEWAY_S = 30


class People:
    """A catalog that takes the tokens of an issuer."""

    def __init__(self, client: TestClient, issuer: FakeIssuer, admin: str) -> None:
        self.client, self.issuer, self.admin = client, issuer, admin

    def token(self, *groups: str, **changed: Any) -> str:
        now_s = SystemClock().now().timestamp()
        return self.issuer.token(now_s, groups=list(groups), **changed)

    def ask(self, bearer: str, method: str, path: str, body: Any = None) -> Any:
        return self.client.request(method, path, json=body, headers={"Authorization": f"Bearer {bearer}"})


@contextmanager
def served(folder: Path, issuer: FakeIssuer, **settings: Any) -> Iterator[People]:
    """With tenants acme, other and third, each with a table `t`, and an administrator's key."""
    url = f"sqlite:///{folder}/catalog.db"
    database = Database(url)
    migrate(database)
    with database.write() as connection:
        admin = keys.create_key(connection, Scope.ADMIN, None, "", 0)
    database.close()
    given = {"issuer": issuer.url, "audiences": [AUDIENCE], "grants": GRANTS, "leeway_s": LEEWAY_S}
    made = CatalogSettings.model_validate(
        {
            "database_url": url,
            "warehouse": f"file://{folder}/warehouse",
            "oidc": {**given, "fetch_interval_s": 0.001},
            **settings,
        }
    )
    with TestClient(create_app(made), base_url="http://127.0.0.1:8181") as client:
        people = People(client, issuer, admin)
        for name in ("acme", "other", "third"):
            assert people.ask(admin, "POST", "/v1/namespaces", {"namespace": [name]}).is_success
            assert people.ask(admin, "POST", f"/v1/namespaces/{name}/tables", create_body("t")).is_success
        yield people
