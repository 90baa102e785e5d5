"""Keys: whose rows one sees, what one may change, and that no secret is written down anywhere."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from infra.local.supervisor import Stack
from lake.errors import SettingsError
from lake.settings import QuerySettings
from query.access.access import Access, check_host
from tests.query.support.guarded import INGEST_TOKEN, SECRET, START, Guarded
from tests.query.support.processes import run
from tests.stack.support.waiting import wait_for

pytestmark = pytest.mark.stack
LINES = {"Accept": "application/x-ndjson"}


def test_without_a_key_in_force_nobody_gets_in(guarded: Guarded) -> None:
    """No key, an unknown one, a damaged one, something else than a key."""
    for key in (None, "firn_000000000000_x", guarded.keys["mine"][:-1], "a\tb", "x" * 10_000):
        for method, path in (
            ("GET", "/v1/tenants"),
            ("GET", "/v1/exports"),
            ("GET", "/v1/health"),
            ("GET", "/v1/tail?tenant=Mine"),
        ):
            assert guarded.ask(method, path, key).status_code == 401, (key, path)


def test_a_key_sees_its_tenant_and_no_other(guarded: Guarded) -> None:
    """Listings, searches, links, SQL, tails, letters, erasures, maintenance: of another tenant 403, and its
    words nowhere; its exports are unknown."""
    times = {"from": START.isoformat(), "to": (START + timedelta(hours=1)).isoformat()}
    assert [t["tenant"] for t in guarded.ask("GET", "/v1/tenants", "mine").json()["tenants"]] == ["Mine"]
    assert guarded.ask(
        "POST", "/v1/sql", "mine", json={"sql": "SELECT count(*) FROM logs", "tenant": "Mine"}
    ).json()["rows"] == [[30]]
    rows = guarded.ask("POST", "/v1/search", "mine", json={"tenant": "Mine", **times}).json()["rows"]
    assert len(rows) == 30
    foreign = guarded.ask("POST", "/v1/exports", "theirs", json={"tenant": "Theirs", **times}).json()["id"]
    pin = guarded.ask("POST", "/v1/histogram", "theirs", json={"tenant": "Theirs", **times}).json()["pin"]
    where = {name: rows[0]["coordinates"][name] for name in ("topic_id", "partition", "offset", "index")} | {
        "timestamp": rows[0]["timestamp"]
    }
    tries: list[tuple[str, str, dict[str, Any]]] = [
        *(
            ("POST", f"/v1/{path}", {"json": {"tenant": "Theirs", **times}})
            for path in ("search", "search/stream", "histogram", "fields", "explain", "errors")
        ),
        *(
            ("POST", f"/v1/{path}", {"json": {"tenant": "Theirs", **times}, "headers": LINES})
            for path in ("search", "histogram")
        ),
        ("POST", "/v1/values", {"json": {"tenant": "Theirs", "field": "message", **times}}),
        ("POST", "/v1/search", {"json": {"tenant": "Theirs", "pin": pin, **times}}),
        *(("GET", f"/v1/{path}", {"params": {"tenant": "Theirs", **where}}) for path in ("row", "context")),
        ("POST", "/v1/sql", {"json": {"sql": "SELECT * FROM logs", "tenant": "Theirs"}}),
        ("POST", "/v1/sql", {"json": {"sql": 'SELECT * FROM "Theirs".logs', "tenant": "Mine"}}),
        ("POST", "/v1/sql", {"json": {"sql": "SELECT * FROM _54heirs.logs", "tenant": "Mine"}}),
        ("POST", "/v1/exports", {"json": {"tenant": "Theirs", **times}}),
        *(
            ("GET", f"/v1/{path}", {"params": {"tenant": "Theirs"}})
            for path in ("streams", "streams/detail", "streams/dropped", "tail", "erasures")
        ),
        *(
            ("GET", f"/v1/{path}", {"params": {"tenant": "Theirs"}})
            for path in ("dead-letters", "parked", "maintenance")
        ),
        *(("GET", f"/v1/{path}", {}) for path in ("dead-letters", "parked", "maintenance")),
        ("POST", "/v1/dead-letters/replay", {"json": {"tenant": "Mine", "to_tenant": "Theirs", "all": True}}),
        ("POST", "/v1/dead-letters/replay", {"json": {"all": True}}),
        ("POST", "/v1/erasures", {"json": {"tenant": "Theirs", "query": "secret"}}),
        (
            "POST",
            "/v1/streams/types",
            {"json": {"tenant": "Theirs", "stream": "logs", "field": "a", "type": "long"}},
        ),
        (
            "POST",
            "/v1/streams/retention",
            {"json": {"tenant": "Theirs", "stream": "logs", "retention": "1d"}},
        ),
        ("GET", "/v1/tenants/retention", {"params": {"tenant": "Theirs"}}),
        ("POST", "/v1/tenants/retention", {"json": {"tenant": "Theirs", "retention": "1d", "dry_run": True}}),
        ("POST", "/v1/tenants/retention", {"json": {"tenant": "Theirs", "retention": "1d"}}),
        ("DELETE", "/v1/streams", {"params": {"tenant": "Theirs", "stream": "logs"}}),
        ("POST", "/v1/streams/undo", {"json": {"tenant": "Theirs", "stream": "logs"}}),
    ]
    for method, path, options in tries:
        answer = guarded.ask(method, path, "mine", **options)
        assert answer.status_code == 403, (method, path, options, answer.text)
        assert SECRET not in answer.text
    unknown = guarded.ask("GET", "/v1/exports/abcdefgh", "mine")
    for method, part in (
        ("GET", ""),
        ("GET", "/file"),
        ("GET", "/parts/part-000000.ndjson"),
        ("POST", "/resume"),
        ("DELETE", ""),
    ):
        answer = guarded.ask(method, f"/v1/exports/{foreign}{part}", "mine")
        assert (answer.status_code, answer.text) == (404, unknown.text), (method, part)
    health = guarded.ask("GET", "/v1/health", "mine")
    assert "Theirs" not in health.text
    assert "_54heirs" not in health.text
    assert health.json()["retention_of_lake"] is None
    assert foreign not in guarded.ask("GET", "/v1/exports", "mine").text
    assert guarded.ask("POST", "/v1/search", "theirs", json={"tenant": "Theirs", **times}).json()["rows"]


def test_a_key_that_may_only_read_changes_nothing(guarded: Guarded) -> None:
    """Every change is refused with a sentence, and what it would have changed is as it was."""

    def state() -> dict[str, Any]:
        detail = guarded.ask("GET", "/v1/streams/detail", "reader", params={"tenant": "Mine"}).json()
        return {name: detail[name] for name in ("rows", "schema", "retention", "uuid")}

    before = state()
    for method, path, options in (
        (
            "POST",
            "/v1/streams/types",
            {"json": {"tenant": "Mine", "stream": "logs", "field": "a", "type": "long"}},
        ),
        ("POST", "/v1/streams/retention", {"json": {"tenant": "Mine", "stream": "logs", "retention": "1d"}}),
        ("POST", "/v1/tenants/retention", {"json": {"tenant": "Mine", "retention": "1d"}}),
        ("DELETE", "/v1/streams", {"params": {"tenant": "Mine", "stream": "logs"}}),
        ("POST", "/v1/erasures", {"json": {"tenant": "Mine", "query": "secret"}}),
        ("POST", "/v1/dead-letters/replay", {"json": {"tenant": "Mine", "all": True}}),
    ):
        answer = guarded.ask(method, path, "reader", **options)
        assert answer.status_code == 403, (path, answer.text)
        assert "key" in answer.json()["error"]["message"]
    assert state() == before


def test_an_erasure_by_a_tenants_key_is_carried_out_by_the_room(guarded: Guarded) -> None:
    """The report names the key by its id, never by its secret; only those who may change the tenant see
    it."""
    made = guarded.ask(
        "POST", "/v1/erasures", "mine", json={"tenant": "Mine", "query": 'message:"of Mine 7"'}
    ).json()

    def report() -> dict[str, Any]:
        return dict(guarded.ask("GET", f"/v1/erasures/{made['id']}", "mine").json())

    wait_for(lambda: report()["state"] != "running", 60.0, "the erasure")
    assert (report()["rows"], report()["tables"][0]["rows_left"]) == (1, 0)
    assert report()["asked_by"] == guarded.keys["mine"].split("_")[1]
    assert report()["state"] == "incomplete"
    assert any("dead letters were not looked at" in each for each in report()["elsewhere"])
    assert guarded.ask("GET", f"/v1/erasures/{made['id']}", "theirs").status_code == 404


def test_no_secret_is_written_down(guarded: Guarded, stack: Stack, services: Stack) -> None:
    """Neither a key nor a password nor a token is in a log, in the databases or in the API's state, after all
    that was asked."""
    guarded.ask("GET", "/v1/dead-letters", "admin")
    guarded.ask("POST", "/v1/sql", "mine", json={"sql": "SELECT * FROM logs", "tenant": "Mine"})
    secrets = [key.split("_", 2)[2] for key in guarded.keys.values()] + [INGEST_TOKEN]
    folders = (guarded.folder, stack.folder / "logs", services.folder / "logs")
    searched = [path for folder in folders for path in folder.rglob("*") if path.is_file()] + list(
        stack.folder.glob("catalog.db*")
    )
    assert {"catalog.log", "query.log", "trino.log", "catalog.db", "counts.db"} <= {
        path.name for path in searched
    }
    for path in searched:
        content = path.read_bytes()
        assert not [secret for secret in secrets if secret.encode() in content], path


def test_beyond_loopback_the_api_refuses_to_let_everybody_in(
    guarded: Guarded, stack: Stack, tmp_path: Path
) -> None:
    """Over a catalog without keys it does not start, and says what to do; over one with keys it would."""
    open_catalog = {"FIRN_QUERY_CATALOG__URI": stack.address("catalog"), "FIRN_QUERY_STATE": str(tmp_path)}
    done = run("query", open_catalog, "serve", "--host", "0.0.0.0", "--port", "0")
    assert done.returncode == 2, done.stderr
    assert "refuses to listen" in done.stderr
    assert "make keys" in done.stderr
    for host in ("0.0.0.0", "::", "example.org"):
        with pytest.raises(SettingsError):
            check_host(host, Access(QuerySettings.load(catalog__uri=stack.address("catalog"))))
        check_host(host, Access(QuerySettings.load(catalog__uri=guarded.catalog.address)))
