"""Trino with users, tried with Trino's own client: by its password, over TLS, a tenant's user sees its own
schema and no other."""

from contextlib import closing
from datetime import UTC, datetime
from typing import Any

import pytest
import trino

from lake.catalog_client import CatalogClient
from tests.query.support.log_table import LogTable, fresh_tenant
from tests.security.support.ruled import REFUSED, Ruled, Users
from tests.stack.support.waiting import wait_for

pytestmark = pytest.mark.stack

START = datetime(2026, 8, 9, 10, 0, tzinfo=UTC)


@pytest.fixture(scope="module")
def tables(catalog_client: CatalogClient) -> tuple[LogTable, LogTable]:
    """Two tenants with a row each."""
    found = LogTable(catalog_client, fresh_tenant("mine")), LogTable(catalog_client, fresh_tenant("theirs"))
    for table in found:
        table.append([{"timestamp": START, "message": f"of {table.tenant}"}])
    return found


@pytest.fixture(scope="module")
def users(ruled: Ruled, tables: tuple[LogTable, LogTable]) -> Users:
    """The users of a Trino, those of both tenants among them."""
    ruled.users.admit(*(table.id.tenant for table in tables))
    for table in tables:
        wait_for_user(ruled.users, table.name.namespace)
    return ruled.users


def wait_for_user(users: Users, name: str) -> None:
    """Until Trino knows a user by password and by rules."""

    def is_known() -> bool:
        try:
            return [name] in users.ask(name, "SHOW SCHEMAS FROM lake")
        except REFUSED:
            return False

    wait_for(is_known, 40.0, f"{name} being let in", poll_s=1.0)


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


def test_a_new_tenants_user_gets_in_without_a_restart(users: Users, catalog_client: CatalogClient) -> None:
    """Trino takes the files up by itself within seconds."""
    third = LogTable(catalog_client, fresh_tenant("third"))
    third.append([{"timestamp": START, "message": "new"}])
    assert users.admit(third.id.tenant) == [third.name.namespace]
    user = third.name.namespace
    wait_for_user(users, user)
    assert users.ask(user, f'SELECT message FROM lake."{user}".logs') == [["new"]]
