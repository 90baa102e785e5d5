"""The engines of this stack read every encoding that merges choose for text."""

import random
import uuid
from datetime import timedelta
from typing import Any

import httpx
import pyarrow.parquet as pq
import pytest

from lake.storage import local_path
from optimize.merge_job import FileLayout
from tests.catalog.conftest import spark  # noqa: F401 - the session-wide fixture
from tests.optimize.support.maintained import utc
from tests.query.support.four_engines import READ_RIGHT, readers, right, with_catalog
from tests.query.support.log_table import LogTable, fresh_tenant
from tests.stack.support.line import Line

pytestmark = pytest.mark.stack

START = utc(2026, 3, 30)
ROWS = 900
STEP = timedelta(seconds=3, microseconds=211_117)
COLUMNS = ("id", "at", "body", "service")


def records() -> list[dict[str, Any]]:
    """Ids, times as text, sentences and a field with few values; some are not there, some empty, some no
    ASCII."""
    draws = random.Random(2)
    templates = (
        "order {} was refused, as no störe has so many of article {} left at this hour of the day",
        "connection {} of 客户 {} was closed by the peer before the answer was sent in full",
    )
    made: list[dict[str, Any]] = []
    for at in range(ROWS):
        record = {
            "timestamp": START + STEP * at,
            "id": uuid.UUID(int=draws.getrandbits(128), version=4).hex,
            "at": (START + STEP * at).isoformat(),
            "body": draws.choice(templates).format(at, draws.randrange(1_000)),
            "service": f"service-{at % 7}",
        }
        for name in COLUMNS:
            if draws.random() < 0.05:
                record[name] = draws.choice(["", None])
        made.append(record)
    return made


def test_engines_read_all_encodings(
    line: Line,
    spark: Any,  # noqa: F811
    api: httpx.Client,
) -> None:
    """Every value of each column, NULL and empty text told apart, in a file that has every encoding."""
    table = LogTable(line.catalog, fresh_tenant("encodings"), layout=FileLayout(delta_text=True))
    truth = table.append(records())
    (file,) = table.files()
    group = pq.read_metadata(local_path(file.uri)).row_group(0)
    chunks = [group.column(at) for at in range(group.num_columns)]
    encodings = {chunk.path_in_schema: set(chunk.encodings) for chunk in chunks}
    assert "DELTA_LENGTH_BYTE_ARRAY" in encodings["id"]
    assert "DELTA_BYTE_ARRAY" in encodings["at"]
    assert {"PLAIN"} == encodings["body"] - {"RLE"}
    assert "RLE_DICTIONARY" in encodings["service"]
    session = with_catalog(spark, line.stack.address("catalog"))
    where = {
        "tenant": table.tenant,
        "from": START.isoformat(),
        "to": (START + timedelta(hours=1)).isoformat(),
    }
    engines = readers(line, session, api, where, table.name, COLUMNS)
    rows = [tuple(row[name] for name in COLUMNS) for row in truth]
    assert right(engines, rows) == READ_RIGHT[2]
    for condition in ("id > 'f'", "at LIKE '2026-03-30T00:1%'", "body LIKE '%störe%'", "service IS NULL"):
        name = f"{table.name.namespace}.{table.name.name}"
        query = f"SELECT count(*) FROM {{}}{name} WHERE {condition}"
        counted = session.sql(query.format("deletes.")).collect()[0][0]
        assert line.sql(query.format("")) == [(counted,)], condition
