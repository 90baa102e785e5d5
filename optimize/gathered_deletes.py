"""New position deletes of data files that stay as they are: of each file all its deleted rows in one delete
file or vector, in the place of what deleted them before."""

from collections.abc import Mapping
from dataclasses import dataclass

from pyroaring import BitMap64

from lake.data_file import DataFile
from lake.deletes.dead_rows import DeleteFiles, load_dead_rows
from optimize.table_view import TableView


@dataclass(frozen=True, slots=True)
class Gathered:
    """`rows`: of each data file what is deleted; `replaced`: the delete files that say nothing else."""

    rows: tuple[tuple[DataFile, BitMap64], ...] = ()
    replaced: tuple[DataFile, ...] = ()


def gather_deletes(view: TableView, more: Mapping[str, BitMap64]) -> Gathered:
    """Puts together what is deleted of data files (by URI), with `more` rows of each; files that are not live
    in this version, and those without deleted rows, are left out. Raises what `load_dead_rows` raises."""
    if not more:
        return Gathered()
    index = DeleteFiles.of(view.delete_entries())
    entries = {
        entry.file.uri: entry
        for manifest in view.data_manifests()
        for entry in view.live_entries(manifest)
        if entry.file.uri in more
    }
    wanted = [(uri, entry.sequence_number) for uri, entry in entries.items()]
    dead = load_dead_rows(view.storage, index, wanted, view.state.table_location)
    rows, replaced = list[tuple[DataFile, BitMap64]](), list[DataFile]()
    for uri, entry in entries.items():
        positions = more[uri] | dead.get(uri, BitMap64())
        if positions:
            rows.append((entry.file, positions))
            vector = index.vectors.get(uri)
            own = [*index.of_one.get(uri, ()), *([] if vector is None else [vector])]
            replaced += [each.file for each in own]
    return Gathered(tuple(rows), tuple(replaced))
