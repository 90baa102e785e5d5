"""Where deleted rows of merged files are in the new file, and the proof that a merge keeps every live key."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap64

from lake.catalog_client import TableName
from lake.commit import RowDelta, new_table_state, prepare_row_delta
from lake.data_file import PUFFIN, ROW_LINEAGE, DataFile
from lake.deletes.row_deletes import encode_row_deletes
from lake.log_schema import new_log_schema
from lake.manifest import ManifestEntry, Status
from lake.manifest_list import ManifestList
from lake.marks import NO_MARKS
from lake.settings import StorageSettings
from lake.storage import open_storage
from lake.table_location import TableLocation
from optimize import live_rows
from optimize.compaction import merge_bin, write_file
from optimize.late_deletes import new_places, still_valid
from optimize.live_rows import places_of
from optimize.merge_job import Bin, FileLayout, InputFacts, JobResult, MergeGroup, MergeJob
from optimize.row_lineage import LAST_UPDATED, ROW_ID
from optimize.table_view import TableView
from optimize.verify import ProofFailed
from tests.optimize.support.small_files import rows_of

HOUR = 480_000


@given(st.data())
def test_a_row_that_is_deleted_meanwhile_is_found_in_the_new_file(data: st.DataObject) -> None:
    """Whatever was left out before, and however rows were ordered: the rows that the new file has at these
    places are those that were deleted, and no others."""
    counts = data.draw(st.lists(st.integers(0, 30), min_size=1, max_size=4))
    rows = [st.sets(st.integers(0, count - 1)) if count else st.just(set[int]()) for count in counts]
    applied = [BitMap64(data.draw(each)) for each in rows]
    deleted = [BitMap64(data.draw(each)) for each in rows]
    alive = [
        (file, row) for file, count in enumerate(counts) for row in range(count) if row not in applied[file]
    ]
    order = data.draw(st.permutations(range(len(alive))))
    found = new_places(places_of(applied, pa.array(order, pa.int64())), counts, deleted)
    new_file = [alive[at] for at in order]
    wanted = {(file, row) for file, gone in enumerate(deleted) for row in gone - applied[file]}
    assert {new_file[place] for place in found} == wanted
    assert len(found) == len(wanted)


def test_a_deleted_row_that_a_file_does_not_have_is_refused() -> None:
    places = places_of([BitMap64()], pa.array([1, 0]))
    with pytest.raises(ProofFailed, match="has 2 rows"):
        new_places(places, [2], [BitMap64([2])])


class Inputs:
    """Three files of ten rows of one hour, some of them deleted, in a table of a format version."""

    def __init__(self, folder: Path, version: int = 2) -> None:
        self.storage, self.location = open_storage(), f"file://{folder}"
        self.schema = new_log_schema()
        self.keeps_row_ids = version >= ROW_LINEAGE
        fields = self.schema.json["fields"]
        self.files = []
        for at in range(3):
            table = pa.table(
                [column.cast(field.type) for column, field in self._columns(at)], schema=self.schema.arrow
            )
            uri = f"{self.location}/data/{HOUR}/{at}.parquet"
            self.files.append(write_file(self.storage, uri, HOUR, table, fields, FileLayout()))
        self.deleted = [BitMap64([0, 9]), BitMap64(), BitMap64([4])]
        pairs = [(file, gone) for file, gone in zip(self.files, self.deleted, strict=True) if gone]
        written, self.deletes = encode_row_deletes(self.location, version, pairs)
        self.storage.write_all(written)

    def _columns(self, at: int) -> list[tuple[pa.Array, pa.Field]]:
        rows = rows_of(HOUR, at * 10, 10)
        return [(rows[field.name], field) for field in self.schema.arrow]

    def merge(self) -> JobResult:
        facts = tuple(
            InputFacts(tuple(d for d in self.deletes if d.referenced_data_file == file.uri), 5 + at)
            for at, file in enumerate(self.files)
        )
        group = MergeGroup(HOUR, tuple(self.files), tuple(self.deletes), facts, 9, keeps_places=True)
        job = MergeJob(
            TableName("a", "logs"),
            self.location,
            self.schema.json,
            (group,),
            FileLayout(),
            TableLocation.at(self.location),
            self.keeps_row_ids,
        )
        (result,) = merge_bin(Bin([job], StorageSettings.load(), 1), self.storage)
        return result

    def stored(self, file: DataFile) -> pa.Table:
        return pq.read_table(pa.BufferReader(self.storage.read(file.uri)))


@pytest.mark.parametrize("version", [2, 3])
def test_a_merge_leaves_out_deleted_rows_and_tells_where_the_others_went(
    tmp_path: Path, version: int
) -> None:
    """By position delete files and by deletion vectors."""
    inputs = Inputs(tmp_path, version)
    assert (inputs.deletes[0].file_format == PUFFIN) == (version == 3)
    result = inputs.merge()
    assert result.failure == ""
    (merged,) = result.merged
    (output,), places = merged.outputs, merged.places
    assert places is not None
    rows = inputs.stored(output)
    assert sorted(rows["_offset"].to_pylist()) == [at for at in range(30) if at not in (0, 9, 24)]
    came = [BitMap64([0, 3]), BitMap64([7]), BitMap64([4])]
    late = new_places(places, [10, 10, 10], came)
    assert sorted(rows["_offset"].to_pylist()[at] for at in late) == [3, 17]


def version_with(inputs: Inputs, deletes: Sequence[DataFile], version: int) -> TableView:
    """A version of the table that has all files and these deletes."""
    new = new_table_state(TableName("a", "logs"), "a", "logs", "file:///")
    state = replace(new, location=inputs.location, version=version, sequence_number=8)
    state = replace(state, manifests=ManifestList(version=version))
    delta = RowDelta(inputs.files, [ManifestEntry(Status.ADDED, file) for file in deletes])
    prepared = prepare_row_delta(state, delta, state.schema, NO_MARKS, 0)
    inputs.storage.write_all(prepared.files)
    return TableView(prepared.after, {}, inputs.storage)


@pytest.mark.parametrize("version", [2, 3])
def test_a_merge_is_given_up_where_a_rollback_brings_back_a_row_that_it_left_out(
    tmp_path: Path, version: int
) -> None:
    """Its inputs are all live, and a delete that it has applied is gone. Where another delete says the same
    and more, it goes on."""
    inputs = Inputs(tmp_path, version)
    merged = inputs.merge().merged

    def valid(deletes: Sequence[DataFile]) -> list[int]:
        view = version_with(inputs, deletes, version)
        return [len(carried.deleted) for carried in still_valid(view, merged, {})]

    more = [(inputs.files[0], inputs.deleted[0] | BitMap64([1]))]
    written, replacing = encode_row_deletes(inputs.location, version, more)
    inputs.storage.write_all(written)
    assert valid(inputs.deletes) == [0]
    assert valid(inputs.deletes[1:]) == []
    assert valid([*replacing, *inputs.deletes[1:]]) == [1]


def test_rows_keep_their_ids_and_when_they_changed(tmp_path: Path) -> None:
    """Also through a second merge, where they stand in the file; rows without an id stay without."""
    inputs = Inputs(tmp_path, 3)
    inputs.files = [
        replace(file, first_row_id=first) for file, first in zip(inputs.files, (100, 200, None), strict=True)
    ]

    def ids(file: DataFile) -> dict[int, tuple[int | None, int | None]]:
        rows = inputs.stored(file)
        fields = {int(each.metadata[b"PARQUET:field_id"]): each.name for each in rows.schema}
        columns = (rows[name].to_pylist() for name in ("_offset", fields[ROW_ID], fields[LAST_UPDATED]))
        return {offset: (row_id, number) for offset, row_id, number in zip(*columns, strict=True)}

    (merged,) = inputs.merge().merged
    wanted = {at: (100 + at, 5) for at in range(1, 9)} | {at: (190 + at, 6) for at in range(10, 20)}
    wanted |= dict.fromkeys([20, 21, 22, 23, 25, 26, 27, 28, 29], (None, None))  # type: ignore[arg-type]
    (output,) = merged.outputs
    assert ids(output) == wanted
    inputs.files, inputs.deletes = [output], []
    (again,) = inputs.merge().merged
    assert ids(again.outputs[0]) == wanted


def test_rows_keep_their_ids_where_none_is_deleted(tmp_path: Path) -> None:
    """The proof takes columns that a file lacks for NULLs, but for the ids that its rows inherit."""
    inputs = Inputs(tmp_path, 3)
    inputs.deletes = []
    inputs.files = [replace(file, first_row_id=at * 100) for at, file in enumerate(inputs.files)]
    result = inputs.merge()
    assert result.failure == ""
    (output,) = result.merged[0].outputs
    assert output.rows == 30
    assert (output.null_counts or {})[ROW_ID] == 0


def test_a_file_whose_rows_are_all_deleted_becomes_none(tmp_path: Path) -> None:
    inputs = Inputs(tmp_path)
    pairs = [(file, BitMap64(range(10))) for file in inputs.files]
    written, inputs.deletes = encode_row_deletes(inputs.location, 2, pairs)
    inputs.storage.write_all(written)
    (merged,) = inputs.merge().merged
    assert merged.outputs == ()


def test_a_merge_that_loses_or_doubles_a_key_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A live row left out, a deleted one taken in, both at once."""
    inputs = Inputs(tmp_path)

    def faulty(wrong: BitMap64) -> JobResult:
        def without(rows: pa.Table, deleted: BitMap64) -> pa.Table:
            alive = np.ones(rows.num_rows, dtype=bool)
            alive[(deleted ^ wrong if deleted else deleted).to_array()] = False
            return rows.filter(pa.array(alive))

        monkeypatch.setattr("optimize.compaction.without_deleted", without)
        return inputs.merge()

    assert faulty(BitMap64()).failure == ""
    for wrong in (BitMap64([1]), BitMap64([0]), BitMap64([0, 1])):
        result = faulty(wrong)
        assert result.is_refused, wrong
        assert "keys" in result.failure
    assert live_rows.without_deleted(pa.table({"a": [1, 2]}), BitMap64([0])).num_rows == 1
