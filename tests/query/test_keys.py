"""Keys: whose rows one sees, what one may change, and that no secret is written down anywhere."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from lake.catalog_client import CatalogClient
from lake.errors import SettingsError
from lake.settings import QuerySettings
from query.access import Access, check_host
from tests.query.log_table import LogTable
from tests.query.processes import Child, run
from tests.stack.waiting import wait_for

pytestmark = pytest.mark.stack
START = datetime(2026, 9, 1, 10, 0, tzinfo=UTC)
TRINO_PASSWORD, INGEST_TOKEN = "password-that-nobody-may-see", "token-that-nobody-may-see"


@dataclass
class Guarded:
    """A catalog that asks for keys, an API on it, a table of each of two tenants, and keys by what they are for."""

    folder: Path
    catalog: Child
    api: Child
    keys: dict[str, str]
    mine: LogTable
    theirs: LogTable

    def ask(self, method: str, path: str, key: str | None, **options: Any) -> httpx.Response:
        headers = {"Authorization": f"Bearer {self.keys.get(key, key)}"} if key is not None else {}
        return httpx.request(method, f"{self.api.address}{path}", headers=headers, timeout=60.0, trust_env=False, **options)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    """No broker and no Trino: searches run in process."""
    folder = tmp_path_factory.mktemp("guarded")
    settings = {"FIRN_CATALOG_DATABASE_URL": f"sqlite:///{folder}/catalog.db", "FIRN_CATALOG_WAREHOUSE": f"file://{folder}/warehouse"}

    def make(scope: str, *namespace: str) -> str:
        done = run("catalog", folder, settings, "key", "create", "--scope", scope, *namespace)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    keys = {"admin": make("admin"), "room": make("write")}
    catalog = Child("catalog", folder, settings).start()
    with closing(CatalogClient(catalog.address, token=keys["admin"])) as client:
        mine, theirs = LogTable(client, "Mine"), LogTable(client, "Theirs")
        for table in (mine, theirs):
            table.append([{"timestamp": START + timedelta(seconds=at), "message": f"secret of {table.tenant} {at}"} for at in range(30)])
        for name, table, scope in (("mine", mine, "write"), ("reader", mine, "read"), ("theirs", theirs, "write")):
            keys[name] = make(scope, "--namespace", table.name.namespace)
        own = {"FIRN_QUERY_CATALOG_URI": catalog.address, "FIRN_QUERY_CATALOG_TOKEN": keys["room"], "FIRN_QUERY_STATE": str(folder / "state")}
        secrets = {"FIRN_QUERY_TRINO_PASSWORD": TRINO_PASSWORD, "FIRN_QUERY_INGEST_TOKEN": INGEST_TOKEN, "FIRN_QUERY_TRINO_URI": "http://127.0.0.1:9"}
        api = Child("query", folder, {**own, **secrets, "FIRN_QUERY_INGEST_URI": "http://127.0.0.1:9"}).start()
        try:
            yield Guarded(folder, catalog, api, keys, mine, theirs)
        finally:
            api.kill()
            catalog.kill()


def test_without_a_key_in_force_nobody_gets_in(guarded: Guarded) -> None:
    """No key, an unknown one, a damaged one, something else than a key."""
    for key in (None, "firn_000000000000_x", guarded.keys["mine"][:-1], "a\tb", "x" * 10_000):
        for method, path in (("GET", "/v1/tenants"), ("GET", "/v1/exports"), ("GET", "/v1/health"), ("GET", "/v1/tail?tenant=Mine")):
            assert guarded.ask(method, path, key).status_code == 401, (key, path)


def test_a_key_sees_its_tenant_and_no_other(guarded: Guarded) -> None:
    """Listings, searches, links, exports, SQL, tails, letters, erasures, maintenance: of another tenant 403, and its words nowhere."""
    times = {"from": START.isoformat(), "to": (START + timedelta(hours=1)).isoformat()}
    assert [t["tenant"] for t in guarded.ask("GET", "/v1/tenants", "mine").json()["tenants"]] == ["Mine"]
    rows = guarded.ask("POST", "/v1/search", "mine", json={"tenant": "Mine", **times}).json()["rows"]
    assert len(rows) == 30
    foreign = guarded.ask("POST", "/v1/exports", "theirs", json={"tenant": "Theirs", **times}).json()["id"]
    pin = guarded.ask("POST", "/v1/histogram", "theirs", json={"tenant": "Theirs", **times}).json()["pin"]
    where = {name: rows[0]["coordinates"][name] for name in ("topic_id", "partition", "offset", "index")} | {"timestamp": rows[0]["timestamp"]}
    tries: list[tuple[str, str, dict[str, Any]]] = [
        *(("POST", f"/v1/{path}", {"json": {"tenant": "Theirs", **times}}) for path in ("search", "search/stream", "histogram", "fields", "explain", "errors")),
        ("POST", "/v1/values", {"json": {"tenant": "Theirs", "field": "message", **times}}),
        ("POST", "/v1/search", {"json": {"tenant": "Theirs", "pin": pin, **times}}),
        *(("GET", f"/v1/{path}", {"params": {"tenant": "Theirs", **where}}) for path in ("row", "context")),
        ("POST", "/v1/sql", {"json": {"sql": "SELECT * FROM logs", "tenant": "Theirs"}}),
        ("POST", "/v1/sql", {"json": {"sql": 'SELECT * FROM "Theirs".logs', "tenant": "Mine"}}),
        ("POST", "/v1/sql", {"json": {"sql": "SELECT * FROM _54heirs.logs", "tenant": "Mine"}}),
        ("POST", "/v1/exports", {"json": {"tenant": "Theirs", **times}}),
        *(("GET", f"/v1/exports/{foreign}{part}", {}) for part in ("", "/file", "/parts/part-000000.ndjson")),
        ("DELETE", f"/v1/exports/{foreign}", {}),
        *(("GET", f"/v1/{path}", {"params": {"tenant": "Theirs"}}) for path in ("streams", "streams/detail", "streams/dropped", "tail", "erasures")),
        *(("GET", f"/v1/{path}", {"params": {"tenant": "Theirs"}}) for path in ("dead-letters", "parked", "maintenance")),
        *(("GET", f"/v1/{path}", {}) for path in ("dead-letters", "parked", "maintenance")),
        ("POST", "/v1/dead-letters/replay", {"json": {"tenant": "Mine", "to_tenant": "Theirs", "all": True}}),
        ("POST", "/v1/dead-letters/replay", {"json": {"all": True}}),
        ("POST", "/v1/erasures", {"json": {"tenant": "Theirs", "query": "secret"}}),
        ("POST", "/v1/streams/types", {"json": {"tenant": "Theirs", "stream": "logs", "field": "a", "type": "long"}}),
        ("POST", "/v1/streams/retention", {"json": {"tenant": "Theirs", "stream": "logs", "retention": "1d"}}),
        ("DELETE", "/v1/streams", {"params": {"tenant": "Theirs", "stream": "logs"}}),
        ("POST", "/v1/streams/undo", {"json": {"tenant": "Theirs", "stream": "logs"}}),
    ]
    for method, path, options in tries:
        answer = guarded.ask(method, path, "mine", **options)
        assert answer.status_code == 403, (method, path, options, answer.text)
        assert "secret of Theirs" not in answer.text
    health = guarded.ask("GET", "/v1/health", "mine").text
    assert "Theirs" not in health
    assert "_54heirs" not in health
    assert guarded.ask("GET", "/v1/exports", "mine").json() == {"exports": []}
    assert guarded.ask("POST", "/v1/search", "theirs", json={"tenant": "Theirs", **times}).json()["rows"]


def test_a_key_that_may_only_read_changes_nothing(guarded: Guarded) -> None:
    """Every change is refused with a sentence, and what it would have changed is as it was."""
    for method, path, options in (
        ("POST", "/v1/streams/types", {"json": {"tenant": "Mine", "stream": "logs", "field": "a", "type": "long"}}),
        ("POST", "/v1/streams/retention", {"json": {"tenant": "Mine", "stream": "logs", "retention": "1d"}}),
        ("DELETE", "/v1/streams", {"params": {"tenant": "Mine", "stream": "logs"}}),
        ("POST", "/v1/erasures", {"json": {"tenant": "Mine", "query": "secret"}}),
        ("POST", "/v1/dead-letters/replay", {"json": {"tenant": "Mine", "all": True}}),
    ):
        answer = guarded.ask(method, path, "reader", **options)
        assert answer.status_code == 403, (path, answer.text)
        assert "key" in answer.json()["error"]["message"]
    detail = guarded.ask("GET", "/v1/streams/detail", "reader", params={"tenant": "Mine"}).json()
    assert (detail["rows"], detail["retention"]["retention"], [c for c in detail["schema"] if c["declared"]]) == (30, None, [])


def test_an_erasure_by_a_tenants_key_is_carried_out_by_the_room(guarded: Guarded) -> None:
    """The report names the key by its id, never by its secret; only those who may change the tenant see it."""
    made = guarded.ask("POST", "/v1/erasures", "mine", json={"tenant": "Mine", "query": 'message:"secret of Mine 7"'}).json()

    def report() -> dict[str, Any]:
        return dict(guarded.ask("GET", f"/v1/erasures/{made['id']}", "mine").json())

    wait_for(lambda: report()["state"] != "running", 60.0, "the erasure")
    assert (report()["rows"], report()["tables"][0]["rows_left"]) == (1, 0)
    assert report()["asked_by"] == guarded.keys["mine"].split("_")[1]
    assert "dead letters were not looked at" in report()["elsewhere"][0]
    assert guarded.ask("GET", f"/v1/erasures/{made['id']}", "theirs").status_code == 403


def test_no_secret_is_written_down(guarded: Guarded) -> None:
    """Neither a key nor a password nor a token is in a log, in the databases or in the API's state, after all that was asked."""
    guarded.ask("GET", "/v1/dead-letters", "admin")
    guarded.ask("POST", "/v1/sql", "mine", json={"sql": "SELECT * FROM logs", "tenant": "Mine"})
    secrets = [key.split("_", 2)[2] for key in guarded.keys.values()] + [TRINO_PASSWORD, INGEST_TOKEN]
    searched = [path for path in guarded.folder.rglob("*") if path.is_file()]
    assert {"catalog.log", "query.log", "catalog.db", "counts.db"} <= {path.name for path in searched}
    for path in searched:
        content = path.read_bytes()
        assert not [secret for secret in secrets if secret.encode() in content], path


def test_beyond_loopback_the_api_refuses_to_let_everybody_in(guarded: Guarded, stack: Any, tmp_path: Path) -> None:
    """Over a catalog without keys it does not start, and says what to do; over one with keys it would."""
    open_catalog = {"FIRN_QUERY_CATALOG_URI": stack.address("catalog"), "FIRN_QUERY_STATE": str(tmp_path)}
    done = run("query", tmp_path, open_catalog, "serve", "--host", "0.0.0.0", "--port", "0")
    assert done.returncode == 2, done.stderr
    assert "refuses to listen" in done.stderr
    assert "make keys" in done.stderr
    for host in ("0.0.0.0", "::", "example.org"):
        with pytest.raises(SettingsError):
            check_host(host, Access(QuerySettings(catalog_uri=stack.address("catalog"))))
        check_host(host, Access(QuerySettings(catalog_uri=guarded.catalog.address)))
