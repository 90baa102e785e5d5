"""SQL of people, made safe: read by sqlglot, allowed only where it reads, its tables replaced by those it may
see, and written anew.

What runs is what was checked: the text that goes to Trino is generated from the checked tree, never the text
that came in. Two things are proved of it: read again it is the same tree, and no name, literal or word of the
text that came in is missing (`sql_words`).
"""

from collections.abc import Callable
from dataclasses import dataclass

import sqlglot
from sqlglot import exp
from sqlglot.errors import ErrorLevel, SqlglotError
from sqlglot.tokens import Token

from lake.errors import Rejected
from lake.tenant import TableId, TenantId, from_identifier, parse_stream, parse_tenant, to_identifier
from query.model.problem import BadRequestError, refuse
from query.sql.sql_words import check_nesting, lost_words, words_of

CHARACTERS_MAX = 50_000
# What sqlglot, Trino or a sixty-fold nested tree raise at text that is no SQL.
_UNREADABLE = (
    SqlglotError,
    RecursionError,
    MemoryError,
    ValueError,
    AttributeError,
    IndexError,
    TypeError,
    KeyError,
)
_CHANGES = (exp.DDL, exp.DML, exp.Command, exp.Into, exp.Lock, exp.Use, exp.Set, exp.Show, exp.Describe)
# What a table may carry; whatever else sqlglot reads after its name is of other databases, or gets lost.
_OF_A_TABLE = frozenset({"this", "db", "catalog", "alias", "joins", "laterals", "sample", "ordinality"})
_ELSEWHERE = (
    exp.Parameter,
    exp.Placeholder,
    exp.Pivot,
    exp.HistoricalData,
    exp.Stream,
    exp.Hint,
    exp.JoinHint,
    exp.Cluster,
    exp.Sort,
)
_RELATIONS = (exp.Table, exp.Subquery, exp.Unnest, exp.Lateral, exp.Values)


@dataclass(frozen=True, slots=True)
class Statement:
    """A query to run, and the tables that it reads."""

    sql: str
    tables: frozenset[TableId]

    @property
    def tenants(self) -> frozenset[TenantId]:
        return frozenset(table.tenant for table in self.tables)


def guard(sql: str, default: TenantId | None, catalog: str, check: Callable[[TenantId], None]) -> str:
    """The statement to run. `check` raises for a tenant the caller does not reach. Raises BadRequestError as
    `read_statement` does."""
    statement = read_statement(sql, default, catalog)
    for tenant in sorted(statement.tenants):
        check(tenant)
    return statement.sql


def check_text(sql: str) -> None:
    """What is told without reading it: its length, and characters that no text can hold. Raises
    BadRequestError."""
    if len(sql) > CHARACTERS_MAX:
        raise refuse(f"the statement has {len(sql):,} characters, at most {CHARACTERS_MAX:,} are allowed")
    if "\x00" in sql or any(0xD800 <= ord(character) <= 0xDFFF for character in sql):
        raise refuse("the statement contains characters that no text can hold; remove them")


def read_statement(sql: str, default: TenantId | None, catalog: str) -> Statement:
    """Reads, checks and writes anew. `default`: whose tables names without a schema mean; `catalog`: Trino's
    name of the one that holds them.

    Raises BadRequestError for anything but one query over tables of tenants. Nobody has checked who may read
    those.
    """
    check_text(sql)
    words = _words(sql)
    check_nesting(words)
    tree = _parsed(sql)
    for node in tree.walk():
        if isinstance(node, _CHANGES) and not isinstance(node, exp.Query):
            raise refuse(
                f"only queries are allowed here, not {node.key.upper()}",
                suggestion="begin with SELECT or WITH",
            )
        _check_kind(node)
    if lost := lost_words(words, _words(_written(tree))):
        raise refuse(
            f"{lost[:60]!r} is not understood here: it would be lost, and the answer would be to another "
            "question; write it in another way"
        )
    ctes = frozenset(cte.alias.lower() for cte in tree.find_all(exp.CTE))
    tables = frozenset(
        found
        for table in list(tree.find_all(exp.Table))
        if (found := _force(table, default, catalog, ctes)) is not None
    )
    runs = _written(tree)
    if _written(_parsed(runs)) != runs:  # it would be read otherwise than it was checked
        raise refuse(
            "this is not SQL that can be read: a part of it has two meanings; write it in a plainer way"
        )
    return Statement(runs, tables)


def _written(tree: exp.Expression) -> str:
    """The tree in Trino's SQL. Raises BadRequestError where Trino has no words for a part of it."""
    try:
        return str(tree.sql(dialect="trino", comments=False, unsupported_level=ErrorLevel.RAISE))
    except (SqlglotError, RecursionError) as error:
        raise refuse(
            f"Trino's SQL has no such thing: {str(error)[:200]}", suggestion="write it in Trino's SQL"
        ) from error


def _words(sql: str) -> list[Token]:
    try:
        return words_of(sql)
    except _UNREADABLE as error:
        raise _unreadable(error) from error


def _unreadable(error: Exception) -> BadRequestError:
    return refuse(
        "this is not SQL that can be read: "
        f"{str(error).splitlines()[0][:200] if str(error) else type(error).__name__}"
    )


def _parsed(sql: str) -> exp.Query:
    try:
        statements = [each for each in sqlglot.parse(sql, dialect="trino") if each is not None]
    except _UNREADABLE as error:
        raise _unreadable(error) from error
    if len(statements) != 1:
        raise refuse("write one statement", suggestion="remove everything after the first semicolon")
    if not isinstance(statements[0], exp.Query):
        raise refuse(
            f"only queries are allowed here, not {statements[0].key.upper()}",
            suggestion="begin with SELECT or WITH",
        )
    return statements[0]


def _check_kind(node: exp.Expression) -> None:
    """Refuses what other databases have and Trino has not: written anew it would be dropped, or become
    something else."""
    if isinstance(node, _ELSEWHERE) or (isinstance(node, exp.Select) and node.args.get("connect")):
        raise refuse(
            f"{node.key.upper()} is not allowed here",
            suggestion="write it in Trino's SQL, without parameters, branches and hints",
        )
    if isinstance(node, exp.From | exp.Join) and not isinstance(node.this, _RELATIONS):
        raise refuse(
            f"{node.this.key.upper()} cannot be read from here",
            suggestion="write the name of a stream after FROM",
        )
    if isinstance(node, exp.Lateral) and not isinstance(node.this, exp.Subquery):
        raise refuse(
            "functions that give tables are not allowed here",
            suggestion="write the name of a stream after FROM",
        )


def _force(table: exp.Table, default: TenantId | None, catalog: str, ctes: frozenset[str]) -> TableId | None:
    """Makes a table's name a full one and gives the table; None where it is a name that the statement defines
    itself."""
    if not isinstance(table.this, exp.Identifier):
        raise refuse(
            "functions that give tables are not allowed here",
            suggestion="write the name of a stream after FROM",
        )
    if table.args.get("version") is not None or table.args.get("when") is not None:
        raise refuse(
            "reading older versions is not allowed here", suggestion="a pinned search shows older rows"
        )
    if strange := [name for name, value in table.args.items() if value and name not in _OF_A_TABLE]:
        raise refuse(
            f"{strange[0].upper()} after the name of a stream is not allowed here",
            suggestion="write conditions after WHERE",
        )
    if not table.db and not table.catalog and table.name.lower() in ctes:
        # inside its own body such a name is no table either: the session has no schema to look it up in
        return None
    if table.catalog and table.catalog != catalog:
        raise refuse(
            f"there is no catalog {table.catalog!r} here", suggestion=f"leave it out, or write {catalog}"
        )
    tenant = _tenant(_spelled(table.args.get("db")), default)
    written = _spelled(table.this)
    stream = parse_stream(written)
    if isinstance(stream, Rejected):
        raise refuse(f"{written[:60]!r} cannot be a stream: {stream.detail}")
    plain = from_identifier(written)
    name = written if plain is not None else to_identifier(stream)
    table.set("this", exp.to_identifier(name, quoted=True))
    table.set("db", exp.to_identifier(tenant.namespace, quoted=True))
    table.set("catalog", exp.to_identifier(catalog, quoted=True))
    if not table.alias:
        table.set("alias", exp.TableAlias(this=exp.to_identifier(written, quoted=True)))
    return TableId(tenant, stream if plain is None else plain)


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
            raise refuse(
                "a table needs its tenant before it, as in acme.logs",
                suggestion='or send "tenant" with the statement',
            )
        return default
    name = from_identifier(schema)
    parsed = parse_tenant(schema if name is None else name)
    if isinstance(parsed, Rejected) or schema.lower() == "information_schema":
        raise refuse(f"{schema[:60]!r} is no tenant", suggestion="the list of tenants shows their names")
    return parsed
