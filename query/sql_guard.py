"""SQL of people, made safe: read by sqlglot, allowed only where it reads, its tables replaced by those it may see, and written anew.

What runs is what was checked: the text that goes to Trino is generated from the checked tree, never the text that came in.
"""

from collections.abc import Callable

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from lake.errors import Rejected
from lake.tenant import TenantId, from_identifier, parse_stream, parse_tenant, to_identifier
from query.problem import refuse

CHARACTERS_MAX = 100_000
DEPTH_MAX = 200
_CHANGES = (exp.DDL, exp.DML, exp.Command, exp.Into, exp.Lock, exp.Use, exp.Set, exp.Show, exp.Describe)


def guard(sql: str, default: TenantId | None, catalog: str, check: Callable[[TenantId], None]) -> str:
    """The statement to run. `default`: whose tables names without a schema mean. `check` raises for a tenant the caller does not reach.

    Raises BadQuestionError for anything but one query over tables of tenants.
    """
    tree = _parsed(sql)
    for node in tree.walk():
        if isinstance(node, _CHANGES) and not isinstance(node, exp.Query):
            raise refuse(f"only queries are allowed here, not {node.key.upper()}", suggestion="begin with SELECT or WITH")
    scopes = _names_of_ctes(tree)
    for table in list(tree.find_all(exp.Table)):
        _force(table, default, catalog, check, scopes)
    runs = str(tree.sql(dialect="trino", comments=False))
    if _parsed(runs).sql(dialect="trino", comments=False) != runs:  # it would be read otherwise than it was checked
        raise refuse("this is not SQL that can be read: a part of it has two meanings; write it in a plainer way")
    return runs


def _parsed(sql: str) -> exp.Expression:
    if len(sql) > CHARACTERS_MAX:
        raise refuse(f"the statement has {len(sql):,} characters, at most {CHARACTERS_MAX:,} are allowed")
    if "\x00" in sql or any(0xD800 <= ord(character) <= 0xDFFF for character in sql):
        raise refuse("the statement contains characters that no text can hold; remove them")
    depth = deepest = 0
    for character in sql:
        depth += (character in "([") - (character in ")]")
        deepest = max(deepest, depth)
    if deepest > DEPTH_MAX:
        raise refuse(f"the statement is nested more than {DEPTH_MAX} levels deep; write it flatter")
    try:
        statements = [each for each in sqlglot.parse(sql, dialect="trino") if each is not None]
    except (SqlglotError, RecursionError, ValueError, AttributeError, IndexError, TypeError, KeyError) as error:
        said = str(error).split("\n")[0][:200]
        raise refuse(f"this is not SQL that can be read: {said}") from error
    if len(statements) != 1:
        raise refuse("write one statement", suggestion="remove everything after the first semicolon")
    if not isinstance(statements[0], exp.Query):
        raise refuse(f"only queries are allowed here, not {statements[0].key.upper()}", suggestion="begin with SELECT or WITH")
    return statements[0]


def _names_of_ctes(tree: exp.Expression) -> frozenset[str]:
    return frozenset(cte.alias.lower() for cte in tree.find_all(exp.CTE))


def _force(table: exp.Table, default: TenantId | None, catalog: str, check: Callable[[TenantId], None], ctes: frozenset[str]) -> None:
    if not isinstance(table.this, exp.Identifier):
        raise refuse("functions that give tables are not allowed here", suggestion="write the name of a stream after FROM")
    if not table.db and not table.catalog and table.name.lower() in ctes:
        return  # inside its own body such a name is no table either: the session has no schema to look it up in
    if table.catalog and table.catalog != catalog:
        raise refuse(f"there is no catalog {table.catalog!r} here", suggestion=f"leave it out, or write {catalog}")
    if table.args.get("version") is not None or table.args.get("when") is not None:
        table.set("version", None)
        raise refuse("reading older versions is not allowed here", suggestion="a pinned search shows older rows")
    tenant = _tenant(_spelled(table.args.get("db")), default)
    check(tenant)
    written = _spelled(table.this)
    stream = parse_stream(written)
    if isinstance(stream, Rejected):
        raise refuse(f"{written[:60]!r} cannot be a stream: {stream.detail}")
    alias = table.alias or written
    name = written if from_identifier(written) is not None else to_identifier(stream)
    table.set("this", exp.to_identifier(name, quoted=True))
    table.set("db", exp.to_identifier(tenant.namespace, quoted=True))
    table.set("catalog", exp.to_identifier(catalog, quoted=True))
    if not table.alias:
        table.set("alias", exp.TableAlias(this=exp.to_identifier(alias, quoted=True)))


def _spelled(identifier: exp.Identifier | None) -> str:
    """A name as SQL means it: folded to lower case unless it is quoted."""
    if identifier is None:
        return ""
    name = str(identifier.this)
    return name if identifier.args.get("quoted") else name.lower()


def _tenant(schema: str, default: TenantId | None) -> TenantId:
    """A schema in SQL is a tenant's namespace as Trino spells it, or the tenant's own name."""
    if not schema:
        if default is None:
            raise refuse("a table needs its tenant before it, as in acme.logs", suggestion='or send "tenant" with the statement')
        return default
    name = from_identifier(schema)
    parsed = parse_tenant(schema if name is None else name)
    if isinstance(parsed, Rejected) or schema.lower() == "information_schema":
        raise refuse(f"{schema[:60]!r} is no tenant", suggestion="the list of tenants shows their names")
    return parsed
