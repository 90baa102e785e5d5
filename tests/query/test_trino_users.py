"""Trino with users: what `python -m query trino-access` writes, tried with Trino's own client against a Trino
that asks for passwords over TLS."""

import shutil
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import requests
import trino
from trino.auth import BasicAuthentication

from infra.local.service import host_port
from infra.local.supervisor import Stack
from lake.catalog_client import CatalogClient
from lake.errors import SettingsError
from lake.tenant import SYSTEM_TENANT, TableId, TenantId
from query.access.trino_access import PASSWORDS, RULES, refresh_rules, user_of, write_access
from query.sql.sql_access import asks_as
from query.sql.sql_guard import Statement
from tests.query.support.log_table import LogTable, fresh_tenant
from tests.stack.support.line import patiently
from tests.stack.support.waiting import wait_for

REFUSED = (trino.exceptions.Error, trino.exceptions.HttpError)
START = datetime(2026, 8, 9, 10, 0, tzinfo=UTC)


def test_users_keep_their_passwords_until_they_are_renewed(tmp_path: Path) -> None:
    """A second run adds the new tenant's user, removes the one that is gone, and says no password twice."""
    first = write_access(tmp_path, [TenantId("acme"), TenantId("Acme")], "lake", ("firn", None))
    assert [user.name for user in first] == ["firn", "_41cme", "acme"]
    second = write_access(tmp_path, [TenantId("acme"), TenantId("globex")], "lake", ("firn", None), ["acme"])
    assert [user.name for user in second] == ["acme", "globex"]
    lines = dict(line.split(":", 1) for line in (tmp_path / PASSWORDS).read_text().splitlines())
    assert set(lines) == {"firn", "acme", "globex"}
    assert not any(
        user.password in text
        for user in (*first, *second)
        for text in ((tmp_path / PASSWORDS).read_text(), (tmp_path / RULES).read_text())
    )
    assert (tmp_path / PASSWORDS).stat().st_mode & 0o077 == 0
    with pytest.raises(SettingsError, match="no user 'nobody'"):
        write_access(tmp_path, [], "lake", ("firn", None), ["nobody"])


def test_who_did_what_has_no_user(tmp_path: Path) -> None:
    """Nobody can be Firn's own tenant in Trino: the room asks about it as itself, for administrators."""
    new = write_access(tmp_path, [TenantId("acme"), SYSTEM_TENANT], "lake", ("firn", None))
    assert [user.name for user in new] == ["firn", "acme"]
    refresh_rules(tmp_path, [TenantId("acme"), SYSTEM_TENANT], "lake", "firn")
    assert SYSTEM_TENANT.namespace not in (tmp_path / RULES).read_text()
    with pytest.raises(SettingsError, match="no user '_73ystem'"):
        write_access(tmp_path, [SYSTEM_TENANT], "lake", ("firn", None), [SYSTEM_TENANT.namespace])
    both = Statement("", frozenset({TableId(SYSTEM_TENANT, "audit"), TableId(TenantId("acme"), "logs")}))
    alone = Statement("", frozenset({TableId(SYSTEM_TENANT, "audit")}))
    assert [asks_as(each, None, (), "firn") for each in (both, alone)] == ["firn", "firn"]
    assert user_of(TenantId("acme"), "firn") == "acme"


class Users:
    """A Trino with users, and their passwords."""

    def __init__(self, stack: Stack, access: Path, passwords: dict[str, str]) -> None:
        self._stack, self.access, self.passwords = stack, access, passwords

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


@pytest.fixture(scope="module")
def tables(catalog_client: CatalogClient) -> tuple[LogTable, LogTable]:
    """Two tenants with a row each."""
    found = LogTable(catalog_client, fresh_tenant("mine")), LogTable(catalog_client, fresh_tenant("theirs"))
    for table in found:
        table.append([{"timestamp": START, "message": f"of {table.tenant}"}])
    return found


@pytest.fixture(scope="module")
def users(
    stack: Stack, tables: tuple[LogTable, LogTable], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Users]:
    """A second Trino over the same catalog."""
    folder = tmp_path_factory.mktemp("trino-users")
    made = write_access(folder / "access", [table.id.tenant for table in tables], "lake", ("firn", None))
    with pytest.MonkeyPatch.context() as patch, Stack(folder / "stack", tied=True) as own:
        patch.setenv("FIRN_INFRA_TRINO__ACCESS", str(folder / "access"))
        own.start("trino", catalog_uri=stack.address("catalog"))
        yield Users(own, folder / "access", {user.name: user.password for user in made})
    shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.stack
def test_a_tenants_user_sees_its_own_schema_and_no_other(
    users: Users, tables: tuple[LogTable, LogTable]
) -> None:
    """Listings hold nothing foreign, a foreign table cannot be read, nothing can be written, other people's
    queries are not seen."""
    mine, theirs = (table.name for table in tables)
    user = mine.namespace
    schemas = {row[0] for row in users.ask(user, "SHOW SCHEMAS FROM lake")}
    assert schemas - {"information_schema"} == {user}
    assert users.ask(user, f'SELECT message FROM lake."{user}".logs') == [[f"of {tables[0].tenant}"]]
    listed = {
        tuple(row)
        for row in users.ask(user, "SELECT table_schema, table_name FROM lake.information_schema.tables")
    }
    assert {schema for schema, _ in listed} <= {user, "information_schema"}
    users.ask("firn", f'SELECT count(*) FROM lake."{theirs.namespace}".logs')
    for statement in (
        f'SELECT * FROM lake."{theirs.namespace}".logs',
        f'SELECT * FROM lake."{theirs.namespace}"."logs$files"',
        f'INSERT INTO lake."{user}".logs SELECT * FROM lake."{user}".logs',
        f'DELETE FROM lake."{user}".logs',
        f'DROP TABLE lake."{user}".logs',
        f'CREATE TABLE lake."{user}".copy AS SELECT 1 AS one',
        "SELECT * FROM system.runtime.queries",
        f"CALL lake.system.unregister_table('{user}', 'logs')",
    ):
        with pytest.raises(trino.exceptions.TrinoUserError, match=r"Access Denied|Cannot|does not exist"):
            users.ask(user, statement)


@pytest.mark.stack
def test_without_the_right_password_nobody_gets_in(users: Users, tables: tuple[LogTable, LogTable]) -> None:
    """A wrong password, another user's password, and plain HTTP without one are turned away; nobody takes
    another's name."""
    mine, theirs = (table.name.namespace for table in tables)
    for password in ("wrong", "", users.passwords[theirs]):
        with pytest.raises(REFUSED):
            users.ask(mine, "SELECT 1", password)
    host, port = users.plain_address
    plain: Any = trino.dbapi.Connection(host=host, port=port, user=mine, catalog="lake")
    with pytest.raises(REFUSED), closing(plain):
        plain.cursor().execute("SELECT 1").fetchall()
    with pytest.raises(REFUSED):
        users.ask(mine, f'SET SESSION AUTHORIZATION "{theirs}"')


@pytest.mark.stack
def test_a_new_tenants_user_gets_in_without_a_restart(
    users: Users, catalog_client: CatalogClient, tables: tuple[LogTable, LogTable]
) -> None:
    """Trino takes the files up by itself within seconds."""
    third = LogTable(catalog_client, fresh_tenant("third"))
    third.append([{"timestamp": START, "message": "new"}])
    (made,) = write_access(
        users.access, [table.id.tenant for table in (*tables, third)], "lake", ("firn", None)
    )
    users.passwords[made.name] = made.password

    def sees_its_rows() -> bool:
        try:
            return users.ask(made.name, f'SELECT message FROM lake."{made.name}".logs') == [["new"]]
        except REFUSED:
            return False

    wait_for(sees_its_rows, 40.0, "the new user's first query", poll_s=1.0)
