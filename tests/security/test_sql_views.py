"""A view in a tenant's namespace reads no other tenant: the API gives tables alone, and Trino's rules hold
whatever a name is."""

from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import timedelta
from typing import Any

import pytest
import trino as trino_client

from infra.local.supervisor import Stack
from lake.catalog_client import CatalogClient, CommitResult, TableName
from query.executors.trino import TrinoExecutor
from query.model.cancellation import Run
from tests.query.support.guarded import SECRET, START, Guarded
from tests.query.support.log_table import LogTable, fresh_tenant
from tests.security.support.markers import Markers
from tests.security.support.ruled import REFUSED, Ruled, Users
from tests.stack.support.plain_http import http
from tests.stack.support.shared_services import catalog_on_trino
from tests.stack.support.waiting import wait_for

pytestmark = [pytest.mark.stack, pytest.mark.finding(1)]

SEEN = "messages_of_all"
VIEWS = {
    SEEN: 'SELECT message, "$path" AS path FROM lake.b.logs',
    "snapshots_of_b": (
        "SELECT CAST(snapshot_id AS varchar) AS message, '' AS path FROM lake.b.\"logs$snapshots\""
    ),
    "queries": "SELECT query AS message, query_id AS path FROM system.runtime.queries",
    "of_mine": "SELECT message, '' AS path FROM lake.a.logs",
}


def make_view(catalog: CatalogClient, name: str, sql: str, owner: str = "") -> None:
    """A view in the namespace `a`, as Trino makes it. `owner`: whose rights it claims."""
    schema = {
        "type": "struct",
        "schema-id": 0,
        "fields": [
            {"id": at, "name": column, "required": False, "type": "string"}
            for at, column in ((1, "message"), (2, "path"))
        ],
    }
    version = {
        "version-id": 1,
        "timestamp-ms": 1_800_000_000_000,
        "schema-id": 0,
        "summary": {"engine-name": "trino"},
        "representations": [{"type": "sql", "sql": sql, "dialect": "trino"}],
        "default-catalog": "lake",
        "default-namespace": ["a"],
    }
    properties = {"trino.run-as-owner": owner} if owner else {}
    catalog.post(
        "/v1/namespaces/a/views",
        {"name": name, "schema": schema, "view-version": version, "properties": properties},
    )


@pytest.fixture(scope="module")
def views(keyed: Guarded, catalog_client: CatalogClient) -> Iterator[list[str]]:
    """Views that somebody made who may make any."""
    names = []
    for name, sql in VIEWS.items():
        for owner in ("", "firn", "b"):
            names.append(f"{name}_{owner}" if owner else name)
            make_view(catalog_client, names[-1], sql, owner)
    yield names
    for name in names:
        catalog_client.delete(f"/v1/namespaces/a/views/{name}")


def test_the_api_gives_no_row_of_a_view(keyed: Guarded, stack: Stack, views: list[str]) -> None:
    """With any key, also one that may read everything: what is no table of a tenant is not there."""
    lake = catalog_on_trino(stack)
    for view in views:
        for key in ("reader", "mine", "room", "admin"):
            for sql in (
                f"SELECT * FROM {view}",
                f'WITH x AS (SELECT * FROM a."{view.upper()}") SELECT count(*) FROM x, logs',
                f"SELECT path FROM {lake}.a.{view}",
            ):
                answer = keyed.ask("POST", "/v1/sql", key, json={"sql": sql, "tenant": "a"})
                assert answer.status_code == 404, (sql, key, answer.text)
                assert "no stream" in answer.text
                assert SECRET not in answer.text


def test_what_is_no_table_of_a_tenant_is_refused(keyed: Guarded, stack: Stack) -> None:
    """Tables about tables, system tables, tables that are not there; the tenant's own stream is."""
    lake = catalog_on_trino(stack)
    for sql in (
        'SELECT * FROM "logs$snapshots"',
        'SELECT * FROM b."logs$snapshots"',
        f'SELECT * FROM {lake}.b."logs$files"',
        "SELECT * FROM system.runtime.queries",
        f"SELECT * FROM {lake}.information_schema.tables",
        f"SELECT * FROM {lake}.firn_system.queue",
        "SELECT * FROM nothing_here",
    ):
        answer = keyed.ask("POST", "/v1/sql", "reader", json={"sql": sql, "tenant": "a"})
        assert answer.status_code in (400, 403, 404), (sql, answer.text)
        assert SECRET not in answer.text
    assert keyed.ask(
        "POST", "/v1/sql", "reader", json={"sql": "SELECT count(*) FROM logs", "tenant": "a"}
    ).json()["rows"] == [[30]]


def test_trinos_rules_stop_a_view_where_the_api_does_not(ruled: Ruled, views: list[str]) -> None:
    """As the tenant's user nobody reads another tenant through a view, whoever the view claims to belong to:
    in Trino itself, or as the API asks."""
    trino = TrinoExecutor(ruled.settings)
    foreign = [view for view in views if not view.startswith("of_mine")]
    for view in foreign:
        with pytest.raises(REFUSED, match="Access Denied"):
            ruled.users.ask("a", f"SELECT * FROM lake.a.{view}")
        with pytest.raises(Exception, match=r"Access Denied.*trino-access"):
            trino.statement(
                f"SELECT * FROM lake.a.{view}", Run(60.0), user="a", rows_max=10, bytes_max=10_000
            )
    with pytest.raises(
        REFUSED, match="Access Denied"
    ):  # the room's own user lends its rights to no view either
        ruled.users.ask("a", f"SELECT * FROM lake.a.{SEEN}_firn")
    assert len(ruled.users.ask("a", "SELECT * FROM lake.a.of_mine")) == 30


# Every way of Trino's to tell of a table, a column, a file or a query; `b.logs` is another tenant's.
ASKS = (
    "SHOW SCHEMAS FROM lake",
    "SHOW TABLES FROM lake.b",
    "SHOW COLUMNS FROM lake.b.logs",
    "SHOW CREATE TABLE lake.b.logs",
    "SHOW CREATE SCHEMA lake.b",
    "SHOW STATS FOR lake.b.logs",
    "DESCRIBE lake.b.logs",
    "EXPLAIN SELECT * FROM lake.b.logs",
    "EXPLAIN (TYPE IO) SELECT * FROM lake.b.logs",
    "SELECT * FROM lake.b.logs",
    'SELECT * FROM lake."B"."LOGS"',
    "SELECT * FROM lake.b.logs FOR TIMESTAMP AS OF now()",
    *(
        f'SELECT * FROM lake.b."logs${of}"'
        for of in (
            "files",
            "snapshots",
            "history",
            "manifests",
            "partitions",
            "refs",
            "properties",
            "entries",
        )
    ),
    'SELECT "$path" FROM lake.b.logs',
    "SELECT * FROM lake.a.logs JOIN lake.b.logs USING (message)",
    "SELECT (SELECT max(message) FROM lake.b.logs)",
    "WITH x AS (TABLE lake.b.logs) SELECT * FROM x",
    "SELECT * FROM lake.information_schema.schemata",
    "SELECT * FROM lake.information_schema.tables",
    "SELECT * FROM lake.information_schema.columns WHERE table_schema = 'b'",
    "SELECT * FROM lake.information_schema.views",
    "SELECT * FROM lake.information_schema.table_privileges",
    *(
        f"SELECT * FROM system.{of}"
        for of in (
            "runtime.queries",
            "runtime.tasks",
            "runtime.transactions",
            "metadata.table_comments WHERE catalog_name = 'lake'",
            "metadata.materialized_views",
            "metadata.table_properties",
            "jdbc.schemas",
            "jdbc.tables WHERE table_cat = 'lake'",
            "jdbc.columns WHERE table_cat = 'lake'",
        )
    ),
    "SELECT * FROM TABLE(lake.system.table_changes('b', 'logs', 1, 2))",
    "SHOW GRANTS",
    "SHOW SESSION",
    "SHOW FUNCTIONS FROM lake.b",
)


def test_nothing_that_trino_tells_a_tenants_user_is_anothers(
    ruled: Ruled, keyed: Guarded, record_property: Callable[[str, object], None]
) -> None:
    """Rows, lists, statistics, other people's statements, messages of errors: none holds anything of `b`. The
    room's own user is told it by the same statements."""
    markers = Markers.of(keyed.theirs, keyed.keys["theirs"].split("_")[1])
    ruled.users.ask("firn", f"SELECT count(*) FROM lake.b.logs WHERE message <> '{SECRET}'")
    texts = (*markers.texts, "'b'")
    leaks = []
    for statement in ASKS:
        told = _told(ruled.users, "a", statement)
        if found := [text for text in texts if text in told]:
            leaks.append((statement, found, told[:300]))
    record_property("cross_tenant_leaks", len(leaks))
    assert leaks == []
    told_room = [_told(ruled.users, "firn", statement) for statement in ASKS[::3]]
    assert sum(any(text in told for text in texts) for told in told_room) > 5


def _told(users: Users, user: str, statement: str) -> str:
    """The rows of a statement as text; of one that fails what is said, without the statement's own words."""
    try:
        return repr(users.ask(user, statement))
    except REFUSED as error:
        return str(error).replace(statement, "").replace("'b'", "").replace("'b.logs'", "")


def test_the_api_asks_as_the_tenant(ruled: Ruled, keyed: Guarded) -> None:
    """One tenant's question, in SQL or in words, is its user's; several tenants' the room's, for keys that
    reach them."""
    assert ruled.rows(keyed.keys["reader"], "SELECT max(current_user), count(*) FROM logs") == [["a", 30]]
    assert ruled.rows(keyed.keys["admin"], "SELECT max(current_user), count(*) FROM b.logs") == [["b", 30]]
    both = (
        "SELECT max(current_user), count(*) FROM (SELECT message FROM a.logs UNION ALL SELECT message "
        "FROM b.logs) x"
    )
    assert ruled.rows(keyed.keys["admin"], both) == [["firn", 60]]
    assert ruled.sql(keyed.keys["mine"], both).status_code == 403
    times = {"from": START.isoformat(), "to": (START + timedelta(hours=1)).isoformat()}
    headers = {"Authorization": f"Bearer {keyed.keys['reader']}"}
    for path in ("search", "histogram"):
        body = {"tenant": "a", "engine": "trino", **times}
        answer = http.post(f"{ruled.api.address}/v1/{path}", json=body, headers=headers, timeout=120.0)
        assert answer.status_code == 200, answer.text
        assert (
            answer.json()["engine"],
            answer.json()["rows"] if path == "histogram" else len(answer.json()["rows"]),
        ) == ("trino", 30)


def test_a_new_tenant_is_asked_for_within_seconds(
    ruled: Ruled, keyed: Guarded, catalog_client: CatalogClient
) -> None:
    """Nobody runs a command: the API writes the new tenant's rules, and says so until Trino has taken them
    up."""
    table = LogTable(catalog_client, fresh_tenant("late"))
    table.append([{"timestamp": START, "message": "of the late"}])
    first = ruled.sql(keyed.keys["admin"], "SELECT message FROM logs", table.tenant)
    assert first.status_code == 503, first.text
    assert "tenant is new" in first.json()["error"]["message"]

    def answered() -> bool:
        return bool(
            ruled.sql(keyed.keys["admin"], "SELECT message FROM logs", table.tenant).json().get("rows")
            == [["of the late"]]
        )

    wait_for(answered, 60.0, "the new tenant's rows", poll_s=1.0)
    with pytest.raises(REFUSED):  # and it got no password by that
        ruled.users.ask(table.name.namespace, "SELECT 1", "")


@pytest.mark.finding(5)
def test_who_may_only_read_changes_nothing_by_procedures(
    ruled: Ruled, keyed: Guarded, catalog_client: CatalogClient
) -> None:
    """Table procedures, procedures and table functions are refused for tenants' users and for the room's own;
    no snapshot moves."""
    keyed.mine.append([{"timestamp": START + timedelta(days=1), "message": "a second snapshot"}])
    before = catalog_client.load_table(keyed.mine.name)["metadata"]
    first = min(before["snapshots"], key=lambda snapshot: snapshot["sequence-number"])["snapshot-id"]
    for user in ("a", "firn"):
        for statement in (
            f"ALTER TABLE lake.a.logs EXECUTE rollback_to_snapshot(snapshot_id => {first})",
            "ALTER TABLE lake.a.logs EXECUTE optimize",
            "ALTER TABLE lake.a.logs EXECUTE optimize_manifests",
            "ALTER TABLE lake.a.logs EXECUTE expire_snapshots(retention_threshold => '7d')",
            "ALTER TABLE lake.a.logs EXECUTE remove_orphan_files(retention_threshold => '7d')",
            "ALTER TABLE lake.a.logs EXECUTE drop_extended_stats",
            f"CALL lake.system.rollback_to_snapshot('a', 'logs', {first})",
            "CALL lake.system.register_table('a', 'copy', 'file:///tmp/nowhere')",
            "CALL lake.system.unregister_table('a', 'logs')",
            "CALL system.runtime.kill_query('x', 'y')",
            "ALTER TABLE lake.a.logs SET PROPERTIES format_version = 2",
            "ANALYZE lake.a.logs",
            (
                f"SELECT * FROM TABLE(lake.system.table_changes('a', 'logs', {first}, "
                f"{before['current-snapshot-id']}))"
            ),
            "CREATE VIEW lake.a.mine AS SELECT 1 AS one",
            "DELETE FROM lake.a.logs",
        ):
            with pytest.raises(
                (trino_client.exceptions.TrinoUserError, trino_client.exceptions.TrinoQueryError)
            ) as refused:
                ruled.users.ask(user, statement)
            assert refused.value.error_name in (
                "PERMISSION_DENIED",
                "PROCEDURE_NOT_FOUND",
                "FUNCTION_NOT_FOUND",
                "NOT_SUPPORTED",
            ), (statement, refused.value)
    after = catalog_client.load_table(keyed.mine.name)["metadata"]
    assert (after["current-snapshot-id"], after["metadata-log"]) == (
        before["current-snapshot-id"],
        before["metadata-log"],
    )


@pytest.mark.finding(27)
def test_trino_writes_down_no_secret_that_it_was_given(
    ruled: Ruled, record_property: Callable[[str, object], None]
) -> None:
    """Neither its key of the catalog nor a user's password stands in its log, a refused password neither."""
    with pytest.raises(REFUSED):
        ruled.users.ask("a", "SELECT 1", f"{ruled.users.passwords['b']}!")
    log = ruled.users.log
    assert "iceberg" in log
    found = [secret for secret in (ruled.reads, *ruled.users.passwords.values()) if secret in log]
    record_property("secrets_found_in_output", len(found))
    assert found == []


@pytest.mark.finding(5)
def test_the_catalog_itself_refuses_the_key_that_trino_has(keyed: Guarded) -> None:
    """Were Trino's rules empty, a key of scope read would still change nothing."""
    with closing(CatalogClient(keyed.catalog.address, token=keyed.keys["admin"])) as admin:
        reads = str(admin.post("/firn/v1/keys", {"scope": "read"})["key"])
    with closing(CatalogClient(keyed.catalog.address, token=reads)) as client:
        snapshot = client.load_table(TableName("a", "logs"))["metadata"]["current-snapshot-id"]
        updates: list[dict[str, Any]] = [
            {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": snapshot}
        ]
        request = {"identifier": {"namespace": ["a"], "name": "logs"}, "requirements": [], "updates": updates}
        results: list[CommitResult] = client.commit_all([request])
        assert "403" in results[0].message
        assert client.load_table(TableName("a", "logs"))["metadata"]["current-snapshot-id"] == snapshot
