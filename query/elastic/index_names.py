"""Names of indices: `tenant.stream`, of which a comma, a dot and other marks inside a name are written as
`%2C`, `%2E` and so on; and the patterns that requests name them by."""

import re
from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase
from urllib.parse import unquote

from lake.tenant import TableId, TenantId
from query.elastic.elastic_error import NOT_THERE, ElasticError
from query.model.problem import BadRequestError
from query.model.table_view import table_id

# What patterns, lists of names and addresses give a meaning to.
_MARKED = re.compile(r"""[.,*?%<>|"\\/#:\s\[\]]|^[-_+]""")
_EVERYTHING = frozenset({"", "_all", "*"})
PATTERNS_MAX = 100


def index_name(table: TableId) -> str:
    """The name of a table's index."""
    return f"{_written(table.tenant.name)}.{_written(table.stream)}"


def table_of(name: str) -> TableId:
    """The table of an index's name. Raises ElasticError where no index can have it."""
    tenant, dot, stream = name.partition(".")
    try:
        if dot and "." not in stream:
            return table_id(unquote(tenant, errors="strict"), unquote(stream, errors="strict"))
    except (BadRequestError, UnicodeDecodeError):
        pass
    raise ElasticError(
        f"no such index [{name[:200]}]; an index is named tenant.stream, with %2E for a dot inside a name",
        NOT_THERE,
    )


def patterns_of(expression: str) -> tuple[str, ...]:
    """The names and patterns of a list; of nothing all. Raises ElasticError."""
    found = tuple(part.strip() for part in expression.split(",")) if expression else ("*",)
    if len(found) > PATTERNS_MAX:
        raise ElasticError(f"{len(found):,} indices are named, at most {PATTERNS_MAX} may be")
    return tuple("*" if part in _EVERYTHING else part for part in found)


def is_pattern(part: str) -> bool:
    """Whether a part of a list stands for all indices that it fits."""
    return "*" in part or part.startswith("-")


def tenant_of_pattern(part: str) -> TenantId | None:
    """The one tenant whose indices a pattern can fit; None: several."""
    tenant, dot, _ = part.partition(".")
    return table_of(f"{tenant}.logs").tenant if dot and "*" not in tenant else None


def chosen(patterns: Sequence[str], known: Callable[[str], Iterable[TableId]]) -> dict[str, TableId]:
    """The tables that names and patterns mean, by their index, in order. `known`: those of a pattern's
    tenants. Raises ElasticError for a name that no index can have."""
    tables: dict[str, TableId] = {}
    for part in patterns:
        if not is_pattern(part):
            tables[index_name(table_of(part))] = table_of(part)
        elif part.startswith("-"):
            tables = {name: each for name, each in tables.items() if not fnmatchcase(name, part[1:])}
        else:
            listed = {index_name(each): each for each in known(part)}
            tables |= {name: each for name, each in listed.items() if fnmatchcase(name, part)}
    return dict(sorted(tables.items()))


def _written(name: str) -> str:
    return _MARKED.sub(lambda mark: "".join(f"%{byte:02X}" for byte in mark[0].encode()), name)
