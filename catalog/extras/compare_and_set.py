"""Rows with a version: whoever changes one names the version last read, so that nobody overwrites what he has
not seen."""

from typing import Any

from sqlalchemy import Connection, Table, select

from catalog.model.error_response import CatalogError


def change_row(
    connection: Connection,
    table: Table,
    key: str,
    *,
    version: int,
    values: dict[str, Any] | None,
    refusal: str,
    title: str,
) -> int:
    """Writes a row over the version last read (0: there was none), or removes it where `values` is None;
    returns its new version (0: none).

    The table has a text as its primary key and a column `version`. Raises CatalogError 409 of the type
    `refusal`, about `title`.
    """
    (column,) = table.primary_key.columns
    found = connection.execute(select(table.c.version).where(column == key).with_for_update()).scalar()
    if (found or 0) != version:
        raise CatalogError(409, refusal, f"{title} has version {found or 0}, not {version}; read it again")
    if values is None:
        connection.execute(table.delete().where(column == key))
        return 0
    row = {**values, "version": version + 1}
    if found is None:
        connection.execute(table.insert(), {column.name: key, **row})
    else:
        connection.execute(table.update().where(column == key).values(row))
    return version + 1
