"""Rows by minute and level as they stand in the blocks of data files are those that a search would count."""

import random
from pathlib import Path

import pyarrow as pa
import pytest

from lake.catalog_client import TableName
from lake.log_schema import LogSchema, new_log_schema
from lake.settings import QuerySettings
from lake.severity import LEVELS, SPELLINGS
from lake.snapshot import Totals
from lake.storage import local_path, open_storage
from lake.token_filter.block import PARQUET_MAGIC_BYTES, block_bytes, decode
from optimize.compaction import write_file
from optimize.merge_job import FileLayout
from query.executors.embedded import EmbeddedExecutor
from query.facets.file_counts import count_files
from query.files.file_index import LiveFile
from query.model.cancellation import Run
from query.model.table_view import TableView, table_id

SPELLED = " ".join(SPELLINGS.values()).split()
ODD = [
    "",
    " ",
    '"',
    '"INFO "',
    "in fo",
    "\u0130nfo",
    "\u212aritisch",
    "WARN\u0130NG",
    "info\u0301",
    "ＩＮＦＯ",
    "8",
    "01",
]
MINUTE_US, START_US = 60_000_000, 1_795_209_960_000_000


def severity(draw: random.Random) -> str | None:
    spelled = draw.choice([*SPELLED, *ODD, None])
    if spelled is None:
        return None
    cased = "".join(draw.choice((str.lower, str.upper))(character) for character in spelled)
    return draw.choice(("", " ", '"', '" ')) + cased + draw.choice(("", " ", '"'))


def moment_us(draw: random.Random) -> int:
    """Within some hours, at the edges of minutes more often than not; before 1970 as well."""
    start_us = draw.choice((START_US, START_US, -3 * 10**15))
    return start_us + draw.randrange(200) * MINUTE_US + draw.choice((-1, 0, 1, draw.randrange(MINUTE_US)))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("has_severity", [True, False])
def test_a_file_says_what_a_search_counts(tmp_path: Path, seed: int, *, has_severity: bool) -> None:
    """Whatever the severities look like, in every case, with blanks and quotes; at the edges of minutes, over
    several row groups; and of a file that has no severities."""
    draw = random.Random(seed)
    schema = new_log_schema()
    names = ["timestamp", *(["severity"] if has_severity else [])]
    fields = [field for field in schema.json["fields"] if field["name"] in names]
    arrow = LogSchema({"fields": fields}).arrow
    columns = {
        "timestamp": sorted(moment_us(draw) for _ in range(3_000)),
        "severity": [severity(draw) for _ in range(3_000)],
    }
    table = pa.table([pa.array(columns[name], arrow.field(name).type) for name in names], schema=arrow)
    uri = f"file://{tmp_path}/a.parquet"
    file = write_file(open_storage(), uri, 1, table, fields, FileLayout(row_group_rows=1_000))
    raw = local_path(uri).read_bytes()
    found = decode(raw[PARQUET_MAGIC_BYTES : PARQUET_MAGIC_BYTES + block_bytes(file.split_offsets)])
    assert found is not None
    assert found.counts is not None
    view = TableView(
        table_id("t", "logs"), TableName("t", "logs"), "u", schema, True, 1, None, None, Totals(), {}, {}, {}
    )
    engine = EmbeddedExecutor(
        QuerySettings(state=str(tmp_path)), lambda uris, _: [uri.removeprefix("file://") for uri in uris]
    )
    live = LiveFile(uri, table.num_rows, file.size_bytes, 0, 1, None, None, None, None)
    counted = count_files(engine, view, [live], Run(60.0))[uri]
    assert [(minute, LEVELS[level], rows) for minute, level, rows in found.counts.tolist()] == sorted(
        counted.by_minute, key=lambda each: (each[0], LEVELS.index(each[1]))
    )
