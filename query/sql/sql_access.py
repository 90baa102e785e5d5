"""Whose tables a statement reads, and as whom Trino is asked for them.

Names are checked twice. The catalog says with the caller's own key that each is a table: a view would be
expanded by Trino, with whatever it reads. And Trino is asked as the tenant's own user, whose rules
(`trino.access`) let it read that tenant and nothing else, whatever a name turns out to be.
"""

from collections.abc import Sequence

from lake.catalog_client import CatalogClient, TableName
from lake.tenant import TenantId
from query.access.access import no_stream
from query.access.trino_access import user_of
from query.sql.sql_guard import Statement


def check_tables(catalog: CatalogClient, statement: Statement) -> None:
    """Raises NotFoundError where a name is no table, RefusedError where the key does not reach it. `catalog`
    speaks with the caller's key."""
    for table in sorted(statement.tables):
        if not catalog.table_exists(TableName(table.tenant.namespace, table.table)):
            raise no_stream(
                table, " Views, and tables about tables, are read in Trino itself, with a user of its own"
            )


def asks_as(statement: Statement, default: TenantId | None, bound: Sequence[str], room: str) -> str:
    """Trino's user for a statement: the namespace that the caller's key is bound to; where there are several,
    or none, that of the one tenant it is about.

    `room`: the room's own user, for keys that reach several tenants at once, and where such a key's statement
    names none.
    """
    if len(bound) == 1:
        return bound[0]
    whose = statement.tenants or (frozenset() if default is None else frozenset({default}))
    if not whose and bound:
        return bound[0]
    return user_of(next(iter(whose)), room) if len(whose) == 1 else room
