"""Dumps of tables and snapshots of connectors, taken into keyed tables."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.changes.support.shop import Shop, changes, wait_for_table
from tests.stack.support.ingester import Ingester
from tests.stack.support.line import Line
from tests.stack.support.tool_line import ToolLine
from tests.stack.support.waiting import fresh

pytestmark = pytest.mark.stack


@pytest.fixture
def topic(line: Line) -> str:
    return line.kafka.topic(partitions=1)


def dumped(folder: Path, shop: Shop, name: str = "dump.parquet") -> Path:
    """The rows of the shop as they are, in a file of Parquet."""
    schema = pa.schema([("id", pa.int32()), ("name", pa.string()), ("amount", pa.int64())])
    path = folder / name
    pq.write_table(pa.Table.from_pylist(list(shop.rows.values()), schema), path, row_group_size=7)
    return path


def backfill(ours: ToolLine, shop: Shop, path: Path, *options: str) -> dict[str, Any]:
    """The report of a backfill of files."""
    return ours.json("backfill", "files", str(path), *_whose(shop, path), *options)


def refusal(ours: ToolLine, shop: Shop, path: Path, *options: str) -> str:
    """What it says instead."""
    return ours.run("backfill", "files", str(path), *_whose(shop, path), *options, code=1)


def _whose(shop: Shop, path: Path) -> list[str]:
    return ["--tenant", shop.tenant, "--rejects", f"{path}.rejects"]


def test_a_dump_makes_a_table_that_its_stream_goes_on_with(
    line: Line, tools: Callable[..., ToolLine], topic: str, tmp_path: Path
) -> None:
    """Columns have the types of the file; a second run adds nothing; once the stream has written, another
    dump is refused."""
    shop = Shop(fresh("shop-"))
    ours = tools([changes(topic)])
    for at in range(20):
        shop.put(id=at, name=f"dumped {at}", amount=at << 33)
    path = dumped(tmp_path, shop)
    assert backfill(ours, shop, path, "--key", "id")["rows"] == 20
    assert backfill(ours, shop, path, "--key", "id")["skipped"] == 20
    wait_for_table(line, shop)
    line.kafka.produce(topic, [shop.put(id=3, name="changed", amount=0), *shop.delete(4)])
    ours.ingester.start()
    wait_for_table(line, shop)
    later = dumped(tmp_path, shop, "later.parquet")
    assert "nothing tells whether they are older than the dump's" in refusal(ours, shop, later, "--key", "id")
    assert "say which fields are the key of the rows: --key id" in refusal(ours, shop, later)


def test_a_dump_goes_under_what_is_newer_where_changes_have_an_order(
    line: Line, tools: Callable[..., ToolLine], topic: str, tmp_path: Path
) -> None:
    """Rows of the stream from behind the dump's position stay, others are replaced; lines of JSON take the
    types of the table."""
    shop = Shop(fresh("shop-"))
    ours = tools([changes(topic, order_by="position")])
    ours.ingester.start()
    old = [shop.put(id=at, name="old", amount=at) for at in range(4)]
    position = len(old)
    new = [shop.put(id=at, name="new", amount=at) for at in (0, 9)]
    line.kafka.produce(topic, [*old, *new])
    wait_for_table(line, shop)
    path = tmp_path / "dump.ndjson"
    rows = {at: {"id": at, "name": "dumped", "amount": at} for at in range(7)}
    path.write_bytes(b"\n".join(map(orjson.dumps, rows.values())))
    assert "say with --as-of which position" in refusal(ours, shop, path, "--key", "id")
    backfill(ours, shop, path, "--key", "id", "--as-of", str(position))
    shop.rows |= {at: row for at, row in rows.items() if at}
    wait_for_table(line, shop)


def test_snapshots_of_connectors_make_and_replace_rows(
    line: Line, ingester: Callable[..., Ingester], topic: str
) -> None:
    """The initial one, and an incremental one between changes, some of which it repeats."""
    shop = Shop(fresh("shop-"))
    ingester(changes(topic))
    shop.rows = {at: {"id": at, "name": "before", "amount": at} for at in range(10)}
    line.kafka.produce(topic, [shop.snapshot(at) for at in range(10)])
    wait_for_table(line, shop)
    records = [shop.put(id=2, name="between", amount=2), *shop.delete(5)]
    shop.rows |= {at: {"id": at, "name": "found", "amount": at} for at in (1, 7, 30)}
    records += [shop.snapshot(at) for at in (1, 2, 7, 30)]
    records.append(shop.put(id=7, name="after", amount=7))
    line.kafka.produce(topic, records)
    wait_for_table(line, shop)


def test_the_past_of_a_history_is_brought_in(line: Line, tools: Callable[..., ToolLine], topic: str) -> None:
    """Each change of it is a row; that of a table with a key is refused, since nothing tells what was deleted
    since."""
    shop = Shop(fresh("shop-"))
    line.kafka.produce(topic, [shop.put(id=1, name="a", amount=1), *shop.delete(1)])
    ours = tools([changes(topic, mode="history") | {"start": "latest"}])
    ours.ingester.start()
    ours.wait_until_stored(topic, {0: 3})
    line.kafka.produce(topic, [shop.put(id=1, name="b", amount=2), shop.put(id=1, name="c", amount=3)])
    line.wait_for_rows(ours.ingester, shop.tenant, 2)
    assert ours.json("backfill", "kafka", topic)["rows"] == 2
    rows = line.sql(f'SELECT "_offset", _op, name FROM {line.table(shop.tenant)} ORDER BY "_offset"')
    assert rows == [(0, "insert", "a"), (1, "delete", "a"), (3, "insert", "b"), (4, "update", "c")]
    assert ours.ingester.stop() == 0
    assert ours.json("audit", "--whole")["clean"]
