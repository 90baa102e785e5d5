"""Deletes that came to the inputs of a merge while it was made: its commit carries them over to the new file,
so that a table that is updated all the time is merged all the same.

    rows that are deleted now, less those that the merge has left out  ->  their places in the new file
    ->  a delete file, or deletion vector, of the new file in the same commit

Rows deleted by their values (equality deletes) are of files with smaller sequence numbers. The new file then
gets the number that the table had when the merge was planned: what came since counts for it as well.

A rollback takes deletes back, and the rows that the merge has left out are there again. Then it is given up.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from pyroaring import BitMap64

from lake.data_file import EQUALITY_DELETES
from lake.deletes.dead_rows import DeleteFiles, LoadedDeletes, load_dead_rows
from lake.manifest import ManifestEntry
from optimize.merge_job import Merged, RowPlaces
from optimize.table_view import TableView
from optimize.verify import ProofFailed


@dataclass(frozen=True, slots=True)
class Carried:
    """A merge that may be committed to a version of its table. `deleted`: rows of its one new file that are
    deleted by now; `sequence_number`: the one that its files get (None: that of the commit)."""

    merged: Merged
    deleted: BitMap64
    sequence_number: int | None = None


def still_valid(view: TableView, merged: Sequence[Merged], loaded: LoadedDeletes) -> list[Carried]:
    """The merges whose inputs are all live in this version, with the deletes that came to them; without those
    that cannot tell where deleted rows went, or lack rows that are alive again; and without those that
    move rows to where equality deletes that came meanwhile are not about them. `loaded`: delete files that
    were read before. Raises ProofFailed, and what `load_dead_rows` raises."""
    places = {place for one in merged for place in one.group.partitions}
    live = {file.uri for partition in view.partitions(places).values() for file in partition.files}
    entries = view.delete_entries()
    found = []
    for one in merged:
        if not {f.uri for f in one.group.inputs} <= live:
            continue
        if one.places is None:
            if _is_untouched(view, one):
                found.append(Carried(one, BitMap64()))
            continue
        carried = _carried(view, one, one.places, entries, loaded)
        if carried is not None:
            found.append(carried)
    return found


def _is_untouched(view: TableView, one: Merged) -> bool:
    """Whether its partitions have no delete files but those that the merge has applied."""
    deletes, group = view.delete_files(), one.group
    own = {file.place for each in group.partitions | {group.partition} for file in deletes.get(each, ())}
    return None not in deletes and own == {file.place for file in one.group.deletes}


def _carried(
    view: TableView, one: Merged, places: RowPlaces, entries: Sequence[ManifestEntry], loaded: LoadedDeletes
) -> Carried | None:
    """None where a row is alive that the merge has left out."""
    group = one.group
    applied = {file.place for file in group.deletes}
    came = [entry for entry in entries if entry.file.place not in applied]
    # One that is gone may have made way for another that says the same and more: all that are there tell.
    some_gone = not applied <= {entry.file.place for entry in entries}
    by_value = any(
        entry.file.content == EQUALITY_DELETES and (entry.sequence_number or 0) > group.sequence_number
        for entry in came
    )
    if by_value and group.partitions != {group.partition}:
        return None  # they are about files of their own partition, where the new one is not
    index = DeleteFiles.of(entries if some_gone else came)
    wanted = [(file.uri, group.facts_of(at).sequence_number) for at, file in enumerate(group.inputs)]
    dead = load_dead_rows(view.storage, index, wanted, view.state.table_location, loaded)
    rows = [dead.get(file.uri, BitMap64()) for file in group.inputs]
    if some_gone and any(old - new for old, new in zip(places.applied, rows, strict=True)):
        return None
    deleted = new_places(places, [file.rows for file in group.inputs], rows)
    before = sum(file.rows for file in group.inputs) - sum(
        len(old | new) for old, new in zip(places.applied, rows, strict=True)
    )
    after = sum(file.rows for file in one.outputs) - len(deleted)
    if before != after:
        raise ProofFailed(f"{before} rows of the merged files are alive, after the merge there are {after}")
    return Carried(one, deleted, group.sequence_number if by_value else None)


def new_places(places: RowPlaces, rows: Sequence[int], deleted: Sequence[BitMap64]) -> BitMap64:
    """Rows of the inputs that are deleted by now, as rows of the new file. `rows`: how many each input has;
    `deleted`: of each the deleted ones, those that the merge has left out among them. Raises ProofFailed for
    rows that an input does not have."""
    found = BitMap64()
    first = 0  # place of the input's first live row among all of them
    for applied, count, gone in zip(places.applied, rows, deleted, strict=True):
        if gone and gone.max() >= count:
            raise ProofFailed(f"row {gone.max()} of a merged file is deleted, and it has {count} rows")
        came = _numbers(gone - applied)
        alive = came - np.searchsorted(_numbers(applied), came)
        found.update(places.places[first + alive].tolist())
        first += count - len(applied)
    return found


def _numbers(positions: BitMap64) -> NDArray[np.int64]:
    return np.asarray(positions.to_array(), dtype=np.int64)
