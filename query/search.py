"""A search from its question to its answer. The order of every search:

1. read the table's metadata once: schema, marks, snapshot
2. read the words into a tree, and the tree into a condition on that schema
3. plan: which files can hold a matching row
4. run the condition on the chosen engine, slice by slice from the wanted end, until the page is full or the time is over
5. say what the answer rests on: marks, files and bytes, whether it is complete, how fresh it is
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Literal, TypeVar

from sqlglot import exp

from lake.catalog_client import CatalogClient
from lake.clock import Clock
from lake.errors import NotFoundError
from lake.log_schema import INDEX, OFFSET, SEVERITY, TIMESTAMP, TOPIC_ID, TOPIC_PARTITION
from lake.settings import QuerySettings
from lake.tenant import TableId
from query.cancellation import Run, TimeOverError
from query.completeness import Completeness, Freshness, assess
from query.executors.executor import Executor, Fetched, Source, from_source
from query.file_index import FileIndex, LiveFile, LiveFiles
from query.file_planner import Effort, Plan, effort_of, plan_files, slices
from query.histogram import BUCKETS_MAX, Bucket, bucket_width_s, counted_from_files, fits_one_bucket, to_buckets
from query.instant import timestamp_literal
from query.lag import LagSource
from query.pin import Pin
from query.problem import Problem, refuse
from query.results import ORDER, Cursor, cursor_of
from query.search_language import Node, parse_search
from query.search_sql import all_of, any_of, below_marks, column, compile_search, text_literal
from query.table_view import EPOCH, TableView, load_view

Engine = Literal["auto", "trino", "duckdb"]
Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Question:
    """What is searched: half-open time range, words, and optionally the rows a link was made of."""

    table: TableId
    start: datetime
    end: datetime
    query: str = ""
    pin: Pin | None = None
    engine: Engine = "auto"


@dataclass(frozen=True, slots=True)
class Basis:
    """What an answer rests on."""

    view: TableView
    pin: Pin
    planned: Effort
    skipped: Effort
    scanned: Effort
    engine: str
    completeness: Completeness
    freshness: Freshness
    warnings: tuple[Problem, ...]


@dataclass(frozen=True, slots=True)
class Page:
    """Rows in the wanted order; `next` None: there are no more."""

    rows: list[dict[str, Any]]
    next: Cursor | None
    basis: Basis


@dataclass(frozen=True, slots=True)
class Histogram:
    """Buckets of `width_s` seconds; empty ones are left out. `rows` is their sum: the number of matching rows."""

    buckets: list[Bucket]
    width_s: int
    rows: int
    from_metadata_rows: int
    basis: Basis


@dataclass(frozen=True, slots=True)
class Prepared:
    """Steps 1 to 3, done."""

    question: Question
    view: TableView
    live: LiveFiles
    node: Node
    condition: exp.Expression | None
    warnings: tuple[Problem, ...]
    plan: Plan
    executor: Executor

    def condition_in(self, start: datetime, end: datetime, *more: exp.Expression | None) -> exp.Expression | None:
        """The condition on rows of `[start, end)`, copied, because sqlglot's trees have one parent."""
        every = all_of([_within(start, end), *more, self.condition])
        return every.copy() if every is not None else None


@dataclass(slots=True)
class Progress:
    """How far step 4 came."""

    scanned: Effort = field(default_factory=Effort)
    stopped: str | None = None

    def add(self, files: Effort, fetched: Fetched) -> None:
        read = files.size_bytes if fetched.scanned_bytes is None else fetched.scanned_bytes
        self.scanned += replace(files, size_bytes=read)


class Searcher:
    """Answers searches. Thread-safe; one per process."""

    def __init__(self, catalog: CatalogClient, index: FileIndex, executors: Sequence[Executor], settings: QuerySettings, lag: LagSource, clock: Clock) -> None:
        self.catalog = catalog
        self.index = index
        self.settings = settings
        self._executors = {executor.name: executor for executor in executors}
        self._lag = lag
        self._clock = clock

    def page(self, question: Question, run: Run, *, limit: int, after: Cursor | None = None, newest_first: bool = True) -> Page:
        """One page of matching rows. Raises BadQuestionError, NotFoundError, UnavailableError."""
        if after is not None:
            question = _from_cursor(question, after, newest_first=newest_first)
        return self._retried(lambda: self._page(self.prepare(question), run, limit, after, newest_first=newest_first))

    def _page(self, prepared: Prepared, run: Run, limit: int, after: Cursor | None, *, newest_first: bool) -> Page:
        names = [c.name for c in prepared.view.schema.columns]
        rows: list[dict[str, Any]] = []
        progress = Progress()
        beyond = None if after is None else _beyond(after, newest_first=newest_first)
        for piece in slices(prepared.plan, newest_first=newest_first):
            condition = prepared.condition_in(piece.start, piece.end, beyond)
            select = select_rows(names, condition, limit + 1 - len(rows), newest_first=newest_first)
            fetched = self._fetch(prepared, piece.files, select, run, progress)
            if fetched is None:
                break
            rows += [dict(zip(names, values, strict=True)) for values in fetched.rows]
            if len(rows) > limit:
                break
        following = cursor_of(rows[limit - 1]) if len(rows) > limit else None
        return Page(rows[:limit], following, self.basis(prepared, progress))

    def histogram(self, question: Question, run: Run, *, width_s: int | None = None, by_level: bool = False) -> Histogram:
        """Counts over time. Files whose rows all count for one bucket are counted from the manifests where nothing else is asked."""
        width = _checked_width(question, width_s)
        return self._retried(lambda: self._histogram(self.prepare(question), run, width, by_level=by_level))

    def _histogram(self, prepared: Prepared, run: Run, width_s: int, *, by_level: bool) -> Histogram:
        question, plan = prepared.question, prepared.plan
        countable = prepared.condition is None and not by_level and not plan.has_deletes
        known = tuple(f for f in plan.files if countable and fits_one_bucket(f, question.start, question.end, width_s))
        known_uris = {file.uri for file in known}
        rest = tuple(file for file in plan.files if file.uri not in known_uris)
        if rest and not prepared.executor.reads_files:
            known, rest = (), plan.files
        counts = counted_from_files(known, width_s)
        progress = Progress()
        if rest:
            select = _select_counts(prepared.condition_in(plan.start, plan.end), width_s, by_level=by_level)
            fetched = self._fetch(prepared, rest, select, run, progress)
            counts += [(int(at), severity, int(rows)) for at, severity, rows in (fetched.rows if fetched else ())]
        buckets = to_buckets(counts, width_s, by_level=by_level)
        rows = sum(bucket.rows for bucket in buckets)
        basis = self.basis(prepared, progress, counted_rows=rows)
        return Histogram(buckets, width_s, rows, sum(file.rows for file in known), basis)

    def row(self, table: TableId, coordinates: Cursor, run: Run) -> dict[str, Any] | None:
        """The row with these coordinates; its `timestamp_us` finds the file. None where there is no such row."""
        at = EPOCH + timedelta(microseconds=coordinates.timestamp_us)
        question = Question(table, at, at + timedelta(microseconds=1))

        def find() -> dict[str, Any] | None:
            prepared = self.prepare(question)
            names = [c.name for c in prepared.view.schema.columns]
            condition = prepared.condition_in(question.start, question.end, _is_row(coordinates))
            fetched = prepared.executor.fetch(Source(prepared.view, prepared.plan.files), select_rows(names, condition, 1, newest_first=True), run)
            return dict(zip(names, fetched.rows[0], strict=True)) if fetched.rows else None

        return self._retried(find)

    def prepare(self, question: Question) -> Prepared:
        """Steps 1 to 3. Raises BadQuestionError, NotFoundError."""
        if question.end <= question.start:
            raise refuse("the time range is empty: its end must lie after its start", suggestion="swap the two, or choose a longer range")
        node = parse_search(question.query)
        view = load_view(self.catalog, question.table)
        compiled = compile_search(node, view.schema)
        pinned = below_marks(question.pin.marks) if question.pin is not None else None
        live = self.index.files(view)
        plan = plan_files(live, question.start, question.end, node, view.schema)
        if plan.planned.size_bytes > self.settings.scan_bytes_max:
            raise refuse(
                f"this search would open {plan.planned.size_bytes:,} bytes of data, at most {self.settings.scan_bytes_max:,} are allowed",
                suggestion="choose a shorter time range",
            )
        condition = all_of([compiled.condition, pinned])
        return Prepared(question, view, live, node, condition, compiled.warnings, plan, self._choose(question.engine, plan))

    def _choose(self, engine: Engine, plan: Plan) -> Executor:
        if engine == "duckdb" and plan.has_deletes:
            raise refuse("this table has delete files, which only Trino applies; ask with engine=trino or leave the engine out")
        if engine == "auto":
            fits = plan.planned.size_bytes <= self.settings.embedded_bytes_max and not plan.has_deletes
            engine = "duckdb" if fits and "duckdb" in self._executors else "trino"
        if engine not in self._executors:
            raise refuse(f"this server has no engine {engine!r}; it has {', '.join(self._executors)}")
        return self._executors[engine]

    def _fetch(self, prepared: Prepared, files: Sequence[LiveFile], select: exp.Select, run: Run, progress: Progress) -> Fetched | None:
        """Step 4 for one slice; None when the time is over: what was found so far is the answer."""
        try:
            run.check()
            fetched = prepared.executor.fetch(Source(prepared.view, files), select, run)
        except TimeOverError as error:
            progress.stopped = str(error)
            return None
        progress.add(effort_of(files), fetched)
        return fetched

    def basis(self, prepared: Prepared, progress: Progress, *, counted_rows: int | None = None) -> Basis:
        """Step 5."""
        question, view = prepared.question, prepared.view
        freshness = Freshness(prepared.live.newest, prepared.live.oldest, view.committed_at, self._lag.of(view.id))
        pin = question.pin or Pin(view.uuid, view.marks, counted_rows)
        completeness = assess(question.end, self._clock.now(), freshness, stopped=progress.stopped, view=view, pin=question.pin, rows=counted_rows)
        return Basis(
            view, pin, prepared.plan.planned, prepared.plan.skipped, progress.scanned, prepared.executor.name, completeness, freshness, prepared.warnings
        )

    def _retried(self, ask: Callable[[], Answer]) -> Answer:
        """Files and snapshots may go between planning and reading: then everything is read again, once."""
        try:
            return ask()
        except NotFoundError:
            return ask()


def _within(start: datetime, end: datetime) -> exp.Expression:
    at = column(TIMESTAMP)
    return exp.and_(exp.GTE(this=at, expression=timestamp_literal(start)), exp.LT(this=at.copy(), expression=timestamp_literal(end)))


def select_rows(names: Sequence[str], condition: exp.Expression | None, limit: int | None, *, newest_first: bool) -> exp.Select:
    """Whole rows in the order of pages; `limit` None: all."""
    select = exp.select(*(column(name) for name in names)).from_(from_source())
    order = [exp.Ordered(this=column(name), desc=newest_first, nulls_first=False) for name in ORDER]
    ordered = (select.where(condition) if condition is not None else select).order_by(*order)
    return ordered if limit is None else ordered.limit(limit)


def _select_counts(condition: exp.Expression | None, width_s: int, *, by_level: bool) -> exp.Select:
    seconds = exp.TimeToUnix(this=column(TIMESTAMP))
    bucket = exp.cast(exp.Floor(this=exp.Div(this=seconds, expression=exp.Literal.number(f"{width_s}.0"), typed=True)), exp.DataType.Type.BIGINT)
    severity: exp.Expression = column(SEVERITY) if by_level else exp.cast(exp.null(), exp.DataType.Type.VARCHAR)
    select = exp.select(bucket, severity, exp.Count(this=exp.Star())).from_(from_source())
    return (select.where(condition) if condition is not None else select).group_by(exp.Literal.number(1), exp.Literal.number(2))


def _is_row(at: Cursor) -> exp.Expression:
    values = {TOPIC_ID: text_literal(at.topic_id), TOPIC_PARTITION: _number(at.partition), OFFSET: _number(at.offset), INDEX: _number(at.index)}
    return exp.and_(*(exp.EQ(this=column(name), expression=value) for name, value in values.items()))


def _beyond(at: Cursor, *, newest_first: bool) -> exp.Expression:
    """Rows after the cursor: a comparison of tuples, spelled out because engines push it down better so."""
    values = (timestamp_literal(EPOCH + timedelta(microseconds=at.timestamp_us)), text_literal(at.topic_id), *map(_number, (at.partition, at.offset, at.index)))
    compare = exp.LT if newest_first else exp.GT
    alternatives = []
    for depth in range(len(ORDER)):
        same = [exp.EQ(this=column(name), expression=value.copy()) for name, value in zip(ORDER[:depth], values, strict=False)]
        alternatives.append(exp.and_(*same, compare(this=column(ORDER[depth]), expression=values[depth].copy())))
    return any_of(alternatives)


def _number(value: int) -> exp.Expression:
    return exp.Literal.number(value) if value >= 0 else exp.Neg(this=exp.Literal.number(-value))


def _from_cursor(question: Question, after: Cursor, *, newest_first: bool) -> Question:
    """The rest of the range: pages already shown need not be read again."""
    try:
        at = EPOCH + timedelta(microseconds=after.timestamp_us)
    except OverflowError:
        raise refuse("cursor: its time is out of range; take the cursor from the answer before") from None
    if newest_first:
        return replace(question, end=max(min(question.end, at + timedelta(microseconds=1)), question.start + timedelta(microseconds=1)))
    return replace(question, start=min(max(question.start, at), question.end - timedelta(microseconds=1)))


def _checked_width(question: Question, width_s: int | None) -> int:
    width = width_s or bucket_width_s(question.start, question.end)
    if (question.end - question.start).total_seconds() / width > BUCKETS_MAX:
        raise refuse(f"buckets of {width} s would be more than {BUCKETS_MAX:,}; choose wider ones or a shorter range")
    return width
