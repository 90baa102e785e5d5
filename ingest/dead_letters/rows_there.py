"""Which records that became dead letters are rows by now: those that a restore has read again, and those of a
process that ended between its dead letter and its offset.

Of a table only the columns are read that say where a row came from, and only in the data files whose bounds
say that they may hold one of the records.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ingest.keys.key_columns import parquet_errors
from lake.catalog_client import CatalogClient, MetadataMissingError, TableName
from lake.commit import TableState, state_of
from lake.data_file import DataFile
from lake.deletes.dead_rows import DeleteFiles, load_dead_rows
from lake.errors import (
    FirnError,
    NotFoundError,
    ProtocolError,
    RefusedError,
    RetryableError,
    UnavailableError,
)
from lake.live_files import columns_of_file, live_entries, may_hold, numbers_of
from lake.log_schema import IDENTITY, OFFSET, TOPIC_ID, TOPIC_PARTITION
from lake.manifest import ManifestEntry
from lake.manifest_list import DATA_MANIFEST, DELETE_MANIFEST
from lake.storage import AnyStorage
from lake.tenant import TableId

# Topic id, partition, offset, index in its message; None: the whole message.
Identity = tuple[str, int, int, int | None]
_POSITION = "position"


@dataclass(frozen=True, slots=True)
class RowsThere:
    """Looks into tables. `meanwhile` is called for every file of a table: to look may take long."""

    catalog: CatalogClient
    storage: AnyStorage
    meanwhile: Callable[[], None]

    def among(self, table: TableId, records: Collection[Identity]) -> set[Identity]:
        """Those of the records that are rows of a table, as of now; of a whole message one row is enough. A
        table that is not there has none. Raises UnavailableError, RefusedError where nobody can tell."""
        try:
            return self._found(TableName(table.tenant.namespace, table.table), frozenset(records))
        except FirnError as error:
            kind = UnavailableError if isinstance(error, RetryableError) else RefusedError
            raise kind(
                f"nobody can tell which dead letters are rows of table {table}: {error}; mend that and "
                "replay again, or replay with --no-look where none of them can be there"
            ) from error

    def _found(self, name: TableName, records: frozenset[Identity]) -> set[Identity]:
        try:
            metadata = self.catalog.load_table(name)["metadata"]
        except MetadataMissingError:  # it is there, and cannot be read
            raise
        except NotFoundError:
            return set()
        state = state_of(metadata, name, self.storage)
        _check(state)
        wanted = Wanted(records)
        ids = {column: state.schema.by_name[column].id for column in IDENTITY}
        deletes: DeleteFiles | None = None
        found = set[Identity]()
        for entry in live_entries(state, self.storage, (DATA_MANIFEST,)):
            self.meanwhile()
            if not wanted.may_be_in(entry.file, ids):
                continue
            rows = list(self._rows(state, entry.file, wanted))
            if rows:
                deletes = deletes or DeleteFiles.of(live_entries(state, self.storage, (DELETE_MANIFEST,)))
                found |= self._live(state, entry, deletes, rows)
        return found

    def _rows(self, state: TableState, file: DataFile, wanted: "Wanted") -> Iterator[tuple[int, Identity]]:
        """The position of each row that is one of the records, and which."""
        first = 0
        with parquet_errors(file.uri):
            for group in columns_of_file(state, file, self.storage, IDENTITY):
                yield from ((first + at, record) for at, record in wanted.found_in(group))
                first += group.num_rows

    def _live(
        self,
        state: TableState,
        entry: ManifestEntry,
        deletes: DeleteFiles,
        rows: Collection[tuple[int, Identity]],
    ) -> set[Identity]:
        """Without rows that are deleted by their position. Whether one is deleted by its values only an
        engine can tell: it counts as there, since sent again it could be there twice."""
        place = (entry.file.uri, entry.sequence_number)
        dead = load_dead_rows(self.storage, deletes, [place], state.table_location).get(entry.file.uri, ())
        return {record for position, record in rows if position not in dead}


def _check(state: TableState) -> None:
    if absent := [name for name in IDENTITY if name not in state.schema.by_name]:
        raise ProtocolError(f"it has no column {absent[0]}, which says where a row came from")
    if state.moved_back:
        raise RefusedError(
            "it was moved back to an earlier snapshot, and nobody has decided yet whether what came since is "
            f"read again; run `python -m ingest resolve {state.name} --reread` or `--accept` first"
        )


class Wanted:
    """The records that are looked for: which files may hold them, and which rows they are."""

    def __init__(self, records: Collection[Identity]) -> None:
        self._records = frozenset(records)
        offsets: dict[tuple[str, int], set[int]] = {}
        for topic_id, partition, offset, _ in self._records:
            offsets.setdefault((topic_id, partition), set()).add(offset)
        self._offsets = {
            source: np.array(sorted(of_source), np.int64) for source, of_source in offsets.items()
        }
        places = [(*source, offset) for source, of_source in offsets.items() for offset in of_source]
        topic_ids, partitions, flat = zip(*places, strict=True) if places else ((), (), ())
        self._places = pa.table(
            {
                TOPIC_ID: pa.array(topic_ids, pa.string()),
                TOPIC_PARTITION: pa.array(partitions, pa.int32()),
                OFFSET: pa.array(flat, pa.int64()),
            }
        )

    def may_be_in(self, file: DataFile, ids: Mapping[str, int]) -> bool:
        """Whether a data file may hold one of the records, by its bounds. `ids`: field ids of the columns."""
        partitions, offsets = (numbers_of(file, ids[column]) for column in (TOPIC_PARTITION, OFFSET))
        return any(
            may_hold(file, ids[TOPIC_ID], (topic_id,))
            and (partitions is None or partitions[0] <= partition <= partitions[1])
            and (offsets is None or _has_between(of_source, *offsets))
            for (topic_id, partition), of_source in self._offsets.items()
        )

    def found_in(self, rows: pa.Table) -> Iterator[tuple[int, Identity]]:
        """The rows that are records which are looked for: the position of each, and which it is. `rows`: the
        identity columns."""
        columns = (TOPIC_ID, TOPIC_PARTITION, OFFSET)
        typed = rows.cast(pa.schema([self._places.schema.field(name) for name in columns] + [_INDEX]))
        numbered = typed.append_column(_POSITION, pa.array(np.arange(rows.num_rows, dtype=np.int64)))
        same = numbered.join(self._places, list(columns), join_type="left semi")
        for topic_id, partition, offset, index, position in zip(
            *(same.column(name).to_pylist() for name in (*IDENTITY, _POSITION)), strict=True
        ):
            for record in ((topic_id, partition, offset, index), (topic_id, partition, offset, None)):
                if record in self._records:
                    yield position, record


_INDEX = pa.field(IDENTITY[3], pa.int64())


def _has_between(numbers: "np.ndarray[tuple[int], np.dtype[np.int64]]", low: int, high: int) -> bool:
    """Whether one of these sorted numbers is between two, which count."""
    at = int(np.searchsorted(numbers, low))
    return at < len(numbers) and int(numbers[at]) <= high
