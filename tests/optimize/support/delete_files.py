"""Delete files as other engines commit them, made directly."""

from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from lake.commit import load_state, prepare_append
from lake.data_file import POSITION_DELETES, DataFile
from lake.manifest import ManifestEntry, Status, write_manifest
from lake.manifest_list import write_manifest_list
from lake.table_layout import metadata_uri, partition_path
from optimize.rewrite_proof import PATH, POSITION
from tests.optimize.support.small_files import SmallFiles
from tests.stack.support.waiting import fresh

# Iceberg's reserved ids of the columns of a position delete file.
_SCHEMA = pa.schema(
    [
        pa.field(PATH, pa.string(), nullable=False, metadata={b"PARQUET:field_id": b"2147483546"}),
        pa.field(POSITION, pa.int64(), nullable=False, metadata={b"PARQUET:field_id": b"2147483545"}),
    ]
)


def delete_positions(table: SmallFiles, hour: int, positions: Mapping[str, Sequence[int]]) -> str:
    """Commits one file that deletes rows of data files by their place; returns its URI."""
    pairs = sorted((uri, at) for uri, places in positions.items() for at in places)
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table([[uri for uri, _ in pairs], [at for _, at in pairs]], schema=_SCHEMA), sink)
    return add_delete_file(table, hour, POSITION_DELETES, sink.getvalue().to_pybytes(), len(pairs))


def add_delete_file(
    table: SmallFiles, hour: int, content: int = POSITION_DELETES, data: bytes = b"x", rows: int = 1
) -> str:
    """Commits a delete file to an hour; without `data` it deletes no row, it must only be seen. Returns its
    URI."""
    state = load_state(table.catalog, table.storage, table.name)
    assert state is not None
    uri = f"{state.location}/data/{hour}/deletes-{fresh('')}.parquet"
    table.storage.write(uri, data)
    prepared = prepare_append(state, [], state.schema, state.marks, state.updated_ms)
    manifest_uri = metadata_uri(state.location, f"{fresh('d')}.avro")
    entry = ManifestEntry(Status.ADDED, DataFile(uri, hour, rows, len(data), content=content))
    sequence = state.sequence_number + 1
    manifest, line = write_manifest(
        manifest_uri,
        [entry],
        schema=state.schema.json,
        spec=state.spec,
        snapshot_id=prepared.snapshot_id,
        sequence_number=sequence,
    )
    listed = write_manifest_list(
        state.manifests.after([line]),
        snapshot_id=prepared.snapshot_id,
        parent_id=state.head,
        sequence_number=sequence,
    )
    table.storage.write_all([(manifest_uri, manifest), (prepared.files[-1][0], listed)])
    request = dict(prepared.request)
    (added,) = [u for u in request["updates"] if u["action"] == "add-snapshot"]
    kind = "position" if content == POSITION_DELETES else "equality"
    counts = {
        "added-delete-files": 1,
        f"added-{kind}-delete-files": 1,
        f"added-{kind}-deletes": rows,
        "added-files-size": len(data),
    }
    deleted = state.totals.position_deletes if content == POSITION_DELETES else state.totals.equality_deletes
    totals = {"total-delete-files": state.totals.delete_files + 1, f"total-{kind}-deletes": deleted + rows}
    totals["total-files-size"] = state.totals.size_bytes + len(data)
    listed_counts = ",".join(f"{key}={value}" for key, value in counts.items())
    partition = {
        f"partitions.{partition_path(hour)}": listed_counts,
        "changed-partition-count": "1",
        "partition-summaries-included": "true",
    }
    added["snapshot"]["summary"].update(
        {key: str(value) for key, value in {**counts, **totals}.items()} | partition
    )
    (result,) = table.catalog.commit_all([request])
    assert result.status.value == "committed", result
    return uri
