"""Erasure in one table: the files that hold matching rows are written anew without them, and no snapshot that
reaches the old ones is left.

Until no live file holds a matching row and no other snapshot is left:

1. load the table; find the matching rows in its files. Files that were searched before are not opened again
2. write the files that lose rows anew, durable before the commit
3. load the table again, for its newest version; note what nobody will reach after the commit, so that it is
  deleted also when this process dies
4. one commit: old files out, new ones in, all other snapshots away; where somebody was faster (ingestion
  commits all the time), back to 3
5. back to 1: that is the proof

What was noted is queued for deletion at the end, as far as nobody reaches it.
"""

import random
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

import pyarrow.parquet as pq
from sqlglot import exp

from lake.catalog_client import CatalogClient, CommitStatus
from lake.clock import Clock, epoch_ms, epoch_us
from lake.data_file import EQUALITY_DELETES, DataFile
from lake.errors import NotFoundError, RefusedError
from lake.extras_client import ExtrasClient, UnreachedFile
from lake.log_schema import OFFSET, LogSchema
from lake.storage import AnyStorage, canonical
from lake.table_layout import data_file_uri
from lake.table_location import TableLocation
from lake.tenant import TableId
from query.erasure.erased_version import (
    Change,
    Manifests,
    Version,
    load_version,
    prepare_change,
    reached_files,
)
from query.erasure.rewritten_file import write_without
from query.executors.executor import Executor, Source, from_source
from query.files.file_index import FileIndex, LiveFile
from query.language.search_language import Everything, parse_search
from query.language.search_sql import all_of, column, compile_search, within
from query.model.cancellation import Run
from query.model.problem import refuse
from query.model.table_view import TableView
from query.search.file_planner import plan_files

ROUNDS = 20
ATTEMPTS = 40
BACKOFF_S = 0.05
COMMIT_TIMEOUT_S = 30.0
QUEUED_AT_ONCE = 1_000
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
    """What erasure works with. `local_paths` gives data files as paths of this machine; `grace_s`: how long
    running queries may still read old files."""

    catalog: CatalogClient
    storage: AnyStorage
    index: FileIndex
    embedded: Executor
    local_paths: Callable[[Sequence[str], TableLocation], list[str]]
    clock: Clock
    grace_s: float


@dataclass(slots=True)
class TableErasure:
    """The erasure of one table. `note` keeps the files that nobody will reach, before the commit that makes
    it so. `positions`: of files searched before."""

    tools: Tools
    wanted: Wanted
    run: Run
    note: Callable[[Sequence[str]], None]
    positions: dict[str, list[int]] = field(default_factory=dict)
    written: dict[str, DataFile | None] = field(default_factory=dict)
    report: TableReport = field(init=False)
    manifests: Manifests = field(init=False)

    def __post_init__(self) -> None:
        self.manifests = Manifests(self.tools.storage)
        table = self.wanted.table
        self.report = TableReport(table.stream, f"{table.tenant.namespace}.{table.table}")

    def count(self) -> TableReport:
        """What would go; changes nothing."""
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
        that not all match. Changes nothing."""
        version = self._load()
        found = None if version is None else self._search(version)
        if version is None or found is None:
            return 0, 0
        matching = sum(map(len, found.values()))
        start_us, end_us = epoch_us(self.wanted.start), epoch_us(self.wanted.end)
        everything = plan_files(
            self.tools.index.files(version.view),
            self.wanted.start,
            self.wanted.end,
            Everything(),
            version.view.schema,
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
            len(self.tools.embedded.fetch(Source(version.view, [file]), select, self.run).rows)
            for file in at_the_edges
        )

    def erase(self) -> TableReport:
        """Erases until the proof holds. Raises FirnError, BadQuestionError."""
        for _ in range(ROUNDS):
            version = self._load()
            if version is None or (found := self._search(version)) is None:
                return self.report
            hits = {uri: rows for uri, rows in found.items() if rows}
            if not hits and not version.expirable:
                held = (
                    f"the branch or tag {', '.join(version.other_refs)} reaches older files: drop it and "
                    "erase again"
                    if version.other_refs
                    else None
                )
                return replace(
                    self.report,
                    rows_left=0,
                    snapshot_id=None if version.state.head is None else str(version.state.head),
                    problem=held,
                )
            written = {uri: self._written(version, uri, rows) for uri, rows in hits.items()}
            self.tools.storage.sync([file.uri for file in written.values() if file is not None])
            if not self._commit(written, {file.uri for file in version.deletes}):
                break
        return replace(
            self.report,
            problem=(
                "the table changes faster than rows can be erased; erase again when less is written to it"
            ),
        )

    def _load(self) -> Version | None:
        version = load_version(self.tools.catalog, self.manifests, self.wanted.table)
        if version is None:
            self.report = replace(
                self.report,
                rows_left=0,
                problem="there is no such stream now; of one that was dropped the files go with its purge",
            )
        return version

    def _search(self, version: Version) -> dict[str, list[int]] | None:
        """Positions of matching rows by file (1). None where that cannot be told; the report says why."""
        if any(file.content == EQUALITY_DELETES for file in version.deletes):
            self.report = replace(
                self.report,
                problem="the table has equality deletes: let maintenance rewrite it, then erase again",
            )
            return None
        schema, wanted = version.view.schema, self.wanted
        node = parse_search(wanted.query)
        condition = all_of(
            [within(wanted.start, wanted.end), compile_search(node, schema, everywhere=True).condition]
        )
        assert condition is not None
        plan = plan_files(self.tools.index.files(version.view), wanted.start, wanted.end, node, schema)
        found = {file.uri: self._positions(version.view, file, condition) for file in plan.files}
        self.report = replace(self.report, files_live=len(version.data), files_searched=len(found))
        foreign = [uri for uri, rows in found.items() if rows and not version.is_ours(uri)]
        if foreign:
            self.report = replace(
                self.report,
                problem=(
                    f"{len(foreign)} files are not partitioned by hour and cannot be rewritten, "
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

    def _commit(self, written: Mapping[str, DataFile | None], deletes: set[str]) -> bool:
        """Steps 3 and 4, again and again until nobody was faster; only what has to lie between loading and
        commit is done there. False: in vain."""
        for attempt in range(ATTEMPTS):
            self.run.check()
            version = self._load()
            if version is None:
                return True
            if {
                file.uri for file in version.deletes
            } != deletes:  # rows that are hidden now must not come back: write the files again
                self.written.clear()
                return True
            replaced = {uri: file for uri, file in written.items() if uri in version.data}
            change = prepare_change(self.manifests, version, replaced, epoch_ms(self.tools.clock.now()))
            self.tools.storage.write_all(list(change.files))
            self.note(change.unreachable)
            if self._landed(version, change):
                self._count(replaced, change)
                return True
            threading.Event().wait(BACKOFF_S * attempt * random.random())  # noqa: S311 - spreads rivals, guards nothing
        return False

    def _count(self, replaced: Mapping[str, DataFile | None], change: Change) -> None:
        self.report = replace(
            self.report,
            rows=self.report.rows + sum(len(self.positions[uri]) for uri in replaced),
            files_rewritten=self.report.files_rewritten + sum(file is not None for file in replaced.values()),
            files_removed=self.report.files_removed + sum(file is None for file in replaced.values()),
            snapshots_expired=self.report.snapshots_expired + len(change.expired),
        )

    def _landed(self, version: Version, change: Change) -> bool:
        """Sends the commit. While nobody knows what became of it, the identical request again, as long as the
        head it was made for stands."""
        while True:
            (result,) = self.tools.catalog.commit_all([change.request], timeout_s=COMMIT_TIMEOUT_S)
            if result.status is CommitStatus.COMMITTED:
                return True
            if result.status in (CommitStatus.INVALID, CommitStatus.NOT_FOUND, CommitStatus.DELETED):
                raise RefusedError(
                    f"the catalog refuses the erasure in {version.state.name}: "
                    f"{result.message or result.status.value}"
                )
            if result.status is not CommitStatus.UNKNOWN:
                return False
            self.run.check()
            threading.Event().wait(BACKOFF_S)
            now = load_version(self.tools.catalog, self.manifests, self.wanted.table)
            if now is None:
                return False
            if (
                now.has_snapshot(change.snapshot_id)
                if change.snapshot_id is not None
                else not any(map(now.has_snapshot, change.expired))
            ):
                return True
            if now.state.head != version.state.head:
                return False

    def _written(self, version: Version, uri: str, rows: list[int]) -> DataFile | None:
        """What is left of a file (2); None: nothing. Written once, however many attempts the commit takes."""
        if uri not in self.written:
            file = version.data[uri].file
            (path,) = self.tools.local_paths([uri], version.state.place)
            hidden = self._hidden(version, uri)
            gone = sorted({*rows, *hidden})
            hour = file.hour
            assert hour is not None
            left = None if len(gone) == file.rows else data_file_uri(version.state.location, hour)
            self.written[uri] = (
                None if left is None else write_without(self.tools.storage, path, left, hour, gone)
            )
        return self.written[uri]

    def _hidden(self, version: Version, uri: str) -> set[int]:
        """Rows that position deletes took away before: they must not come back in the new file (Iceberg spec,
        "Position Delete Files")."""
        hidden: set[int] = set()
        for path in self.tools.local_paths([file.uri for file in version.deletes], version.state.place):
            table: Any = pq.read_table(path, columns=["file_path", "pos"])
            pairs = zip(table.column("file_path").to_pylist(), table.column("pos").to_pylist(), strict=True)
            hidden |= {int(at) for name, at in pairs if canonical(name) == canonical(uri)}
        return hidden


def queue_unreached(tools: Tools, table: TableId, noted: Sequence[str]) -> list[str]:
    """Queues those of the noted files that no snapshot reaches now for deletion after the grace; gives them
    back.

    Beside a catalog without a queue they are left to the orphan remover.
    """
    manifests = Manifests(tools.storage)
    version = load_version(tools.catalog, manifests, table)
    if version is None:
        return []  # the purge takes all there is
    reached = reached_files(manifests, version)
    gone = [uri for uri in dict.fromkeys(noted) if uri not in reached and version.state.place.holds(uri)]
    not_before_ms = epoch_ms(tools.clock.now()) + int(tools.grace_s * 1000)
    record = {"table": str(version.state.name), "table-uuid": version.state.uuid, "why": "erasure"}
    for at in range(0, len(gone), QUEUED_AT_ONCE):
        files = [UnreachedFile(uri, not_before_ms, record) for uri in gone[at : at + QUEUED_AT_ONCE]]
        with suppress(NotFoundError):
            ExtrasClient(tools.catalog).queue_deletions(files)
    return gone
