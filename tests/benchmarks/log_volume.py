"""Many rows of the demo's shapes in a moment: a sample of each shape is converted as ingestion does it, then
drawn from, hour by hour, straight into files.

Tenants by Zipf, days with their busy hours; every hour of a tenant is one file, written as merges write it.
Marks are set as ingestion sets them.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

from infra.demo.arrivals import relative_rate
from infra.demo.draws import Draws, zipf_weights
from infra.demo.profiles import EVENT_SHAPES, LINE_SHAPES
from lake.catalog_client import CatalogClient, CommitStatus, TableName
from lake.clock import epoch_ms, epoch_us
from lake.commit import new_table_state, prepare_append
from lake.data_file import DataFile
from lake.log_schema import SYSTEM_COLUMNS, LogSchema
from lake.marks import Marks, TopicPartition
from lake.storage import open_storage
from lake.table_layout import US_PER_HOUR, data_file_uri
from lake.tenant import TableId, TenantId
from optimize.compaction import write_file
from optimize.merge_job import FileLayout
from tests.ingest.support.conversion import converted

SAMPLE_RECORDS = 20_000
SHAPES = (*EVENT_SHAPES, *LINE_SHAPES)
_UTC = pa.timestamp("us", "UTC")


@dataclass(frozen=True, slots=True)
class Loaded:
    """One tenant's table."""

    table: TableId
    rows: int
    files: int
    size_bytes: int


def sample_of(shape: str, start: datetime, seed: int) -> pa.Table:
    """Rows of a shape as the converter gives them."""
    draws, at_ms = Draws(f"{seed}/{shape}"), epoch_ms(start)
    if shape in EVENT_SHAPES:
        events = EVENT_SHAPES[shape](draws, "bench.example")
        bodies = [orjson.dumps(events.event(at_ms + at)) for at in range(SAMPLE_RECORDS)]
    else:
        lines = LINE_SHAPES[shape](draws, "bench.example")
        bodies = [lines.line(at_ms + at).encode() for at in range(SAMPLE_RECORDS)]
    return converted(bodies, times_ms=[at_ms + at for at in range(SAMPLE_RECORDS)]).rows.combine_chunks()


def load(
    catalog: CatalogClient, *, rows: int, tenants: int, start: datetime, hours: int, seed: int = 1
) -> Iterator[Loaded]:
    """Makes the tables of `tenants` tenants with `rows` rows in all, over `hours` whole hours from
    `start`."""
    samples = {shape: sample_of(shape, start, seed) for shape in SHAPES}
    rates = rates_of(start, hours)
    for at, weight in enumerate(zipf_weights(tenants, 1.0)):
        shape = SHAPES[at % len(SHAPES)]
        counts = np.maximum(1, np.round(rates * rows * weight)).astype(int)
        yield load_tenant(
            catalog,
            f"bench-{at:03d}",
            samples[shape],
            start,
            counts,
            np.random.default_rng(seed * 1_000 + at),
        )


def rates_of(start: datetime, hours: int) -> np.ndarray[Any, Any]:
    """How busy each hour is; all together are 1."""
    rates = np.array([relative_rate(epoch_ms(start) + at * 3_600_000) for at in range(hours)])
    found: np.ndarray[Any, Any] = rates / rates.sum()
    return found


def load_tenant(
    catalog: CatalogClient,
    tenant: str,
    sample: pa.Table,
    start: datetime,
    counts: np.ndarray[Any, Any],
    random: np.random.Generator,
    changed: Callable[[pa.Table, np.random.Generator], pa.Table] = lambda rows, _: rows,
) -> Loaded:
    """Makes the table of one tenant, `counts` rows in each hour from `start` on, drawn from the sample and
    then changed."""
    storage, warehouse = open_storage(), catalog.warehouse
    assert warehouse is not None
    table = TableId(TenantId(tenant), "logs")
    state = new_table_state(TableName(table.tenant.namespace, table.table), tenant, "logs", warehouse)
    fields = [name for name in sample.column_names if name not in SYSTEM_COLUMNS]
    schema = state.schema.with_strings(
        {name: (state.last_column_id + at, f"/{name}") for at, name in enumerate(fields, 1)}, 1
    )
    first_hour = epoch_us(start) // US_PER_HOUR
    ends = np.cumsum(counts)
    hours = [
        (first_hour + at, int(end - count), int(count), int(random.integers(2**32)))
        for at, (end, count) in enumerate(zip(ends, counts, strict=True))
    ]

    def write(hour: tuple[int, int, int, int]) -> DataFile:
        number, first_offset, count, seed = hour
        own = np.random.default_rng(seed)
        rows = changed(_rows(sample, number, first_offset, count, own), own)
        return _write(storage, data_file_uri(state.location, number), number, rows, schema)

    with ThreadPoolExecutor(2) as pool:
        files = list(pool.map(write, hours))
    marks = Marks({TopicPartition("bench-topic", 0): int(ends[-1])})
    prepared = prepare_append(state, files, schema, marks, epoch_ms(start) + len(counts) * 3_600_000)
    storage.write_all(list(prepared.files))
    catalog.create_namespace(table.tenant.namespace, {})
    (result,) = catalog.commit_all([prepared.request])
    assert result.status is CommitStatus.COMMITTED, result
    return Loaded(table, int(ends[-1]), len(files), sum(file.size_bytes for file in files))


def _rows(
    sample: pa.Table, hour: int, first_offset: int, count: int, random: np.random.Generator
) -> pa.Table:
    """Rows of one hour in the order of their times, offsets rising with them."""
    drawn = sample.take(pa.array(random.integers(0, len(sample), count)))
    times = pa.array(
        np.sort(random.integers(hour * US_PER_HOUR, (hour + 1) * US_PER_HOUR, count)), pa.int64()
    ).cast(_UTC)
    offsets = pa.array(np.arange(first_offset, first_offset + count), pa.int64())
    ones: dict[str, Any] = {"_topic": "bench", "_topic_id": "bench-topic"}
    replaced: dict[str, Any] = {"timestamp": times, "observed_timestamp": times, "_offset": offsets}
    replaced |= {name: pa.array([text] * count) for name, text in ones.items()}
    return pa.table({name: replaced.get(name, drawn.column(name)) for name in drawn.column_names})


def _write(storage: Any, uri: str, hour: int, rows: pa.Table, schema: LogSchema) -> DataFile:
    fields = [field for field in schema.json["fields"] if field["name"] in rows.column_names]
    arrow = LogSchema({"fields": fields}).arrow
    typed = pa.table(
        [rows.column(name).cast(kind) for name, kind in zip(arrow.names, arrow.types, strict=True)],
        schema=arrow,
    )
    return write_file(storage, uri, hour, typed, fields, FileLayout())
