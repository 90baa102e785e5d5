"""The proof of what Spark wrote: on local files, Spark's part played by hand."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lake.data_file import POSITION_DELETES, DataFile
from lake.log_schema import new_log_schema
from lake.settings import StorageSettings
from lake.storage import local_path, open_storage
from optimize.compaction import write_file
from optimize.merge_job import FileLayout, MergeGroup
from optimize.rewrite_proof import PATH, POSITION, Proof, Rewrite, prove_all
from tests.optimize.support.damage import truncated, with_a_flipped_byte
from tests.optimize.support.small_files import rows_of

HOUR = 490_000
SCHEMA = new_log_schema()


def written(folder: Path, name: str, offsets: Sequence[int], **columns: Any) -> DataFile:
    """A data file with rows of these offsets; `columns` replace what they hold."""
    parts = [rows_of(HOUR, offset, 1) for offset in offsets]
    arrow = SCHEMA.arrow
    rows = {
        n: pa.concat_arrays([part[n].cast(arrow.field(n).type) for part in parts]) for n in arrow.names
    } | columns
    return write_file(
        open_storage(),
        f"file://{folder}/data/{HOUR}/{name}.parquet",
        HOUR,
        pa.table(rows, schema=arrow),
        SCHEMA.json["fields"],
        FileLayout(row_group_rows=1_000),
    )


def deleting(folder: Path, name: str, pairs: Sequence[tuple[str, int]]) -> DataFile:
    path = folder / f"{name}.parquet"
    pq.write_table(pa.table({PATH: [uri for uri, _ in pairs], POSITION: [at for _, at in pairs]}), path)
    return DataFile(f"file://{path}", HOUR, len(pairs), path.stat().st_size, content=POSITION_DELETES)


def proof(
    inputs: Sequence[DataFile],
    outputs: Sequence[DataFile],
    deletes: Sequence[DataFile] = (),
    untouched: Sequence[str] = (),
) -> Proof:
    one = Rewrite(
        MergeGroup(HOUR, tuple(inputs), tuple(deletes)),
        tuple(outputs),
        tuple(untouched),
        SCHEMA.json,
        StorageSettings(),
    )
    (only,) = prove_all([one])
    return only


@pytest.fixture
def inputs(tmp_path: Path) -> list[DataFile]:
    return [written(tmp_path, "a", range(10)), written(tmp_path, "b", range(10, 20))]


def test_rewrite_without_deletes_is_proven_with_a_checksum_for_each_file(
    tmp_path: Path, inputs: list[DataFile]
) -> None:
    """Two new files that hold all rows of the old ones are proven."""
    found = proof(inputs, [written(tmp_path, "x", range(5)), written(tmp_path, "y", range(5, 20))])
    assert (found.refusal, len(found.checksums)) == ("", 2)


def test_rows_that_delete_files_name_are_missing_and_no_others(
    tmp_path: Path, inputs: list[DataFile]
) -> None:
    """A position named twice counts once; one row less, or a deleted one that is still there, is refused."""
    a, b = (file.uri for file in inputs)
    deletes = [deleting(tmp_path, "d", [(a, 1), (a, 3), (b, 9)]), deleting(tmp_path, "e", [(a, 3)])]
    kept = [offset for offset in range(20) if offset not in (1, 3, 19)]
    assert proof(inputs, [written(tmp_path, "right", kept)], deletes).refusal == ""
    assert "hold 17 rows" in proof(inputs, [written(tmp_path, "less", kept[1:])], deletes).refusal
    assert "hold 17 rows" in proof(inputs, [written(tmp_path, "more", [*kept, 19])], deletes).refusal


def test_file_with_deleted_rows_that_was_not_rewritten_is_refused(
    tmp_path: Path, inputs: list[DataFile]
) -> None:
    """Its delete file would go with the commit, and its deleted rows would come back."""
    other = written(tmp_path, "other", range(20, 25))
    deletes = [deleting(tmp_path, "d", [(other.uri, 0)])]
    assert (
        "was not rewritten"
        in proof(inputs, [written(tmp_path, "x", range(20))], deletes, [other.uri]).refusal
    )


def test_delete_files_that_name_nothing_any_more_are_proven_to_be_useless(tmp_path: Path) -> None:
    """A delete file whose data files are gone may go without a rewrite."""
    assert proof([], [], [deleting(tmp_path, "d", [("file:///gone", 0)])]).refusal == ""


def test_changed_nulls_and_bounds_are_refused(tmp_path: Path, inputs: list[DataFile]) -> None:
    """A value that became NULL, or lies where none lay before, is refused, deletes or not."""
    messages = pa.array([None, *(f"message {at} of hour {HOUR}" for at in range(1, 20))])
    assert "NULLs" in proof(inputs, [written(tmp_path, "nulls", range(20), message=messages)]).refusal
    indexes = pa.array([7, *([0] * 19)], pa.int32())
    assert "was between" in proof(inputs, [written(tmp_path, "bounds", range(20), _index=indexes)]).refusal
    deletes = [deleting(tmp_path, "d", [(inputs[0].uri, 5)])]
    kept = [offset for offset in range(20) if offset != 5]
    assert (
        "was between"
        in proof(
            inputs, [written(tmp_path, "wider", kept, _index=pa.array([7, *([0] * 18)], pa.int32()))], deletes
        ).refusal
    )


@pytest.mark.parametrize("damage", [truncated, with_a_flipped_byte])
def test_file_that_cannot_be_read_to_its_end_is_refused(
    tmp_path: Path, inputs: list[DataFile], damage: Any
) -> None:
    """A new file that is cut, or of which a page does not decode to what its footer says, is refused."""
    output = written(tmp_path, "x", range(20))
    damage(local_path(output.uri))
    assert proof(inputs, [output]).refusal != ""
