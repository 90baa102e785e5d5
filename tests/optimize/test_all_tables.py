"""Which tables a catalog has is one question, where it answers it."""

from typing import NoReturn

import pytest

from lake.catalog_client import CatalogClient, TableName
from lake.commit import creation_request, new_table_state
from lake.errors import NotFoundError
from lake.extras_client import ExtrasClient
from optimize.inventory import AllTables
from tests.lake.support.fake_catalog import FakeCatalog


def _catalog(count: int) -> tuple[FakeCatalog, list[TableName]]:
    """A catalog with some tables that have no rows yet."""
    catalog, names = FakeCatalog(), [TableName(f"t{at}", "logs") for at in range(count)]
    client = catalog.client()
    for name in names:
        client.create_namespace(name.namespace, {})
        client.create_table(
            name, creation_request(new_table_state(name, name.namespace, "logs", "file:///w"))
        )
    catalog.asked.clear()
    return catalog, names


def test_all_tables_of_a_catalog_are_known_by_one_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the protocol alone, and beside an older catalog, it is one for each tenant."""
    catalog, names = _catalog(3)

    def found(client: CatalogClient) -> list[TableName]:
        return [each.table for each in AllTables(client).candidates()]

    assert found(catalog.client()) == names
    assert catalog.asked == ["tables"]
    catalog.asked.clear()
    monkeypatch.setattr(ExtrasClient, "tables", _not_there)
    assert found(catalog.client()) == names
    assert catalog.asked == ["namespaces", *["tables"] * 3]
    catalog.has_extras = False
    assert found(catalog.client()) == names


def _not_there(_: ExtrasClient) -> NoReturn:
    raise NotFoundError("there is no such path")
