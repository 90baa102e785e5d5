"""The rows of an export: a pinned search, read stretch by stretch."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from typing import Any

from lake.errors import FatalError, NotFoundError
from lake.log_schema import LogSchema
from query.export.export import ROWS_AT_ONCE, Job
from query.export.export_formats import Format
from query.model.cancellation import Run
from query.model.instant import rfc3339
from query.model.point_in_time import parse_point_in_time
from query.model.search_usage import SearchUsage, Used
from query.model.table_view import table_id
from query.search.file_planner import slices
from query.search.search import Prepared, Searcher, SearchRequest, select_rows

STRETCH_TIMEOUT_S = 3_600.0


class ConflictingColumnsError(FatalError):
    """The table's columns are not those that the job was made with."""


class SearchRows:
    """Gives the rows of a job. Raises NotFoundError where the table was made anew since."""

    def __init__(self, searcher: Searcher, job: Job, usage: SearchUsage | None = None) -> None:
        """`usage`: where each stretch counts as a search of the tenant; without it none does."""
        self._searcher = searcher
        self._usage = usage
        self._job = job
        pin = parse_point_in_time(job.pin)
        start, end = datetime.fromisoformat(job.start), datetime.fromisoformat(job.end)
        self._search_request = SearchRequest(table_id(job.tenant, job.stream), start, end, job.query, pin)
        prepared = searcher.prepare(self._search_request)
        if prepared.view.uuid != pin.table_uuid:
            raise NotFoundError("the table was dropped and made anew since this export was asked for")
        self.schema: LogSchema = prepared.view.schema

    def rows(self, start: str, end: str) -> Iterator[list[tuple[Any, ...]]]:
        """The rows of a stretch, oldest first, in batches."""
        search_request = replace(
            self._search_request, start=datetime.fromisoformat(start), end=datetime.fromisoformat(end)
        )
        prepared = self._searcher.prepare(search_request)
        view = prepared.view
        self._check_columns(prepared)
        condition = prepared.condition_in(search_request.start, search_request.end)
        select = select_rows(self._job.columns, condition, None, newest_first=False)
        source = prepared.source(prepared.plan.files)
        current = Run(STRETCH_TIMEOUT_S)
        try:
            yield from prepared.executor.stream(source, select, current, rows_at_once=ROWS_AT_ONCE)
        finally:
            if self._usage is not None:
                used = Used(1, current.worked_s, prepared.plan.planned.size_bytes)
                self._usage.add(view.name.namespace, view.id.stream, used)

    def _check_columns(self, prepared: Prepared) -> None:
        """All parts have the same columns, by their ids."""
        now = {name: column.id for name, column in prepared.view.schema.by_name.items()}
        changed = [
            name
            for name, column_id in zip(self._job.columns, self._job.column_ids, strict=True)
            if now.get(name) != column_id
        ]
        if changed:
            raise ConflictingColumnsError(
                f"the column {changed[0]!r} is another one since a type was declared for it: make the export "
                "again"
            )


def new_job(
    prepared: Prepared,
    written_as: Format,
    part_rows: int,
    *,
    made_by: str = "",
    spreadsheet_safe: bool = False,
) -> Job:
    """A job for a prepared search: its rows fixed by a pin, its time cut into stretches of about `part_rows`
    rows."""
    search_request, view = prepared.search_request, prepared.view
    pin = search_request.pin or view.pin()
    cut = slices(prepared.plan, newest_first=False, first_rows=part_rows, growth=1)
    return Job(
        id="",
        tenant=search_request.table.tenant.name,
        stream=search_request.table.stream,
        query=search_request.query,
        start=rfc3339(search_request.start),
        end=rfc3339(search_request.end),
        pin=pin.to_text(),
        format=written_as,
        created="",
        made_by=made_by,
        spreadsheet_safe=spreadsheet_safe,
        columns=tuple(each.name for each in view.schema.columns),
        column_ids=tuple(each.id for each in view.schema.columns),
        stretches=tuple((rfc3339(piece.start), rfc3339(piece.end)) for piece in cut),
    )
