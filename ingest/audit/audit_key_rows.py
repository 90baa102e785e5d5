"""The rows that keyed tables have, by the hashes of their keys and the changes that made them: those of the
live data files, without what delete files take away. No index is asked."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

from ingest.audit.audit_key_spool import NOWHERE, ROW, KeySpool, entries
from ingest.keys.key_columns import open_key_columns
from ingest.keys.key_hash import hash_keys
from ingest.model.link import TableKey
from lake.commit import TableState
from lake.data_file import DATA, DataFile
from lake.deletes.dead_rows import DeleteFiles, load_dead_rows
from lake.errors import FirnError, ProtocolError
from lake.live_files import columns_of_file, live_entries
from lake.log_schema import OFFSET, TOPIC_ID, TOPIC_PARTITION, LogSchema
from lake.marks import NO_MARKS, Marks, TopicPartition
from lake.storage import AnyStorage
from lake.tenant import TableId


@dataclass(frozen=True, slots=True)
class KeyedTable:
    """A keyed table at the snapshot that is audited, and its number."""

    number: int
    name: str
    key: TableKey
    schema: LogSchema
    marks: Marks

    @property
    def key_ids(self) -> tuple[int, ...]:
        """The field ids of the key, in its order."""
        return tuple(self.schema.by_name[name].id for name in self.key.columns)


@dataclass
class KeyedTables:
    """What was read of all keyed tables. `sources`: the numbers of the partitions that are audited.

    `dropped`: marks of dropped tables that may still come back, by name. `sent_to`: where changes went that
    were dead letters. `of_interest`: tables with a row or a change of these partitions.
    """

    spool: KeySpool
    sources: Mapping[TopicPartition, int]
    tables: list[KeyedTable] = field(default_factory=list)
    by_name: dict[str, KeyedTable] = field(default_factory=dict)
    dropped: dict[str, Marks] = field(default_factory=dict)
    sent_to: dict[tuple[TopicPartition, int], TableId] = field(default_factory=dict)
    of_interest: set[int] = field(default_factory=set)
    _files: list[tuple[int, str]] = field(default_factory=list)

    def read(self, state: TableState, key: TableKey, storage: AnyStorage) -> tuple[int, int]:
        """Reads the rows of a table; how many there are, in how many files. Raises FirnError."""
        table = KeyedTable(len(self.tables), str(state.name), key, state.schema, state.marks)
        self.tables.append(table)
        found = list(live_entries(state, storage))
        data = [entry for entry in found if entry.file.content == DATA]
        deletes = DeleteFiles.of(entry for entry in found if entry.file.content != DATA)
        if deletes.has_equality_deletes:
            raise ProtocolError(
                "it has equality deletes, which say nothing of single rows; let a round of maintenance turn "
                "them into positions"
            )
        places = [(entry.file.uri, entry.sequence_number) for entry in data]
        dead = load_dead_rows(storage, deletes, places, state.table_location)
        rows = sum(self._read_file(state, table, entry.file, storage, dead) for entry in data)
        self.by_name[table.name] = table
        return rows, len(data)

    def drop(self, state: TableState) -> None:
        """Takes note of a dropped table that may still come back."""
        name = str(state.name)
        self.dropped[name] = self.dropped.get(name, NO_MARKS).joined(state.marks)

    def _read_file(
        self,
        state: TableState,
        table: KeyedTable,
        file: DataFile,
        storage: AnyStorage,
        dead: Mapping[str, Any],
    ) -> int:
        self._files.append((table.number, file.uri))
        gone = (
            np.frombuffer(dead[file.uri].to_array(), np.uint64)
            if file.uri in dead
            else np.empty(0, np.uint64)
        )
        columns = dict.fromkeys((TOPIC_ID, TOPIC_PARTITION, OFFSET, *table.key.columns))
        first = rows = 0
        for group in columns_of_file(state, file, storage, list(columns)):
            at = np.arange(first, first + group.num_rows, dtype=np.int64)
            live = ~np.isin(at, gone.astype(np.int64))
            first += group.num_rows
            rows += self._add(table, group.filter(pa.array(live)), at[live])
        return rows

    def _add(self, table: KeyedTable, rows: pa.Table, positions: Any) -> int:
        if rows.num_rows:
            self.spool.add(
                entries(
                    table.number,
                    hash_keys([rows.column(name) for name in table.key.columns]),
                    source=self._sources_of(table, rows),
                    offset=rows.column(OFFSET).cast(pa.int64()).combine_chunks(),
                    kind=ROW,
                    file=len(self._files) - 1,
                    position=positions,
                )
            )
        return int(rows.num_rows)

    def _sources_of(self, table: KeyedTable, rows: pa.Table) -> pa.Array:
        """The number of the source of each row."""
        partitions = rows.select([TOPIC_ID, TOPIC_PARTITION]).combine_chunks()
        distinct = partitions.group_by([TOPIC_ID, TOPIC_PARTITION]).aggregate([]).to_pylist()
        numbers = np.full(rows.num_rows, NOWHERE, np.int32)
        for one in distinct:
            source = self.sources.get(TopicPartition(one[TOPIC_ID], one[TOPIC_PARTITION]), NOWHERE)
            here = pa.compute.and_(
                pa.compute.equal(partitions.column(TOPIC_ID), one[TOPIC_ID]),
                pa.compute.equal(partitions.column(TOPIC_PARTITION), one[TOPIC_PARTITION]),
            )
            numbers[np.asarray(here)] = source
            if source != NOWHERE:
                self.of_interest.add(table.number)
        return pa.array(numbers)

    def key_at(self, storage: AnyStorage, file: int, position: int) -> str | None:
        """The key of a row, as JSON; None where the file cannot be read any more."""
        number, uri = self._files[file]
        table = self.tables[number]
        try:
            with open_key_columns(storage, uri, table.key_ids) as columns:
                values = next(_rows_from(columns.batches(), position))
        except FirnError:
            return None
        return key_text(dict(zip(table.key.columns, values, strict=True)))


def _rows_from(batches: Iterator[list[pa.Array]], position: int) -> Iterator[list[Any]]:
    """The values of one row of all that are read."""
    first = 0
    for batch in batches:
        if position < first + len(batch[0]):
            yield [column[position - first].as_py() for column in batch]
        first += len(batch[0])


def key_text(key: Mapping[str, Any]) -> str:
    """A key as a JSON object."""
    return orjson.dumps(dict(key), default=str).decode()
