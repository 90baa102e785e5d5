"""Partitions put together by how their names begin: cold hours by day and month, on both databases."""

import httpx
import pytest

from lake.catalog_client import CatalogClient
from lake.extras_client import ExtrasClient, PartitionGroup
from lake.span import Span, Unit
from lake.storage import open_storage
from lake.table_layout import partition_path
from tests.catalog.conftest import Server
from tests.optimize.support.small_files import SmallFiles, rows_of

pytestmark = pytest.mark.stack
DAY = Span(Unit.DAY, 20_000)
NEXT = Span(Unit.DAY, 20_001)


def group_of(table: SmallFiles, span: Span, hours: int) -> tuple[str, str, int]:
    return table.name.namespace, f"timestamp_hour={span}", hours


def test_hours_are_put_together_by_day_over_pages_of_any_size(server: Server) -> None:
    """Files and bytes of each table's cold hours by day; the first hour that is not cold is not among them,
    and neither are groups of too many bytes, other fields, and tables that are dropped."""
    client = CatalogClient(server.url)
    tables = [SmallFiles(client, open_storage(), f"groups{at}") for at in range(5)]
    for at, table in enumerate(tables):
        for hour in (*DAY.hours[: at + 1], *NEXT.hours[: at + 1], NEXT.hours.stop):
            table.commit({hour: rows_of(hour, 0, 2)}, 2)
    client.drop_table(tables[-1].name, purge=False)
    before = partition_path(NEXT.hours.stop)[:25]

    def listed(page_size: int = 1_000, bytes_max: int = 10**9) -> list[PartitionGroup]:
        extras = ExtrasClient(client)
        groups = extras.partition_groups(before, characters=25, bytes_max=bytes_max, page_size=page_size)
        return list(groups)

    wanted = [group_of(table, span, at + 1) for at, table in enumerate(tables[:-1]) for span in (DAY, NEXT)]
    found = listed()
    assert [(each.table.namespace, each.name, each.data_files) for each in found] == wanted
    first = ExtrasClient(client).changed_partitions()
    rows = {(each.table, each.path): each.size_bytes for each in first}
    assert found[2].size_bytes == sum(
        size
        for (table, path), size in rows.items()
        if table == found[2].table and path.startswith(found[2].name)
    )
    assert [listed(page_size) for page_size in (1, 3, 7)] == [found] * 3
    assert listed(bytes_max=found[2].size_bytes) == found[:2]
    month = ExtrasClient(client).partition_groups(before, characters=22, bytes_max=10**9)
    assert {each.name for each in month} <= {"timestamp_hour=2024-10"}


@pytest.mark.parametrize(
    "query", [{}, {"before": "timestamp_hour"}, {"before": "a=1", "characters": "x"}, {"before": "=1"}]
)
def test_a_question_without_a_name_is_refused(client: httpx.Client, query: dict[str, str]) -> None:
    """With a sentence that shows one."""
    answer = client.get("/firn/v1/partition-groups", params=query)
    assert answer.status_code == 400
    assert answer.json()["error"]["message"]


def test_a_token_of_another_listing_is_refused(client: httpx.Client) -> None:
    """It has other parts."""
    for token in ("bm9uc2Vuc2U=", "WzEsMiwiYSJd"):
        query = {"before": "a=1", "pageToken": token}
        assert client.get("/firn/v1/partition-groups", params=query).status_code == 400


def test_a_group_larger_than_a_page_is_one(server: Server) -> None:
    """Of two tables whose hours all begin alike, by 14 characters and pages of 20 partitions."""
    client = CatalogClient(server.url)
    for at in range(2):
        table = SmallFiles(client, open_storage(), f"large{at}")
        table.commit({hour: rows_of(hour, 0, 1) for hour in (*DAY.hours, *NEXT.hours)}, 1)
    groups = ExtrasClient(client).partition_groups(
        "timestamp_hour=3", characters=14, bytes_max=10**9, page_size=1
    )
    assert [(each.table.namespace, each.name, each.data_files) for each in groups] == [
        (f"large{at}", "timestamp_hour", 48) for at in range(2)
    ]
