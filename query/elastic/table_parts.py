"""What one table adds to an answer over several: rows, how many match, figures, and what they rest on."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from lake.catalog_client import CatalogClient
from lake.log_schema import TIMESTAMP
from lake.tenant import TableId
from query.elastic.evaluation import Wanted
from query.elastic.hits import Found
from query.elastic.index_names import index_name
from query.elastic.search_body import SearchBody
from query.elastic.sorting import after_place
from query.elastic.translation import Question, search_of
from query.facets.file_counts import FileCounts
from query.facets.histogram import histogram
from query.model.cancellation import Run
from query.model.point_in_time import PointInTime
from query.model.problem import BadRequestError
from query.model.table_view import load_view
from query.search.search import Page, Progress, Searcher, SearchRequest, SearchStats
from query.stats.stats import StatsAnswer, StatsRequest, stats


@dataclass(frozen=True, slots=True)
class Part:
    """What a table gave. `total` None: nobody wanted to know; `stopped`: why the engine ended early;
    `uncounted`: why there may be more rows than `total`."""

    search: SearchRequest
    found: Found
    total: int | None
    basis: SearchStats | None
    stopped: str | None
    read_bytes: int = 0
    uncounted: str | None = None

    @property
    def pin(self) -> PointInTime | None:
        """What re-opens the rows it was made of."""
        return None if self.basis is None else self.basis.pin


@dataclass(frozen=True, slots=True)
class TableAsker:
    """Asks tables with one caller's key. `told` is given each search before it runs, but for those of
    aggregations, which are about some of its rows."""

    catalog: CatalogClient
    searcher: Searcher
    counts: FileCounts
    check: Callable[[TableId], None]
    told: Callable[[SearchRequest], None]

    def search(
        self, table: TableId, question: Question, run: Run, pin: PointInTime | None = None
    ) -> SearchRequest:
        """The search of a table that a question means. Raises ElasticError, BadRequestError, ForbiddenError,
        NotFoundError."""
        self.check(table)
        run.check()
        return search_of(question, table, load_view(self.catalog, table, pin).schema, pin)

    def page(
        self,
        table: TableId,
        question: Question,
        body: SearchBody,
        run: Run,
        pin: PointInTime | None = None,
        *,
        is_counted: bool = True,
    ) -> Part:
        """Rows and how many there are. Raises as `search` does."""
        search, progress = self.search(table, question, run, pin), Progress()
        self.told(search)
        page = self._rows(search, body, run, progress) if body.rows else None
        rows = [] if page is None else page.rows
        is_short = page is not None and page.next is not None and len(rows) < body.rows
        is_cut = bool(rows) and (is_short or progress.stopped is not None)
        found = Found(index_name(table), list(rows), rows[-1][TIMESTAMP] if is_cut else None)
        basis, stopped = None if page is None else page.basis, progress.stopped
        if not is_counted or body.total_max == 0:
            return Part(search, found, None, basis, stopped, run.read_bytes)
        if page is not None and body.after is None and page.next is None and stopped is None:
            return Part(search, found, len(rows), basis, None, run.read_bytes)
        try:
            total, counted, why = self._count(search, run)
        except BadRequestError as error:  # more than may be read: the rows are an answer nevertheless
            if page is None:
                raise
            total, counted, why = 0, None, error.problem.message
        return Part(search, found, max(total, len(rows)), basis or counted, stopped, run.read_bytes, why)

    def _rows(self, search: SearchRequest, body: SearchBody, run: Run, progress: Progress) -> Page | None:
        newest_first, cursor = body.sort.newest_first, None
        after: SearchRequest | None = search
        if body.after is not None:
            after, cursor = after_place(
                search, body.after, index_name(search.table), newest_first=newest_first
            )
        if after is None:
            return None
        return self.searcher.page(
            after, run, limit=body.rows, after=cursor, newest_first=newest_first, progress=progress
        )

    def count(self, table: TableId, question: Question, run: Run, pin: PointInTime | None = None) -> Part:
        """How many rows match. Raises as `search` does."""
        search = self.search(table, question, run, pin)
        self.told(search)
        total, basis, stopped = self._count(search, run)
        return Part(search, Found(index_name(table), []), total, basis, stopped, run.read_bytes)

    def _count(self, search: SearchRequest, run: Run) -> tuple[int, SearchStats, str | None]:
        progress = Progress()
        found = histogram(self.searcher, self.counts, search, run, progress=progress)
        return found.rows, found.basis, progress.stopped

    def pin(self, table: TableId, run: Run) -> PointInTime:
        """What re-opens the rows that a table has now. Raises ForbiddenError, NotFoundError."""
        self.check(table)
        run.check()
        return load_view(self.catalog, table).pin()

    def figures(
        self,
        table: TableId,
        question: Question,
        wanted: Wanted,
        run: Run,
        pin: PointInTime | None = None,
    ) -> tuple[StatsAnswer, Part]:
        """The figures of one statement. Raises as `search` does."""
        search, progress = self.search(table, question, run, pin), Progress()
        asked = StatsRequest(search, wanted.groups, wanted.measures, wanted.order, wanted.groups_max)
        answer = stats(self.searcher, asked, run, progress)
        found = Found(index_name(table), [])
        return answer, Part(search, found, None, answer.basis, progress.stopped, run.read_bytes)


def said_of(parts: Mapping[str, list[Part]], missed: list[str]) -> dict[str, Any]:
    """What an answer rests on, in the words of the search API; `missed`: why tables were not asked."""
    reasons, notes, warnings = list(missed), list[str](), list[str]()
    complete = as_usual = not missed
    for index, found in parts.items():
        for part in found:
            if part.basis is None:
                continue
            state = part.basis.completeness
            complete, as_usual = complete and state.complete, as_usual and state.as_usual
            prefix = f"{index}: " if len(parts) > 1 else ""
            if part.uncounted is not None:
                notes.append(f"{prefix}the total is not exact: {part.uncounted}")
            reasons += [f"{prefix}{reason}" for reason in state.reasons]
            notes += [f"{prefix}{note}" for note in state.notes]
            warnings += [f"{prefix}{problem.message}" for problem in part.basis.warnings]
    return {
        "complete": complete,
        "as_usual": as_usual,
        "reasons": list(dict.fromkeys(reasons)),
        "notes": list(dict.fromkeys(notes)),
        "warnings": list(dict.fromkeys(warnings)),
    }
