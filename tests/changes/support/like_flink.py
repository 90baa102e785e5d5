"""What Flink's upsert writer commits to a table: rows, and equality deletes of what they replace; made
directly, where a test wants more cases than Flink's SQL spells. `flink_sql.py` has Flink itself."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from lake.catalog_client import CatalogClient, TableName
from lake.commit import load_state, prepare_overwrite
from lake.data_file import DATA, EQUALITY_DELETES, DataFile
from lake.log_schema import LogSchema, fold
from lake.manifest import ManifestEntry, Status
from lake.storage import AnyStorage
from lake.table_files import load_manifest
from lake.table_layout import data_file_uri
from optimize.compaction import write_file
from optimize.merge_job import FileLayout


def upsert_like_flink(
    catalog: CatalogClient,
    storage: AnyStorage,
    name: TableName,
    deleted: Sequence[Mapping[str, Any]],
    rows: Sequence[Mapping[str, Any]] = (),
) -> None:
    """One commit to bucket 0. `deleted`: values of rows that go, of the same columns each; `rows`: rows that
    come, each like the first row of the table but for what is given."""
    state = load_state(catalog, storage, name)
    assert state is not None
    manifests = list(state.manifests)
    schema = state.schema
    columns = [column for column in schema.columns if column.name in deleted[0]]
    kinds = LogSchema(
        {"fields": [each for each in schema.json["fields"] if each["name"] in deleted[0]]}
    ).arrow
    sink = pa.BufferOutputStream()
    # A key that may be NULL is written as such, whatever the table says.
    optional = pa.schema([each.with_nullable(True) for each in kinds])
    pq.write_table(pa.Table.from_pylist([dict(each) for each in deleted], optional), sink)
    data = sink.getvalue().to_pybytes()
    uri = f"{state.location}/data/0/{uuid4().hex}-equality.parquet"
    storage.write(uri, data)
    ids = [column.id for column in columns]
    files = [
        DataFile(
            uri,
            None,
            len(deleted),
            len(data),
            EQUALITY_DELETES,
            equality_ids=ids,
            bucket=0,
            sort_order_id=None,
        )
    ]
    if rows:
        first = next(
            entry.file
            for manifest in reversed(manifests)
            for entry in load_manifest(storage, manifest, state.table_location)
            if entry.file.content == DATA
        )
        like = pq.read_table(pa.BufferReader(storage.read(first.uri))).slice(0, 1).to_pylist()[0]
        fields = [each for each in schema.json["fields"] if fold(each["name"]) in like]
        table = pa.Table.from_pylist([{**like, **each} for each in rows], LogSchema({"fields": fields}).arrow)
        written = write_file(storage, data_file_uri(state.location, 0), 0, table, fields, FileLayout())
        files.append(replace(written, hour=None, bucket=0))
    entries = [ManifestEntry(Status.ADDED, each) for each in files]
    prepared = prepare_overwrite(state, entries, files, (), manifests, state.updated_ms + 1)
    storage.write_all(prepared.files)
    (result,) = catalog.commit_all([prepared.request])
    assert result.status.value == "committed", result
