"""Data files with token filters, written as merges write them, and what is asked of them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from sqlglot import exp

from lake.log_schema import SYSTEM_COLUMNS, TIMESTAMP, LogSchema
from lake.manifest import ManifestEntry, Status
from lake.storage import LocalStorage
from lake.table_location import TableLocation
from lake.token_filter.alphabet import Alphabet
from optimize.compaction import write_file
from optimize.merge_job import FileLayout
from query.files.file_index import LiveFile, live_file
from query.files.filter_pack import RowGroup
from query.files.pack_folder import PackFolder
from query.files.token_demand import Word
from query.files.token_filters import FilteredTable, Narrowed, TokenFilters
from query.language.search_language import Node
from query.language.search_sql import compile_search
from query.search.token_demands import demand_of, words_of

BUDGET = 1 << 30


class CountingStorage(LocalStorage):
    """Notes what is read in part."""

    def __init__(self) -> None:
        super().__init__()
        self.ranges: list[str] = []

    def read_range(self, uri: str, start: int, length: int) -> bytes:
        self.ranges.append(uri)
        return super().read_range(uri, start, length)


class FilteredFiles:
    """The files of one table, in a folder. Rows are mappings of columns; their times are in order."""

    def __init__(self, folder: Path, schema: LogSchema, uuid: str = "a-table") -> None:
        self.folder = folder / uuid
        (self.folder / "data").mkdir(parents=True)
        self.schema = schema
        self.uuid = uuid
        self.location = TableLocation.at(f"file://{self.folder}")
        self.storage = CountingStorage()
        self.files: list[LiveFile] = []
        self.rows: list[list[Mapping[str, Any]]] = []

    def add(
        self, rows: Sequence[Mapping[str, Any]], *, group_rows: int = 1_000, token_filter: bool = True
    ) -> LiveFile:
        fields = [
            field
            for field in self.schema.json["fields"]
            if field["name"] in SYSTEM_COLUMNS or any(row.get(field["name"]) is not None for row in rows)
        ]
        arrow = LogSchema({"fields": fields}).arrow
        table = pa.table({name: [row.get(name) for row in rows] for name in arrow.names}, schema=arrow)
        uri = f"file://{self.folder}/data/{len(self.files):05}.parquet"
        layout = FileLayout(row_group_rows=group_rows, token_filter=token_filter)
        written = write_file(self.storage, uri, 0, table, fields, layout)
        entry = ManifestEntry(Status.ADDED, written, 1, 1, 1)
        file = live_file(entry, self.schema.by_name[TIMESTAMP].id)
        self.files.append(file)
        self.rows.append(list(rows))
        return file

    def filters(self, state: Path, bytes_max: int = BUDGET) -> TokenFilters:
        return TokenFilters(self.storage, PackFolder(state, bytes_max))

    @property
    def table(self) -> FilteredTable:
        return FilteredTable(self.uuid, self.location, self.files)

    def narrowed(self, filters: TokenFilters, question: Node, **bounds: Any) -> Narrowed:
        demand = demand_of(question, self.schema, self.files)
        return (
            Narrowed(tuple(self.files))
            if demand is None
            else filters.narrow(self.table, self.files, demand, words=self.words(question), **bounds)
        )

    def words(self, question: Node) -> tuple[Word, ...]:
        return tuple(words_of(question, self.schema).values())

    def condition(
        self, question: Node, columns: Sequence[Mapping[int, Alphabet | None]] = ()
    ) -> exp.Expression | None:
        """Of a search; `columns`: the only ones that may have its words, with their characters."""
        only = dict(zip(words_of(question, self.schema), columns, strict=False))
        return compile_search(question, self.schema, columns_of_words=only).condition

    def left(self, narrowed: Narrowed) -> list[Mapping[str, Any]]:
        """The rows that a search would still read."""
        found = list[Mapping[str, Any]]()
        for file in narrowed.files:
            rows = self.rows[self.files.index(file)]
            for group in narrowed.groups.get(file.uri, [RowGroup(0, len(rows))]):
                found += rows[group.first_row : group.end]
        return found
