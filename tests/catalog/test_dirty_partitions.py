"""The dirty-partition index against the truth that PyIceberg reads from the manifests."""

import random
from collections import Counter
from typing import Any

import httpx
import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import DateType, LongType, NestedField, StringType

from catalog.commit.dirty_partitions import normal_path
from catalog.commit.partition_counts import partition_path
from catalog.commit.schemas import Field
from tests.catalog.conftest import Server

pytestmark = pytest.mark.stack

SCHEMA = Schema(
    NestedField(1, "day", DateType(), required=False),
    NestedField(2, "level", StringType(), required=False),
    NestedField(3, "n", LongType(), required=False),
)
SPEC = PartitionSpec(
    PartitionField(1, 1000, IdentityTransform(), "day"), PartitionField(2, 1001, IdentityTransform(), "level")
)
COMMITS = 14


def rows(chance: random.Random) -> pa.Table:
    days = [chance.randrange(20_000, 20_004) for _ in range(20)]
    levels = [chance.choice(["info", "err or", "a/b", "ünï~*", None]) for _ in days]
    columns = [pa.array(days, pa.date32()), pa.array(levels, pa.string()), pa.array(range(20), pa.int64())]
    return pa.table(columns, names=["day", "level", "n"])


def truth(table: Table) -> dict[str, tuple[int, int, int]]:
    found: Counter[tuple[str, int]] = Counter()
    for task in table.scan().plan_files():
        path = normal_path(table.spec().partition_to_path(task.file.partition, table.schema()))
        for at, amount in enumerate((1, task.file.file_size_in_bytes, task.file.record_count)):
            found[path, at] += amount
    return {path: (found[path, 0], found[path, 1], found[path, 2]) for path, at in found if at == 0}


def index(client: httpx.Client) -> dict[str, tuple[int, int, int]]:
    found, token = {}, ""
    while token is not None:
        page = client.get("/firn/v1/dirty-partitions", params={"pageToken": token, "pageSize": "7"}).json()
        for entry in page["partitions"]:
            found[entry["partition"]] = (entry["data-files"], entry["bytes"], entry["records"])
        token = page["next-page-token"]
    return found


@pytest.mark.parametrize("limit", ["0", "1000"])
def test_index_equals_the_manifests(server: Server, client: httpx.Client, limit: str) -> None:
    """After random appends, overwrites and deletes the index holds what lies in each partition; where
    summaries do not tell, after a count."""
    chance = random.Random(5)
    catalog = load_catalog("live", type="rest", uri=server.url)
    catalog.create_namespace("a")
    table = catalog.create_table(
        "a.t", schema=SCHEMA, partition_spec=SPEC, properties={"write.summary.partition-limit": limit}
    )
    for _ in range(COMMITS):
        action: Any = chance.choice([table.append, table.append, table.overwrite, None])
        if action is not None:
            action(rows(chance))
        else:
            table.delete(f"level = '{chance.choice(['info', 'err or'])}'")
    expected = truth(table)
    assert expected
    if limit == "0":
        assert client.get("/firn/v1/dirty-partitions").json()["uncounted-tables"] == 1
        body = {"identifier": {"namespace": ["a"], "name": "t"}}
        assert client.post("/firn/v1/dirty-partitions/recount", json=body).status_code == 204
    assert index(client) == expected
    assert client.get("/firn/v1/dirty-partitions").json()["uncounted-tables"] == 0


def test_only_what_changed_since_is_listed(server: Server, client: httpx.Client) -> None:
    """The index can be asked for what changed since a time and holds at least so many files."""
    catalog = load_catalog("live", type="rest", uri=server.url)
    catalog.create_namespace("a")
    table = catalog.create_table("a.t", schema=SCHEMA, properties={"write.summary.partition-limit": "1000"})
    for _ in range(3):
        table.append(rows(random.Random(1)))
    (entry,) = client.get("/firn/v1/dirty-partitions", params={"min-files": "3"}).json()["partitions"]
    assert (entry["partition"], entry["data-files"], entry["records"]) == ("", 3, 60)
    later = {"changed-since-ms": str(entry["changed-ms"] + 1)}
    assert client.get("/firn/v1/dirty-partitions", params=later).json()["partitions"] == []
    assert client.get("/firn/v1/dirty-partitions", params={"min-files": "4"}).json()["partitions"] == []


def test_pyiceberg_lives_with_the_catalog(server: Server) -> None:
    """PyIceberg creates, alters, appends, reads, renames and drops tables."""
    catalog = load_catalog("live", type="rest", uri=server.url)
    catalog.create_namespace("a")
    table = catalog.create_table("a.t", schema=SCHEMA, partition_spec=SPEC)
    table.append(rows(random.Random(2)))
    with table.update_schema() as update:
        update.add_column("extra", StringType())
    with table.transaction() as transaction:
        transaction.set_properties(k="v")
    catalog.rename_table("a.t", "a.u")
    again = catalog.load_table("a.u")
    assert (
        again.scan().to_arrow().num_rows,
        again.properties["k"],
        again.schema().find_field("extra").field_type,
    ) == (20, "v", StringType())
    assert catalog.list_tables("a") == [("a", "u")]
    catalog.drop_table("a.u")
    assert not catalog.table_exists("a.u")


@pytest.mark.parametrize(
    ("transform", "source", "value", "expected"),
    [
        ("hour", "timestamptz", 489_000, "2025-10-14-00"),
        ("day", "timestamptz", 20_000, "2024-10-04"),
        ("month", "date", 600, "2020-01"),
        ("year", "date", 50, "2020"),
        ("bucket[16]", "string", 7, "7"),
        ("identity", "string", "a b/c~", "a+b%2Fc%7E"),
        ("identity", "boolean", True, "true"),
        ("truncate[2]", "string", None, "null"),
    ],
)
def test_paths_read_as_iceberg_writes_them(transform: str, source: str, value: object, expected: str) -> None:
    """Partition values become the text that Iceberg's summaries hold."""
    spec = [{"name": "p x", "transform": transform, "source-id": 1}]
    assert partition_path(spec, {"p x": value}, {1: Field("c", source)}) == f"p+x={expected}"
