"""A search from its question to its answer. The order of every search:

1. read the table's metadata once: schema, marks, snapshot
2. read the words into a tree, and the tree into a condition on that schema
3. plan: which files can hold a matching row
4. run the condition on the chosen engine, slice by slice from the wanted end, until the page is full or the
  time is over
5. say what the answer rests on: marks, files and bytes, whether it is complete, how fresh it is
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Literal, TypeVar

from sqlglot import exp

from lake.clock import Clock
from lake.errors import NotFoundError
from lake.log_schema import INDEX, OFFSET, TOPIC_ID, TOPIC_PARTITION
from lake.settings import QuerySettings
from lake.tenant import TableId
from lake.token_filter.minute_counts import MinuteCounts
from query.executors.executor import Executor, Fetched, Source, from_source
from query.files.file_index import FileIndex, LiveFile, LiveFiles
from query.files.token_filters import NO_FILTERS, FilteredTable, FilterEffort, Narrowed, TokenFilters
from query.language.search_language import Node, parse_search
from query.language.search_sql import (
    all_of,
    any_of,
    column,
    compile_search,
    text_literal,
    within,
    within_offsets,
)
from query.model.answer_size import row_bytes
from query.model.cancellation import Run, TimeOverError
from query.model.instant import timestamp_literal
from query.model.point_in_time import PointInTime, fingerprint
from query.model.problem import Problem, refuse
from query.model.table_view import EPOCH, TableSource, TableView, load_view
from query.search.completeness import Completeness, Freshness, assess
from query.search.file_planner import Effort, Plan, effort_of, lies_inside, plan_files, slices
from query.search.lag import Lag, LagSource
from query.search.results import ORDER, Cursor, cursor_of
from query.search.token_demands import demand_of, words_of

Engine = Literal["auto", "trino", "duckdb"]
Answer = TypeVar("Answer")
STREAM_SLICE_ROWS = 250_000
STREAM_BATCH_ROWS = 2_000


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """What is searched: half-open time range, words, and optionally the rows a link was made of."""

    table: TableId
    start: datetime
    end: datetime
    query: str = ""
    pin: PointInTime | None = None
    engine: Engine = "auto"


@dataclass(frozen=True, slots=True)
class SearchStats:
    """What an answer rests on."""

    view: TableView
    pin: PointInTime
    planned: Effort
    skipped: Effort
    scanned: Effort
    engine: str
    completeness: Completeness
    freshness: Freshness
    warnings: tuple[Problem, ...]
    filters: FilterEffort = NO_FILTERS


@dataclass(frozen=True, slots=True)
class Page:
    """Rows in the wanted order; `next` None: there are no more."""

    rows: list[dict[str, Any]]
    next: Cursor | None
    basis: SearchStats


@dataclass(frozen=True, slots=True)
class Prepared:
    """Steps 1 to 3, done."""

    search_request: SearchRequest
    view: TableView
    live: LiveFiles
    node: Node
    condition: exp.Expression | None
    warnings: tuple[Problem, ...]
    plan: Plan
    executor: Executor
    lag: Lag | None
    index: FileIndex

    def source(self, files: Sequence[LiveFile]) -> Source:
        """The rows of some of the planned files that are alive."""
        dead_rows = None
        if self.live.has_deletes:
            dead_rows = partial(self.index.dead_rows, self.live, files, self.view.table_location)
        groups = self.plan.groups and {
            file.uri: self.plan.groups[file.uri] for file in files if file.uri in self.plan.groups
        }
        is_narrow = self.plan.filters.files_left < self.plan.filters.files
        return Source(self.view, files, dead_rows, groups, is_narrow)

    def condition_in(
        self,
        start: datetime,
        end: datetime,
        *more: exp.Expression | None,
        files: Sequence[LiveFile] | None = None,
    ) -> exp.Expression | None:
        """The condition on rows of `[start, end)`, copied, because sqlglot's trees have one parent. `files`:
        what is read, if that can be told to the engine; then times are compared where some lie outside."""
        is_told = files is not None and self.executor.reads_files
        inside = is_told and all(lies_inside(file, start, end) for file in files or ())
        every = all_of([None if inside else within(start, end), *more, self.condition])
        return every.copy() if every is not None else None


@dataclass(slots=True)
class Progress:
    """How far step 4 came. Others may look on: `planned` is None before step 3 is done, and `on_rows` gets
    the rows of a page as they are found, with the place of the first of them on the page."""

    scanned: Effort = field(default_factory=Effort)
    stopped: str | None = None
    filters: FilterEffort = NO_FILTERS  # asked since step 3
    planned: Effort | None = None
    on_rows: Callable[[int, list[dict[str, Any]]], None] | None = None
    _place: tuple[Effort, Effort] = (Effort(), Effort())  # what is done, and what the engine reads now

    def begin(self, prepared: "Prepared") -> None:
        """Starts step 4, once more where files went while it ran."""
        self.scanned, self.stopped, self._place = Effort(), None, (Effort(), Effort())
        self.filters = NO_FILTERS
        self.planned = prepared.plan.planned

    def reading(self, files: Effort) -> None:
        self._place = self._place[0], files

    def passed(self, files: Effort) -> None:
        """These need not be read (any more)."""
        self._place = self._place[0] + files, Effort()

    def add(self, files: Effort, fetched: Fetched, run: Run) -> None:
        read = files.size_bytes if fetched.scanned_bytes is None else fetched.scanned_bytes
        self.scanned += replace(files, size_bytes=read)
        run.read_bytes += read
        self.passed(files)

    def now(self, run: Run) -> Effort:
        """What is done of the planned files, up to the moment. From any thread."""
        done, reading = self._place
        share = run.share_done
        return done + Effort(
            *(int(share * each) for each in (reading.files, reading.rows, reading.size_bytes))
        )


class Searcher:
    """Answers searches. Thread-safe; one per process."""

    def __init__(
        self,
        catalog: TableSource,
        index: FileIndex,
        executors: Sequence[Executor],
        settings: QuerySettings,
        lag: LagSource,
        clock: Clock,
        filters: TokenFilters | None = None,
    ) -> None:
        self.catalog = catalog
        self.index = index
        self.settings = settings
        self._executors = {executor.name: executor for executor in executors}
        self._lag = lag
        self._clock = clock
        self._filters = filters

    def page(
        self,
        search_request: SearchRequest,
        run: Run,
        *,
        limit: int,
        after: Cursor | None = None,
        newest_first: bool = True,
        progress: Progress | None = None,
    ) -> Page:
        """One page of matching rows; who looks on gives the `progress`. Raises BadRequestError,
        NotFoundError, UnavailableError."""
        progress = progress or Progress()
        if after is not None:
            search_request = _from_cursor(search_request, after, newest_first=newest_first)
        return self.retried(
            lambda: self._page(
                self.prepare(search_request), run, limit, after, newest_first=newest_first, progress=progress
            )
        )

    def _page(
        self,
        prepared: Prepared,
        run: Run,
        limit: int,
        after: Cursor | None,
        *,
        newest_first: bool,
        progress: Progress,
    ) -> Page:
        progress.begin(prepared)
        names = [c.name for c in prepared.view.schema.columns]
        rows: list[dict[str, Any]] = []
        beyond = None if after is None else _beyond(after, newest_first=newest_first)
        left_bytes, fetched = self.settings.search.page_bytes_max, None
        for piece in slices(prepared.plan, newest_first=newest_first):
            condition = prepared.condition_in(piece.start, piece.end, beyond, files=piece.files)
            select = select_rows(names, condition, limit + 1 - len(rows), newest_first=newest_first)
            fetched = self.fetch(prepared, piece.files, select, run, progress, bytes_max=left_bytes)
            if fetched is None:
                break
            found = len(rows)
            rows += [dict(zip(names, values, strict=True)) for values in fetched.rows]
            if progress.on_rows is not None and rows[found:limit]:
                progress.on_rows(found, rows[found:limit])
            if fetched.cut:  # so large that the page ends here, whatever its limit
                limit = min(limit, len(rows))
            if fetched.cut or len(rows) > limit:
                break
            left_bytes = max(1, left_bytes - sum(map(row_bytes, fetched.rows)))
        following = (
            cursor_of(rows[limit - 1]) if len(rows) > limit or (fetched is not None and fetched.cut) else None
        )
        whole = len(rows) if after is None and following is None and progress.stopped is None else None
        return Page(rows[:limit], following, self.basis(prepared, progress, counted_rows=whole))

    def stream(
        self, search_request: SearchRequest, run: Run, *, newest_first: bool = True
    ) -> Iterator[list[dict[str, Any]] | SearchStats]:
        """All matching rows in the wanted order, in batches, holding one at a time; at the end what they rest
        on. Raises as `page` does."""
        prepared, progress = self.prepare(search_request), Progress()
        names = [c.name for c in prepared.view.schema.columns]
        for piece in slices(prepared.plan, newest_first=newest_first, first_rows=STREAM_SLICE_ROWS, growth=1):
            select = select_rows(
                names, prepared.condition_in(piece.start, piece.end), None, newest_first=newest_first
            )
            try:
                for batch in prepared.executor.stream(
                    prepared.source(piece.files), select, run, rows_at_once=STREAM_BATCH_ROWS
                ):
                    yield [dict(zip(names, values, strict=True)) for values in batch]
            except TimeOverError as error:
                progress.stopped = str(error)
                break
            progress.add(prepared.plan.effort_of(piece.files), Fetched([], None), run)
        yield self.basis(prepared, progress)

    def row(self, table: TableId, coordinates: Cursor, run: Run) -> dict[str, Any] | None:
        """The row with these coordinates; its `timestamp_us` finds the file. None where there is no such
        row."""
        at = EPOCH + timedelta(microseconds=coordinates.timestamp_us)
        search_request = SearchRequest(table, at, at + timedelta(microseconds=1))

        def find() -> dict[str, Any] | None:
            prepared = self.prepare(search_request)
            names = [c.name for c in prepared.view.schema.columns]
            condition = prepared.condition_in(search_request.start, search_request.end, _is_row(coordinates))
            fetched = prepared.executor.fetch(
                prepared.source(prepared.plan.files),
                select_rows(names, condition, 1, newest_first=True),
                run,
            )
            run.read_bytes += prepared.plan.planned.size_bytes
            return dict(zip(names, fetched.rows[0], strict=True)) if fetched.rows else None

        return self.retried(find)

    def prepare(self, search_request: SearchRequest) -> Prepared:
        """Steps 1 to 3. Raises BadRequestError, NotFoundError."""
        if search_request.end <= search_request.start:
            raise refuse(
                "the time range is empty: its end must lie after its start",
                suggestion="swap the two, or choose a longer range",
            )
        node = parse_search(search_request.query)
        # Asked before the table is loaded: a commit between the two must not make an answer look complete
        # that does not hold its rows.
        lag = self._lag.of(search_request.table)
        pin = search_request.pin
        view = load_view(self.catalog, search_request.table, pin)
        compiled = compile_search(node, view.schema)
        is_cut = pin is not None and pin.snapshot_id is None and not pin.is_all_of(view.uuid, view.committed)
        pinned = within_offsets(pin.committed) if pin is not None and is_cut else None
        live = self.index.files(view)
        words = words_of(node, view.schema) if self._filters is not None else {}
        narrow = partial(self._narrowed, view, live, node, words=tuple(words.values()), is_first=True)
        plan = plan_files(live, search_request.start, search_request.end, node, view.schema, narrow)
        executor = self._choose(search_request.engine, plan)
        if plan.columns and executor.reads_files:
            only = dict(zip(words, plan.columns, strict=True))
            compiled = compile_search(node, view.schema, columns_of_words=only)
        condition = all_of([compiled.condition, pinned])
        return Prepared(
            search_request,
            view,
            live,
            node,
            condition,
            compiled.warnings,
            plan,
            executor,
            lag,
            self.index,
        )

    def _narrowed(
        self, view: TableView, live: LiveFiles, node: Node, files: Sequence[LiveFile], **bounds: Any
    ) -> Narrowed:
        """What token filters leave of some files."""
        demand = demand_of(node, view.schema, files) if self._filters is not None else None
        if self._filters is None or demand is None:
            return Narrowed(tuple(files))
        table = FilteredTable(view.uuid, view.table_location, live.files)
        return self._filters.narrow(table, files, demand, **bounds)

    def minute_counts(self, view: TableView, files: Sequence[LiveFile]) -> dict[str, MinuteCounts]:
        """Rows by minute and level of those files that carry them, by URI; none is opened for it."""
        return {} if self._filters is None else self._filters.counts(view.table_location, files)

    def _choose(self, engine: Engine, plan: Plan) -> Executor:
        if engine == "duckdb" and plan.only_trino:
            raise refuse(
                "this table has equality deletes, or too many deleted rows, which only Trino applies; ask "
                "with engine=trino or leave the engine out"
            )
        if engine == "auto":
            fits = plan.planned.size_bytes <= self.settings.embedded.scan_bytes_max and not plan.only_trino
            engine = "duckdb" if fits and "duckdb" in self._executors else "trino"
        if engine not in self._executors:
            raise refuse(f"this server has no engine {engine!r}; it has {', '.join(self._executors)}")
        return self._executors[engine]

    def file_reader(self, engine: Engine) -> Executor | None:
        """The executor that opens exactly the files it is given, unless the other one is asked for."""
        return (
            None
            if engine == "trino"
            else next((each for each in self._executors.values() if each.reads_files), None)
        )

    def fetch(
        self,
        prepared: Prepared,
        files: Sequence[LiveFile],
        select: exp.Select,
        run: Run,
        progress: Progress,
        *,
        bytes_max: int | None = None,
    ) -> Fetched | None:
        """Step 4 for one slice; None when a limit is reached: what was found so far is the answer. Raises
        BadRequestError where that is nothing."""
        try:
            prepared, files = self._narrowed_further(prepared, files, run, progress)
        except TimeOverError as error:
            progress.stopped = str(error)
            return None
        effort, scan_max = prepared.plan.effort_of(files), self.settings.search.scan_bytes_max
        if progress.scanned.size_bytes + effort.size_bytes > scan_max:
            too_much = f"would open {effort.size_bytes:,} bytes of data, at most {scan_max:,} are allowed"
            if not progress.scanned.files:
                raise refuse(f"this search {too_much}", suggestion="choose a shorter time range")
            progress.stopped = f"the next part {too_much} together with what was read"
            return None
        try:
            run.check()
            progress.reading(effort)
            fetched = prepared.executor.fetch(prepared.source(files), select, run, bytes_max=bytes_max)
        except TimeOverError as error:
            progress.stopped = str(error)
            return None
        progress.add(effort, fetched, run)
        return fetched

    def _narrowed_further(
        self, prepared: Prepared, files: Sequence[LiveFile], run: Run, progress: Progress
    ) -> tuple[Prepared, Sequence[LiveFile]]:
        """Some of the planned files without those whose filters were left to be read, and now say that there
        is no match."""
        unread = [file for file in files if file.uri in prepared.plan.unread]
        if not unread:
            return prepared, files
        left = self._narrowed(prepared.view, prepared.live, prepared.node, unread, check=run.check)
        progress.filters += left.effort
        passed_over = {file.uri for file in unread} - {file.uri for file in left.files}
        progress.passed(effort_of([file for file in unread if file.uri in passed_over]))
        plan = replace(
            prepared.plan,
            groups={**prepared.plan.groups, **left.groups},
            filters=prepared.plan.filters + left.effort,
        )
        return replace(prepared, plan=plan), [file for file in files if file.uri not in passed_over]

    def basis(
        self, prepared: Prepared, progress: Progress, *, counted_rows: int | None = None
    ) -> SearchStats:
        """Step 5. `counted_rows`: all rows that match, where they were counted."""
        search_request, view = prepared.search_request, prepared.view
        freshness = Freshness(prepared.live.newest, prepared.live.oldest, view.committed_at, prepared.lag)
        asked = fingerprint(search_request.query, search_request.start, search_request.end)
        pin = search_request.pin or view.pin()
        if pin.rows is None and counted_rows is not None:
            pin = replace(pin, rows=counted_rows, asked=asked)
        rows = counted_rows if pin.asked == asked else None
        completeness = assess(
            search_request.end,
            self._clock.now(),
            freshness,
            stopped=progress.stopped,
            view=view,
            pin=search_request.pin,
            rows=rows,
        )
        return SearchStats(
            view,
            pin,
            prepared.plan.planned,
            prepared.plan.skipped,
            progress.scanned,
            prepared.executor.name,
            completeness,
            freshness,
            prepared.warnings,
            prepared.plan.filters + progress.filters,
        )

    def retried(self, ask: Callable[[], Answer]) -> Answer:
        """Files and snapshots may go between planning and reading: then everything is read again, once."""
        try:
            return ask()
        except NotFoundError:
            return ask()


def select_rows(
    names: Sequence[str], condition: exp.Expression | None, limit: int | None, *, newest_first: bool
) -> exp.Select:
    """Whole rows in the order of pages; `limit` None: all."""
    select = exp.select(*(column(name) for name in names), copy=False).from_(from_source(), copy=False)
    if condition is not None:
        select = select.where(condition, copy=False)
    ordered = select.order_by(
        *(exp.Ordered(this=column(name), desc=newest_first, nulls_first=False) for name in ORDER), copy=False
    )
    return ordered if limit is None else ordered.limit(limit, copy=False)


def _is_row(at: Cursor) -> exp.Expression:
    values = {
        TOPIC_ID: text_literal(at.topic_id),
        TOPIC_PARTITION: _number(at.partition),
        OFFSET: _number(at.offset),
        INDEX: _number(at.index),
    }
    return exp.and_(*(exp.EQ(this=column(name), expression=value) for name, value in values.items()))


def _beyond(at: Cursor, *, newest_first: bool) -> exp.Expression:
    """Rows after the cursor: a comparison of tuples, spelled out because engines push it down better so."""
    values = (
        timestamp_literal(EPOCH + timedelta(microseconds=at.timestamp_us)),
        text_literal(at.topic_id),
        *map(_number, (at.partition, at.offset, at.index)),
    )
    compare = exp.LT if newest_first else exp.GT
    alternatives = []
    for depth in range(len(ORDER)):
        same = [
            exp.EQ(this=column(name), expression=value.copy())
            for name, value in zip(ORDER[:depth], values, strict=False)
        ]
        alternatives.append(
            exp.and_(*same, compare(this=column(ORDER[depth]), expression=values[depth].copy()))
        )
    return any_of(alternatives)


def _number(value: int) -> exp.Expression:
    return exp.Literal.number(value) if value >= 0 else exp.Neg(this=exp.Literal.number(-value))


def _from_cursor(search_request: SearchRequest, after: Cursor, *, newest_first: bool) -> SearchRequest:
    """The rest of the range: pages already shown need not be read again."""
    try:
        at = EPOCH + timedelta(microseconds=after.timestamp_us)
    except OverflowError:
        raise refuse("cursor: its time is out of range; take the cursor from the answer before") from None
    if newest_first:
        return replace(
            search_request,
            end=max(
                min(search_request.end, at + timedelta(microseconds=1)),
                search_request.start + timedelta(microseconds=1),
            ),
        )
    return replace(
        search_request,
        start=min(max(search_request.start, at), search_request.end - timedelta(microseconds=1)),
    )
