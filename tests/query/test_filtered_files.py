"""Files with token filters, which maintenance writes, as other engines read them and write them anew."""

from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from lake.data_file import DataFile
from lake.storage import local_path, open_storage
from lake.table_version import Manifests, load_version
from lake.token_filter.block import PARQUET_MAGIC_BYTES, block_bytes, decode
from tests.catalog.conftest import spark  # noqa: F401 - the session-wide fixture
from tests.optimize.support.maintained import maintenance
from tests.optimize.support.small_files import SmallFiles, this_hour
from tests.query.support.four_engines import READ_RIGHT, readers, right, with_catalog
from tests.stack.support.line import Line
from tests.stack.support.waiting import fresh

pytestmark = pytest.mark.stack

COLUMNS = ["number", "host", "note"]


@pytest.fixture
def session(spark: Any, line: Line) -> Any:  # noqa: F811
    return with_catalog(spark, line.stack.address("catalog"))


def data_files(table: SmallFiles) -> list[DataFile]:
    version = load_version(table.catalog, Manifests(table.storage), table.name)
    assert version is not None
    return [entry.file for entry in version.data.values()]


def has_filter(file: DataFile) -> bool:
    length = block_bytes(file.split_offsets)
    raw = local_path(file.uri).read_bytes()
    return bool(length) and decode(raw[PARQUET_MAGIC_BYTES : PARQUET_MAGIC_BYTES + length]) is not None


def test_every_engine_reads_files_with_filters_and_rewrites_them(
    line: Line, session: Any, api: httpx.Client
) -> None:
    """Trino, Spark, PyIceberg and DuckDB find the same rows in merged files with filters, in parts by a
    condition as well. Spark's rewrite_data_files writes such files anew, without a filter, and loses no row;
    what comes then is merged with them into one that has a filter again."""
    tenant, hour = fresh("filtered"), this_hour() - 3
    table = SmallFiles(line.catalog, open_storage(), tenant)
    truth: list[tuple[Any, ...]] = []

    def append(times: int) -> None:
        for _ in range(times):
            first = table.offset
            rows = [
                (str(at), f"host-{at % 3}", ("東京 Жук", None, "naïve")[at % 3])
                for at in range(first, first + 40)
            ]
            table.append(hour, 40, dict(zip(COLUMNS, zip(*rows, strict=True), strict=True)))
            truth.extend(rows)

    def all_find_them() -> bool:
        start = datetime.fromtimestamp(hour * 3_600, UTC)
        times = {"from": start.isoformat(), "to": (start + timedelta(hours=1)).isoformat()}
        engines = readers(line, session, api, {"tenant": tenant, **times}, table.name, COLUMNS)
        return right(engines, truth) == READ_RIGHT[2]

    def merge() -> list[DataFile]:
        maintenance(line.catalog, [table.name], merge__late_cooldown_s=0).run()
        return data_files(table)

    append(3)
    (merged,) = merge()
    assert has_filter(merged)
    assert all_find_them()
    name = f'"{table.name.namespace}"."{table.name.name}"'
    some = line.sql(f"SELECT _offset FROM {name} WHERE message LIKE 'message 77 %' AND host = 'host-2'")
    assert [offset for (offset,) in some] == [77]
    spark_name = f"{table.name.namespace}.{table.name.name}"
    session.sql(
        f"CALL deletes.system.rewrite_data_files(table => '{spark_name}', "
        "options => map('rewrite-all', 'true'))"
    ).collect()
    (rewritten,) = data_files(table)
    assert rewritten.uri != merged.uri
    assert not has_filter(rewritten)
    assert all_find_them()
    table.reload()
    append(2)
    (again,) = merge()
    assert has_filter(again)
    assert all_find_them()
