"""Many tables loaded after each other: of Firn's own catalog many in one answer, of others one by one."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from lake.catalog_client import CatalogClient, TableName
from lake.errors import FirnError, UnavailableError

# An answer of the catalog ends at 4 MiB. Who works on each table in between has it as old as these take.
TOGETHER = 200
DEADLINE_S = 30.0
Loaded = dict[str, Any] | FirnError


def load_each(
    catalog: CatalogClient, tables: Iterable[TableName], together: int = TOGETHER
) -> Iterator[tuple[TableName, Loaded]]:
    """Yields each table as `CatalogClient.load_table` gives it, or the error that it raises (NotFoundError
    where it is gone), in order; at most `together` are asked for at once."""
    left = iter(tables)
    while some := list(islice(left, together if catalog.has_extras else 1)):
        while some:
            results = _first_of(catalog, some)
            for table, result in zip(some, results, strict=False):
                yield table, _settled(catalog, table, result)
            some = some[len(results) :]


def _first_of(
    catalog: CatalogClient, tables: Sequence[TableName]
) -> Sequence[dict[str, Any] | Exception | None]:
    """As many of the first tables as one answer holds; None: it did not come with others."""
    if len(tables) == 1:
        return [None]
    try:
        return catalog.load_tables(tables, deadline_s=DEADLINE_S)
    except FirnError:
        return [None]


def _settled(catalog: CatalogClient, table: TableName, result: dict[str, Any] | Exception | None) -> Loaded:
    """What did not come with others, or not in time, is asked for by itself, and again on passing faults."""
    if isinstance(result, dict):
        return result
    if isinstance(result, FirnError) and not isinstance(result, UnavailableError):
        return result
    try:
        return catalog.load_table(table)
    except FirnError as error:
        return error
