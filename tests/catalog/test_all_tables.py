"""The tables of all namespaces in one list, on both databases."""

import httpx
import pytest

from lake.catalog_client import EXTRAS_PATH, CatalogClient, TableName
from lake.extras_client import ExtrasClient
from lake.storage import open_storage
from optimize.inventory import AllTables, Candidate
from tests.catalog.conftest import Server
from tests.optimize.support.small_files import SmallFiles, this_hour

pytestmark = pytest.mark.stack


def _some(client: CatalogClient, count: int) -> list[TableName]:
    tables = [SmallFiles(client, open_storage(), f"all{at}") for at in range(count)]
    for table in tables:
        table.append(this_hour(), 1)
    return [table.name for table in tables]


def test_tables_of_all_namespaces_are_listed_over_pages_of_any_size(server: Server) -> None:
    """In the order of their names, each once; a dropped table is not among them."""
    client = CatalogClient(server.url)
    names = _some(client, 5)
    client.drop_table(names[-1], purge=False)
    wanted = [name for name in ExtrasClient(client).tables() if name.namespace.startswith("all")]
    assert wanted == names[:-1]
    assert list(AllTables(client).candidates()) == [Candidate(name) for name in ExtrasClient(client).tables()]
    found, token = list[TableName](), ""
    while token is not None:
        page = client.get(f"{EXTRAS_PATH}/tables", pageSize=3, pageToken=token or None)
        found += map(TableName.parse, page["identifiers"])
        token = page["next-page-token"]
    assert found == list(ExtrasClient(client).tables())


def test_a_page_that_is_none_is_refused(server: Server) -> None:
    """Whoever makes up a token is told so."""
    for query in ({"pageToken": "ü"}, {"pageSize": "0"}):
        answer = httpx.get(f"{server.url}{EXTRAS_PATH}/tables", params=query)
        assert answer.status_code == 400
