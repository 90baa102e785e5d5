"""The search of an erasure in one table: which rows of which files go, and whether any is left.

`optimize` takes the rows away (see `lake/erasure_work.py`) and leaves a single snapshot; that snapshot is
searched then, and that is the proof. Files that were searched before are not opened again.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from sqlglot import exp

from lake.catalog_client import CatalogClient, TableName
from lake.clock import epoch_us
from lake.erasure_work import ROWS_BYTES_MAX, ErasureRequest, pack_rows
from lake.log_schema import OFFSET, LogSchema
from lake.storage import AnyStorage
from lake.table_version import Manifests, Version, load_version
from lake.tenant import TableId
from query.executors.executor import Executor, Source, from_source
from query.files.file_index import FileIndex, LiveFile
from query.language.search_language import Everything, parse_search
from query.language.search_sql import all_of, column, compile_search, within
from query.model.cancellation import Run
from query.model.problem import refuse
from query.model.table_view import TableView, view_of
from query.search.file_planner import plan_files

# DuckDB adds it to what it reads.
POSITION = "file_row_number"


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which rows go: those of `[start, end)` that match the query."""

    table: TableId
    start: datetime
    end: datetime
    query: str


@dataclass(frozen=True, slots=True)
class TableReport:
    """What was done to one table, and the proof: no matching row is left in the `files_searched` files of
    `snapshot_id`, the only snapshot there is.

    `rows_left` None: nobody knows, because of the `problem`; then the rows have to be erased again when that
    is mended.
    """

    stream: str
    table: str
    rows: int = 0
    files_rewritten: int = 0
    files_removed: int = 0
    files_queued: int = 0
    snapshots_expired: int = 0
    files_live: int = 0
    files_searched: int = 0
    rows_left: int | None = None
    snapshot_id: str | None = None
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class Tools:
    """What an erasure works with. `work_list`: where the optimizer is asked, the catalog or the control
    service beside it; `grace_s`: how long running queries may still read old files."""

    catalog: CatalogClient
    work_list: CatalogClient
    storage: AnyStorage
    index: FileIndex
    embedded: Executor
    grace_s: float


@dataclass(frozen=True, slots=True)
class Look:
    """What one search of a table found, and what it was for. `hits`: places of matching rows by file;
    `version` None: there is no table; `is_settled`: nothing is left to do."""

    wanted: Wanted
    report: TableReport
    is_settled: bool
    version: Version | None = None
    hits: Mapping[str, Sequence[int]] = field(default_factory=dict)

    def request(self, request_id: str, grace_s: float) -> ErasureRequest:
        """What maintenance is to take away: these rows, or as many of them as one request holds, and older
        snapshots."""
        assert self.version is not None
        rows: dict[str, str] = {}
        size = 0
        for uri, places in self.hits.items():
            packed = pack_rows(places)
            size += len(uri) + len(packed)
            if rows and size > ROWS_BYTES_MAX:
                break
            rows[uri] = packed
        state = self.version.state
        return ErasureRequest(
            request_id, state.name, state.uuid, rows, int(grace_s * 1000), self.wanted.start, self.wanted.end
        )


@dataclass(slots=True)
class TableSearch:
    """The search in one table. `positions`: of files searched before."""

    tools: Tools
    wanted: Wanted
    run: Run
    positions: dict[str, list[int]] = field(default_factory=dict)
    report: TableReport = field(init=False)

    def __post_init__(self) -> None:
        table = self.wanted.table
        self.report = TableReport(table.stream, f"{table.tenant.namespace}.{table.table}")

    def look(self, left: int | None = None) -> Look:
        """Searches the table as it is; `left`: at the one snapshot that maintenance has left, where the table
        still has it. Raises FirnError, BadRequestError."""
        version = self._load(left)
        if version is None or (found := self._search(version)) is None:
            return Look(self.wanted, self.report, is_settled=True)
        hits = {uri: rows for uri, rows in found.items() if rows}
        if hits or (version.expirable and version.state.head != left):
            return Look(self.wanted, self.report, is_settled=False, version=version, hits=hits)
        held = (
            f"the branch or tag {', '.join(version.other_refs)} reaches older files: drop it and erase again"
            if version.other_refs
            else None
        )
        head = version.state.head
        clean = replace(
            self.report, rows_left=0, snapshot_id=None if head is None else str(head), problem=held
        )
        return Look(self.wanted, clean, is_settled=True, version=version)

    def count(self) -> TableReport:
        """What would go."""
        version = self._load()
        if version is None or (found := self._search(version)) is None:
            return self.report
        hits = {uri: rows for uri, rows in found.items() if rows}
        rows = sum(map(len, hits.values()))
        return replace(
            self.report,
            rows=rows,
            files_rewritten=len(hits),
            rows_left=rows,
            snapshot_id=str(version.state.head),
        )

    def share(self) -> tuple[int, int]:
        """How many rows match, and how many lie in the time range; of these as many as are needed to tell
        that not all match."""
        version = self._load()
        found = None if version is None else self._search(version)
        if version is None or found is None:
            return 0, 0
        view = self._view(version)
        matching = sum(map(len, found.values()))
        start_us, end_us = epoch_us(self.wanted.start), epoch_us(self.wanted.end)
        everything = plan_files(
            self.tools.index.files(view), self.wanted.start, self.wanted.end, Everything(), view.schema
        ).files
        inside = [file for file in everything if start_us <= file.first_us and file.last_us < end_us]
        rows = sum(file.rows for file in inside)
        if rows > matching:
            return matching, rows
        at_the_edges = [file for file in everything if file not in inside]
        select = (
            exp.select(column(OFFSET)).from_(from_source()).where(within(self.wanted.start, self.wanted.end))
        )
        return matching, rows + sum(
            len(self.tools.embedded.fetch(Source(view, [file]), select, self.run).rows)
            for file in at_the_edges
        )

    def _load(self, left: int | None = None) -> Version | None:
        name = TableName(self.wanted.table.tenant.namespace, self.wanted.table.table)
        version = load_version(self.tools.catalog, Manifests(self.tools.storage), name, snapshot_id=left)
        if version is None:
            self.report = replace(
                self.report,
                rows_left=0,
                problem="there is no such stream now; of one that was dropped the files go with its purge",
            )
        return version

    def _view(self, version: Version) -> TableView:
        return view_of(self.wanted.table, version.state.name, version.metadata)

    def _search(self, version: Version) -> dict[str, list[int]] | None:
        """Positions of matching rows by file. None where that cannot be told; the report says why."""
        if version.has_equality_deletes:
            self.report = replace(
                self.report,
                problem="the table has equality deletes: run a round of maintenance, then erase again",
            )
            return None
        view, wanted = self._view(version), self.wanted
        node = parse_search(wanted.query)
        condition = all_of(
            [within(wanted.start, wanted.end), compile_search(node, view.schema, everywhere=True).condition]
        )
        assert condition is not None
        plan = plan_files(self.tools.index.files(view), wanted.start, wanted.end, node, view.schema)
        found = {file.uri: self._positions(view, file, condition) for file in plan.files}
        self.report = replace(self.report, files_live=len(version.data), files_searched=len(found))
        foreign = [uri for uri, rows in found.items() if rows and not version.is_ours(uri)]
        if foreign:
            self.report = replace(
                self.report,
                problem=(
                    f"{len(foreign)} files are in no partition of Firn's and cannot be rewritten, "
                    f"{foreign[0]} for one"
                ),
            )
            return None
        return found

    def _positions(self, view: TableView, file: LiveFile, condition: exp.Expression) -> list[int]:
        if file.uri not in self.positions:
            self.run.check()
            fields = [each for each in view.schema.json["fields"] if each["name"] != POSITION]
            if len(fields) < len(view.schema.columns) and any(
                each.name == POSITION for each in condition.find_all(exp.Column)
            ):
                raise refuse(
                    f"rows cannot be erased by the field {POSITION!r}", suggestion="name another field"
                )
            source = Source(replace(view, schema=LogSchema({**view.schema.json, "fields": fields})), [file])
            select = exp.select(exp.column(POSITION)).from_(from_source()).where(condition.copy())
            self.positions[file.uri] = sorted(
                int(row[0]) for row in self.tools.embedded.fetch(source, select, self.run).rows
            )
        return self.positions[file.uri]
