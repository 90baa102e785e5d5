"""Delete files that delete nothing any more, since the data files that they are about are gone: a commit of
maintenance takes them away."""

from collections.abc import Collection, Iterator, Sequence

import structlog

from lake.data_file import DATA, EQUALITY_DELETES, DataFile
from lake.deletes.dead_rows import only_data_file
from lake.deletes.row_deletes import load_row_deletes
from lake.errors import FirnError
from lake.manifest import ManifestEntry
from lake.manifest_list import DELETE_MANIFEST
from lake.span import Partition
from lake.storage import canonical
from optimize.table_view import TableView, has_live

log = structlog.get_logger()


def dangling_deletes(
    view: TableView, gone: Collection[str] = (), come: Sequence[ManifestEntry] = ()
) -> list[DataFile]:
    """The delete files that no live data file is left for, once the data files `gone` (URIs) are not live,
    and those that come are.

    Those of other partition specs are left alone, and so are those that cannot be read.
    """
    entries = [
        entry
        for manifest in view.own_manifests()
        if manifest.content == DELETE_MANIFEST and has_live(manifest)
        for entry in view.live_entries(manifest)
    ]
    if not entries:
        return []
    left = [entry for entry in _data_entries(view) if entry.file.uri not in gone]
    # Without a number they get that of the commit: then no delete that is there is about them.
    left += [entry for entry in come if entry.sequence_number is not None]
    # Engines spell one file in several ways: what may be about a live file stays.
    live = {canonical(entry.file.uri) for entry in left}
    oldest = _oldest_by_partition(left)
    return [entry.file for entry in entries if not _is_needed(view, entry, live, oldest)]


def _data_entries(view: TableView) -> Iterator[ManifestEntry]:
    for manifest in view.manifests:
        if manifest.content == DATA and has_live(manifest):
            yield from view.live_entries(manifest)


def _oldest_by_partition(entries: list[ManifestEntry]) -> dict[Partition | None, int]:
    """The smallest sequence number of the data files of each partition."""
    found: dict[Partition | None, int] = {}
    for entry in entries:
        number = entry.sequence_number or 0
        found[entry.file.partition] = min(number, found.get(entry.file.partition, number))
    return found


def _is_needed(
    view: TableView, entry: ManifestEntry, live: set[str], oldest: dict[Partition | None, int]
) -> bool:
    file = entry.file
    if file.content == EQUALITY_DELETES:
        # It is about older files of its partition (Iceberg spec, "Scan Planning").
        first = oldest.get(file.partition)
        return file.partition is None or (first is not None and first < (entry.sequence_number or 0))
    about = only_data_file(file)
    if about is not None:
        return canonical(about) in live
    if file.partition is not None and file.partition not in oldest:
        return False
    if file.place not in view.named:
        try:
            named = load_row_deletes(view.storage, file, view.state.table_location)
        except FirnError as error:
            # Whoever needs its rows stumbles over it; what has nothing to do with them goes on.
            log.info("optimize.deletes_not_read", table=str(view.name), file=file.uri, error=str(error))
            return True
        view.named[file.place] = frozenset(map(canonical, named))
    return not live.isdisjoint(view.named[file.place])
